"""Two streams that share one operator: connected streams, and streams joined with broadcast state.

These classes only know edges. `result` turns the operator they declare back into a stream, so that
this module stays below the stream classes, where the calls have their types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from weir.datastream._checks import require_type
from weir.datastream._key_selection import key_spec
from weir.datastream._plain_functions import require_instance
from weir.datastream._stream import Stream, check_same_program, declared_type
from weir.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.kinds import Kind
from weir.graph.transformation import Partitioning, Transformation
from weir.state.descriptor import MapStateDescriptor
from weir.state.operator_state import refuse_ttl

S = TypeVar("S", bound=Stream)
Self = TypeVar("Self", bound="Connection[Any]")

Result = Callable[[Transformation], S]


class Connection(Generic[S]):
    """Two streams that one function handles together."""

    def __init__(self, stream1: Stream, stream2: Stream, result: Result[S]) -> None:
        """Connect two streams of one program."""
        check_same_program(stream1, stream2, "connect")
        self.stream1 = stream1
        self.stream2 = stream2
        self._result = result

    def key_by(
        self: Self,
        key_selector1: Any,
        key_selector2: Any,
        key_type: Any = None,
        key_type_info: Any = None,
    ) -> Self:
        """Key both streams; equal keys of both meet in one subtask and share keyed state."""
        declared = declared_type(key_type or key_type_info, "key_type")
        return type(self)(
            _keyed(self.stream1, key_selector1, declared),
            _keyed(self.stream2, key_selector2, declared),
            self._result,
        )

    def _map(self, func: Any, output_type: Any) -> S:
        _require(func, CoMapFunction)
        return self._apply(kinds.CO_MAP, "Co-Map", func, output_type)

    def _flat_map(self, func: Any, output_type: Any) -> S:
        _require(func, CoFlatMapFunction)
        return self._apply(kinds.CO_FLAT_MAP, "Co-Flat Map", func, output_type)

    def _process(self, func: Any, output_type: Any) -> S:
        _require(func, CoProcessFunction, KeyedCoProcessFunction)
        keyed = self._is_keyed()
        if isinstance(func, KeyedCoProcessFunction) and not keyed:
            msg = "KeyedCoProcessFunction needs both streams keyed: call key_by() on them first"
            raise TypeError(msg)
        name = "Keyed Co-Process" if keyed else "Co-Process"
        return self._apply(kinds.CO_PROCESS, name, func, output_type)

    def _is_keyed(self) -> bool:
        return self.stream1.keyed and self.stream2.keyed

    def _apply(self, kind: Kind, name: str, func: Any, output_type: Any) -> S:
        if self.stream1.keyed != self.stream2.keyed:
            msg = (
                f"{name}: one of the connected streams is keyed and the other is not; "
                "key both, or none"
            )
            raise UsageError(msg)
        operator = self.stream1.env.declare(
            kind,
            name,
            inputs=[list(self.stream1.edges), list(self.stream2.edges)],
            function=func,
            output_type=declared_type(output_type),
        )
        return self._result(operator)


class BroadcastStream:
    """A stream whose every record goes to all subtasks, to be kept in broadcast state.

    Example:
        stream.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    """

    def __init__(
        self, input_stream: Stream, broadcast_state_descriptors: list[MapStateDescriptor]
    ) -> None:
        """Hold the broadcast edges and the states they may be kept in.

        Raises:
            TypeError: a descriptor is not a `MapStateDescriptor`.
            UsageError: a descriptor has a time to live.
        """
        for descriptor in broadcast_state_descriptors:
            require_type(descriptor, MapStateDescriptor, "a MapStateDescriptor")
            refuse_ttl(descriptor)
        self.input_stream = input_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors


class BroadcastConnection(Generic[S]):
    """A stream together with a broadcast stream."""

    def __init__(
        self, non_broadcast_stream: Stream, broadcast_stream: BroadcastStream, result: Result[S]
    ) -> None:
        """Connect a stream with a broadcast one of the same program."""
        check_same_program(non_broadcast_stream, broadcast_stream.input_stream, "connect")
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_stream.broadcast_state_descriptors
        self._result = result

    def _process(self, func: Any, output_type: Any) -> S:
        _require(func, BroadcastProcessFunction, KeyedBroadcastProcessFunction)
        keyed = self.non_broadcast_stream.keyed
        if keyed and isinstance(func, BroadcastProcessFunction):
            msg = "BroadcastProcessFunction should be applied to non-keyed DataStream"
            raise TypeError(msg)
        if not keyed and isinstance(func, KeyedBroadcastProcessFunction):
            msg = "KeyedBroadcastProcessFunction should be applied to keyed DataStream"
            raise TypeError(msg)
        operator = self.non_broadcast_stream.env.declare(
            kinds.BROADCAST_PROCESS,
            "Keyed-Co-Process-Broadcast" if keyed else "Co-Process-Broadcast",
            inputs=[
                list(self.non_broadcast_stream.edges),
                list(self.broadcast_stream.input_stream.edges),
            ],
            function=func,
            output_type=declared_type(output_type),
            options={"descriptors": list(self.broadcast_state_descriptors)},
        )
        return self._result(operator)


def _keyed(stream: Stream, selector: Any, key_type: Any) -> Stream:
    spec = key_spec(selector, key_type, stream.record_type)
    return Stream(stream.env, stream._spread(Partitioning.HASH, key=spec))


def _require(func: Any, *kinds: type) -> None:
    expected = " or ".join(kind.__name__ for kind in kinds)
    require_instance(func, expected)
    if not isinstance(func, kinds):
        msg = f"The input must be a {expected}, found {type(func).__name__}: {func!r}"
        raise TypeError(msg)
