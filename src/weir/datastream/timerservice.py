"""`TimerService`: the time as a function sees it, and timers for the current key."""

from __future__ import annotations

from abc import ABC, abstractmethod

from weir.common._absent import INTERNAL, absent


class TimerService(ABC):
    """Tells the time and keeps timers.

    Timers belong to the current key, are part of checkpoints, and fire once per key and
    timestamp however often they were registered. Times are milliseconds.

    Example:
        def process_element(self, value, ctx):
            timers: TimerService = ctx.timer_service()
            timers.register_event_time_timer(timers.current_watermark() + 60_000)
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the current processing time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the current event-time watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when processing time has passed `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark has passed `timestamp`."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget a processing-time timer; without effect when there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget an event-time timer; without effect when there is none."""


__getattr__ = absent(__name__, {"InternalTimerService InternalTimer": INTERNAL})
