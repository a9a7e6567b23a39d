"""One epoch is one Spark job: level 0, then shuffle and pipe for every level, one action.

The job's only output is the reports of all subtasks; that all of them are there is checked, since
an optimiser that drops a partition would drop records with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from weir.errors import WeirError
from weir.graph.plan import JobPlan
from weir.runtime.frame import REPORT_EDGE, unpack_report
from weir.runtime.subtask import EpochInfo
from weir.slot.messages import EpochCall
from weir.slot.spawn import Contact
from weir.spark.salts import salts
from weir.spark.worker import (
    CONTROL_ROW,
    FRAME_DDL,
    PipeTask,
    SourceColumns,
    SourceTask,
)


class EpochError(WeirError):
    """An epoch's job returned without the reports of all subtasks."""


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

    def __init__(self, spec: EpochSpec, spark: SparkSession) -> None:
        """Prepare the control rows that reach every subtask without input."""
        self._spec = spec
        self._spark = spark
        self._controls: dict[tuple[int, int], DataFrame] = {}

    def run(self, batch: DataFrame | None, info: EpochInfo, directory: str) -> list[dict[str, Any]]:
        """Run an epoch over a batch (None: no input, only control rows); return the reports."""
        spec = self._spec
        widths = spec.plan.level_parallelism
        session = self._spark if batch is None else batch.sparkSession
        if batch is None:
            frames = self._control_rows(session, widths[1])
        else:
            task = SourceTask(
                spec.plan_id,
                spec.plan_bytes,
                spec.columns,
                salts(widths[1]),
                info.checkpoint_id,
                spec.attempt,
                spec.job_id,
                spec.contact,
            )
            frames = batch.mapInArrow(task, FRAME_DDL)
        for level in range(1, len(widths)):
            frames = self._level(session, frames, level, info, directory)
        rows = frames.collect()
        return self._reports(rows, info)

    def _level(
        self, session: SparkSession, frames: DataFrame, level: int, info: EpochInfo, directory: str
    ) -> DataFrame:
        spec = self._spec
        widths = spec.plan.level_parallelism
        width = widths[level]
        following = salts(widths[level + 1]) if level + 1 < len(widths) else ()
        call = EpochCall(
            spec.attempt,
            level,
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
        shuffled = frames.repartition(width, "salt")
        if spec.anchored:
            anchor = self._control_rows(session, width)
            # Twice, so that the cached rows' location outvotes that of the shuffled ones.
            shuffled = anchor.union(anchor.where("edge = 0")).union(shuffled)
        pipe = PipeTask(call, spec.job_id, salts(width), following, spec.contact)
        return shuffled.mapInArrow(pipe, FRAME_DDL)

    def _control_rows(self, session: SparkSession, width: int) -> DataFrame:
        """Return one row per subtask; cached on clusters, where it decides who runs where."""
        key = (id(session), width)
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

    def _reports(self, rows: list[Any], info: EpochInfo) -> list[dict[str, Any]]:
        reports = [unpack_report(bytes(r.payload)) for r in rows if r.edge == REPORT_EDGE]
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

    def close(self) -> None:
        """Free the cached control rows."""
        for frame in self._controls.values():
            frame.unpersist()
        self._controls.clear()
