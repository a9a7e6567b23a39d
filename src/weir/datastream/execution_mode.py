"""`RuntimeExecutionMode`: streaming, batch, or chosen by the sources."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """How a program is run.

    STREAMING is the default. BATCH takes bounded input only: keyed operators see their input key by
    key and in order of time when all of it is there, so that aggregates have one result per key,
    and there are no checkpoints. AUTOMATIC is BATCH if all sources are bounded.

    Example:
        env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
