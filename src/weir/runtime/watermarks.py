"""The watermark of one edge as a receiving subtask sees it.

An edge is as far as the slowest of its upstreams. Behind a slot level the upstreams are subtasks.
The source side has no lasting subtasks: there the upstreams are the watermark generators, and the
partitions of an epoch are one stream, as far as the furthest of them says.
"""

from __future__ import annotations

from collections.abc import Iterable

from weir.clock import Clock
from weir.runtime.frame import IDLE_NOW, MIN_WATERMARK, Control


class EdgeWatermark:
    """Collects the control frames of an edge; the value never goes back."""

    def __init__(self, upstreams: Iterable[int], clock: Clock) -> None:
        """Expect these upstreams; one that never reports holds the edge back."""
        self._marks = dict.fromkeys(upstreams, MIN_WATERMARK)
        self._idle_after_ms: dict[int, int | None] = dict.fromkeys(self._marks)
        self._resting: set[int] = set()
        self._clock = clock
        self._active_ms = clock.monotonic_ms()
        self.value = MIN_WATERMARK

    def add(self, control: Control) -> None:
        """Take what one upstream said at the end of its epoch.

        One that says it is idle holds nothing back until it says that it is not.
        """
        marks, upstream = self._marks, control.upstream
        marks[upstream] = max(marks[upstream], control.watermark)
        if control.idle_after_ms == IDLE_NOW:
            self._resting.add(upstream)
        else:
            self._resting.discard(upstream)
            self._idle_after_ms[upstream] = control.idle_after_ms
        if not self._resting:
            self.value = max(self.value, min(marks.values()))
            return
        active = [mark for index, mark in marks.items() if index not in self._resting]
        # When all of them are idle, nobody holds back the one that came furthest.
        self.value = max(self.value, min(active, default=max(marks.values())))

    def saw_records(self) -> None:
        """Note that the edge is not idle."""
        self._active_ms = self._clock.monotonic_ms()

    def idle(self) -> bool:
        """Tell whether all upstreams are idle: by their word, or silent for as long as they may."""
        longest = 0
        for upstream, allowed in self._idle_after_ms.items():
            if upstream not in self._resting:
                if allowed is None:
                    return False
                longest = max(longest, allowed)
        return self._clock.monotonic_ms() - self._active_ms >= longest
