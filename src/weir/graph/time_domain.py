"""`TimeDomain`: event time or processing time, shared by the door and the runtime."""

from __future__ import annotations

import enum


class TimeDomain(enum.Enum):
    """Which clock a firing timer belongs to."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
