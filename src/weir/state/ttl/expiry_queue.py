"""Removing entries as soon as they expire: a queue of when to look at which key.

Every address (key group, key, namespace) that was written is in the queue once, not later than its
first entry expires. When its time has come, what is expired is removed, and the address goes back
into the queue if anything is left. The queue is in memory only: after a restore it begins with all
addresses, to be looked at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from weir.backend.base import NO_KEY, VOID, KeyedBackend
from weir.state.ttl.rules import END_OF_TIME, TtlRules

Expire: TypeAlias = Callable[[Any, int], int | None]
"""Remove what is expired under the current key; return the oldest timestamp that is left."""
_BUCKETS_PER_TTL = 64
_BUCKET_MS_MAX = 1000


class ExpiryQueue:
    """When to look at the keys of one state.

    Times are rounded up to buckets: an entry goes at most a 64th of its life, and at most a
    second, after it expired.
    """

    def __init__(self, backend: KeyedBackend, expire: Expire, raw: Any, rules: TtlRules) -> None:
        """Start empty, over the backend's own handle of the state."""
        self._backend = backend
        self._raw = raw
        self._rules = rules
        self._expire = expire
        self._width = max(1, min(_BUCKET_MS_MAX, rules.ttl_ms // _BUCKETS_PER_TTL))
        self._buckets: dict[int, list[Any]] = {}
        self._times: list[int] = []
        self._waiting: set[Any] = set()

    def __len__(self) -> int:
        """Count the addresses that wait."""
        return len(self._waiting)

    def rebuild(self, state_name: str) -> None:
        """Take all addresses that are in the backend, to be looked at the next time."""
        now = self._rules.now()
        for address in self._backend.addresses(state_name):
            self._put(address, now)

    def noted(self, write: Callable[..., None]) -> Callable[..., None]:
        """Return a function that writes and takes note of the current address."""

        def write_and_note(*args: Any) -> None:
            write(*args)
            self.note()

        return write_and_note

    def note(self, namespace: Any = None) -> None:
        """Take note that the current key was written, in a namespace or in the current one."""
        current = self._backend.current
        space = current.namespace if namespace is None else namespace
        address = (current.group, current.key, space)
        if address not in self._waiting:
            self._put(address, self._rules.stamp() + self._rules.ttl_ms)

    def _put(self, address: Any, due: int) -> None:
        if due >= END_OF_TIME:
            return
        self._waiting.add(address)
        bucket = -(-due // self._width) * self._width
        waiting = self._buckets.get(bucket)
        if waiting is None:
            self._buckets[bucket] = [address]
            heapq.heappush(self._times, bucket)
        else:
            waiting.append(address)

    def next_time(self) -> int | None:
        """Return when `run` will have something to do."""
        return self._times[0] if self._times else None

    def run(self) -> None:
        """Remove what is expired from all addresses whose time has come."""
        now, times = self._rules.now(), self._times
        if not times or times[0] > now:
            return
        current, limit = self._backend.current, self._rules.limit()
        while times and times[0] <= now:
            for address in self._buckets.pop(heapq.heappop(times)):
                current.group, current.key, current.namespace = address
                self._waiting.discard(address)
                oldest = self._expire(self._raw, limit)
                if oldest is not None:
                    self._put(address, oldest + self._rules.ttl_ms)
        current.key, current.namespace = NO_KEY, VOID


def expire_value(raw: Any, limit: int) -> int | None:
    """Expire the pair of a value state."""
    return _expire_pair(raw, raw.value(), limit)


def expire_folded(raw: Any, limit: int) -> int | None:
    """Expire the pair of a reducing or aggregating state."""
    return _expire_pair(raw, raw.get(), limit)


def _expire_pair(raw: Any, pair: Any, limit: int) -> int | None:
    if pair is None:
        return None
    if pair[1] <= limit:
        raw.clear()
        return None
    stamp: int = pair[1]
    return stamp


def expire_list(raw: Any, limit: int) -> int | None:
    """Expire elements of a list state."""
    pairs = list(raw.get())
    left = [pair for pair in pairs if pair[1] > limit]
    if len(left) < len(pairs):
        raw.update(left)
    return min((pair[1] for pair in left), default=None)


def expire_map(raw: Any, limit: int) -> int | None:
    """Expire entries of a map state."""
    entries = list(raw.items())
    for key, pair in entries:
        if pair[1] <= limit:
            raw.remove(key)
    return min((pair[1] for _, pair in entries if pair[1] > limit), default=None)
