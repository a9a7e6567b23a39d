"""When Spark looked at the sources, as far as that can be known: for idleness, which counts by it.

Spark tells when it planned a batch, by its wall clock, and whether its last look found nothing, but
not when that was. So a moment is given that the look was not before: silence counts rather too late
than too early, and no partition is idle whose records were waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from weir.clock import Clock

_ASK_MS = 50


class EmptyPolls:
    """Follows one query, whose triggers are `interval_ms` apart, 0 if it looks all the time.

    Moments are those of the driver's monotonic clock; thread-safe.
    """

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        """Begin with the query: it has looked at nothing."""
        self._clock = clock
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._handled_ms = clock.monotonic_ms()
        self._waited_ms: int | None = None
        self._asked_ms: int | None = None
        self._found_ms: int | None = None

    def planned_ms(self, read_ms: int | None) -> int:
        """Return when the batch was planned that came just now, by the wall clock at `read_ms`.

        It was behind the batch before. A wall clock that was turned changes no more than that.
        """
        now = self._clock.monotonic_ms()
        ago = 0 if read_ms is None else max(self._clock.now_ms() - read_ms, 0)
        with self._lock:
            return max(now - ago, self._handled_ms)

    def handled(self) -> None:
        """The batch was handled: from now on Spark looks again."""
        with self._lock:
            self._handled_ms = self._clock.monotonic_ms()
            self._waited_ms = self._found_ms = None

    def ask(self, found_nothing: Callable[[], bool]) -> int | None:
        """Return when the last look found nothing, None if it was not since the last batch.

        With triggers that are apart it began less than an interval ago. If Spark looks all the time
        it began after the last time it was seen to wait.
        """
        now = self._clock.monotonic_ms()
        if self._asked_ms is not None and now - self._asked_ms < _ASK_MS:
            return self._found_ms
        self._asked_ms, handled = now, self._handled_ms
        waits = found_nothing()
        with self._lock:
            # A batch that was handled in the meantime had records: that was another look.
            if waits and self._handled_ms == handled:
                before = now - self._interval_ms if self._interval_ms else self._waited_ms
                if before is not None:
                    self._found_ms = max(before, handled)
                self._waited_ms = now
            return self._found_ms
