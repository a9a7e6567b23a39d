"""`RuntimeExecutionMode`: streaming, batch, or chosen by the sources."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """How a program is run; Weir always streams and ends bounded input with a last checkpoint."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
