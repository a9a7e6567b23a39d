"""The user's folding functions over `(value, timestamp)` pairs.

A backend calls them like any reduce or aggregate function. A pair that is expired takes no part,
unless expired entries may be seen. `replacing` makes the next `add` store its argument as it is:
that is how a handle writes a refreshed pair through `add` alone. During a merge of namespaces
(`merging`) what remains is stamped anew, as after an `add`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.state.ttl.rules import TtlRules

Pair = tuple[Any, int]


class TtlFold:
    """What reduce and aggregate functions have in common: two pairs become one."""

    def __init__(self, rules: TtlRules, combine: Callable[[Any, Any], Any]) -> None:
        self.replacing = False
        self.merging = False
        self._unseen = rules.unseen
        self._stamp = rules.stamp
        self._combine = combine

    def fold(self, old: Pair, new: Pair) -> Pair | None:
        """Combine what can be seen of two pairs; None when that is nothing."""
        unseen = self._unseen()
        if old[1] <= unseen:
            return None if new[1] <= unseen else self._stamped(new[0], new[1])
        if new[1] <= unseen:
            return self._stamped(old[0], old[1])
        value = self._combine(old[0], new[0])
        if value is None:
            return None
        # The later one: late records of event time must not shorten the life of a result.
        return self._stamped(value, new[1] if new[1] > old[1] else old[1])

    def _stamped(self, value: Any, stamp: int) -> Pair:
        return (value, max(stamp, self._stamp()) if self.merging else stamp)


class TtlReduce(TtlFold):
    """A reduce function over pairs."""

    def __call__(self, old: Pair, new: Pair) -> Pair | None:
        """Reduce two pairs."""
        return new if self.replacing else self.fold(old, new)


class TtlAggregate(TtlFold):
    """An aggregate function whose accumulators are pairs."""

    def __init__(self, rules: TtlRules, function: Any) -> None:
        """Take the rules of the state and the user's `AggregateFunction`."""
        super().__init__(rules, function.merge)
        self.result = function.get_result
        """Return the user's result of the user's accumulator."""
        self._function = function

    def create_accumulator(self) -> Pair:
        """Return a new accumulator."""
        return (self._function.create_accumulator(), self._stamp())

    def add(self, value: Any, accumulator: Pair) -> Pair | None:
        """Add a value to what can be seen of the accumulator; any add starts its life anew."""
        if self.replacing:
            replaced: Pair = value
            return replaced
        inner, stamp = accumulator
        if stamp <= self._unseen():
            inner = self._function.create_accumulator()
        inner = self._function.add(value, inner)
        return None if inner is None else (inner, max(stamp, self._stamp()))

    def get_result(self, accumulator: Pair) -> Pair:
        """Return the pair itself: the handle checks its timestamp before it asks for a result."""
        return accumulator

    def merge(self, a: Pair, b: Pair) -> Pair | None:
        """Merge two accumulators."""
        return self.fold(a, b)
