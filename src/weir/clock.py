"""Time as an argument: everything that needs the time is given a `Clock`.

Production uses `SystemClock`; tests use `weir.testing.ManualClock` and never sleep.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time in milliseconds."""

    def now_ms(self) -> int:
        """Wall-clock time: milliseconds since the Unix epoch."""

    def monotonic_ms(self) -> int:
        """Time that never goes back, for measuring durations."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall-clock time: milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Time that never goes back, for measuring durations."""
        return time.monotonic_ns() // 1_000_000
