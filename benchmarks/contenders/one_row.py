"""An epoch of one row: Weir, and Spark's `foreachBatch` with a Python stage that does nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import floors
from benchmarks.contenders.protocol import Outcome, Task
from benchmarks.workloads.catalogue import BY_NAME

SCHEMA = "key bigint, value bigint"


def write_input(directory: Path, epochs: int) -> None:
    """Write a file of one row for each epoch."""
    for number in range(epochs):
        table = pa.table({"key": [number % 7], "value": [number]})
        pq.write_table(table, directory / f"{number:05d}.parquet")


def run(spark: Any, task: Task) -> Outcome:
    """Measure the time from the end of one epoch to the end of the next."""
    directory = task.folder("rows")
    warm = task.dataset["size"]["warm"]
    write_input(directory, task.dataset["size"]["epochs"])
    if task.contender.startswith("weir"):
        ends = _weir(spark, task, directory)
    elif task.contender == "empty-same":
        with floors.same_settings(spark):
            ends = _empty(spark, task, directory)
    else:
        ends = _empty(spark, task, directory)
    outcome = Outcome(task.contender, task.workload)
    outcome.startup = ends[0] - task.started
    outcome.epochs = [after - before for before, after in pairwise(ends)][warm:]
    outcome.rows = len(outcome.epochs)
    outcome.seconds = sum(outcome.epochs)
    return outcome


def _weir(spark: Any, task: Task, directory: Path) -> list[float]:
    from benchmarks.contenders import weir_runs
    from benchmarks.contenders.flink_programs import build

    env = weir_runs.environment(task, task.contender.split("-")[1:])
    workload = BY_NAME["a-1k"]
    stream = weir_runs.files(spark, env, workload, str(directory), 1)
    weir_runs.discard(build(workload, stream, None, weir_runs.column, verify=False))
    return weir_runs.execute(env)[0]


def _empty(spark: Any, task: Task, directory: Path) -> list[float]:
    def epoch(frame: Any, number: int) -> None:
        frame.mapInArrow(floors.identity, SCHEMA).write.format("noop").mode("overwrite").save()

    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return floors.follow(frame.parquet(str(directory)).writeStream, task, epoch)
