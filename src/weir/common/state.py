"""The typed handles of keyed state, as PyFlink names them.

A handle belongs to one state of one operator subtask and always acts on the current key (and
namespace) of its backend. Handles live here, below the backends, which implement them; programs
import them from `weir.datastream.state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from weir.common._generics import IN, OUT, K, T, V


class State(ABC):
    """Any state: at least it can be cleared.

    Example:
        def forget(*states: State):
            for state in states:
                state.clear()
    """

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove what is stored under the current key."""


class ValueState(State, Generic[T]):
    """One value per key.

    Example:
        class Count(KeyedProcessFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

            def process_element(self, value, ctx):
                self.count.update((self.count.value() or 0) + 1)
                yield value[0], self.count.value()
    """

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the value of the current key, None when there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value of the current key; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that values are added to, kept as a list or folded into one value.

    Example:
        def add_twice(state: AppendingState, value):
            state.add(value)
            state.add(value)
            return state.get()
    """

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT:
        """Return what the added values amount to."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state of which several windows' contents can be merged into one.

    Example:
        def forget(state: MergingState):
            state.clear()
    """

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list of elements per key; None is not an element.

    Example:
        class LastThree(KeyedProcessFunction):
            def open(self, runtime_context):
                last = ListStateDescriptor("last", Types.LONG())
                self.last = runtime_context.get_list_state(last)

            def process_element(self, value, ctx):
                self.last.update([*self.last, value[1]][-3:])
    """

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
    """One value per key, folded by a reduce function; `add(None)` clears.

    Example:
        class Total(KeyedProcessFunction):
            def open(self, runtime_context):
                total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
                self.total = runtime_context.get_reducing_state(total)

            def process_element(self, value, ctx):
                self.total.add(value[1])
                yield value[0], self.total.get()
    """

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT | None]):
    """One accumulator per key, folded by an aggregate function; `add(None)` clears.

    Example:
        class Average(KeyedProcessFunction):
            def open(self, runtime_context):
                pair = Types.TUPLE([Types.LONG(), Types.LONG()])
                mean = AggregatingStateDescriptor("mean", Mean(), pair)
                self.mean = runtime_context.get_aggregating_state(mean)

            def process_element(self, value, ctx):
                self.mean.add(value[1])
                yield value[0], self.mean.get()
    """

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

    Example:
        class Visits(KeyedProcessFunction):
            def open(self, runtime_context):
                pages = MapStateDescriptor("pages", Types.STRING(), Types.LONG())
                self.pages = runtime_context.get_map_state(pages)

            def process_element(self, value, ctx):
                self.pages.put(value[0], (self.pages.get(value[0]) or 0) + 1)
    """

    __slots__ = ()
