"""A clock that only moves when told to."""

from __future__ import annotations

from weir.errors import UsageError


class ManualClock:
    """A `weir.clock.Clock` for tests; wall-clock and monotonic time advance together.

    Setting the wall clock, also back, leaves monotonic time alone, as on a real machine.

    Example:
        clock = ManualClock()
        clock.advance(1_000)
    """

    def __init__(self, now_ms: int = 0) -> None:
        """Start at a wall-clock time; monotonic time starts at 0."""
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Wall-clock time: milliseconds since the Unix epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Time that never goes back."""
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass.

        Raises:
            UsageError: the duration is negative.
        """
        if by_ms < 0:
            msg = f"time cannot pass by {by_ms} ms: use set() to turn the wall clock back"
            raise UsageError(msg)
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def set(self, now_ms: int) -> None:
        """Set the wall clock."""
        self._now_ms = now_ms
