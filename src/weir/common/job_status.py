"""`JobStatus`: where a job is in its life."""

from __future__ import annotations

import enum

__all__ = ["JobStatus"]


class JobStatus(enum.Enum):
    """The states of a job, with Flink's names.

    Example:
        JobStatus.FINISHED.is_globally_terminal_state()
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """Tell whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Tell whether the job has ended here; another JobManager may resume a suspended one."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()
