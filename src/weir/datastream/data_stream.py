"""`DataStream` and `KeyedStream`: the transformations of a program, by PyFlink's names.

Every method only declares: it adds an operator to the program, or changes how records will be
spread over the next one. Nothing runs before `execute()`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

from weir.common._absent import absent
from weir.common._generics import KEY_co, T_co
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import FieldTimestamps, WatermarkStrategy
from weir.datastream._checks import (
    aggregate_field,
    check_timestamp_field,
    projected_type,
    require_type,
)
from weir.datastream._closeable_iterator import CloseableIterator
from weir.datastream._connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from weir.datastream._data_stream_sink import (
    DataStreamSink,
    attach_function_sink,
    attach_sink,
    attach_writer_sink,
)
from weir.datastream._interval_join import IntervalJoin, IntervalJoined
from weir.datastream._joined_streams import JoinedStreams, grouping, joining
from weir.datastream._key_selection import key_spec
from weir.datastream._plain_functions import (
    PlainFilter,
    PlainFlatMap,
    PlainMap,
    PlainReduce,
    as_function,
    partition_callable,
    require_instance,
)
from weir.datastream._stream import Stream, check_same_program, declared_type, edge_type
from weir.datastream._windowed_streams import AllWindowedStream, WindowedStream
from weir.datastream._with_state import FilterWithState, FlatMapWithState, MapWithState
from weir.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    ProcessFunction,
    ReduceFunction,
)
from weir.datastream.output_tag import OutputTag
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.kinds import Kind
from weir.graph.transformation import Edge, Partitioning, Transformation
from weir.notices import warn_once
from weir.state.descriptor import MapStateDescriptor
from weir.window.counting import CountSlidingWindowAssigner, CountTumblingWindowAssigner

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
    "WindowedStream",
]

log = logging.getLogger("weir.datastream")
D = TypeVar("D", bound="DataStream")
R = TypeVar("R")
KEY = TypeVar("KEY")


class DataStream(Stream, Generic[T_co]):
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
        _require_process(func, ProcessFunction, "on a stream without keys")
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

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> DataStream[T_co]:
        """Give records timestamps, and the stream watermarks."""
        require_type(watermark_strategy, WatermarkStrategy, "a WatermarkStrategy")
        assigner = watermark_strategy.timestamp_assigner
        if isinstance(assigner, FieldTimestamps):
            check_timestamp_field(assigner.field, self.record_type)
        return self._apply(
            kinds.TIMESTAMPS, "Timestamps/Watermarks", watermark_strategy, self.record_type
        )

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

    def cache(self: D) -> D:
        """Return the stream itself, and say once that nothing is kept for later programs."""
        warn_once(
            log,
            "cache() has no effect, because a program reads its sources again; to keep a result, "
            "write it with a sink and read that",
        )
        return self

    def union(self, *streams: DataStream[T_co]) -> DataStream[T_co]:
        """Merge streams of one record type; a keyed stream loses its keys."""
        edges = list(self._unkeyed_edges())
        for stream in streams:
            check_same_program(self, stream, "union")
            for edge in stream._unkeyed_edges():
                if edge_type(edge) != self.record_type:
                    msg = (
                        "union() needs streams of one type, found "
                        f"{self.record_type!r} and {edge_type(edge)!r}; map one to the other"
                    )
                    raise UsageError(msg)
                edges.append(edge)
        return DataStream(self.env, edges)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams[DataStream]: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream[DataStream]: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams[DataStream] | BroadcastConnectedStream[DataStream]:
        """Join with another stream, or with a broadcast one, in one operator."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, self._after)
        require_type(ds, Stream, "a DataStream or a BroadcastStream")
        return ConnectedStreams(self, ds, self._after)

    def join(self, other_stream: DataStream) -> JoinedStreams[DataStream]:
        """Join with another stream: every pair of records that share key and window."""
        return JoinedStreams(self, other_stream, joining, self._after)

    def co_group(self, other_stream: DataStream) -> JoinedStreams[DataStream]:
        """Group with another stream: the records of both that share key and window."""
        return JoinedStreams(self, other_stream, grouping, self._after)

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to all subtasks; with descriptors, to be kept in broadcast state."""
        spread = self._respread(Partitioning.BROADCAST)
        if broadcast_state_descriptor is None:
            return spread
        descriptors = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return BroadcastStream(spread, descriptors)

    def shuffle(self) -> DataStream[T_co]:
        """Spread records at random."""
        return self._respread(Partitioning.SHUFFLE)

    def rebalance(self) -> DataStream[T_co]:
        """Spread records evenly, in turn."""
        return self._respread(Partitioning.REBALANCE)

    def rescale(self) -> DataStream[T_co]:
        """Spread records evenly among nearby subtasks."""
        return self._respread(Partitioning.RESCALE)

    def forward(self) -> DataStream[T_co]:
        """Keep records in the subtask that they are in."""
        return self._respread(Partitioning.FORWARD)

    def global_(self) -> DataStream[T_co]:
        """Send all records to the first subtask."""
        return self._respread(Partitioning.GLOBAL)

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream[T_co]:
        """Let a `Partitioner` or callable choose the subtask by a key."""
        function = partition_callable(partitioner)
        return self._respread(
            Partitioning.CUSTOM,
            key=key_spec(key_selector, None, self.record_type),
            partition_fn=function,
        )

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """Return the records that the operator emits under a tag."""
        operator = self._operators[-1] if self._operators else self._operator("get_side_output")
        tag_type = declared_type(output_tag.type_info, "type_info")
        known = operator.side_types.setdefault(output_tag.tag_id, tag_type)
        if known != tag_type:
            msg = (
                f"operator '{operator.name}': side output {output_tag.tag_id!r} was declared "
                f"with type {known!r} before, now with {tag_type!r}; use one type"
            )
            raise UsageError(msg)
        return DataStream(self.env, [Edge(operator, tag=output_tag.tag_id)])

    def window_all(self, window_assigner: Any) -> AllWindowedStream[DataStream]:
        """Cut the whole stream into windows; one subtask handles all of its records."""
        keyed = self.key_by(NullByteKeySelector(), Types.BYTE())
        return AllWindowedStream(keyed, window_assigner, self._after)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[DataStream]:
        """Cut the whole stream into windows of so many records; one begins every slide."""
        return self.window_all(_count_windows(size, slide))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record to standard output."""
        options = {"identifier": sink_identifier, "stderr": False}
        return attach_sink(self, kinds.PRINT, "Print to Std. Out", options=options)

    def print_to_err(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record to standard error."""
        options = {"identifier": sink_identifier, "stderr": True}
        return attach_sink(self, kinds.PRINT, "Print to Std. Err", options=options)

    def add_sink(self, sink_func: Any) -> DataStreamSink:
        """End the stream in a `SinkFunction`."""
        return attach_function_sink(self, sink_func)

    def sink_to(self, sink: Any) -> DataStreamSink:
        """End the stream in a sink object such as `FileSink`."""
        return attach_writer_sink(self, sink)

    def foreach_batch(self, func: Callable[[Any, int], Any]) -> DataStreamSink:
        """Hand the committed records of each checkpoint to `func(dataframe, checkpoint_id)`.

        Guarantee: called in order of checkpoints, only for completed ones; again with the same
        id and rows after a failure, so `func` must be idempotent per id.
        """
        require_type(func, Callable, "a function of (dataframe, checkpoint_id)")  # type: ignore[arg-type]
        return attach_sink(self, kinds.BATCH_SINK, "Foreach Batch", function=func)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T_co]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T_co]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T_co] | list[T_co]:
        """Run the program and return this stream's records: all of them, or a list of `limit`."""
        if limit is not None and limit < 1:
            msg = f"execute_and_collect() needs a limit of at least 1, found {limit!r}"
            raise UsageError(msg)
        operator = self._declare(kinds.COLLECT, "Sink: Collect")
        client = self.env.submit(job_execution_name or "DataStream Collect")
        records = CloseableIterator(client.collect_iterator(operator.id), client)
        if limit is None:
            return records
        with records:
            return [record for _, record in zip(range(limit), records)]  # noqa: B905

    def _unkeyed(self) -> DataStream[T_co]:
        return self

    def _apply(self, kind: Kind, name: str, function: Any, output_type: Any) -> DataStream:
        declared = declared_type(output_type)
        return self._after(self._declare(kind, name, function=function, output_type=declared))

    def _after(self, operator: Transformation) -> DataStream:
        return DataStream(self.env, [Edge(operator)], (operator,))

    def _respread(self, partitioning: Partitioning, **how: Any) -> DataStream[T_co]:
        return DataStream(self.env, self._spread(partitioning, **how))


class KeyedStream(DataStream[T_co], Generic[T_co, KEY_co]):
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
        _require_process(func, KeyedProcessFunction, "on a keyed stream")
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

    def filter_with_state(
        self, func: Callable[[Any, Any], Any], state_type: Any = None
    ) -> DataStream:
        """Keep the records for which `func(value, state) -> (keep, new state)` says so."""
        types = (self.record_type, state_type)
        return self._with_state(kinds.FILTER, "Filter", FilterWithState, func, types=types)

    def _with_state(
        self, kind: Kind, name: str, wrapper: Any, func: Any, types: tuple[Any, Any]
    ) -> DataStream:
        if not callable(func) or isinstance(func, (type, Function)):
            msg = (
                f"{kind.name}_with_state() needs a callable of (value, state) that returns "
                f"(result, new state), found {type(func).__name__}: {func!r}"
            )
            raise TypeError(msg)
        output_type, state_type = types
        function = wrapper(func, declared_type(state_type, "state_type"))
        return self._apply(kind, name, function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Emit, per key, the first record with the sum of a field so far."""
        return self._aggregate("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit, per key, the first record with the least value of a field so far."""
        return self._aggregate("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit, per key, the first record with the greatest value of a field so far."""
        return self._aggregate("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit, per key, the record with the least value of a field so far."""
        return self._aggregate("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit, per key, the record with the greatest value of a field so far."""
        return self._aggregate("max_by", position_to_max_by)

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin[DataStream]:
        """Pair records of this stream with those of another one with the same key, by time."""
        require_type(other_stream, KeyedStream, "a KeyedStream")
        return IntervalJoin(self, other_stream, self._after)

    def window(self, window_assigner: Any) -> WindowedStream[DataStream]:
        """Cut the records of every key into windows."""
        return WindowedStream(self, window_assigner, self._after)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[DataStream]:
        """Cut the records of every key into windows of so many; one begins every slide."""
        return WindowedStream(self, _count_windows(size, slide), self._after)

    def window_all(self, window_assigner: Any) -> AllWindowedStream[DataStream]:
        """Cut the origin into windows; the keys are dropped."""
        return self._origin.window_all(window_assigner)

    def project(self, *field_indexes: int) -> DataStream:
        """Project the origin; the keys are dropped."""
        return self._origin.project(*field_indexes)

    def _aggregate(self, op: str, position: int | str) -> DataStream:
        field = aggregate_field(op, position, self.record_type)
        operator = self._declare(
            kinds.AGGREGATE,
            op.replace("_", " ").title().replace(" ", ""),
            output_type=self.record_type,
            options={"op": op, "field": field},
        )
        return self._after(operator)

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


def _count_windows(size: int, slide: int) -> Any:
    if slide == 0:
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)


def _require_process(func: Any, kind: type, where: str) -> None:
    require_instance(func, kind.__name__)
    if not isinstance(func, kind):
        msg = f"process() {where} requires a {kind.__name__}, found {type(func).__name__}: {func!r}"
        raise TypeError(msg)


__getattr__ = absent(
    __name__,
    {"CachedDataStream": "is what PyFlink's cache() returns; here cache() returns the stream"},
)
