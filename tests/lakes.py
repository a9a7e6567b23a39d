"""Delta Lake and Iceberg for tests: their jars by Maven, and a Spark that they were built for.

The newest jars of both are for Spark 4.1 at most (Delta Lake's also for 4.2), so tests run them
with the newest pyspark 4.1, in a folder that a program of the test has before all others on its
path. Jars and folder are fetched once, into the user's cache. What cannot be had is a skip with the
reason, and a failure where `CI` is `true`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.brokers import locked, refuse
from tests.servers import CACHE, QUICK_JVM

SPARK, DELTA, ICEBERG = "4.1.4", "4.4.0", "1.12.0"
_FETCH_S = 280
_JARS = {
    "io.delta": ("delta-spark_4.1_2.13", DELTA),
    "org.apache.iceberg": ("iceberg-spark-runtime-4.1_2.13", ICEBERG),
}
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.shuffle.partitions": "2",
}


def with_lakes(folder: Path, *, fitting: bool) -> dict[str, str]:
    """Return variables for a program whose Spark has both; a Spark that they fit, or this one."""
    try:
        jars = kept(f"lakes-{DELTA}-{ICEBERG}", _fetch_jars)
        older = kept(f"pyspark-{SPARK}", _fetch_spark) if fitting else None
    except (OSError, subprocess.SubprocessError) as error:
        refuse(f"Delta Lake, Iceberg and their Spark cannot be fetched: {reason(error)}")
        raise
    places = {
        "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    words = ["--jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))]
    for key, value in {**_SETTINGS, **places}.items():
        words += ["--conf", f"{key}={value}"]
    path = [str(older)] if older else []
    path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    made = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"]),
        "SPARK_SUBMIT_OPTS": " ".join(["-Dspark.ui.enabled=false", *QUICK_JVM]),
        "SPARK_MASTER": "local[2]",
    }
    made.pop("SPARK_HOME", None)
    return made


def kept(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which is filled if it is not there."""
    home = CACHE / name
    with locked(CACHE / f"{name}.lock"):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                fetch(Path(scratch) / "made")
                (Path(scratch) / "made").rename(home)
    return home


def _fetch_jars(made: Path) -> None:
    fetch_jars(made, _JARS)


def fetch_jars(made: Path, jars: dict[str, tuple[str, str]], *, alone: bool = False) -> None:
    """Fetch jars by their group, with what they depend on of these groups, or `alone`.

    The rest of what they need is part of Spark.
    """
    without = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = f"<exclusions>{without}</exclusions>" if alone else ""
    maven = shutil.which("mvn")
    if maven is None:
        msg = "jars come by Maven: install mvn"
        raise FileNotFoundError(msg)
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{exclusions}</dependency>"
        for group, (name, version) in jars.items()
    )
    pom = made.with_name("pom.xml")
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>weir</groupId><artifactId>jars"
        f"</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
    )
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DincludeGroupIds={','.join(jars)}"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={made}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S)


def _fetch_spark(made: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    command += ["--target", str(made), f"pyspark=={SPARK}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S)


def reason(error: Exception) -> str:
    """Return what a command said before it failed."""
    said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or b""
    return f"{error} {said.decode(errors='replace')[-500:]}".strip()
