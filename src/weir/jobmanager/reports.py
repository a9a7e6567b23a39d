"""What the subtasks of the current attempt reported last."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from weir.runtime.report import SubtaskReport


class Reports:
    """The newest report of every subtask; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[tuple[int, int], SubtaskReport] = {}

    def keep(self, reports: Iterable[SubtaskReport]) -> None:
        """Take the reports of an epoch."""
        with self._lock:
            self._newest.update((report.place, report) for report in reports)

    def clear(self) -> None:
        """Forget everything: another attempt begins."""
        with self._lock:
            self._newest.clear()

    def all(self) -> list[SubtaskReport]:
        """Return the newest report of every subtask."""
        with self._lock:
            return list(self._newest.values())

    def next_timer_ms(self) -> int | None:
        """Return when the next processing-time timer of any slot is due."""
        timers = (report.next_timer_ms for report in self.all())
        return min((time for time in timers if time is not None), default=None)
