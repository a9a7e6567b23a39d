"""The floors: what Spark itself costs, with nothing or next to nothing of Python in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.contenders.protocol import Outcome, Task, of_epoch_ends
from benchmarks.workloads.rows import PARTITIONS

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS = "65536"
# With this bound Spark does not add up the size of a batch after every row.
UNBOUNDED = "2147483647"
SHUFFLE = {"spark.sql.shuffle.partitions": str(PARTITIONS)}


def identity(batches: Any) -> Any:
    """Hand batches through."""
    yield from batches


@contextmanager
def settings(spark: Any, values: Mapping[str, str | None]) -> Iterator[None]:
    """Give a session these settings, None for Spark's default, and its own back at the end."""
    before = {key: spark.conf.get(key, None) for key in values}
    _apply(spark, values)
    try:
        yield
    finally:
        _apply(spark, before)


def _apply(spark: Any, values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@contextmanager
def same_settings(spark: Any, batch_bytes: str | None = None) -> Iterator[None]:
    """Give Spark the settings that Weir gives its own queries, with batches of 65,536 rows.

    That is what Weir's own batches have where rows are narrow; where they are wide, Weir takes
    fewer rows. Bytes are bounded as given, None for Spark's default.
    """
    from weir.spark.session import query_settings

    with query_settings(spark), settings(spark, {ROWS: BATCH_ROWS, BYTES: batch_bytes}):
        yield


def stream(spark: Any, task: Task) -> Any:
    """Stream the input files, one epoch at a time."""
    dataset = task.input
    reader = spark.readStream.schema(dataset.workload.spark_schema)
    return reader.option("maxFilesPerTrigger", PARTITIONS).parquet(str(dataset.parquet))


def follow(query_writer: Any, task: Task, epoch: Any, epochs: int | None = None) -> list[float]:
    """Run a query until its input is through; return when each epoch ended.

    With `epochs` the query is stopped after so many: Spark never calls a query over that has
    processing time in its state.
    """
    ends: list[float] = []
    through = threading.Event()

    def timed(frame: Any, number: int) -> None:
        epoch(frame, number)
        ends.append(time.monotonic())
        if len(ends) == epochs:
            through.set()

    query_writer = query_writer.foreachBatch(timed)
    query_writer = query_writer.option("checkpointLocation", str(task.folder("query")))
    if epochs is None:
        query_writer.trigger(availableNow=True).start().awaitTermination()
        return ends
    query = query_writer.start()
    while not through.wait(1):
        if query.exception() is not None:
            raise query.exception()
    query.stop()
    return ends[:epochs]


def run_identity(spark: Any, task: Task) -> Outcome:
    """Files, a shuffle into two partitions, an identity `mapInArrow`, nothing written."""
    workload = task.input.workload
    names = [name for name, _ in workload.columns]
    schema = f"{workload.spark_schema}, part int"
    part = f"cast(pmod(hash({names[0]}), {PARTITIONS}) as int) as part"
    rows = [0]

    def epoch(frame: Any, number: int) -> None:
        shuffled = frame.selectExpr(*names, part).repartitionById(PARTITIONS, "part")
        out = shuffled.mapInArrow(identity, schema)
        if workload.files:
            out.write.mode("append").parquet(str(task.folder("output")))
        elif task.verify:
            rows[0] += out.count()
        else:
            out.write.format("noop").mode("overwrite").save()

    outcome = of_epoch_ends(
        task, follow(stream(spark, task).writeStream, task, epoch), task.input.size.warm
    )
    if task.verify:
        if workload.files:
            rows[0] = spark.read.parquet(str(task.folder("output"))).count()
        stored = spark.read.schema(workload.spark_schema).parquet(str(task.input.parquet))
        outcome.verified = rows[0] == stored.count()
    return outcome


def run_jvm(spark: Any, task: Task) -> Outcome:
    """Spark's own aggregation; it gives one row for each changed key and epoch, not for each row.

    What it computes is checked by the last sum of every key.
    """
    from pyspark.sql import functions as f

    sums = stream(spark, task).groupBy("key").agg(f.sum("value").alias("total"))
    last: dict[int, int] = {}

    def epoch(frame: Any, number: int) -> None:
        if task.verify:
            last.update((row[0], row[1]) for row in frame.collect())
        else:
            frame.write.format("noop").mode("overwrite").save()

    ends = follow(sums.writeStream.outputMode("update"), task, epoch)
    outcome = of_epoch_ends(task, ends, task.input.size.warm)
    if task.verify:
        frame = spark.read.schema("key bigint, value bigint").parquet(str(task.input.parquet))
        right = {r[0]: r[1] for r in frame.groupBy("key").agg(f.sum("value")).collect()}
        outcome.verified = last == right
    return outcome
