"""How many records are handled until somebody may look at state: few, if they are slow.

Without a clock that moves, strides stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.clock import Clock
from weir.runtime.frame import Chunk

PAUSE_MS: Final = 5


class Pace:
    """Cuts strides whose records take long into parts of some milliseconds."""

    def __init__(self, clock: Clock, most: int) -> None:
        """Begin with whole strides, which have at most so many records."""
        self._clock = clock
        self._most = most
        self._rows: int | None = None

    def parts(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the records of a stride; each part is handled before the next is asked for."""
        start, count = 0, len(chunk)
        while start < count:
            rows, since = self._rows, self._clock.monotonic_ms()
            stop = count if rows is None else min(count, start + rows)
            yield chunk if stop - start == count else chunk.rows(start, stop)
            took = self._clock.monotonic_ms() - since
            if took > 2 * PAUSE_MS:
                self._rows = max(1, (stop - start) * PAUSE_MS // took)
            elif rows is not None and took < PAUSE_MS // 2:
                self._rows = 2 * rows if 2 * rows < self._most else None
            start = stop
