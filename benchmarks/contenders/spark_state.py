"""Spark's own arbitrary state in Python: `transformWithState` and its relatives."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders import floors, pandas_processors, row_processors
from benchmarks.contenders.protocol import Outcome, Task, of_epoch_ends
from benchmarks.workloads.catalogue import FLUSH_AT, REGIONS, WIDE
from benchmarks.workloads.checksum import Checksum, of_rows

SETTINGS = {
    **floors.SHUFFLE,
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    floors.ROWS: floors.BATCH_ROWS,
}
SCHEMAS = {
    "least": "key bigint, value bigint, least bigint",
    "distinct": "site bigint, user bigint, day bigint",
    "reduce": "key bigint, total bigint",
    "flush": "key bigint, average bigint",
    "stages": "region bigint, count bigint, key bigint, least bigint",
    "wide": ", ".join(f"{name} {kind}" for name, kind in WIDE) + ", least bigint",
    "timers": "key bigint, end bigint, count bigint",
}
TIME_MODES = {"distinct": "ProcessingTime", "timers": "EventTime"}
PROCESSORS = {
    "least": "Least",
    "distinct": "Distinct",
    "reduce": "RunningSum",
    "flush": "Flush",
    "wide": "Least",
    "timers": "Windows",
}
_LEFT = ", ".join(["count bigint", *(f"value{n} bigint" for n in range(FLUSH_AT - 1))])
FUNCTIONS = {
    "least": (pandas_processors.apply_least, "least bigint"),
    "wide": (pandas_processors.apply_least, "least bigint"),
    "reduce": (pandas_processors.apply_sum, "total bigint"),
    "flush": (pandas_processors.apply_flush, _LEFT),
}


def run(spark: Any, task: Task) -> Outcome:
    """Run one workload through one of the interfaces, in a session that has `SETTINGS`."""
    workload = task.input.workload
    frame = floors.stream(spark, task)
    if workload.kind == "timers":
        frame = frame.selectExpr("key", "ts", "timestamp_millis(ts) as at")
        frame = frame.withWatermark("at", "1 second")
    results = apply(task.contender, workload.kind, frame)
    found = [Checksum()]

    def epoch(out: Any, number: int) -> None:
        if task.verify:
            found[0] += of_rows([tuple(row) for row in out.collect()], workload.groups)
        else:
            out.write.format("noop").mode("overwrite").save()

    writer = results.writeStream.outputMode("append" if task.contender != "apply" else "update")
    size = task.input.size
    endless = TIME_MODES.get(workload.kind) == "ProcessingTime"
    ends = floors.follow(writer, task, epoch, size.epochs if endless else None)
    outcome = of_epoch_ends(task, ends, size.warm)
    outcome.checksum = found[0].to_json() if task.verify else None
    return outcome


def apply(contender: str, kind: str, frame: Any) -> Any:
    """Return the stream of results."""
    if contender == "apply":
        return _apply_in_pandas(kind, frame)
    if kind == "stages":
        first = _transform(contender, "least", frame, frame.columns[0])
        second = first.selectExpr("*", f"value % {REGIONS} as region")
        return _transform(contender, "stages", second, "region")
    return _transform(contender, kind, frame, frame.columns[0])


def _transform(contender: str, kind: str, frame: Any, by: str) -> Any:
    mode = TIME_MODES.get(kind, "None")
    grouped = frame.groupBy(by)
    if contender == "tws-row":
        name = {"wide": "Wide", "stages": "ByRegion"}.get(kind) or PROCESSORS[kind]
        processor = getattr(row_processors, name)()
        return grouped.transformWithState(processor, SCHEMAS[kind], "Append", mode)
    name = "ByRegion" if kind == "stages" else PROCESSORS[kind]
    processor = getattr(pandas_processors, name)()
    return grouped.transformWithStateInPandas(processor, SCHEMAS[kind], "Append", mode)


def _apply_in_pandas(kind: str, frame: Any) -> Any:
    function, state = FUNCTIONS[kind]
    return frame.groupBy(frame.columns[0]).applyInPandasWithState(
        function, SCHEMAS[kind], state, "update", "NoTimeout"
    )
