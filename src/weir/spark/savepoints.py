"""Savepoints and checkpoints as DataFrames, and DataFrames as state of new savepoints.

Reading and writing run in Spark's workers, one task for each range of key groups. Rows cross the
shuffle packed, thousands to one row of Spark, and are put in order where they are written, in
bounded memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from weir.checkpoint.metadata import FileRecord, OperatorRecord
from weir.errors import (
    CorruptStateError,
    JobExecutionError,
    StorageError,
    UsageError,
    WeirError,
)
from weir.keygroup import range_of
from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.edit_parts import KeyedRows
from weir.offline.editing import SavepointEdit
from weir.offline.encoding import with_key_groups
from weir.offline.export import conform
from weir.offline.keyed import Layout, StoredKind
from weir.offline.keys import key_as_json
from weir.offline.spilled import SpilledRows, packed, unpacked
from weir.offline.tables import Rows, StateTable
from weir.offline.writing import Target, write_keyed
from weir.spark.salts import salts
from weir.spark.state_source import FORMAT, register, spark_schema
from weir.storage.options import StorageOptions

_SALT: Final = "_salt"
_NAMES: Final = (_SALT, "payload")
_PLACED: Final = f"{_SALT} int, payload binary"
_WRITTEN: Final = "subtask int, path string, size bigint, crc32 bigint"
_RAISED = re.compile(
    r"weir\.errors\.(UsageError|CorruptStateError|StorageError|UserFunctionError): (.+)"
)
_KINDS: Final[dict[str, type[WeirError]]] = {
    "CorruptStateError": CorruptStateError,
    "StorageError": StorageError,
    "UserFunctionError": JobExecutionError,
}


class Savepoint:
    """A savepoint or checkpoint whose contents are DataFrames.

    Example:
        found = savepoint(env.get_spark(), place)
        found.keyed_state("count", "total").show()
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        options: dict[str, str] | None = None,
        *,
        unpickle: bool = False,
    ) -> None:
        """Open it; `options` are settings of storages, such as ``s3.endpoint``.

        Raises:
            UsageError: there is none at that place.
            CorruptStateError: its metadata is damaged.
            IncompatibleStateError: a newer version of Weir wrote it.
        """
        register(spark)
        self._spark = spark
        self._path = path
        self._options = dict(options or {})
        self._contents: SnapshotContents = read_snapshot(
            path, StorageOptions.of(self._options), unpickle=unpickle
        )

    def metadata(self) -> DataFrame:
        """Return a row for each state of each operator."""
        return self._few(self._contents.operators())

    def keyed_state(
        self,
        operator: str,
        state: str,
        *,
        keys: list[Any] | None = None,
        splits: int | None = None,
    ) -> DataFrame:
        """Return a keyed state, or only some keys of it, as rows of typed columns.

        Keys are values of the type that the state has, or what stands for them in JSON.

        Raises:
            UsageError: there is none, or a key is none of its type.
        """
        table = self._contents.keyed_state(operator, state)
        options = {}
        if keys is not None:
            options["keys"] = f"[{', '.join(key_as_json(key, table.layout.key) for key in keys)}]"
        return self._state(table, operator, options, splits)

    def timers(self, operator: str, domain: str = "event") -> DataFrame:
        """Return the timers of an operator; `domain` is event or processing.

        Raises:
            UsageError: it has none.
        """
        return self.keyed_state(operator, f"_timer.{domain}")

    def operator_state(self, operator: str, state: str) -> DataFrame:
        """Return a list, union or broadcast state.

        Raises:
            UsageError: there is none.
        """
        return self._state(self._contents.operator_state(operator, state), operator, {}, None)

    def sources(self) -> DataFrame:
        """Return how far every source was read."""
        return self._few(self._contents.sources())

    def in_flight(self) -> DataFrame:
        """Return where rows wait that a barrier had overtaken."""
        return self._few(self._contents.in_flight())

    def transactions(self, operator: str) -> DataFrame:
        """Return what a sink had prepared; raises UsageError for what is no such sink."""
        return self._few(self._contents.transactions(operator))

    def create_views(self) -> list[str]:
        """Make a temporary view ``operator.state`` of each state, for SQL; returns their names.

        The names hold a dot, so SQL writes them in backticks.
        """
        names = []
        for stored in self._contents.states():
            operator = stored.operator.uid or stored.operator.id
            table = self._contents.table(stored.operator.id, stored.name)
            name = f"{operator}.{stored.name}"
            frame = self._state(table, stored.operator.id, {}, None)
            frame.createOrReplaceTempView(f"`{name}`")
            names.append(name)
        return names

    def edit(self, *, drop_in_flight: bool = False) -> DataFrameEdit:
        """Begin a new savepoint with everything that is in this one.

        Raises:
            UsageError: it holds rows in flight, and they are not to be dropped.
        """
        return DataFrameEdit.of(self._contents, drop_in_flight=drop_in_flight)

    def _state(
        self, table: StateTable, operator: str, options: dict[str, str], splits: int | None
    ) -> DataFrame:
        wanted = splits or 2 * self._spark.sparkContext.defaultParallelism
        reader = self._spark.read.format(FORMAT).schema(spark_schema(table.schema))
        given = {
            **self._options,
            **options,
            "path": self._path,
            "operator": operator,
            "state": table.name,
            "splits": str(wanted),
            "unpickle": str(self._contents.unpickle).lower(),
        }
        return reader.options(**given).load()

    def _few(self, rows: Rows) -> DataFrame:
        return self._spark.createDataFrame(list(rows.rows), spark_schema(rows.schema))


