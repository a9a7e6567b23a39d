"""What windows hold, over keyed state: records, a reduced value, an accumulator.

The operator sets the current key and the namespace of the state window; contents only read and
write there. A folded value is kept as plain value state, so that whoever folds many records of a
key and window reads and writes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from weir.backend.base import CurrentKey
from weir.common.state import ValueState
from weir.common.typeinfo import TypeInformation, Types
from weir.state.descriptor import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from weir.window.spec import Contents, Holding

CONTENTS = "_window_contents"


class WindowContents(Protocol):
    """The contents of the current key and state window."""

    def add(self, value: Any, timestamp: int | None) -> None:
        """Add a record."""

    def elements(self) -> list[Any]:
        """Return what the window function sees; nothing when there are no contents."""

    def clear(self) -> None:
        """Remove the contents."""

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        """Move the contents of namespaces into another one, behind what that holds."""


class Records:
    """All records, in the order in which they came."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.elements = state.get
        self.clear = state.clear
        self.merge = state.merge_namespaces

    def add(self, value: Any, timestamp: int | None) -> None:
        """Append a record."""
        self.state.add(value)


class TimedRecords:
    """All records with their timestamps, for evictors; `fold` is what the function sees of them."""

    def __init__(self, state: Any, fold: Callable[[list[Any]], list[Any]]) -> None:
        self.state = state
        self.fold = fold
        self.elements = state.get
        self.clear = state.clear
        self.merge = state.merge_namespaces

    def add(self, value: Any, timestamp: int | None) -> None:
        """Append a record."""
        self.state.add((value, timestamp))


class Folded:
    """One value: that of a reduce function, or the accumulator of an aggregate function."""

    def __init__(self, state: ValueState[Any], current: CurrentKey, how: Fold) -> None:
        self.state = state
        self.how = how
        self._current = current
        self.clear = state.clear

    def add(self, value: Any, timestamp: int | None) -> None:
        """Fold a record in."""
        held = self.state.value()
        self.state.update(self.how.first(value) if held is None else self.how.add(held, value))

    def elements(self) -> list[Any]:
        """Return the result as the only element; nothing when there is none."""
        return self.result_of(self.state.value())

    def result_of(self, held: Any) -> list[Any]:
        """Return the result of a value; as in Flink, None is no result."""
        result = None if held is None else self.how.result(held)
        return [] if result is None else [result]

    def merge(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the sources into that of the target, in the order given."""
        current, state = self._current, self.state
        current.namespace = target
        held = state.value()
        for source in sources:
            current.namespace = source
            other = state.value()
            if other is not None:
                state.clear()
                held = other if held is None else self.how.merge(held, other)
        current.namespace = target
        state.update(held)


class Fold(Protocol):
    """How records become one value."""

    def first(self, value: Any) -> Any:
        """Return the value of a first record."""

    def add(self, held: Any, value: Any) -> Any:
        """Return the value with one more record."""

    def merge(self, held: Any, other: Any) -> Any:
        """Return one value of two."""

    def result(self, held: Any) -> Any:
        """Return what the window function sees."""


class ReduceFold:
    """By a reduce function; the value of one record is that record."""

    def __init__(self, function: Any) -> None:
        self.add = self.merge = function.reduce

    def first(self, value: Any) -> Any:
        """Return the record."""
        return value

    def result(self, held: Any) -> Any:
        """Return the value."""
        return held


class AggregateFold:
    """By an aggregate function; the value is its accumulator."""

    def __init__(self, function: Any) -> None:
        self._add = function.add
        self._create = function.create_accumulator
        self.merge = function.merge
        self.result = function.get_result

    def first(self, value: Any) -> Any:
        """Return a new accumulator with the record."""
        return self._add(value, self._create())

    def add(self, held: Any, value: Any) -> Any:
        """Return the accumulator with the record."""
        return self._add(value, held)


def fold_of(contents: Contents) -> Fold | None:
    """Return how records become one value; None where windows hold the records."""
    if contents.holding is Holding.REDUCED:
        return ReduceFold(contents.function)
    return AggregateFold(contents.function) if contents.holding is Holding.AGGREGATED else None


def open_contents(
    contents: Contents,
    get_state: Callable[[StateDescriptor], Any],
    current: CurrentKey,
    *,
    evicting: bool,
) -> WindowContents:
    """Register the state of the contents of all windows of an operator."""
    fold, declared = fold_of(contents), contents.value_type
    if evicting:
        aggregated = contents.holding is Holding.AGGREGATED
        record_type = contents.record_type if aggregated else declared
        pairs = ListStateDescriptor(CONTENTS, _timed_type(record_type))
        return TimedRecords(get_state(pairs), _folding(contents, fold))
    if fold is None:
        return Records(get_state(ListStateDescriptor(CONTENTS, declared)))
    return Folded(get_state(ValueStateDescriptor(CONTENTS, declared)), current, fold)


def _timed_type(declared: TypeInformation | None) -> TypeInformation | None:
    """Return the type of (record, timestamp)."""
    return None if declared is None else Types.TUPLE([declared, Types.LONG()])


def _folding(contents: Contents, fold: Fold | None) -> Callable[[list[Any]], list[Any]]:
    """Return what makes the surviving records of a window what its function sees."""
    if fold is None:
        return lambda values: values
    how = fold

    def folded(values: list[Any]) -> list[Any]:
        if not values:
            # An accumulator of nothing has a result; a reduction of nothing is nothing.
            empty = contents.holding is Holding.AGGREGATED
            return [how.result(contents.function.create_accumulator())] if empty else []
        held = how.first(values[0])
        for value in values[1:]:
            held = how.add(held, value)
        return [how.result(held)]

    return folded
