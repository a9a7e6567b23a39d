"""`ExternalizedCheckpointRetention`: which checkpoints outlive their job."""

from __future__ import annotations

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """What becomes of the last checkpoints when a job ends without finishing.

    Example:
        keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        env.get_checkpoint_config().set_externalized_checkpoint_retention(keep)
    """

    DELETE_ON_CANCELLATION = 0
    """Kept when the job fails, deleted when it is cancelled."""
    RETAIN_ON_CANCELLATION = 1
    """Kept when the job fails and when it is cancelled."""
    NO_EXTERNALIZED_CHECKPOINTS = 2
    """Never kept."""
