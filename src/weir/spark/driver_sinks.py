"""Sinks that end in a Spark writer: the driver hands a checkpoint's rows to the user's function.

Rows are staged by the slots and read here after their checkpoint completed. The function gets the
same rows with the same checkpoint id again after a crash in between, so it has to be idempotent by
that id; then every row arrives exactly once.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from weir.connector.staged_batch import (
    StagedBatchSink,
    read_staged,
    remove_staged,
    unpickle_staged,
)
from weir.errors import UsageError, UserFunctionError
from weir.graph.plan import JobPlan
from weir.runtime.raised import user_traceback


class DriverSinks:
    """All `foreach_batch` sinks of a program."""

    def __init__(self, spark: SparkSession, staging: Path) -> None:
        self._spark = spark
        self._staging = str(staging)
        self._functions: dict[str, tuple[str, Any]] = {}
        self._lock = threading.Lock()

    def adopt(self, plan: JobPlan) -> None:
        """Keep the user's functions here and give the slots staging sinks instead."""
        for op in plan.operators:
            if op.kind == "spark_sink":
                self._functions[op.id] = (op.name, op.function)
                op.function = StagedBatchSink(self._staging)

    def commit(self, checkpoint_id: int, staged: list[tuple[str, list[bytes]]]) -> None:
        """Hand over what a completed checkpoint covers, one call per sink."""
        by_operator: dict[str, list[bytes]] = {}
        for operator, committables in staged:
            by_operator.setdefault(operator, []).extend(committables)
        with self._lock:
            for operator, committables in by_operator.items():
                present = [c for c in committables if self._exists(c)]
                if present:
                    self._hand_over(operator, present, checkpoint_id)
                    remove_staged(present)

    def _hand_over(self, operator: str, committables: list[bytes], checkpoint_id: int) -> None:
        name, function = self._functions[operator]
        rows = self._frame(committables)
        try:
            function(rows, checkpoint_id)
        except BaseException as error:
            # SystemExit too: it would end the thread that all later commits need.
            raise UserFunctionError(name, "<foreach_batch>", user_traceback(error)) from error

    @staticmethod
    def _exists(committable: bytes) -> bool:
        # A staged file that is gone was handed over before the crash that we recover from.
        return Path(json.loads(committable)["path"]).exists()

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