class DataFrameEdit(SavepointEdit):
    """Collects changes and writes a savepoint; rows may be DataFrames.

    Example:
        new_savepoint().with_operator("count", parallelism=2, max_parallelism=128).write("empty")
    """

    def _keyed_rows(self, rows: Any) -> KeyedRows:
        if isinstance(rows, DataFrame):
            return DataFrameRows(rows, self._unpickle)
        return super()._keyed_rows(rows)

    def _arrow(self, rows: Any) -> Any:
        return rows.toArrow() if isinstance(rows, DataFrame) else super()._arrow(rows)


@dataclass(frozen=True)
class DataFrameRows:
    """Rows of a DataFrame, which Spark's tasks write."""

    frame: DataFrame
    unpickle: bool = False

    def write(
        self,
        target: Target,
        operator: OperatorRecord,
        name: str,
        state: tuple[StoredKind, Layout],
    ) -> list[FileRecord]:
        """Write a file for each subtask of the operator, in their order."""
        kind, layout = state
        task = _Task(
            target,
            (operator.id, operator.parallelism, operator.max_parallelism),
            name,
            (kind, self.unpickle, layout.namespace is not None),
        )
        rows = (
            self.frame.mapInArrow(task.place, _PLACED)
            .repartition(operator.parallelism, _SALT)
            .mapInArrow(task.write, _WRITTEN)
        )
        found = {row.subtask: row for row in collected(rows.collect)}
        files = []
        for index in range(operator.parallelism):
            row = found.get(index)
            if row is not None:
                files.append(FileRecord(row.path, row.size, row.crc32, index))
            else:
                files.append(task.written(index, ()))
        return files


def collected(collect: Callable[[], list[Any]]) -> list[Any]:
    """Run a job; what a task found wrong with the rows is raised as if it had happened here."""
    try:
        return collect()
    except PythonException as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        raise _KINDS.get(found[1], UsageError)(found[2]) from error


@dataclass(frozen=True)
class _Task:
    """What the tasks of one state do; travels to Spark's workers."""

    target: Target
    operator: tuple[str, int, int]
    name: str
    state: tuple[StoredKind, bool, bool]

    def layout(self) -> Layout:
        kind, unpickle, in_windows = self.state
        return Layout.of(kind, unpickle=unpickle, in_windows=in_windows, as_text=False)

    def place(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pack rows for the same subtask, with their key groups; salts take them there."""
        _, width, groups = self.operator
        layout, by_subtask = self.layout(), salts(width)
        for batch in batches:
            placed = conform(with_key_groups(batch, layout.key, groups), layout.schema)
            column = placed.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
            owners = column * width // groups
            order = np.argsort(owners, kind="stable")
            found, firsts, counts = np.unique(owners[order], return_index=True, return_counts=True)
            ordered = placed.take(pa.array(order))
            payloads = [
                packed(ordered.slice(int(first), int(count)))
                for first, count in zip(firsts, counts, strict=True)
            ]
            salted = pa.array([by_subtask[int(owner)] for owner in found], pa.int32())
            yield pa.RecordBatch.from_arrays([salted, pa.array(payloads, pa.binary())], _NAMES)

    def write(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write the rows of this task's subtask; yields which file that is."""
        context = TaskContext.get()
        index = 0 if context is None else context.partitionId()
        file = self.written(index, batches)
        columns: dict[str, Any] = {
            "subtask": pa.array([index], pa.int32()),
            "path": pa.array([file.path]),
            "size": pa.array([file.size], pa.int64()),
            "crc32": pa.array([file.crc32], pa.int64()),
        }
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def written(self, index: int, batches: Iterable[Any]) -> FileRecord:
        """Write one file of packed rows."""
        operator_id, width, groups = self.operator
        layout, own = self.layout(), range_of(index, width, groups)
        with SpilledRows(layout, groups, key_groups=own) as spilled:
            for batch in batches:
                for payload in batch.column(1):
                    spilled.add_placed(unpacked(payload.as_buffer()))
            return write_keyed(
                self.target,
                operator_id,
                self.name,
                (self.state[0], layout),
                rows=(index, own, spilled.in_order()),
            )
