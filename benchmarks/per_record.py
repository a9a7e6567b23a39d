"""Throughput of a per-record keyed function, as a share of the identity pipeline's.

Both run in one process on the same files: Spark's file source, a shuffle into two partitions, then
either an identity `mapInArrow` written to `noop`, or Weir with "least value so far per key" in a
ValueState, exactly once, checkpoints every second. The first epoch of every run is warm-up and does
not count. Usage: python benchmarks/per_record.py [--rows 4000000] [--keys 100000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weir.common import Configuration, Types
from weir.connector.discard import DiscardingSink
from weir.datastream import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor
from weir.spark.session import get_spark, query_settings

EPOCH_ROWS = 1_000_000
FILE_ROWS = 500_000


class LeastValue(FlatMapFunction):
    """Emits every record with the least value of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.least = runtime_context.get_state(ValueStateDescriptor("least", Types.LONG()))

    def flat_map(self, value):
        """Compare with the least value so far."""
        least = self.least.value()
        if least is None or value[1] < least:
            least = value[1]
            self.least.update(least)
        yield value[0], value[1], least


def write_input(directory: Path, rows: int, keys: int) -> None:
    """Write seeded input: one warm-up epoch, then the rows that count."""
    rng = np.random.default_rng(7)
    for number in range((rows + EPOCH_ROWS) // FILE_ROWS):
        table = pa.table(
            {
                "key": rng.integers(0, keys, FILE_ROWS),
                "value": rng.integers(0, 1_000_000_000, FILE_ROWS),
            }
        )
        pq.write_table(table, directory / f"{number:04d}.parquet")


def stream(spark, directory: Path):
    """Stream the files, one epoch at a time."""
    reader = spark.readStream.schema("key bigint, value bigint")
    return reader.option("maxFilesPerTrigger", EPOCH_ROWS // FILE_ROWS).parquet(str(directory))


def identity(batches):
    """Hand batches through."""
    yield from batches


def run_floor(spark, directory: Path, rows: int) -> float:
    """Return rows/s of the identity pipeline."""
    ends: list[float] = []

    def epoch(frame, number):
        routed = frame.selectExpr("key", "value", "cast(pmod(key, 2) as int) as part")
        shuffled = routed.repartitionById(2, "part")
        out = shuffled.mapInArrow(identity, "key bigint, value bigint, part int")
        out.write.format("noop").mode("overwrite").save()
        ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as checkpoint, query_settings(spark):
        query = (
            stream(spark, directory)
            .writeStream.foreachBatch(epoch)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return rows / (ends[-1] - ends[0])


def run_weir(spark, directory: Path, rows: int, by_column: bool) -> tuple[float, int]:
    """Return rows/s of Weir and the number of checkpoints that completed."""
    with tempfile.TemporaryDirectory() as checkpoints:
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.interval", "1 s")
        configuration.set_string("execution.checkpointing.dir", checkpoints)
        configuration.set_string("weir.trigger", "available-now")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        source = env.from_dataframe(
            stream(spark, directory), Types.TUPLE([Types.LONG(), Types.LONG()])
        )
        keyed = source.key_by(lambda row: row[0]) if by_column else source.key_by(pick)
        keyed.flat_map(LeastValue()).sink_to(DiscardingSink())
        job = env.execute_async("per record")
        ends: list[float] = []
        watch(job, ends)
        job.get_job_execution_result().result()
        return rows / (ends[-1] - ends[0]), job.control.history().completed


def pick(row):
    """Return the key by a function that is not a plain field access."""
    return int(row[0])


def watch(job, ends: list[float]) -> None:
    """Note when each epoch with input ends."""
    take = job.take_reports
    lock = threading.Lock()
    seen = [0]

    def noted(epoch, reports):
        take(epoch, reports)
        records = sum(n for report in reports for n in report["in"].values())
        with lock:
            if records > seen[0]:
                seen[0] = records
                ends.append(time.perf_counter())

    job.take_reports = noted


def main() -> None:
    """Run both in turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    import os

    os.environ.setdefault("SPARK_MASTER", options.master)
    spark = get_spark("weir benchmark")
    directory = Path(tempfile.mkdtemp(prefix="weir-bench-"))
    try:
        write_input(directory, options.rows, options.keys)
        results: dict[str, list[float]] = {"floor": [], "weir": [], "lambda": []}
        for _ in range(options.rounds):
            results["floor"].append(run_floor(spark, directory, options.rows))
            rate, checkpoints = run_weir(spark, directory, options.rows, True)
            results["weir"].append(rate)
            results["lambda"].append(run_weir(spark, directory, options.rows, False)[0])
            print({k: round(v[-1]) for k, v in results.items()}, "checkpoints", checkpoints)
        floor = statistics.median(results["floor"])
        for name, rates in results.items():
            rate = statistics.median(rates)
            print(f"{name:8} {rate:12,.0f} rows/s   {rate / floor:.2f} of the identity pipeline")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    spark.stop()


if __name__ == "__main__":
    main()
