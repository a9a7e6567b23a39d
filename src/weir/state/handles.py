"""Every state handle by PyFlink's name: the keyed ones of the backends and broadcast state.

`weir.datastream.state` re-exports this module. Broadcast state is operator state: the same map
in every subtask, read-write on the broadcast side and read-only on the other.
"""

from __future__ import annotations

from weir.common._generics import K, V
from weir.common.state import (
    AggregatingState,
    AppendingState,
    ListState,
    MapState,
    MergingState,
    ReadableMap,
    ReducingState,
    State,
    ValueState,
    WritableMap,
)

__all__ = [
    "AggregatingState",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "MapState",
    "MergingState",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "State",
    "ValueState",
]


class ReadOnlyBroadcastState(ReadableMap[K, V]):
    """A look at broadcast state from the side that must not change it.

    Example:
        def process_element(self, value, ctx):
            rules: ReadOnlyBroadcastState = ctx.get_broadcast_state(self.rules)
            yield value, rules.get(value[0])
    """

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """Broadcast state from the side that maintains it.

    Example:
        def process_broadcast_element(self, value, ctx):
            rules: BroadcastState = ctx.get_broadcast_state(self.rules)
            rules.put(value[0], value[1])
    """

    __slots__ = ()
