"""The typed handles of keyed state, as PyFlink names them.

A handle belongs to one state of one operator subtask and always acts on the current key (and
namespace) of its backend. Handles live here, below `weir.state`, because backends implement them;
programs import them from `weir.datastream.state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from weir.common._generics import IN, OUT, K, T, V


class State(ABC):
    """Any state: at least it can be cleared."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove what is stored under the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the value of the current key, None when there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value of the current key; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that values are added to, kept as a list or folded into one value."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT:
        """Return what the added values amount to."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state of which several windows' contents can be merged into one."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list of elements per key; None is not an element."""

    __slots__ = ()

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the list; an empty one clears the state."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append all values, all or none; nothing happens for an empty iterable."""

    def __iter__(self) -> Iterator[T]:
        """Go through the elements in the order they were added."""
        return iter(self.get())


class ReducingState(MergingState[T, T | None]):
    """One value per key, folded by a reduce function; `add(None)` clears."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT | None]):
    """One accumulator per key, folded by an aggregate function; `add(None)` clears."""

    __slots__ = ()


class ReadableMap(State, Generic[K, V]):
    """What can be read of a map; None is allowed as a value."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value under a map key, None when there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Tell whether a map key is present, also with a None value."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return all entries; empty, never None, when there are none."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return all map keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
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


class WritableMap(ReadableMap[K, V]):
    """A map that can be changed."""

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


class MapState(WritableMap[K, V]):
    """A map per key; None is allowed as a value. Removing the last entry clears the state.

    `items`, `keys` and `values` show the entries of the moment they are called: entries may be
    put and removed while iterating.
    """

    __slots__ = ()
