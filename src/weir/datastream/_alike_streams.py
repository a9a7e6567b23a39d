"""Calls that give a stream of the records that a stream has: spreads, rolling aggregates.

`S_co` is that stream's class with the type of its records, so that a type checker keeps both. These
classes stay below the stream classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from weir.common.watermark_strategy import FieldTimestamps, WatermarkStrategy
from weir.datastream._checks import aggregate_field, check_timestamp_field, require_type
from weir.datastream._connected_streams import BroadcastStream
from weir.datastream._key_selection import key_spec
from weir.datastream._plain_functions import partition_callable
from weir.datastream._stream import Stream, declared_type
from weir.datastream._with_state import FilterWithState
from weir.datastream.functions import Function
from weir.graph import kinds
from weir.graph.kinds import Kind
from weir.graph.transformation import Partitioning, Transformation
from weir.state.descriptor import MapStateDescriptor

S_co = TypeVar("S_co", bound=Stream, covariant=True)


class SpreadStream(Stream, Generic[S_co]):
    """A stream whose records can be given times, and be spread over the next subtasks."""

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> S_co:
        """Give records timestamps, and the stream watermarks."""
        require_type(watermark_strategy, WatermarkStrategy, "a WatermarkStrategy")
        assigner = watermark_strategy.timestamp_assigner
        if isinstance(assigner, FieldTimestamps):
            check_timestamp_field(assigner.field, self.record_type)
        return self._apply(
            kinds.TIMESTAMPS, "Timestamps/Watermarks", watermark_strategy, self.record_type
        )

    def shuffle(self) -> S_co:
        """Spread records at random."""
        return self._respread(Partitioning.SHUFFLE)

    def rebalance(self) -> S_co:
        """Spread records evenly, in turn."""
        return self._respread(Partitioning.REBALANCE)

    def rescale(self) -> S_co:
        """Spread records evenly among nearby subtasks."""
        return self._respread(Partitioning.RESCALE)

    def forward(self) -> S_co:
        """Keep records in the subtask that they are in."""
        return self._respread(Partitioning.FORWARD)

    def global_(self) -> S_co:
        """Send all records to the first subtask."""
        return self._respread(Partitioning.GLOBAL)

    def partition_custom(self, partitioner: Any, key_selector: Any) -> S_co:
        """Let a `Partitioner` or callable choose the subtask by a key."""
        function = partition_callable(partitioner)
        return self._respread(
            Partitioning.CUSTOM,
            key=key_spec(key_selector, None, self.record_type),
            partition_fn=function,
        )

    @overload
    def broadcast(self) -> S_co: ...

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
    ) -> S_co | BroadcastStream:
        """Send every record to all subtasks; with descriptors, to be kept in broadcast state."""
        spread = self._respread(Partitioning.BROADCAST)
        if broadcast_state_descriptor is None:
            return spread
        descriptors = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return BroadcastStream(spread, descriptors)

    def _apply(self, kind: Kind, name: str, function: Any, output_type: Any) -> S_co:
        raise NotImplementedError

    def _respread(self, partitioning: Partitioning, **how: Any) -> S_co:
        raise NotImplementedError


class RollingStream(Stream, Generic[S_co]):
    """A keyed stream that can be aggregated by a field."""

    def sum(self, position_to_sum: int | str = 0) -> S_co:
        """Emit, per key, the first record with the sum of a field so far."""
        return self._aggregate("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> S_co:
        """Emit, per key, the first record with the least value of a field so far."""
        return self._aggregate("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> S_co:
        """Emit, per key, the first record with the greatest value of a field so far."""
        return self._aggregate("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> S_co:
        """Emit, per key, the record with the least value of a field so far."""
        return self._aggregate("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> S_co:
        """Emit, per key, the record with the greatest value of a field so far."""
        return self._aggregate("max_by", position_to_max_by)

    def filter_with_state(self, func: Callable[[Any, Any], Any], state_type: Any = None) -> S_co:
        """Keep the records for which `func(value, state) -> (keep, new state)` says so."""
        types = (self.record_type, state_type)
        return self._with_state(kinds.FILTER, "Filter", FilterWithState, func, types=types)

    def _with_state(
        self, kind: Kind, name: str, wrapper: Any, func: Any, types: tuple[Any, Any]
    ) -> S_co:
        if not callable(func) or isinstance(func, (type, Function)):
            msg = (
                f"{kind.name}_with_state() needs a callable of (value, state) that returns "
                f"(result, new state), found {type(func).__name__}: {func!r}"
            )
            raise TypeError(msg)
        output_type, state_type = types
        function = wrapper(func, declared_type(state_type, "state_type"))
        return self._apply(kind, name, function, output_type)

    def _aggregate(self, op: str, position: int | str) -> S_co:
        field = aggregate_field(op, position, self.record_type)
        operator = self._declare(
            kinds.AGGREGATE,
            op.replace("_", " ").title().replace(" ", ""),
            output_type=self.record_type,
            options={"op": op, "field": field},
        )
        return self._after(operator)

    def _after(self, operator: Transformation) -> S_co:
        raise NotImplementedError

    def _apply(self, kind: Kind, name: str, function: Any, output_type: Any) -> S_co:
        raise NotImplementedError
