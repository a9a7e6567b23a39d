"""`SavepointReader`: savepoints and checkpoints as streams, with Flink's names.

Streams are bounded, and of the environment that is given: run them, print them, join them, or make
new state of them. `weir.state_processor.savepoint` gives DataFrames instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weir.codec import pickled
from weir.common.typeinfo import Types
from weir.datastream import DataStream, StreamExecutionEnvironment
from weir.datastream._plain_functions import PlainReduce, as_function
from weir.datastream.functions import AggregateFunction, FlatMapFunction, ReduceFunction
from weir.errors import UsageError
from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.key_readers import ReadKeys, ReadWindows
from weir.runtime.window_contents import AggregateFold, Fold, ReduceFold
from weir.spark.state_functions import RECORDS, ReadTask, read_by_function
from weir.state.descriptor import StateDescriptor
from weir.state_processor.functions import (
    DescribedStates,
    KeyedStateReaderFunction,
    OperatorIdentifier,
    PassThroughReader,
    SavepointKeyFilter,
    WindowReaderFunction,
)
from weir.storage.options import StorageOptions
from weir.window.assigners import WindowAssigner
from weir.window.namespaces import namespaces_of


class SavepointReader:
    """Reads the states of a savepoint or checkpoint.

    Example:
        reader = SavepointReader.read(env, "file:///savepoints/savepoint-1")
        total = ValueStateDescriptor("total", Types.LONG())
        reader.read_keyed_state("count", total).print()
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        path: str,
        options: dict[str, str] | None = None,
        *,
        unpickle: bool = False,
    ) -> None:
        """Open it; see `read`."""
        self._env = env
        self._path = path
        self._options = dict(options or {})
        self._contents: SnapshotContents = read_snapshot(
            path, StorageOptions.of(self._options), unpickle=unpickle
        )

    @classmethod
    def read(
        cls,
        env: StreamExecutionEnvironment,
        path: str,
        options: dict[str, str] | None = None,
        *,
        unpickle: bool = False,
    ) -> SavepointReader:
        """Open a savepoint or checkpoint; `options` are settings of storages.

        With `unpickle` pickled values are loaded, which runs code of whoever wrote them.

        Raises:
            UsageError: there is none at that place.
            CorruptStateError: its metadata is damaged.
            IncompatibleStateError: a newer version of Weir wrote it.
        """
        return cls(env, path, options, unpickle=unpickle)

    def read_list_state(
        self, identifier: OperatorIdentifier | str, name: str, type_info: Any = None
    ) -> DataStream:
        """Return the elements of a list state.

        Raises:
            UsageError: there is none of that name, or it is of another kind.
        """
        return self._elements(identifier, name, ("SPLIT",), type_info)

    def read_union_state(
        self, identifier: OperatorIdentifier | str, name: str, type_info: Any = None
    ) -> DataStream:
        """Return the elements of a union list state; raises as `read_list_state` does."""
        return self._elements(identifier, name, ("UNION",), type_info)

    def read_broadcast_state(
        self,
        identifier: OperatorIdentifier | str,
        name: str,
        key_type_info: Any = None,
        value_type_info: Any = None,
    ) -> DataStream:
        """Return the entries of a broadcast state as (key, value); raises as `read_list_state`."""
        declared = None
        if key_type_info is not None and value_type_info is not None:
            declared = Types.TUPLE([key_type_info, value_type_info])
        return self._elements(identifier, name, ("BROADCAST",), declared)

    def read_keyed_state(
        self,
        identifier: OperatorIdentifier | str,
        function: KeyedStateReaderFunction | StateDescriptor | Sequence[StateDescriptor],
        output_type: Any = None,
        key_filter: SavepointKeyFilter | None = None,
    ) -> DataStream:
        """Return what a function reads, key by key, in parallel.

        With descriptors instead of a function there is a tuple for every key that has any of their
        states: the key, and what each state has. Lists are lists, maps are dicts, nothing is None.

        Raises:
            UsageError: there is no such operator or state, or it is neither function nor
                descriptors.
        """
        if not isinstance(function, KeyedStateReaderFunction):
            alone = not isinstance(function, (list, tuple))
            function = DescribedStates([function] if alone else function)  # type: ignore[list-item,arg-type]
        which = OperatorIdentifier.of(identifier).name
        return self.by_function(
            ReadKeys(which, function, key_filter or SavepointKeyFilter()), output_type
        )

    def window(self, assigner: WindowAssigner[Any, Any]) -> WindowSavepointReader:
        """Read windows; the assigner is the one that the job had."""
        return WindowSavepointReader(self, assigner)

    def by_function(self, reads: ReadKeys | ReadWindows, output_type: Any) -> DataStream:
        """Return what a function reads in Spark's workers."""
        record = self._contents.snapshot.operator(reads.operator)
        task = ReadTask(self._path, self._options, self._contents.unpickle, reads)
        frame = read_by_function(self._env.get_spark(), task, record.max_parallelism)
        return self._env.from_dataframe(frame).flat_map(_Unpacked(), output_type)

    def _elements(
        self, identifier: OperatorIdentifier | str, name: str, modes: tuple[str, ...], declared: Any
    ) -> DataStream:
        which = OperatorIdentifier.of(identifier)
        table = self._contents.operator_state(which.name, name)
        if table.mode not in modes:
            msg = (
                f"state {name!r} of operator {which.name!r} is {table.kind}: read "
                "it with read_list_state(), read_union_state() or read_broadcast_state()"
            )
            raise UsageError(msg)
        return self._env.from_collection(list(table.elements()), declared)


