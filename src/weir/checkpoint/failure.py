"""Why checkpoints fail, and when failed checkpoints fail the job.

The counter counts checkpoints, not failures: each id once, only the reasons that point at the
environment, never one that a later success made irrelevant. A success starts from zero.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FailureReason(enum.Enum):
    """Why a checkpoint was refused or aborted; the value is text for users."""

    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoint requests are waiting"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the minimum pause since the last checkpoint is not over"
    TRIGGER_CHECKPOINT_FAILURE = "the barrier could not be sent"
    IO_EXCEPTION = "the storage failed before the checkpoint started"
    CHECKPOINT_ASYNC_EXCEPTION = "a subtask could not write its state"
    CHECKPOINT_EXPIRED = "the checkpoint was not finished within its timeout"
    CHECKPOINT_SUBSUMED = "a newer checkpoint completed first"
    CHECKPOINT_DECLINED = "a subtask declined the checkpoint"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a subtask was not ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a subtask was closing"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the job ended"
    CHECKPOINT_COORDINATOR_SUSPEND = "the job was suspended"
    JOB_FAILOVER_REGION = "the job restarted"
    TASK_FAILURE = "a subtask failed"
    FINALIZE_CHECKPOINT_FAILURE = "the metadata could not be written"

    @property
    def counts(self) -> bool:
        """Tell whether it counts towards the tolerable failures."""
        return self in _COUNTED

    @property
    def is_preflight(self) -> bool:
        """Tell whether the checkpoint had not started yet."""
        return self in _PREFLIGHT


_COUNTED = frozenset(
    {
        FailureReason.IO_EXCEPTION,
        FailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        FailureReason.CHECKPOINT_DECLINED,
        FailureReason.CHECKPOINT_EXPIRED,
        FailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)
_PREFLIGHT = frozenset(
    {
        FailureReason.TOO_MANY_CHECKPOINT_REQUESTS,
        FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
        FailureReason.IO_EXCEPTION,
    }
)
_JOB_IS_STOPPING = frozenset(
    {
        FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
        FailureReason.CHECKPOINT_COORDINATOR_SUSPEND,
        FailureReason.JOB_FAILOVER_REGION,
    }
)


@dataclass(frozen=True)
class CheckpointFailure:
    """One failed checkpoint: which, why, and who reported it.

    `checkpoint_id` is None when it failed before it got one; `from_task` is True when a subtask
    reported it; `is_synchronous` marks the savepoint of a stop.
    """

    checkpoint_id: int | None
    reason: FailureReason
    is_savepoint: bool = False
    is_synchronous: bool = False
    from_task: bool = False


class FailureCounter:
    """Decide after each failure whether the job fails."""

    def __init__(self, tolerable: int) -> None:
        """Start from zero; the job fails with failure number `tolerable + 1` in a row."""
        self.tolerable = tolerable
        self._last_success: int | None = None
        self._counted: set[int] = set()
        self._without_id = 0

    @property
    def count(self) -> int:
        """Failures since the last success."""
        return len(self._counted) + self._without_id

    def on_success(self, checkpoint_id: int) -> None:
        """Start from zero, and ignore failures of this and older checkpoints from now on."""
        if self._last_success is None or checkpoint_id > self._last_success:
            self._last_success = checkpoint_id
            self._clear()

    def on_failure(self, failure: CheckpointFailure) -> bool:
        """Count a failure; True means that the job fails now, and counting starts from zero.

        The savepoint of a stop always fails the job, which would wait for it forever. A failure
        of another savepoint that no subtask reported concerns only the person who asked for it.
        """
        reason = failure.reason
        if failure.is_savepoint and failure.is_synchronous:
            return not reason.is_preflight and reason not in _JOB_IS_STOPPING
        if failure.is_savepoint and not failure.from_task:
            return False
        if self._is_outdated(failure.checkpoint_id) or not reason.counts:
            return False
        if failure.checkpoint_id is None:
            self._without_id += 1
        else:
            self._counted.add(failure.checkpoint_id)
        if self.count <= self.tolerable:
            return False
        self._clear()
        return True

    def _is_outdated(self, checkpoint_id: int | None) -> bool:
        last = self._last_success
        return checkpoint_id is not None and last is not None and checkpoint_id <= last

    def _clear(self) -> None:
        self._counted.clear()
        self._without_id = 0
