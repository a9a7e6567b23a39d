"""`CheckpointingMode`: what a restored record may have done to state."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    """The guarantee of a checkpoint.

    Example:
        env.enable_checkpointing(10_000, CheckpointingMode.EXACTLY_ONCE)
    """

    EXACTLY_ONCE = 0
    """Every record affects state exactly once."""
    AT_LEAST_ONCE = 1
    """A record may affect state twice after a failure; checkpoints cost less."""
