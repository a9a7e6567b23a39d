"""The time that counts for one state, and when an entry of it is expired.

An entry is expired if and only if `timestamp + ttl <= now`. Handles compare timestamps with
`now() - ttl`, which is the same; as the end of time is never a `now`, nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from weir.backend.base import Keep
from weir.clock import Clock

NO_TIME: Final = -(1 << 63)
END_OF_TIME: Final = (1 << 63) - 1


class EventTime:
    """The event time of one operator: its watermark, and the record that it is handling.

    Without a timestamp and before the first watermark event time is unknown; then the wall clock
    stands in for it, so that nothing is taken for older than it can be.
    """

    def __init__(self, clock: Clock) -> None:
        self.record: int | None = None
        self._watermark = NO_TIME
        self._clock = clock

    def advance(self, watermark: int) -> None:
        """Take a new watermark; that of the end of input is no time, and nothing expires by it."""
        if watermark < END_OF_TIME:
            self._watermark = watermark

    def now(self) -> int:
        """Return the watermark: `NO_TIME` before the first one, so that nothing is expired."""
        return self._watermark

    def stamp(self) -> int:
        """Return the timestamp of what is written now."""
        record, watermark = self.record, self._watermark
        if record is not None and record > watermark:
            return record
        return self._clock.now_ms() if watermark == NO_TIME else watermark


@dataclass(frozen=True)
class TtlRules:
    """How the entries of one state expire.

    Attributes:
        ttl_ms: how long an entry lives.
        refresh: a read starts its life anew.
        relaxed: a read of an expired entry shows it once more.
        now: the time that decides about expiry.
        stamp: the timestamp of what is written now, never less than `now`.
        event_time: `now` is the watermark, not the wall clock.
    """

    ttl_ms: int
    refresh: bool
    relaxed: bool
    now: Callable[[], int]
    stamp: Callable[[], int]
    event_time: bool = False

    def limit(self) -> int:
        """Return the latest timestamp that is expired now."""
        return self.now() - self.ttl_ms

    def unseen(self) -> int:
        """Return the latest timestamp that folding functions no longer see."""
        return NO_TIME - 1 if self.relaxed else self.now() - self.ttl_ms


class Expiry:
    """The `StateCleanup` of one state: what its backend may drop."""

    def __init__(self, rules: TtlRules, full_snapshot: bool) -> None:
        self.full_snapshot = full_snapshot
        self.rules = rules

    def keep(self) -> Keep:
        """Return the filter as of now."""
        limit = self.rules.limit()

        def keep(pair: Any) -> bool:
            return bool(pair[1] > limit)

        return keep

    def now_ms(self) -> int:
        """Return the timestamp for restored values that were stored without one."""
        return self.rules.stamp()