class WindowSavepointReader:
    """Reads the windows of an operator.

    Example:
        reader = SavepointReader.read(env, "file:///savepoints/savepoint-1")
        windows = reader.window(TumblingEventTimeWindows.of(Time.hours(1)))
        windows.reduce("sums", lambda a, b: a + b, output_type=Types.LONG())
    """

    def __init__(
        self, reader: SavepointReader, assigner: WindowAssigner[Any, Any], *, evicting: bool = False
    ) -> None:
        self._reader = reader
        self._assigner = assigner
        self._evicting = evicting

    def evictor(self) -> WindowSavepointReader:
        """Say that the windows have an evictor: their records are kept, with timestamps."""
        return WindowSavepointReader(self._reader, self._assigner, evicting=True)

    def reduce(
        self,
        identifier: OperatorIdentifier | str,
        function: Any,
        reader_function: WindowReaderFunction | None = None,
        output_type: Any = None,
    ) -> DataStream:
        """Read windows that reduce their records."""
        fold = ReduceFold(as_function(function, ReduceFunction, PlainReduce))
        return self._read(identifier, reader_function, fold, output_type)

    def aggregate(
        self,
        identifier: OperatorIdentifier | str,
        function: AggregateFunction[Any, Any, Any],
        reader_function: WindowReaderFunction | None = None,
        output_type: Any = None,
    ) -> DataStream:
        """Read windows that aggregate their records; elements are the result."""
        return self._read(identifier, reader_function, AggregateFold(function), output_type)

    def process(
        self,
        identifier: OperatorIdentifier | str,
        reader_function: WindowReaderFunction,
        output_type: Any = None,
    ) -> DataStream:
        """Read windows that keep their records, for `apply` or `process`."""
        return self._read(identifier, reader_function, None, output_type)

    def _read(
        self,
        identifier: OperatorIdentifier | str,
        function: WindowReaderFunction | None,
        fold: Fold | None,
        output_type: Any,
    ) -> DataStream:
        which = OperatorIdentifier.of(identifier).name
        reads = ReadWindows(
            which,
            function or PassThroughReader(),
            namespaces_of(self._assigner),
            fold=fold,
            evicting=self._evicting,
        )
        return self._reader.by_function(reads, output_type)


class _Unpacked(FlatMapFunction):
    """Takes records out of the rows of `read_by_function`, which workers of this program made."""

    def flat_map(self, value: Any) -> Any:
        """Return the records of a row."""
        return pickled.loads(bytes(value[RECORDS]))
