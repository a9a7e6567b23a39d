"""Sinks that end in a Spark writer: the driver hands a checkpoint's rows to a commit target.

Rows are staged by the slots and read here after their checkpoint completed. All rows of a
checkpoint are handed over together, in order of checkpoints, and again after a crash in between; so
a target that is idempotent by identity and checkpoint, as a user's function has to be, gets every
row exactly once.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from weir.connector.commit_target import Commits
from weir.connector.spark_target import FunctionTarget, SparkTarget
from weir.connector.staged_batch import (
    StagedBatchSink,
    finish_staged,
    is_staged,
    prepared_by,
    read_staged,
    unpickle_staged,
)
from weir.connector.table_targets import DeltaTarget
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.failpoint import ProcessDeath
from weir.graph.plan import JobPlan
from weir.runtime.raised import user_traceback
from weir.spark.internals import delta_version

log = logging.getLogger("weir.sink")


@dataclass(frozen=True)
class _Ending:
    """One `foreach_batch` of the program."""

    name: str
    target: SparkTarget


class DriverSinks:
    """All `foreach_batch` sinks of a program."""

    def __init__(self, spark: SparkSession, staging: Path) -> None:
        self._spark = spark
        self._staging = str(staging)
        self._endings: dict[str, _Ending] = {}
        self._lock = threading.Lock()

    def adopt(self, plan: JobPlan) -> None:
        """Keep the user's functions and targets here, and give the slots staging sinks instead."""
        for op in plan.operators:
            if op.kind == "spark_sink":
                self.keep(op.id, op.name, op.function)
                op.function = StagedBatchSink(self._staging)

    def keep(self, operator: str, name: str, given: Any) -> None:
        """Keep one function or target, which may refuse the session."""
        target = given if isinstance(given, SparkTarget) else FunctionTarget(given)
        target.spark = self._spark
        if isinstance(target, DeltaTarget):
            target.version = delta_version(self._spark)
        target.check()
        self._endings[operator] = _Ending(name, target)

    def commit(self, checkpoint_id: int, staged: list[tuple[str, list[bytes]]]) -> None:
        """Hand over what a completed checkpoint covers: one call per sink and checkpoint."""
        by_operator: dict[str, list[bytes]] = {}
        for operator, committables in staged:
            by_operator.setdefault(operator, []).extend(committables)
        with self._lock:
            for operator, committables in by_operator.items():
                self._commit(self._endings[operator], checkpoint_id, committables)

    def _commit(self, ending: _Ending, checkpoint_id: int, committables: list[bytes]) -> None:
        def prepared(committable: bytes) -> tuple[int, str]:
            return prepared_by(committable, checkpoint_id)

        ordered = sorted(committables, key=prepared)
        for (checkpoint, identity), group in groupby(ordered, key=prepared):
            together = list(group)
            # They may have been handed over before, and a crash has left files.
            if all(map(is_staged, together)):
                self._hand_over(ending, identity, checkpoint, together)
            finish_staged(together)

    def _hand_over(
        self, ending: _Ending, identity: str, checkpoint: int, committables: list[bytes]
    ) -> None:
        rows = self._frame(committables)
        try:
            # Asked every time: it costs little beside a write, and attempts may go back.
            commits = Commits(ending.target)
            newest = commits.newest(identity)
            if newest is None or checkpoint > newest:
                commits.write(identity, checkpoint, rows)
            else:
                log.info("checkpoint %d of %r is visible already", checkpoint, identity)
        except (WeirError, ProcessDeath):
            raise
        except BaseException as error:
            # SystemExit too: it would end the thread that all later commits need.
            traceback = user_traceback(error)
            raise UserFunctionError(ending.name, "<foreach_batch>", traceback) from error

    def _frame(self, committables: list[bytes]) -> Any:
        table = read_staged(committables)
        if table.schema.names == ["pickled"]:
            rows = unpickle_staged(table)
            if not rows or not isinstance(rows[0], (tuple, list)):
                msg = (
                    "foreach_batch needs rows with a declared type: give the operator before it "
                    "an output_type such as Types.ROW_NAMED([...], [...])"
                )
                raise UsageError(msg)
            return self._spark.createDataFrame([tuple(r) for r in rows])
        return self._spark.createDataFrame(table)
