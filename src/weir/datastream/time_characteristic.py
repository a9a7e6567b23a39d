"""`TimeCharacteristic`: an older way to choose a program's time, kept for its programs."""

from __future__ import annotations

from enum import Enum


class TimeCharacteristic(Enum):
    """Which time a program works with; timers of both kinds work under any of them.

    Example:
        env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
    """

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
