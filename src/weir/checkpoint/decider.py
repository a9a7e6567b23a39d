"""Which waiting request becomes the next checkpoint, and when: pure decisions over facts.

The queue is ordered: savepoints, then forced requests, then what people asked for, then periodic
ones, older before newer. No clock, no effects: the caller passes what it observed and carries out
what comes back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from weir.checkpoint.failure import FailureReason
from weir.checkpoint.settings import CheckpointSettings

MAX_QUEUED_REQUESTS: Final = 1000


class RequestKind(enum.Enum):
    """Who asked for a checkpoint."""

    PERIODIC = "periodic"
    MANUAL = "manual"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True)
class CheckpointRequest:
    """A wish for a checkpoint.

    `force` ignores the number of concurrent checkpoints. `directory` is where a savepoint goes;
    `synchronous` marks the savepoint of a stop; `full` forbids references to older checkpoints;
    `native` lets state be in the backend's own format. `token` tells requests apart that are
    equal otherwise.
    """

    kind: RequestKind
    timestamp_ms: int
    force: bool = False
    directory: str | None = None
    synchronous: bool = False
    full: bool = False
    token: str = ""
    native: bool = False

    @property
    def is_savepoint(self) -> bool:
        """Tell whether the user owns the result."""
        return self.kind is RequestKind.SAVEPOINT

    @property
    def is_periodic(self) -> bool:
        """Tell whether the timer asked."""
        return self.kind is RequestKind.PERIODIC


Queue: TypeAlias = tuple[CheckpointRequest, ...]


@dataclass(frozen=True)
class TriggerFacts:
    """What the coordinator observed when it asks for a decision.

    `last_completion_ms` is when a checkpoint last completed, on the clock of `now_ms`;
    `is_triggering` is True while an earlier decision is still being carried out.
    """

    queue: Queue
    now_ms: int
    last_completion_ms: int | None = None
    pending: int = 0
    cleaning: int = 0
    is_triggering: bool = False


@dataclass(frozen=True)
class Trigger:
    """Start a checkpoint for this request and take it from the queue."""

    request: CheckpointRequest


@dataclass(frozen=True)
class Wait:
    """Do nothing until something changes."""

    reason: str


@dataclass(frozen=True)
class Drop:
    """Take this request from the queue without a checkpoint; a periodic one is due again then."""

    request: CheckpointRequest
    reason: FailureReason
    retry_at_ms: int


Decision: TypeAlias = Trigger | Wait | Drop


@dataclass(frozen=True)
class Enqueued:
    """The queue after a new request, and the request that had to go, if any."""

    queue: Queue
    dropped: CheckpointRequest | None = None


def savepoint_request(
    settings: CheckpointSettings,
    directory: str,
    *,
    timestamp_ms: int,
    synchronous: bool = False,
    token: str = "",
    native: bool = False,
) -> CheckpointRequest:
    """Return a request for a savepoint.

    With aligned checkpoints a savepoint is forced, whatever else is running. With unaligned ones
    it waits for its turn at the head of the queue, because it is aligned itself; not so the one
    of a stop, which nothing comes after.
    """
    return CheckpointRequest(
        RequestKind.SAVEPOINT,
        timestamp_ms,
        force=synchronous or not settings.unaligned,
        directory=directory,
        synchronous=synchronous,
        full=True,
        token=token,
        native=native,
    )


def enqueue(queue: Queue, request: CheckpointRequest, cap: int = MAX_QUEUED_REQUESTS) -> Enqueued:
    """Put a request in its place.

    In a full queue the last periodic request goes; when people asked for all of them, the new
    request goes.
    """
    if len(queue) >= cap and not queue[-1].is_periodic:
        return Enqueued(queue, request)
    ordered = sorted((*queue, request), key=_rank)
    if len(ordered) > cap:
        return Enqueued(tuple(ordered[:-1]), ordered[-1])
    return Enqueued(tuple(ordered))


def decide_trigger(facts: TriggerFacts, settings: CheckpointSettings) -> Decision:
    """Decide what happens to the first request of the queue.

    Only periodic requests heed the minimum pause; inside it they are dropped, not delayed.
    """
    if facts.is_triggering:
        return Wait("another checkpoint is being triggered")
    if not facts.queue:
        return Wait("nobody asked for a checkpoint")
    if facts.cleaning > settings.max_concurrent:
        return Wait(f"{facts.cleaning} old checkpoints are still being deleted")
    first = facts.queue[0]
    if facts.pending >= settings.max_concurrent:
        return Trigger(first) if first.force else Wait(f"{facts.pending} checkpoints are running")
    if first.is_periodic and not first.force and facts.last_completion_ms is not None:
        allowed_ms = facts.last_completion_ms + settings.min_pause_ms
        if facts.now_ms < allowed_ms:
            return Drop(first, FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, allowed_ms)
    return Trigger(first)


def _rank(request: CheckpointRequest) -> tuple[bool, bool, bool, int]:
    return (
        not request.is_savepoint,
        not request.force,
        request.is_periodic,
        request.timestamp_ms,
    )
