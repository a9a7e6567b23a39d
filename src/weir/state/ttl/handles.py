"""State handles with a time to live, over the handles of any backend.

The handles below hold `(value, timestamp)` pairs. A read removes what it finds expired, whatever
the configuration: it says only whether the value is shown that once. Hot code: bound methods are
looked up once, and a call allocates nothing but the pair. `accesses` counts calls for clean-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weir.common.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from weir.state.ttl.expiry_queue import ExpiryQueue
from weir.state.ttl.functions import TtlAggregate, TtlFold
from weir.state.ttl.rules import TtlRules


class _Bound:
    """What every handle knows of its state."""

    __slots__ = ("_clear", "_now", "_raw", "_refresh", "_relaxed", "_stamp", "_ttl", "accesses")

    def __init__(self, raw: Any, rules: TtlRules) -> None:
        self.accesses = 0
        self._raw = raw
        self._clear = raw.clear
        self._now = rules.now
        self._stamp = rules.stamp
        self._ttl = rules.ttl_ms
        self._refresh = rules.refresh
        self._relaxed = rules.relaxed

    def clear(self) -> None:
        """Remove what is stored under the current key."""
        self.accesses += 1
        self._clear()


class TtlValueState(_Bound, ValueState[Any]):
    """One value per key, and its timestamp."""

    __slots__ = ("_read", "_write")

    def __init__(self, raw: Any, rules: TtlRules, queue: ExpiryQueue | None) -> None:
        super().__init__(raw, rules)
        self._read = raw.value
        self._write = raw.update if queue is None else queue.noted(raw.update)

    def value(self) -> Any:
        """Return the value of the current key, None when there is none that can be seen."""
        self.accesses += 1
        pair = self._read()
        if pair is None:
            return None
        if pair[1] <= self._now() - self._ttl:
            self._clear()
            return pair[0] if self._relaxed else None
        if self._refresh:
            stamp = self._stamp()
            if stamp > pair[1]:
                self._write((pair[0], stamp))
        return pair[0]

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        self.accesses += 1
        if value is None:
            self._clear()
        else:
            self._write((value, self._stamp()))


class TtlListState(_Bound, ListState[Any]):
    """A list per key, and a timestamp for each element."""

    __slots__ = ("_add", "_add_all", "_merged", "_update")

    def __init__(self, raw: Any, rules: TtlRules, queue: ExpiryQueue | None) -> None:
        super().__init__(raw, rules)
        noted = _unnoted if queue is None else queue.noted
        self._add, self._add_all, self._update = map(noted, (raw.add, raw.add_all, raw.update))
        self._merged = None if queue is None else queue.note

    def get(self) -> list[Any]:
        """Return the elements that can be seen, as a list of the caller's own."""
        self.accesses += 1
        pairs = list(self._raw.get())
        limit = self._now() - self._ttl
        left = [pair for pair in pairs if pair[1] > limit]
        if not left:
            if pairs:
                self._clear()
        elif self._refresh:
            stamp = self._stamp()
            self._update([(value, max(stamp, old)) for value, old in left])
        elif len(left) < len(pairs):
            self._update(left)
        return [value for value, _ in (pairs if self._relaxed else left)]

    def add(self, value: Any) -> None:
        """Append an element."""
        self.accesses += 1
        self._add(None if value is None else (value, self._stamp()))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all values, all or none."""
        self.accesses += 1
        self._add_all(self._stamped(values))

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; an empty one clears the state."""
        self.accesses += 1
        self._update(self._stamped(values))

    def _stamped(self, values: Iterable[Any] | None) -> Any:
        """Give all values one timestamp; what is no value is for the backend to refuse."""
        if values is None:
            return None
        stamp = self._stamp()
        return [None if value is None else (value, stamp) for value in values]

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the sources to that of the target; timestamps stay."""
        self.accesses += 1
        self._raw.merge_namespaces(target, sources)
        if self._merged is not None:
            self._merged(target)


class TtlMapState(_Bound, MapState[Any, Any]):
    """A map per key, and a timestamp for each entry; an entry with a None value expires too."""

    __slots__ = ("_put", "_put_all", "_read", "_remove")

    def __init__(self, raw: Any, rules: TtlRules, queue: ExpiryQueue | None) -> None:
        super().__init__(raw, rules)
        self._read = raw.get
        self._remove = raw.remove
        self._put = raw.put if queue is None else queue.noted(raw.put)
        self._put_all = raw.put_all if queue is None else queue.noted(raw.put_all)

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none that can be seen."""
        pair = self._seen(key)
        return None if pair is None else pair[0]

    def contains(self, key: Any) -> bool:
        """Tell whether a map key can be seen: this is a read."""
        return self._seen(key) is not None

    def _seen(self, key: Any) -> Any:
        self.accesses += 1
        pair = self._read(key)
        if pair is None:
            return None
        if pair[1] <= self._now() - self._ttl:
            self._remove(key)
            return pair if self._relaxed else None
        if self._refresh:
            stamp = self._stamp()
            if stamp > pair[1]:
                self._put(key, (pair[0], stamp))
        return pair

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a map key."""
        self.accesses += 1
        self._put(key, (value, self._stamp()))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Put all entries of a mapping, all or none, with one timestamp."""
        self.accesses += 1
        stamp = self._stamp()
        self._put_all({key: (value, stamp) for key, value in dict_value.items()})

    def remove(self, key: Any) -> None:
        """Remove a map key; nothing happens when it is absent."""
        self.accesses += 1
        self._remove(key)

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries of this moment that can be seen."""
        self.accesses += 1
        entries = list(self._raw.items())
        limit = self._now() - self._ttl
        expired = [key for key, pair in entries if pair[1] <= limit]
        for key in expired:
            self._remove(key)
        if self._refresh and len(expired) < len(entries):
            stamp = self._stamp()
            self._put_all({k: (p[0], max(stamp, p[1])) for k, p in entries if p[1] > limit})
        if expired and not self._relaxed:
            return [(key, pair[0]) for key, pair in entries if pair[1] > limit]
        return [(key, pair[0]) for key, pair in entries]

    def keys(self) -> list[Any]:
        """Return all map keys of this moment that can be seen."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """Return all values of this moment that can be seen."""
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        """Tell whether there are no entries; expired ones that are still there count."""
        self.accesses += 1
        return bool(self._raw.is_empty())


class _TtlFolding(_Bound):
    """What reducing and aggregating state have in common: one pair per key."""

    __slots__ = ("_add", "_fold", "_merged")

    def __init__(self, raw: Any, rules: TtlRules, queue: ExpiryQueue | None, fold: TtlFold) -> None:
        super().__init__(raw, rules)
        self._fold = fold
        self._add = raw.add if queue is None else queue.noted(raw.add)
        self._merged = None if queue is None else queue.note

    def _seen(self) -> Any:
        """Return the pair of the current key that can be seen, None when there is none."""
        self.accesses += 1
        pair = self._raw.get()
        if pair is None:
            return None
        if pair[1] <= self._now() - self._ttl:
            self._clear()
            return pair if self._relaxed else None
        if self._refresh:
            stamp = self._stamp()
            if stamp > pair[1]:
                self._replace((pair[0], stamp))
        return pair

    def _replace(self, pair: Any) -> None:
        self._fold.replacing = True
        try:
            self._add(pair)
        finally:
            self._fold.replacing = False

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold what the sources hold into the target; what is expired takes no part."""
        self.accesses += 1
        self._fold.merging = True
        try:
            self._raw.merge_namespaces(target, sources)
        finally:
            self._fold.merging = False
        if self._merged is not None:
            self._merged(target)


class TtlReducingState(_TtlFolding, ReducingState[Any]):
    """One folded value per key, and one timestamp for all of it."""

    __slots__ = ()

    def get(self) -> Any:
        """Return the folded value, None when there is none that can be seen."""
        pair = self._seen()
        return None if pair is None else pair[0]

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        self.accesses += 1
        if value is None:
            self._clear()
        else:
            self._add((value, self._stamp()))


class TtlAggregatingState(_TtlFolding, AggregatingState[Any, Any]):
    """One accumulator per key, and one timestamp for all of it."""

    __slots__ = ("_result",)

    def __init__(
        self, raw: Any, rules: TtlRules, queue: ExpiryQueue | None, fold: TtlAggregate
    ) -> None:
        super().__init__(raw, rules, queue, fold)
        self._result = fold.result

    def get(self) -> Any:
        """Return the result of the accumulator, None when there is none that can be seen."""
        pair = self._seen()
        return None if pair is None else self._result(pair[0])

    def add(self, value: Any) -> None:
        """Fold a value into the accumulator; None clears."""
        self.accesses += 1
        self._add(value)


def _unnoted(write: Callable[..., None]) -> Callable[..., None]:
    return write
