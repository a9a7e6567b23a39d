"""`TimeDomain`: the two kinds of time that timers live in."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """Which clock a timer belongs to."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
