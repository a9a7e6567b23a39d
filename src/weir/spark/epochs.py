"""One epoch is one Spark job: level 0, then shuffle and pipe for every level, one action.

The job's only output is the reports of all subtasks; that all of them are there is checked, since
an optimiser that drops a partition would drop records with it. Small epochs do without shuffle and
pipes: the job is level 0 alone, and `weir.spark.direct` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from weir.errors import WeirError
from weir.graph.plan import JobPlan
from weir.runtime.frame import REPORT_EDGE, Frame, unpack_frames, unpack_report
from weir.runtime.subtask import EpochInfo
from weir.slot.messages import EpochCall
from weir.slot.spawn import Contact
from weir.spark.batches import SAFE, BatchLimits, fixed_width, limits
from weir.spark.direct import PARTITIONS_MAX, Moved, Relay, is_direct, share
from weir.spark.salts import salts
from weir.spark.worker import (
    CONTROL_ROW,
    EPOCH_PROPERTY,
    PipeTask,
    SourceColumns,
    SourceTask,
    TaskCall,
)

log = logging.getLogger("weir.epochs")
_QUERY = "spark.sql.execution.id"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_FRAME_TYPE = StructType(
    [
        StructField("salt", IntegerType()),
        StructField("edge", IntegerType()),
        StructField("origin", LongType()),
        StructField("payload", BinaryType()),
    ]
)


class EpochError(WeirError):
    """An epoch's job returned without the frames of all partitions or reports of all subtasks."""


@dataclass(frozen=True)
class EpochSpec:
    """What stays the same for all epochs of an execution attempt."""

    plan: JobPlan
    plan_id: str
    plan_bytes: bytes
    columns: tuple[SourceColumns, ...]
    contact: Contact
    job_id: str
    attempt: int
    anchored: bool


