"""The watermark of one edge as a receiving subtask sees it.

An edge is as far as the slowest of its upstreams. Behind a slot level the upstreams are subtasks.
The source side has no lasting subtasks: there the upstreams are the watermark generators, and the
partitions of an epoch are one stream, as far as the furthest of them says.
"""

from __future__ import annotations

from collections.abc import Iterable

from weir.clock import Clock
from weir.runtime.frame import MIN_WATERMARK, Control


class EdgeWatermark:
    """Collects the control frames of an edge; the value never goes back."""

    def __init__(self, upstreams: Iterable[int], clock: Clock) -> None:
        """Expect these upstreams; one that never reports holds the edge back."""
        self._marks = dict.fromkeys(upstreams, MIN_WATERMARK)
        self._clock = clock
        self._idle_after_ms: int | None = None
        self._active_ms = clock.monotonic_ms()
        self.value = MIN_WATERMARK

    def add(self, control: Control) -> None:
        """Take what one upstream said at the end of its epoch."""
        marks = self._marks
        marks[control.upstream] = max(marks[control.upstream], control.watermark)
        self._idle_after_ms = control.idle_after_ms
        self.value = max(self.value, min(marks.values()))

    def saw_records(self) -> None:
        """Note that the edge is not idle."""
        self._active_ms = self._clock.monotonic_ms()

    def idle(self) -> bool:
        """Tell whether the edge has been silent for longer than its strategy allows."""
        if self._idle_after_ms is None:
            return False
        return self._clock.monotonic_ms() - self._active_ms >= self._idle_after_ms
