"""What the subtasks of the current attempt reported last, and when they want an epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from weir.clock import Clock
from weir.runtime.report import SubtaskReport


class Reports:
    """The newest report of every subtask; thread-safe.

    `looked_ms` is when somebody last asked whether the sources had nothing, and they had nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[tuple[int, int], SubtaskReport] = {}
        self.looked_ms: int | None = None

    def keep(self, reports: Iterable[SubtaskReport]) -> None:
        """Take the reports of an epoch."""
        with self._lock:
            self._newest.update((report.place, report) for report in reports)

    def clear(self) -> None:
        """Forget everything: another attempt begins."""
        with self._lock:
            self._newest.clear()
            self.looked_ms = None

    def all(self) -> list[SubtaskReport]:
        """Return the newest report of every subtask."""
        with self._lock:
            return list(self._newest.values())

    def are_due(self, clock: Clock, found_nothing_ms: Callable[[], int | None]) -> bool:
        """Tell whether a subtask wants an epoch: for a timer, or since somebody is idle by now.

        Silence counts only up to a moment when the sources were looked at, and had nothing.
        """
        if (timer := self.next_timer_ms()) is not None and timer <= clock.now_ms():
            return True
        idle_from = _first(report.idle_from_ms for report in self.all())
        if idle_from is None or idle_from > clock.monotonic_ms():
            return False
        if (looked := found_nothing_ms()) is not None:
            self.looked_ms = looked
        return looked is not None and idle_from <= looked

    def next_timer_ms(self) -> int | None:
        """Return when the next processing-time timer of any slot is due."""
        return _first(report.next_timer_ms for report in self.all())


def _first(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
