"""Every state handle by PyFlink's name: the keyed ones of the backends and broadcast state.

`weir.datastream.state` re-exports this module. Broadcast state is operator state: the same map
in every subtask, read-write on the broadcast side and read-only on the other.
"""

from __future__ import annotations

from typing import TypeVar

from weir.backend.handles import (
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

K = TypeVar("K")
V = TypeVar("V")


class ReadOnlyBroadcastState(ReadableMap[K, V]):
    """A look at broadcast state from the side that must not change it."""

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """Broadcast state from the side that maintains it."""

    __slots__ = ()
