"""`DataStream` and `KeyedStream`: the transformations of a program, by PyFlink's names.

Every method only declares: it adds an operator to the program, or changes how records will be
spread over the next one. Nothing runs before `execute()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

from weir.common._absent import absent
from weir.common._generics import KEY_co, T, T_co
from weir.common.typeinfo import Types
from weir.datastream._alike_streams import RollingStream, SpreadStream
from weir.datastream._checks import (
    projected_type,
    require_type,
)
from weir.datastream._closeable_iterator import CloseableIterator
from weir.datastream._connected_streams import (
    BroadcastConnection,
    BroadcastStream,
    Connection,
)
from weir.datastream._data_stream_sink import DataStreamSink
from weir.datastream._ending_stream import EndingStream
from weir.datastream._interval_join import BoundedPairs, Length, Pairs
from weir.datastream._joined_streams import JoinedStreams, Meet, Meeting, grouping, joining
from weir.datastream._key_selection import key_spec
from weir.datastream._plain_functions import (
    PlainFilter,
    PlainFlatMap,
    PlainMap,
    PlainReduce,
    as_function,
    require_process,
)
from weir.datastream._queryable_state import EndsInState, QueryableStateStream
from weir.datastream._stream import Stream, declared_type
from weir.datastream._windowed_streams import (
    Windows,
    WindowsByKey,
    WindowsOfAll,
    count_windows,
)
from weir.datastream._with_state import FlatMapWithState, MapWithState
from weir.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from weir.datastream.output_tag import OutputTag
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.kinds import Kind
from weir.graph.transformation import Edge, Partitioning, Transformation

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IntervalJoin",
    "IntervalJoined",
    "KeyedStream",
    "QueryableStateStream",
    "WindowedStream",
]

R = TypeVar("R")
KEY = TypeVar("KEY")
_Reduction = Callable[[T, T], Any] | ReduceFunction[Any]
_OfWindows = (
    WindowFunction[Any, R, Any, Any]
    | ProcessWindowFunction[Any, R, Any, Any]
    | AllWindowFunction[Any, R, Any]
    | ProcessAllWindowFunction[Any, R, Any]
)


class DataStream(EndingStream[T_co], SpreadStream["DataStream[T_co]"], Generic[T_co]):
    """A stream of records.

    Example:
        words = env.from_collection(["to be", "or not"], Types.STRING())
        words.flat_map(lambda line: line.split(), Types.STRING()).filter(str.isalpha).print()
    """

    def map(
        self, func: Callable[[T_co], R] | MapFunction[T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Replace each record by the result of a `MapFunction` or callable."""
        function = as_function(func, MapFunction, PlainMap)
        return self._apply(kinds.MAP, "Map", function, output_type)

    def flat_map(
        self,
        func: Callable[[T_co], Iterable[R] | None] | FlatMapFunction[T_co, R],
        output_type: Any = None,
        result_type: Any = None,
    ) -> DataStream[R]:
        """Replace each record by any number of records from a `FlatMapFunction` or callable."""
        function = as_function(func, FlatMapFunction, PlainFlatMap)
        return self._apply(kinds.FLAT_MAP, "FlatMap", function, output_type or result_type)

    def filter(self, func: Callable[[T_co], object] | FilterFunction[T_co]) -> DataStream[T_co]:
        """Keep the records that a `FilterFunction` or callable says yes to."""
        function = as_function(func, FilterFunction, PlainFilter)
        return self._apply(kinds.FILTER, "Filter", function, self.record_type)

    def process(self, func: ProcessFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply a `ProcessFunction`."""
        require_process(func, ProcessFunction, "on a stream without keys")
        return self._apply(kinds.PROCESS, "PROCESS", func, output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of a stream of tuples, in the given order."""
        output_type = projected_type(self.record_type, field_indexes)
        operator = self._declare(
            kinds.PROJECT,
            "Projection",
            output_type=output_type,
            options={"fields": list(field_indexes)},
        )
        return self._after(operator)

    @overload
    def key_by(
        self,
        key_selector: Callable[[T_co], KEY] | KeySelector[T_co, KEY],
        key_type: Any = None,
        key_type_info: Any = None,
    ) -> KeyedStream[T_co, KEY]: ...

    @overload
    def key_by(
        self,
        key_selector: str | int | Sequence[str | int],
        key_type: Any = None,
        key_type_info: Any = None,
    ) -> KeyedStream[T_co, Any]: ...

    def key_by(
        self, key_selector: Any, key_type: Any = None, key_type_info: Any = None
    ) -> KeyedStream[T_co, Any]:
        """Partition by key: a `KeySelector`, a callable, column names, or a position.

        On a keyed stream the earlier key is dropped.
        """
        origin = self._unkeyed()
        declared = declared_type(key_type or key_type_info, "key_type")
        spec = key_spec(key_selector, declared, self.record_type)
        return KeyedStream(origin, origin._spread(Partitioning.HASH, key=spec))

    def union(self, *streams: DataStream[T_co]) -> DataStream[T_co]:
        """Merge streams of one record type; a keyed stream loses its keys."""
        return DataStream(self.env, self._united(streams))

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """Join with another stream, or with a broadcast one, in one operator."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, self._after)
        require_type(ds, Stream, "a DataStream or a BroadcastStream")
        return ConnectedStreams(self, ds, self._after)

    def join(self, other_stream: DataStream) -> JoinedStreams[JoinedWindows]:
        """Join with another stream: every pair of records that share key and window."""
        return JoinedStreams(self, other_stream, JoinedWindows, self._after)

    def co_group(self, other_stream: DataStream) -> JoinedStreams[CoGroupedWindows]:
        """Group with another stream: the records of both that share key and window."""
        return JoinedStreams(self, other_stream, CoGroupedWindows, self._after)

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """Return the records that the operator emits under a tag."""
        return DataStream(self.env, self._tagged(output_tag))

    def window_all(self, window_assigner: Any) -> AllWindowedStream[T_co]:
        """Cut the whole stream into windows; one subtask handles all of its records."""
        keyed = self.key_by(NullByteKeySelector(), Types.BYTE())
        return AllWindowedStream(keyed, window_assigner, self._after)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T_co]:
        """Cut the whole stream into windows of so many records; one begins every slide."""
        return self.window_all(count_windows(size, slide))

    def _unkeyed(self) -> DataStream[T_co]:
        return self

    def _apply(self, kind: Kind, name: str, function: Any, output_type: Any) -> DataStream:
        declared = declared_type(output_type)
        return self._after(self._declare(kind, name, function=function, output_type=declared))

    def _after(self, operator: Transformation) -> DataStream:
        return DataStream(self.env, [Edge(operator)], (operator,))

    def _respread(self, partitioning: Partitioning, **how: Any) -> DataStream[T_co]:
        return DataStream(self.env, self._spread(partitioning, **how))


class KeyedStream(
    DataStream[T_co], RollingStream["DataStream[T_co]"], EndsInState, Generic[T_co, KEY_co]
):
    """A stream partitioned by key: functions on it have keyed state and timers.

    Example:
        stream.key_by(lambda record: record[0], Types.STRING()).sum(1).uid("totals").print()
    """

    def __init__(self, origin: DataStream[T_co], edges: list[Edge]) -> None:
        """Key a stream; the origin serves whatever does not need the keys."""
        super().__init__(origin.env, edges)
        self._origin = origin

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction[Any, T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a `KeyedProcessFunction`."""
        require_process(func, KeyedProcessFunction, "on a keyed stream")
        return self._apply(kinds.PROCESS, "KEYED PROCESS", func, output_type)

    def reduce(self, func: Callable[[T_co, T_co], Any] | ReduceFunction[Any]) -> DataStream[T_co]:
        """Emit, per key, the reduction of all records so far."""
        function = as_function(func, ReduceFunction, PlainReduce)
        return self._apply(kinds.REDUCE, "Reduce", function, self.record_type)

    def map_with_state(
        self, func: Callable[[Any, Any], Any], output_type: Any = None, state_type: Any = None
    ) -> DataStream:
        """Replace each record by the result of `func(value, state) -> (result, new state)`.

        The state is one value per key. It is None for a key that has none, and returning None as
        the new state removes it. It is part of every checkpoint and moves with its key.
        """
        return self._with_state(
            kinds.MAP, "Map", MapWithState, func, types=(output_type, state_type)
        )

    def flat_map_with_state(
        self, func: Callable[[Any, Any], Any], output_type: Any = None, state_type: Any = None
    ) -> DataStream:
        """Like `map_with_state`, with an iterable of results (None is none) instead of one."""
        types = (output_type, state_type)
        return self._with_state(kinds.FLAT_MAP, "FlatMap", FlatMapWithState, func, types=types)

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pair records of this stream with those of another one with the same key, by time."""
        require_type(other_stream, KeyedStream, "a KeyedStream")
        return IntervalJoin(self, other_stream, self._after)

    def window(self, window_assigner: Any) -> WindowedStream[T_co]:
        """Cut the records of every key into windows."""
        return WindowedStream(self, window_assigner, self._after)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co]:
        """Cut the records of every key into windows of so many; one begins every slide."""
        return WindowedStream(self, count_windows(size, slide), self._after)

    def window_all(self, window_assigner: Any) -> AllWindowedStream[T_co]:
        """Cut the origin into windows; the keys are dropped."""
        return self._origin.window_all(window_assigner)

    def project(self, *field_indexes: int) -> DataStream:
        """Project the origin; the keys are dropped."""
        return self._origin.project(*field_indexes)

    def _respread(self, partitioning: Partitioning, **how: Any) -> DataStream[T_co]:
        msg = (
            f"Cannot override partitioning for KeyedStream: {partitioning.name.lower()} would "
            "undo key_by(); call it on the stream before key_by()"
        )
        raise UsageError(msg)

    def _unkeyed_edges(self) -> list[Edge]:
        return self._origin.edges

    def _unkeyed(self) -> DataStream[T_co]:
        return self._origin


class _WindowsOf(Windows["DataStream[T]"], Generic[T]):
    """What can be done with windows, and the types of what comes out."""

    @overload
    def reduce(
        self, reduce_function: _Reduction[T], window_function: None = None, output_type: Any = None
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        reduce_function: _Reduction[T],
        window_function: _OfWindows[R],
        output_type: Any = None,
    ) -> DataStream[R]: ...

    def reduce(
        self, reduce_function: Any, window_function: Any = None, output_type: Any = None
    ) -> DataStream:
        """Reduce the records of a window as they come; a window function may get the result."""
        return self._result(self._reduce(reduce_function, window_function, output_type))

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, R],
        window_function: None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: _OfWindows[R],
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream:
        """Aggregate the records of a window as they come; a window function may get the result."""
        return self._result(
            self._aggregate(aggregate_function, window_function, accumulator_type, output_type)
        )

    def apply(
        self, window_function: _OfWindows[R], output_type: Any = None, result_type: Any = None
    ) -> DataStream[R]:
        """Give all records of a window to a window function; `result_type` is the older name."""
        made: DataStream = self._result(self._apply(window_function, output_type or result_type))
        return made

    def process(
        self,
        process_window_function: _OfWindows[R],
        output_type: Any = None,
        result_type: Any = None,
    ) -> DataStream[R]:
        """Give all records to a process window function; `result_type` is an older name."""
        operator = self._process(process_window_function, output_type or result_type)
        made: DataStream = self._result(operator)
        return made


class WindowedStream(_WindowsOf[T], WindowsByKey["DataStream[T]"], Generic[T]):
    """A keyed stream cut into windows, each of one key.

    Example:
        windows = keyed.window(TumblingEventTimeWindows.of(Time.minutes(5)))
        windows.reduce(lambda a, b: (a[0], a[1] + b[1]))
    """


class AllWindowedStream(_WindowsOf[T], WindowsOfAll["DataStream[T]"], Generic[T]):
    """A whole stream cut into windows, which one subtask handles.

    Example:
        stream.window_all(TumblingEventTimeWindows.of(Time.minutes(5))).reduce(max)
    """


class ConnectedStreams(Connection["DataStream[Any]"]):
    """Two streams, of different types if need be, that one function handles together.

    Example:
        class Either(CoMapFunction):
            def map1(self, value):
                return value

            def map2(self, value):
                return value

        stream.connect(numbers).map(Either())
    """

    def map(self, func: CoMapFunction[Any, Any, R], output_type: Any = None) -> DataStream[R]:
        """Apply a `CoMapFunction`."""
        return self._map(func, output_type)

    def flat_map(
        self, func: CoFlatMapFunction[Any, Any, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a `CoFlatMapFunction`."""
        return self._flat_map(func, output_type)

    def process(
        self,
        func: CoProcessFunction[Any, Any, R] | KeyedCoProcessFunction[Any, Any, Any, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a `CoProcessFunction`, or a `KeyedCoProcessFunction` when both are keyed."""
        return self._process(func, output_type)


class BroadcastConnectedStream(BroadcastConnection["DataStream[Any]"]):
    """A stream together with a broadcast stream.

    Example:
        rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
        keyed.connect(stream.broadcast(rules))
    """

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, R]
        | KeyedBroadcastProcessFunction[Any, Any, Any, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a broadcast function; the keyed kind on a keyed stream, the other on others."""
        return self._process(func, output_type)


class JoinedWindows(Meeting["DataStream[Any]"]):
    """Two keyed streams cut into windows, in which records meet in pairs."""

    def _meet(self, function: Any) -> Meet:
        return joining(function)

    @overload
    def apply(
        self,
        function: JoinFunction[Any, Any, R] | FlatJoinFunction[Any, Any, R],
        output_type: Any = None,
    ) -> DataStream[R]: ...

    @overload
    def apply(
        self, function: Callable[[Any, Any], R], output_type: Any = None
    ) -> DataStream[R]: ...

    def apply(self, function: Any, output_type: Any = None) -> DataStream:
        """Call a function for every pair that meets in a window."""
        return self._apply(function, output_type)


class CoGroupedWindows(Meeting["DataStream[Any]"]):
    """Two keyed streams cut into windows, in which groups of records meet."""

    def _meet(self, function: Any) -> Meet:
        return grouping(function)

    def apply(
        self,
        function: CoGroupFunction[Any, Any, R] | Callable[[Any, Any], Iterable[R] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Call a function for the groups that meet in a window."""
        return self._apply(function, output_type)


class IntervalJoin(Pairs["DataStream[Any]"]):
    """Two keyed streams whose records are paired by time; `between` says how.

    Example:
        keyed.interval_join(keyed).between(Time.seconds(-5), Time.seconds(5))
    """

    def between(self, lower_bound: Length, upper_bound: Length) -> IntervalJoined:
        """Pair a left record with the right ones from `lower_bound` to `upper_bound` behind it.

        Two records with the same key are a pair if and only if `left.timestamp + lower_bound <=
        right.timestamp <= left.timestamp + upper_bound`. Bounds may be negative.

        Raises:
            UsageError: a bound is no length of time, or the lower one is above the upper one.
        """
        return IntervalJoined(self, self._settings(lower_bound, upper_bound))


class IntervalJoined(BoundedPairs["DataStream[Any]"]):
    """An interval join with bounds; `process` declares it.

    Example:
        class Both(ProcessJoinFunction):
            def process_element(self, left, right, ctx):
                yield left, right

        keyed.interval_join(keyed).between(Time.seconds(0), Time.minutes(1)).process(Both())
    """

    def process(
        self, process_join_function: ProcessJoinFunction[Any, Any, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a `ProcessJoinFunction` to every pair.

        Guarantee: every pair is handled once, whichever of its records comes first, unless one of
        them is late: older than the watermark that the join had reached before the epoch in which
        the record came. A record is kept until the watermark says that no partner can follow.

        Raises:
            TypeError: it is no `ProcessJoinFunction`.
            UsageError: without its bounds the interval is empty.
        """
        return self._process(process_join_function, output_type)


__getattr__ = absent(
    __name__,
    {"CachedDataStream": "is what PyFlink's cache() returns; here cache() returns the stream"},
)
