"""What to delete when a checkpoint completes and when the job ends: plan first, delete later.

Plans are oldest first. A checkpoint dies by its `_metadata`, which goes before everything else: a
half-deleted checkpoint is never taken for a valid one. Savepoints belong to the user and are
never in a plan.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from weir.checkpoint.metadata import Kind
from weir.checkpoint.settings import Retention


class JobEnd(enum.Enum):
    """How a job ended."""

    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True)
class CheckpointRef:
    """A completed checkpoint by id, directory and owner."""

    checkpoint_id: int
    directory: str
    kind: Kind = "checkpoint"


_KEPT: dict[Retention, frozenset[JobEnd]] = {
    Retention.NO_EXTERNALIZED_CHECKPOINTS: frozenset(),
    Retention.DELETE_ON_CANCELLATION: frozenset({JobEnd.FAILED}),
    Retention.RETAIN_ON_CANCELLATION: frozenset({JobEnd.CANCELED, JobEnd.FAILED, JobEnd.SUSPENDED}),
}


def is_discarded(kind: Kind, retention: Retention, end: JobEnd) -> bool:
    """Tell whether a completed checkpoint is deleted when the job ends like this."""
    return kind == "checkpoint" and end not in _KEPT[retention]


def newest(completed: Iterable[CheckpointRef]) -> CheckpointRef | None:
    """Return the checkpoint that recovery starts from, None when there is none."""
    return max(completed, key=lambda ref: ref.checkpoint_id, default=None)


def plan_subsumption(
    completed: Iterable[CheckpointRef], num_retained: int
) -> tuple[CheckpointRef, ...]:
    """Return the checkpoints that newer ones replace; the newest `num_retained` stay."""
    checkpoints = sorted(
        (ref for ref in completed if ref.kind == "checkpoint"), key=lambda ref: ref.checkpoint_id
    )
    return tuple(checkpoints[:-num_retained])


def plan_job_end(
    completed: Iterable[CheckpointRef], retention: Retention, end: JobEnd
) -> tuple[CheckpointRef, ...]:
    """Return the checkpoints to delete now that the job has ended."""
    discarded = (ref for ref in completed if is_discarded(ref.kind, retention, end))
    return tuple(sorted(discarded, key=lambda ref: ref.checkpoint_id))
