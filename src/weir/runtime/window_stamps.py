"""Timestamps of what windows give: the window's last moment, where time ends it.

A window without an end has none. Its results have the time of what fired it, a record or a timer,
as in PyFlink; Java's would be at the end of time. There no event-time operator could take them: no
window begins or ends there. So what the end of time itself fires gets an earlier moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.window.windows import MAX_TIMESTAMP, MIN_TIMESTAMP


class ResultStamps:
    """The timestamps of one operator's results."""

    def __init__(self) -> None:
        self._reached = MIN_TIMESTAMP
        self._latest: int | None = None
        self._over = False

    def saw(self, timestamps: Iterable[int | None] | None) -> None:
        """Take note of the timestamps of records."""
        known = [time for time in timestamps or () if time is not None and time > MIN_TIMESTAMP]
        if known:
            latest = max(known)
            self._latest = latest if self._latest is None else max(self._latest, latest)

    def advance(self, before: int, watermark: int) -> None:
        """Event time goes on from one watermark to another; timers up to that fire next."""
        if before != MAX_TIMESTAMP:
            self._reached = before
        self._over = watermark == MAX_TIMESTAMP

    def of(self, window: Any, fired: int | None) -> int | None:
        """Return the timestamp of what a window gives that something of this time fired."""
        last: int = window.max_timestamp()
        if last != MAX_TIMESTAMP:
            return last
        if fired == MAX_TIMESTAMP:
            return self._before_the_end()
        if self._over and fired is not None:
            # The end comes behind all timers, which fire in order.
            self._reached = max(self._reached, fired)
        return fired

    def _before_the_end(self) -> int | None:
        """Return the first moment that event time had not reached: it is late for nobody.

        Where it never began, as in BATCH mode, that is the time of the latest record.
        """
        return self._latest if self._reached == MIN_TIMESTAMP else self._reached + 1
