"""The time that counts for one state, and when an entry of it is expired.

An entry is expired if and only if `timestamp + ttl <= now`. Handles compare timestamps with
`now() - ttl`, which is the same; as the end of time is never a `now`, nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
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
        self._timestamps: Sequence[int | None] | None = None
        self._records: Iterator[Any] = iter(())
        self._watermark = NO_TIME
        self._clock = clock

    def begin_records(
        self, timestamps: Sequence[int | None] | None, records: Iterator[Any]
    ) -> None:
        """Learn the timestamps of the records that are handled next.

        The current record is the last one that was taken out of `records`, the iterator of a list.
        Nothing has to be said for each record, and a state that is asked for while one is handled
        knows its timestamp, too.
        """
        self._timestamps = timestamps
        self._records = records

    def end_records(self) -> None:
        """Learn that these records are handled."""
        self._timestamps = None
        self._records = iter(())

    def record(self) -> int | None:
        """Return the timestamp of the current record, None when there is none."""
        timestamps = self._timestamps
        if timestamps is None:
            return None
        return timestamps[len(timestamps) - length_hint(self._records) - 1]

    def advance(self, watermark: int) -> None:
        """Take a new watermark; that of the end of input is no time, and nothing expires by it."""
        if watermark < END_OF_TIME:
            self._watermark = watermark

    def now(self) -> int:
        """Return the watermark: `NO_TIME` before the first one, so that nothing is expired."""
        return self._watermark

    def stamp(self) -> int:
        """Return the timestamp of what is written now."""
        record, watermark = self.record(), self._watermark
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
