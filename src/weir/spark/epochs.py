"""One epoch is one Spark job: level 0, then shuffle and pipe for every level, one action.

The job's only output is the reports of all subtasks; that all of them are there is checked, since
an optimiser that drops a partition would drop records with it. Small epochs do without shuffle and
pipes: the job is level 0 alone, and `weir.spark.direct` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from weir.errors import WeirError
from weir.graph.plan import JobPlan
from weir.runtime.epoch import Epoch
from weir.runtime.frame import REPORT_EDGE, Frame, unpack_frames, unpack_report
from weir.runtime.report import LevelZero, SourceReport, SubtaskReport
from weir.slot.messages import EpochCall
from weir.slot.spawn import Contact
from weir.spark.batches import SAFE, BatchLimits, fixed_width, limits
from weir.spark.direct import PARTITIONS_MAX, EpochTraffic, Relay, allowance, is_direct
from weir.spark.internals import (
    InternalRows,
    java_columns,
    java_schema,
    local_property,
    map_in_arrow,
    outside_of_query,
    python_stage,
    repartition,
)
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
_PAYLOAD = 3


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
    """Runs epochs of one attempt; not thread-safe, the caller serialises epochs.

    `told` are the sources of which it was said that they are over.
    """

    def __init__(self, spec: EpochSpec, spark: SparkSession, relay: Relay) -> None:
        """Take what all epochs share; stages are made when they are first needed."""
        self._spec = spec
        self._spark = spark
        self._relay = relay
        self._traffic: EpochTraffic | None = None
        self._level_0 = LevelZero()
        self._over: tuple[int, ...] = ()
        self.told: set[int] = set()
        # A query has one session of its own; every batch brings another Python object for it.
        self._query: SparkSession | None = None
        self._controls: dict[tuple[SparkSession, int], DataFrame] = {}
        self._source: Column | None = None
        self._fixed: float | None = None
        self._width: float | None = None
        self._pipes: dict[int, Column] = {}
        self._schema = java_schema(spark, _FRAME_TYPE)
        self._salt = java_columns(spark, "salt")

    def run(
        self, batch: DataFrame | None, epoch: Epoch, over: Collection[int] = ()
    ) -> list[SubtaskReport]:
        """Run an epoch over a batch (None: no input, only control rows); return the reports.

        The source operators in `over` are read to their end with it.
        """
        call = EpochCall(self._spec.attempt, 0, epoch)
        self._over = tuple(over)
        rows: list[Any] | None = None
        tried = is_direct(self._relay.limit, has_input=batch is not None, before=self._traffic)
        if tried and self._relay.connect():
            rows = self._direct(batch, call)
            log.debug(
                "epoch %s %s", epoch.number, "was too large" if rows is None else "was direct"
            )
        if rows is None:
            rows = self._by_spark(batch, call)
            log.debug("epoch %s was run by Spark", epoch.number)
        received = [unpack_report(bytes(r.payload)) for r in rows if r.edge == REPORT_EDGE]
        subtasks = [report for report in received if isinstance(report, SubtaskReport)]
        sources = [report for report in received if isinstance(report, SourceReport)]
        if batch is not None:
            self._note(sources, subtasks)
        if sources:
            self.told.update(self._over)
        level_0 = self._level_0.reports(epoch.number, sources)
        return [*self._complete(subtasks, epoch), *level_0]

    def _by_spark(self, batch: DataFrame | None, call: EpochCall) -> list[Any]:
        widths = self._spec.plan.level_parallelism
        session = self._session(batch)
        with outside_of_query(self._spark.sparkContext):
            if batch is None:
                frames = self._control_rows(session, widths[1])
            else:
                frames = self._level_zero(session, batch)
            for level in range(1, len(widths)):
                frames = self._level(session, frames, level)
            with self._tasks_know(TaskCall(call, over=self._over)):
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
        with outside_of_query(self._spark.sparkContext):
            rows = InternalRows(self._stage_zero(batch))
            partitions = rows.partitions()
            if partitions > PARTITIONS_MAX:
                return None
            allowed = allowance(self._relay.limit, partitions)
            with self._tasks_know(TaskCall(call, allowed, self._over)):
                packed = rows.collect_binary(_PAYLOAD)
        if len(packed) != partitions:
            msg = (
                f"epoch {call.epoch.number}: level 0 returned {len(packed)} rows of "
                f"{partitions} partitions"
            )
            raise EpochError(msg)
        if not all(packed):
            return None
        return [frame for data in packed for frame in unpack_frames(data)]

    @contextmanager
    def _tasks_know(self, told: TaskCall) -> Iterator[None]:
        """Tell the tasks of this thread's jobs about the epoch."""
        text = msgspec.json.encode(told).decode()
        with local_property(self._spark.sparkContext, EPOCH_PROPERTY, text):
            yield

    def _session(self, batch: DataFrame | None) -> SparkSession:
        if batch is None:
            return self._spark
        if self._query is None:
            self._query = batch.sparkSession
        return self._query

    def _level_zero(self, session: SparkSession, batch: DataFrame) -> DataFrame:
        """Return the frames of a batch; they are planned on their own, with their own limits."""
        stage = self._stage_zero(batch)
        self._limit(session, limits(self._width if self._fixed is None else self._fixed))
        rows = InternalRows(stage)
        self._limit(session, SAFE)
        return rows.to_frame(session, self._schema)

    def _stage_zero(self, batch: DataFrame) -> DataFrame:
        if self._source is None:
            self._source = self._source_stage(batch)
        return map_in_arrow(batch, self._source)

    @staticmethod
    def _limit(session: SparkSession, chosen: BatchLimits) -> None:
        session.conf.set(_ROWS, str(chosen.rows))
        session.conf.set(_BYTES, str(chosen.bytes))

    def _source_stage(self, batch: DataFrame) -> Column:
        spec = self._spec
        self._fixed = fixed_width(batch.schema)
        task = SourceTask(
            plan_id=spec.plan_id,
            plan=spec.plan_bytes,
            sources=spec.columns,
            salts=salts(spec.plan.level_parallelism[1]),
            attempt=spec.attempt,
            job_id=spec.job_id,
            contact=spec.contact,
        )
        return python_stage(task, _FRAME_TYPE, batch.columns)

    def _level(self, session: SparkSession, frames: DataFrame, level: int) -> DataFrame:
        spec = self._spec
        widths = spec.plan.level_parallelism
        width = widths[level]
        shuffled = repartition(frames, width, self._salt, session)
        if spec.anchored:
            anchor = self._control_rows(session, width)
            # Twice, so that the cached rows' location outvotes that of the shuffled ones.
            shuffled = anchor.union(anchor.where("edge = 0")).union(shuffled)
        if level not in self._pipes:
            following = salts(widths[level + 1]) if level + 1 < len(widths) else ()
            pipe = PipeTask(
                level=level,
                job_id=spec.job_id,
                salts=salts(width),
                next_salts=following,
                contact=spec.contact,
            )
            self._pipes[level] = python_stage(pipe, _FRAME_TYPE, _FRAME_TYPE.names)
        return map_in_arrow(shuffled, self._pipes[level])

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

    def _complete(self, reports: list[SubtaskReport], epoch: Epoch) -> list[SubtaskReport]:
        """Return the reports of all subtasks in order."""
        seen = {report.place for report in reports}
        widths = self._spec.plan.level_parallelism
        expected = {(n, i) for n in range(1, len(widths)) for i in range(widths[n])}
        if seen != expected or len(reports) != len(expected):
            missing = sorted(expected - seen)
            msg = (
                f"epoch {epoch.number}: {len(reports)} reports of {len(expected)} subtasks came "
                f"back, missing (level, subtask) {missing}"
            )
            raise EpochError(msg)
        return sorted(reports, key=lambda report: report.place)

    def _note(self, sources: list[SourceReport], subtasks: list[SubtaskReport]) -> None:
        """Remember what the next epoch is expected to be like."""
        self._traffic = EpochTraffic.of(sources, subtasks)
        for report in sources:
            self._level_0.add(report.undecoded)
        rows = sum(report.rows_read for report in sources)
        if rows:
            self._width = sum(report.bytes_read for report in sources) / rows

    def close(self, *, spark_is_lost: bool) -> None:
        """Free the connections and, unless they went with Spark, the cached control rows."""
        self._relay.close()
        for frame in () if spark_is_lost else self._controls.values():
            frame.unpersist()
        self._controls.clear()
