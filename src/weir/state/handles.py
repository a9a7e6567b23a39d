"""Every state handle by PyFlink's name: the keyed ones of the backends and broadcast state.

`weir.datastream.state` re-exports this module. Broadcast state is operator state: the same map
in every subtask, read-write on the broadcast side and read-only on the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from weir.backend.handles import (
    AggregatingState,
    AppendingState,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    State,
    ValueState,
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


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """A look at broadcast state from the side that must not change it."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value under a map key, None when there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Tell whether a map key is present."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V | None]]:
        """Return all entries."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return all map keys."""

    @abstractmethod
    def values(self) -> Iterable[V | None]:
        """Return all values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Tell whether there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        """Return the value under a map key, None when there is none."""
        return self.get(key)

    def __contains__(self, key: object) -> bool:
        """Tell whether a map key is present."""
        return self.contains(key)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        """Go through the map keys."""
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Broadcast state from the side that maintains it."""

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value under a map key."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V | None]) -> None:
        """Put all entries of a mapping, all or none."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key; nothing happens when it is absent."""

    def __setitem__(self, key: K, value: V | None) -> None:
        """Set the value under a map key."""
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        """Remove a map key; nothing happens when it is absent."""
        self.remove(key)
