"""`ExecutionMode`: accepted for old programs, without effect on how Spark exchanges data."""

from __future__ import annotations

import enum

__all__ = ["ExecutionMode"]


class ExecutionMode(enum.Enum):
    """How data was exchanged in Flink's batch programs.

    Example:
        env.get_config().set_execution_mode(ExecutionMode.PIPELINED)
    """

    PIPELINED = 0
    PIPELINED_FORCED = 1
    BATCH = 2
    BATCH_FORCED = 3
