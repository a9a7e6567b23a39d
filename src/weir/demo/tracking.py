"""From a job's progress reports to the figures that people watch.

An attempt counts its records from zero; what was done before is what had been done at the epoch of
the checkpoint or savepoint that the attempt was restored from. A job that goes on from another
one's savepoint goes on numbering epochs as well.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

# One record reaches the sink for every payment; rules do not.
OPERATOR = "output"
_RATE_WINDOW_MS = 5_000


@dataclass(frozen=True)
class Figures:
    """One moment of the running job."""

    seconds: float
    rows: int
    rows_total: int
    rows_per_second: int
    attempt: int
    epoch: int
    slots: int
    state_entries: int
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_ms: int


class Tracker:
    """Follows a job, and the jobs that go on from its savepoints."""

    def __init__(self, rows_total: int, now_ms: int) -> None:
        self._total = rows_total
        self._started_ms = now_ms
        self._attempt: int | None = 0
        self._base = 0
        self._checkpoints = self._checkpoints_before = 0
        self._at_epoch: dict[int, int] = {0: 0}
        self._last = 0
        self._recent: deque[tuple[int, int]] = deque([(now_ms, 0)])

    def next_job(self) -> None:
        """Expect reports of a job that was restored from the one before."""
        self._attempt = None
        self._checkpoints_before = self._checkpoints

    def update(self, progress: dict[str, Any], now_ms: int) -> Figures:
        """Take a report and return the figures."""
        epoch = progress["epoch"]
        if progress["attempt"] != self._attempt and epoch is not None:
            self._attempt = progress["attempt"]
            restored = progress["restored_epoch"]
            self._base = max(rows for e, rows in self._at_epoch.items() if e <= restored)
            self._recent = deque([(now_ms, self._base)])
        if epoch is not None and progress["attempt"] == self._attempt:
            count = self._base + progress["records_in"].get(OPERATOR, 0)
            self._last = self._at_epoch[epoch] = min(count, self._total)
        checkpoints = progress["checkpoints"]
        self._checkpoints = self._checkpoints_before + checkpoints["completed"]
        return Figures(
            seconds=(now_ms - self._started_ms) / 1000,
            rows=self._last,
            rows_total=self._total,
            rows_per_second=self._rate(now_ms),
            attempt=progress["attempt"],
            epoch=epoch or 0,
            slots=len(progress["slots"]),
            state_entries=progress["state_entries"],
            checkpoints=self._checkpoints,
            checkpoint_bytes=checkpoints["last_bytes"],
            checkpoint_ms=checkpoints["last_duration_ms"],
        )

    def _rate(self, now_ms: int) -> int:
        self._recent.append((now_ms, self._last))
        while len(self._recent) > 2 and now_ms - self._recent[0][0] > _RATE_WINDOW_MS:
            self._recent.popleft()
        since, rows = self._recent[0]
        return max(0, self._last - rows) * 1000 // max(1, now_ms - since)
