"""Makes an archive of the classes that Spark loads: JVMs of tests then start in half the CPU time.

Usage: python -m tests.jvm_archive. It runs a small job, and does nothing where the archive is there
already. A JVM of another version, or with another class path, passes the archive over.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
# For JVMs that live for seconds or have little to do.
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# JVMs that pass the archive over would say so between the lines of programs.
QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
QUICK_SPARK = (*QUICK_JVM, *QUIET, f"-XX:SharedArchiveFile={ARCHIVE}")
_DUMP_S = 120


def make() -> None:
    """Run a job in a JVM that writes the archive when it ends."""
    # Another run of tests may make it at the same time: whoever is last has the same.
    made = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    options = " ".join((*QUICK_JVM, "-Dspark.ui.enabled=false", *QUIET))
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -XX:ArchiveClassesAtExit={made}"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _run_a_job()
    if made.exists():
        made.replace(ARCHIVE)
    else:
        print("tests: this Java wrote no archive of Spark's classes; JVMs start without it")


def _run_a_job() -> None:
    from weir.common import Types
    from weir.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.enable_checkpointing(100)
    numbers = env.from_collection([(n % 3, n) for n in range(30)])
    numbers.key_by(lambda row: row[0], Types.LONG()).reduce(lambda a, b: b).print()
    with Path(os.devnull).open("w") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere
        try:
            env.execute("classes")
        finally:
            sys.stdout = shown
    spark = env.get_spark()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # The JVM ends when its input does.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_DUMP_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


if __name__ == "__main__" and not ARCHIVE.exists():
    make()
