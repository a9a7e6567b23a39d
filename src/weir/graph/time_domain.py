"""`TimeDomain`: event time or processing time, shared by the door and the runtime."""

from __future__ import annotations

import enum


class TimeDomain(enum.Enum):
    """Which clock a firing timer belongs to.

    Example:
        def on_timer(self, timestamp, ctx):
            if ctx.time_domain() is TimeDomain.EVENT_TIME:
                yield timestamp
    """

    EVENT_TIME = 0
    PROCESSING_TIME = 1
