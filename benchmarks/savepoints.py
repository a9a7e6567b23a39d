"""How fast Spark reads a keyed state of a savepoint, and writes one: ten million longs to longs.

A DataFrame becomes the state of a new savepoint, which is read into the count of a DataFrame. Each
is done once with few rows first, so that the start of Spark, of its workers and of the JVM's code
is not part of it; then rounds follow, and medians count. The aims on two cores are a million
entries read a second, and 500,000 written.

Usage: python benchmarks/savepoints.py [--entries 10000000] [--rounds 3] [--cores 2] [--smoke]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from weir.common.typeinfo import Types
from weir.datastream.state import ValueStateDescriptor
from weir.state_processor import new_savepoint, savepoint

OPERATOR, STATE = "totals", "total"
GROUPS = 128
JAVA = Path(__file__).parents[1] / "scripts" / "java_home.sh"


def session(cores: int) -> SparkSession:
    """Start Spark in this process, with this Python in its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "JAVA_HOME" not in os.environ:
        found = subprocess.run(
            ["sh", str(JAVA)], capture_output=True, text=True, check=True
        ).stdout.strip()
        os.environ["JAVA_HOME"] = found
    builder = SparkSession.builder.master(f"local[{cores}]").appName("savepoints")
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write(spark: SparkSession, entries: int, place: str, cores: int) -> None:
    """Make the state of a DataFrame."""
    rows = spark.range(entries).selectExpr("id AS key", "id * 7 AS value")
    edit = new_savepoint().with_operator(OPERATOR, parallelism=cores, max_parallelism=GROUPS)
    state = ValueStateDescriptor(STATE, Types.LONG())
    edit.with_rows(OPERATOR, state, rows, key_type=Types.LONG()).write(place)


def read(spark: SparkSession, place: str) -> int:
    """Count the entries of the state."""
    return savepoint(spark, place).keyed_state(OPERATOR, STATE).count()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("entries", 10_000_000), ("rounds", 3), ("cores", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="a few seconds")
    options = parser.parse_args()
    if options.smoke:
        options.entries, options.rounds = 20_000, 1
    spark = session(options.cores)
    folder = Path(tempfile.mkdtemp(prefix="weir-benchmark-"))
    try:
        measure(spark, folder, options)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(spark: SparkSession, folder: Path, options: Any) -> None:
    """Write and read in turn."""
    written, counted = [], []
    for number in range(-1, options.rounds):
        entries = options.entries if number >= 0 else max(1000, options.entries // 10)
        place = str(folder / f"savepoint-{number}")
        begun = time.perf_counter()
        write(spark, entries, place, options.cores)
        between = time.perf_counter()
        found = read(spark, place)
        ended = time.perf_counter()
        if found != entries:
            msg = f"{found} entries were read, {entries} written"
            raise SystemExit(msg)
        if number >= 0:
            written.append(entries / (between - begun))
            counted.append(entries / (ended - between))
        shutil.rmtree(place)
    print(f"{options.entries:,} entries, medians of {options.rounds} rounds, {options.cores} cores")
    for what, rates in (("read into a count", counted), ("written", written)):
        print(
            f"{what:18} {statistics.median(rates):12,.0f} entries/s, "
            f"{min(rates):,.0f} to {max(rates):,.0f}"
        )


if __name__ == "__main__":
    main()
