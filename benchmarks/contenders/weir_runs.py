"""Weir: the programs over streams of Parquet files, two subtasks, exactly once."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.flink_api import Configuration, StreamExecutionEnvironment, Types
from benchmarks.contenders.flink_programs import build, passing, with_time
from benchmarks.contenders.progress import read
from benchmarks.contenders.protocol import Outcome, Task, of_epoch_ends
from benchmarks.workloads.catalogue import Workload
from benchmarks.workloads.checksum import Checksum, of_columns
from benchmarks.workloads.rows import PARTITIONS

TYPES = {"bigint": Types.LONG, "string": Types.STRING, "double": Types.DOUBLE}


def column(row: Any) -> Any:
    """Return the key as plain field access, which Weir takes from the column."""
    return row[0]


def function(row: Any) -> Any:
    """Return the key in a way that only calling finds out."""
    key = row[0]
    return key if key is not None else 0


def run(spark: Any, task: Task) -> Outcome:
    """Run one workload; the options are in the contender's name."""
    options = task.contender.split("-")[1:]
    dataset = task.input
    workload = dataset.workload
    env = environment(task, options)
    if "files" in options:
        stream = read_by_workers(env, workload, str(dataset.parquet))
    else:
        stream = files(spark, env, workload, str(dataset.parquet), PARTITIONS)
    rules = None
    if workload.has_event_time:
        stream = with_time(stream, workload)
    if workload.kind == "rules":
        frame = spark.readStream.schema("rule bigint, threshold bigint")
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        rules = env.from_dataframe(frame.parquet(str(dataset.rules)), pair)
    by_key = function if "function" in options else column
    results = build(workload, stream, rules, by_key, task.verify)
    marks, output = task.folder("marks"), task.folder("output")
    if workload.files:
        from weir.datastream.connectors.file_system import FileSink

        results.sink_to(FileSink.parquet(str(output))).uid("sink")
    else:
        if task.verify:
            results = results.filter(passing(workload, str(marks), verify=True))
        discard(results)
    ends, completed = execute(env)
    outcome = of_epoch_ends(task, ends, dataset.size.warm)
    outcome.checkpoints = completed
    if task.verify:
        found = written(output, workload) if workload.files else read(marks)[1]
        outcome.checksum = found.to_json()
    return outcome


def written(output: Path, workload: Workload) -> Checksum:
    """Return the checksum of the rows in committed files."""
    import pyarrow.parquet as pq

    total = Checksum()
    for path in sorted(output.rglob("part-*")):
        columns = [column.to_numpy() for column in pq.read_table(path).columns]
        total += of_columns(columns, workload.groups)
    return total


def environment(task: Task, options: list[str]) -> StreamExecutionEnvironment:
    """Return an environment with the options of a contender's name."""
    configuration = Configuration()
    settings = {
        "execution.checkpointing.dir": task.folder("checkpoints").as_uri(),
        "state.backend.type": options[0],
        "weir.trigger": "available-now",
        "weir.source.batch-files": str(PARTITIONS),
        "pipeline.name": "benchmark",
    }
    if "unchecked" not in options:
        settings["execution.checkpointing.interval"] = "1 s"
    if "incremental" in options or options[0] == "rocksdb":
        settings["execution.checkpointing.incremental"] = "true"
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(PARTITIONS)
    return env


def files(
    spark: Any, env: StreamExecutionEnvironment, workload: Workload, directory: str, per_epoch: int
) -> Any:
    """Stream the input files, so many in an epoch."""
    reader = spark.readStream.schema(workload.spark_schema)
    frame = reader.option("maxFilesPerTrigger", per_epoch).parquet(directory)
    return env.from_dataframe(frame, Types.TUPLE([TYPES[kind]() for _, kind in workload.columns]))


def read_by_workers(env: StreamExecutionEnvironment, workload: Workload, directory: str) -> Any:
    """Read the input files by PyFlink's own source, as many in an epoch as there are partitions."""
    from weir.common.watermark_strategy import WatermarkStrategy
    from weir.datastream.connectors.file_system import FileSource
    from weir.datastream.formats.parquet import ParquetColumnarRowInputFormat
    from weir.table import DataTypes

    known = {"bigint": DataTypes.BIGINT, "string": DataTypes.STRING, "double": DataTypes.DOUBLE}
    fields = [DataTypes.FIELD(name, known[kind]()) for name, kind in workload.columns]
    form = ParquetColumnarRowInputFormat(DataTypes.ROW(fields))
    source = FileSource.for_bulk_file_format(form, directory).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "files")


def discard(results: Any) -> None:
    """Drop the results in the slots."""
    from weir.connector.discard import DiscardingSink

    results.sink_to(DiscardingSink()).uid("sink")


def execute(env: StreamExecutionEnvironment) -> tuple[list[float], int]:
    """Run the program; return when each epoch with input ended, and the completed checkpoints."""
    job = env.execute_async("benchmark")
    ends: list[float] = []
    watch(job, ends)
    job.get_job_execution_result().result()
    return ends, job.control.history().completed


def watch(job: Any, ends: list[float]) -> None:
    """Note when the reports of each epoch with input have come."""
    reports = job.supervisor.reports
    keep, lock, seen = reports.keep, threading.Lock(), [0]

    def noted(new: Any) -> None:
        keep(new)
        records = sum(n for report in new for n in report.records_in.values())
        with lock:
            if records > seen[0]:
                seen[0] = records
                ends.append(time.monotonic())

    reports.keep = noted
