"""Evictors: which records of a window are removed around its function.

An evictor is given the records of the window as a list, in the order in which they came, and
removes what it does not keep from that list. What is left afterwards is what the window holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from weir.common.time import to_ms
from weir.metrics import MetricGroup
from weir.window.further_triggers import require_callable
from weir.window.triggers import positive


class TimestampedValue(NamedTuple):
    """A record of a window with its timestamp, None when it has none.

    Example:
        TimestampedValue(("a", 1), 1_000)
    """

    value: Any
    timestamp: int | None


class Evictor(ABC):
    """Removes records of a window before and after its function is called.

    Example:
        evictor: Evictor = CountEvictor.of(3)
        keyed.window(GlobalWindows.create()).evictor(evictor)
    """

    class EvictorContext(Protocol):
        """What an evictor can ask for."""

        def get_current_processing_time(self) -> int:
            """Return the processing time; it stands still during an epoch."""

        def get_metric_group(self) -> MetricGroup:
            """Return the group in which an evictor registers its metrics."""

        def get_current_watermark(self) -> int:
            """Return the event time that the operator has reached."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Any
    ) -> None:
        """Remove records from the list that the window function must not see."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Any
    ) -> None:
        """Remove records from the list that the window must not keep."""


EvictorContext = Evictor.EvictorContext


class _OneSided(Evictor):
    """Evicts either before or after the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Any
    ) -> None:
        """Remove records, unless that is to happen afterwards."""
        if not self._after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Any
    ) -> None:
        """Remove records, if that is to happen afterwards."""
        if self._after:
            self._evict(elements)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        raise NotImplementedError


class CountEvictor(_OneSided):
    """Keeps the last so many records.

    Example:
        keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(CountEvictor.of(3))
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        """Keep at most so many."""
        super().__init__(do_evict_after)
        self._count = positive(max_count, "CountEvictor", "number of records")

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return the evictor of a number of records."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(len(elements) - self._count, 0)]

    def __repr__(self) -> str:
        """Show the number."""
        return f"CountEvictor({self._count})"


class TimeEvictor(_OneSided):
    """Keeps the records of the last milliseconds before the newest timestamp.

    Example:
        keyed.window(GlobalWindows.create()).evictor(TimeEvictor.of(Time.minutes(1)))
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        """Keep what is less than so many milliseconds older than the newest record."""
        super().__init__(do_evict_after)
        self._length = positive(window_size, "TimeEvictor", "length in milliseconds")

    @staticmethod
    def of(window_size: Any, do_evict_after: bool = False) -> TimeEvictor:
        """Return the evictor of a length of time."""
        return TimeEvictor(to_ms(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or elements[0].timestamp is None:
            return
        newest = max(e.timestamp for e in elements if e.timestamp is not None)
        elements[:] = [
            e for e in elements if e.timestamp is None or e.timestamp > newest - self._length
        ]

    def __repr__(self) -> str:
        """Show the length."""
        return f"TimeEvictor({self._length})"


class DeltaEvictor(_OneSided):
    """Keeps the records that are closer than a threshold to the last one.

    Example:
        near = DeltaEvictor.of(5.0, lambda old, new: new[1] - old[1])
        keyed.window(GlobalWindows.create()).evictor(near)
    """

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> None:
        """Measure with a function of (record, last record)."""
        super().__init__(do_evict_after)
        self._threshold = threshold
        self._delta = require_callable(delta_function, "DeltaEvictor")

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        """Return the evictor of a threshold."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            delta, last, threshold = self._delta, elements[-1].value, self._threshold
            elements[:] = [e for e in elements if delta(e.value, last) < threshold]

    def __repr__(self) -> str:
        """Show the threshold."""
        return f"DeltaEvictor({self._threshold})"