class EpochRunner:
    """Runs epochs of one attempt; not thread-safe, the caller serialises epochs."""

    def __init__(self, spec: EpochSpec, spark: SparkSession, relay: Relay) -> None:
        """Take what all epochs share; stages are made when they are first needed."""
        self._spec = spec
        self._spark = spark
        self._relay = relay
        self._moved: Moved | None = None
        # A query has one session of its own; every batch brings another Python object for it.
        self._query: SparkSession | None = None
        self._controls: dict[tuple[SparkSession, int], DataFrame] = {}
        self._source: Column | None = None
        self._fixed: float | None = None
        self._width: float | None = None
        self._pipes: dict[int, Column] = {}
        self._schema = spark._jsparkSession.parseDataType(_FRAME_TYPE.json())
        self._salt = _to_seq(spark.sparkContext, [F.col("salt")._jc])

    def run(self, batch: DataFrame | None, info: EpochInfo, directory: str) -> list[dict[str, Any]]:
        """Run an epoch over a batch (None: no input, only control rows); return the reports."""
        call = self._call(info, directory)
        rows: list[Any] | None = None
        tried = is_direct(self._relay.limit, has_input=batch is not None, before=self._moved)
        if tried and self._relay.connect():
            rows = self._direct(batch, call)
            log.debug("epoch %s %s", info.epoch, "was too large" if rows is None else "was direct")
        if rows is None:
            rows = self._by_spark(batch, call)
            log.debug("epoch %s was run by Spark", info.epoch)
        received = [unpack_report(bytes(r.payload)) for r in rows if r.edge == REPORT_EDGE]
        if batch is not None:
            self._note(received)
        return self._complete([report for report in received if report["level"]], info)

    def _by_spark(self, batch: DataFrame | None, call: EpochCall) -> list[Any]:
        widths = self._spec.plan.level_parallelism
        session = self._session(batch)
        with self._apart():
            if batch is None:
                frames = self._control_rows(session, widths[1])
            else:
                frames = self._level_zero(session, batch)
            for level in range(1, len(widths)):
                frames = self._level(session, frames, level)
            with self._tasks_know(TaskCall(call)):
                return list(frames.rdd.collect())

    def _direct(self, batch: DataFrame | None, call: EpochCall) -> list[Frame] | None:
        """Run an epoch without pipes; None when it is too large for that."""
        frames = [] if batch is None else self._collected(batch, call)
        return None if frames is None else self._relay.run(call, frames)

    def _collected(self, batch: DataFrame, call: EpochCall) -> list[Frame] | None:
        """Return the frames of level 0; None when they are too many.

        A partition returns them in one row: Spark would make a second one in the same place.
        Batches have safe limits here, which cost few rows nothing.
        """
        with self._apart():
            rows = self._stage_zero(batch)._jdf.queryExecution().toRdd()
            partitions = rows.getNumPartitions()
            if partitions > PARTITIONS_MAX:
                return None
            with self._tasks_know(TaskCall(call, share(self._relay.limit, partitions))):
                collected = rows.toJavaRDD().collect()
        if len(collected) != partitions:
            msg = (
                f"epoch {call.epoch}: level 0 returned {len(collected)} rows of "
                f"{partitions} partitions"
            )
            raise EpochError(msg)
        packed = [bytes(collected.get(n).getBinary(3)) for n in range(partitions)]
        if not all(packed):
            return None
        return [frame for data in packed for frame in unpack_frames(data)]

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Take the jobs of this thread out of the query that Spark is running.

        The stages of one query share their settings, those of separate ones have those of the time
        when they were made.
        """
        context = self._spark.sparkContext
        query = context.getLocalProperty(_QUERY)
        context.setLocalProperty(_QUERY, None)  # type: ignore[arg-type]
        try:
            yield
        finally:
            context.setLocalProperty(_QUERY, query)  # type: ignore[arg-type]

    @contextmanager
    def _tasks_know(self, told: TaskCall) -> Iterator[None]:
        """Tell the tasks of this thread's jobs about the epoch."""
        context = self._spark.sparkContext
        context.setLocalProperty(EPOCH_PROPERTY, msgspec.json.encode(told).decode())
        try:
            yield
        finally:
            context.setLocalProperty(EPOCH_PROPERTY, None)  # type: ignore[arg-type]

    def _session(self, batch: DataFrame | None) -> SparkSession:
        if batch is None:
            return self._spark
        if self._query is None:
            self._query = batch.sparkSession
        return self._query

    def _call(self, info: EpochInfo, directory: str) -> EpochCall:
        return EpochCall(
            self._spec.attempt,
            0,
            info.epoch,
            info.checkpoint_id,
            info.checkpoint_timestamp_ms,
            info.final,
            info.drain,
            directory,
            info.full,
            info.native,
            info.overtaking,
        )

    def _level_zero(self, session: SparkSession, batch: DataFrame) -> DataFrame:
        """Return the frames of a batch; they are planned on their own, with their own limits."""
        stage = self._stage_zero(batch)
        self._limit(session, limits(self._width if self._fixed is None else self._fixed))
        rows = stage._jdf.queryExecution().toRdd()
        self._limit(session, SAFE)
        frames = session._jsparkSession.internalCreateDataFrame(rows, self._schema, False)
        return DataFrame(frames, session)

    def _stage_zero(self, batch: DataFrame) -> DataFrame:
        if self._source is None:
            self._source = self._source_stage(batch)
        return _stage(batch, self._source)

    @staticmethod
    def _limit(session: SparkSession, chosen: BatchLimits) -> None:
        session.conf.set(_ROWS, str(chosen.rows))
        session.conf.set(_BYTES, str(chosen.bytes))

    def _source_stage(self, batch: DataFrame) -> Column:
        spec = self._spec
        self._fixed = fixed_width(batch.schema)
        task = SourceTask(
            spec.plan_id,
            spec.plan_bytes,
            spec.columns,
            salts(spec.plan.level_parallelism[1]),
            spec.attempt,
            spec.job_id,
            spec.contact,
        )
        return _python(task, batch.columns)

    def _level(self, session: SparkSession, frames: DataFrame, level: int) -> DataFrame:
        spec = self._spec
        widths = spec.plan.level_parallelism
        width = widths[level]
        shuffled = DataFrame(frames._jdf.repartition(width, self._salt), session)
        if spec.anchored:
            anchor = self._control_rows(session, width)
            # Twice, so that the cached rows' location outvotes that of the shuffled ones.
            shuffled = anchor.union(anchor.where("edge = 0")).union(shuffled)
        if level not in self._pipes:
            following = salts(widths[level + 1]) if level + 1 < len(widths) else ()
            pipe = PipeTask(level, spec.job_id, salts(width), following, spec.contact)
            self._pipes[level] = _python(pipe, _FRAME_TYPE.names)
        return _stage(shuffled, self._pipes[level])

    def _control_rows(self, session: SparkSession, width: int) -> DataFrame:
        """Return one row per subtask; cached on clusters, where it decides who runs where."""
        key = (session, width)
        frame = self._controls.get(key)
        if frame is None:
            # Made by the JVM alone: rows from Python would need a Python stage of their own.
            listed = ", ".join(map(str, salts(width)))
            frame = (
                session.range(0, width, 1, 1)
                .selectExpr(
                    f"element_at(array({listed}), cast(id + 1 as int)) as salt",
                    f"{CONTROL_ROW} as edge",
                    "0L as origin",
                    "cast('' as binary) as payload",
                )
                .repartition(width, "salt")
            )
            if self._spec.anchored:
                frame = frame.cache()
                frame.count()
            self._controls[key] = frame
        return frame

    def _complete(self, reports: list[dict[str, Any]], info: EpochInfo) -> list[dict[str, Any]]:
        """Return the reports of all subtasks in order."""
        seen = {(r["level"], r["subtask"]) for r in reports}
        widths = self._spec.plan.level_parallelism
        expected = {(n, i) for n in range(1, len(widths)) for i in range(widths[n])}
        if seen != expected or len(reports) != len(expected):
            missing = sorted(expected - seen)
            msg = (
                f"epoch {info.epoch}: {len(reports)} reports of {len(expected)} subtasks came "
                f"back, missing (level, subtask) {missing}"
            )
            raise EpochError(msg)
        return sorted(reports, key=lambda r: (r["level"], r["subtask"]))

    def _note(self, reports: list[dict[str, Any]]) -> None:
        """Remember what the next epoch is expected to be like."""
        self._moved = Moved.of(reports)
        read = [report["read"] for report in reports if not report["level"]]
        rows, size = (sum(column) for column in zip(*read, strict=True)) if read else (0, 0)
        if rows:
            self._width = size / rows

    def close(self) -> None:
        """Free the cached control rows and the connections."""
        self._relay.close()
        for frame in self._controls.values():
            frame.unpersist()
        self._controls.clear()


def _python(task: Any, names: list[str]) -> Column:
    """Return a stage of Python over whole partitions, to be used in any number of epochs."""
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    stage = UserDefinedFunction(task, _FRAME_TYPE, name=type(task).__name__, evalType=kind)
    return stage(*(F.col("`" + name.replace("`", "``") + "`") for name in names))


def _stage(frame: DataFrame, python: Column) -> DataFrame:
    """Return `frame.mapInArrow(…)`, without making the stage and asking for the columns again."""
    return DataFrame(frame._jdf.mapInArrow(python._jc, False, None), frame.sparkSession)
