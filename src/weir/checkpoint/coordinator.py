"""The checkpoint coordinator: a state machine from events to actions, without effects.

Invariants: a checkpoint completes at most once, and only after every subtask that was needed when
it was triggered has acknowledged in the current execution attempt. Once its metadata is being
written, nothing but the outcome of that write decides about it. A file is never given up for
deletion if a completed checkpoint may contain it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from weir.checkpoint import paths
from weir.checkpoint.actions import (
    Ack,
    Action,
    CheckpointCompleted,
    DeleteCheckpoint,
    DeleteFiles,
    DiscardPending,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    RejectRequest,
    TriggerCheckpoint,
    WriteMetadata,
)
from weir.checkpoint.decider import (
    CheckpointRequest,
    Drop,
    Queue,
    RequestKind,
    Trigger,
    TriggerFacts,
    Wait,
    decide_trigger,
    enqueue,
)
from weir.checkpoint.failure import CheckpointFailure, FailureCounter, FailureReason
from weir.checkpoint.metadata import Kind
from weir.checkpoint.retention import (
    CheckpointRef,
    JobEnd,
    plan_job_end,
    plan_subsumption,
)
from weir.checkpoint.settings import CheckpointSettings
from weir.errors import UsageError, assert_never
from weir.ids import JobId

_REMEMBERED_OUTCOMES = 1000


@dataclass
class PendingCheckpoint:
    """A checkpoint under way."""

    ref: CheckpointRef
    request: CheckpointRequest
    started_ms: int
    needed: frozenset[int]
    acks: dict[int, Ack] = field(default_factory=dict)
    is_writing: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """All files that subtasks wrote for it so far."""
        return tuple(file for _, ack in sorted(self.acks.items()) for file in ack.files)


class CheckpointCoordinator:
    """Bookkeeping of waiting, pending and completed checkpoints of one job.

    Not thread-safe: one thread feeds it events and carries out the returned actions in order,
    before it feeds the next event about the same checkpoint. Times are the caller's, all of one
    clock. `newest(coordinator.completed)` is what a failed job recovers from. Checkpoints passed
    as `completed` at the start are subsumed like its own; a restored snapshot that is not claimed
    must not be among them.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        job_id: JobId,
        *,
        attempt: int = 0,
        next_checkpoint_id: int = 1,
        completed: Iterable[CheckpointRef] = (),
    ) -> None:
        """Start with nothing pending and periodic checkpoints switched off."""
        self.settings = settings
        self.job_id = job_id
        self.attempt = attempt
        self.completed = list(completed)
        self.pending: dict[int, PendingCheckpoint] = {}
        self.queue: Queue = ()
        self.failures = FailureCounter(settings.tolerable_failures)
        self._next_id = next_checkpoint_id
        self._triggering: TriggerCheckpoint | None = None
        self._next_periodic_ms: int | None = None
        self._last_completion_ms: int | None = None
        self._cleaning: set[int] = set()
        # True for completed, False for aborted; what lies below the floor is not remembered.
        self._outcomes: OrderedDict[int, bool] = OrderedDict()
        self._floor = next_checkpoint_id

    def start_periodic(self, now_ms: int) -> None:
        """Let periodic checkpoints come, the first after one interval."""
        interval = self.settings.interval_ms
        self._next_periodic_ms = None if interval is None else now_ms + interval

    def submit(self, request: CheckpointRequest) -> list[Action]:
        """Put a request in the queue; `poll` decides when its turn has come."""
        result = enqueue(self.queue, request)
        self.queue = result.queue
        if result.dropped is None:
            return []
        return [RejectRequest(result.dropped, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS)]

    def poll(self, now_ms: int) -> list[Action]:
        """Expire, create the periodic request that is due, and trigger at most one checkpoint."""
        actions = self.on_timeout(now_ms)
        self._request_periodic(now_ms)
        while True:
            facts = TriggerFacts(
                self.queue,
                now_ms,
                self._last_completion_ms,
                pending=len(self.pending),
                cleaning=len(self._cleaning),
                is_triggering=self._triggering is not None,
            )
            decision = decide_trigger(facts, self.settings)
            match decision:
                case Drop():
                    self.queue = self.queue[1:]
                    self._next_periodic_ms = decision.retry_at_ms
                    actions.append(RejectRequest(decision.request, decision.reason))
                case Trigger():
                    self.queue = self.queue[1:]
                    return [*actions, self._begin(decision.request)]
                case Wait():
                    return actions
                case _:
                    assert_never(decision)

    def next_event_ms(self) -> int | None:
        """Return when time alone calls for the next `poll`; None when only events can."""
        times = [
            pending.started_ms + self.settings.timeout_ms
            for pending in self.pending.values()
            if not pending.is_writing
        ]
        if self._next_periodic_ms is not None:
            times.append(self._next_periodic_ms)
        return min(times, default=None)

    def on_trigger(self, checkpoint_id: int, subtasks: Iterable[int], now_ms: int) -> None:
        """The barrier is about to be sent; the checkpoint needs all of these subtasks.

        Raises:
            UsageError: this checkpoint is not being triggered, or needs no subtask.
        """
        needed = frozenset(subtasks)
        triggering = self._triggering
        if triggering is None or triggering.ref.checkpoint_id != checkpoint_id or not needed:
            msg = f"checkpoint {checkpoint_id!r} with subtasks {sorted(needed)!r} was not asked for"
            raise UsageError(msg)
        self._triggering = None
        self.pending[checkpoint_id] = PendingCheckpoint(
            triggering.ref, triggering.request, now_ms, needed
        )

    def on_trigger_failed(self, checkpoint_id: int, reason: FailureReason) -> list[Action]:
        """The barrier could not be sent."""
        triggering = self._triggering
        if triggering is None or triggering.ref.checkpoint_id != checkpoint_id:
            return []
        self._triggering = None
        self._remember(checkpoint_id, completed=False)
        aborted = NotifyAborted(checkpoint_id, triggering.request, reason)
        discard = DiscardPending(triggering.ref, ())
        failing = self._count(checkpoint_id, triggering.request, reason, from_task=False)
        return [aborted, discard, *failing]

    def on_ack(self, ack: Ack) -> list[Action]:
        """A subtask has stored its share; the last one leads to `WriteMetadata`.

        What cannot be used is ignored and its files are given up: acknowledgements of an older
        execution attempt, of an aborted checkpoint, of a subtask that is not needed, and second
        ones with other files.
        """
        pending = self.pending.get(ack.checkpoint_id)
        if pending is None:
            return _delete(ack.files) if self._was_never_used(ack.checkpoint_id) else []
        accepted = pending.acks.get(ack.subtask)
        if accepted is not None or ack.attempt != self.attempt or ack.subtask not in pending.needed:
            used = set(pending.files)
            return _delete(tuple(file for file in ack.files if file not in used))
        pending.acks[ack.subtask] = ack
        if pending.acks.keys() != pending.needed:
            return []
        pending.is_writing = True
        return [WriteMetadata(pending.ref, pending.request, pending.started_ms, dict(pending.acks))]

    def on_decline(
        self, checkpoint_id: int, attempt: int, reason: FailureReason, detail: str = ""
    ) -> list[Action]:
        """A subtask cannot take part; the checkpoint is aborted."""
        pending = self.pending.get(checkpoint_id)
        if pending is None or pending.is_writing or attempt != self.attempt:
            return []
        return self._abort(pending, reason, detail=detail, from_task=True)

    def on_timeout(self, now_ms: int) -> list[Action]:
        """Abort every checkpoint whose time is over."""
        deadline_ms = now_ms - self.settings.timeout_ms
        return self._abort_where(
            lambda p: p.started_ms <= deadline_ms, FailureReason.CHECKPOINT_EXPIRED
        )

    def on_metadata_written(self, checkpoint_id: int, now_ms: int) -> list[Action]:
        """The checkpoint exists: subtasks commit, and it replaces what is older.

        A savepoint replaces nothing and nothing is committed with it, because its owner may move
        or delete it and recovery must not depend on it. The savepoint of a stop commits, and is
        therefore what a job that fails afterwards recovers from.
        """
        pending = self.pending.get(checkpoint_id)
        if pending is None or not pending.is_writing:
            return []
        del self.pending[checkpoint_id]
        self._remember(checkpoint_id, completed=True)
        self._last_completion_ms = now_ms
        self.failures.on_success(checkpoint_id)
        request = pending.request
        actions: list[Action] = [CheckpointCompleted(pending.ref, request)]
        if request.is_savepoint and not request.synchronous:
            return actions
        actions.append(NotifyComplete(checkpoint_id))
        self.completed.append(pending.ref)
        actions += self._abort_where(
            lambda p: p.ref.checkpoint_id < checkpoint_id and not p.request.is_savepoint,
            FailureReason.CHECKPOINT_SUBSUMED,
        )
        return actions + self._delete(plan_subsumption(self.completed, self.settings.num_retained))

    def on_metadata_failed(self, checkpoint_id: int, detail: str = "") -> list[Action]:
        """The metadata is certainly not there; the checkpoint is aborted."""
        pending = self.pending.get(checkpoint_id)
        if pending is None or not pending.is_writing:
            return []
        return self._abort(pending, FailureReason.FINALIZE_CHECKPOINT_FAILURE, detail=detail)

    def on_cleaned(self, checkpoint_id: int) -> None:
        """A `DeleteCheckpoint` has been carried out."""
        self._cleaning.discard(checkpoint_id)

    def on_failover(self, attempt: int) -> list[Action]:
        """The job starts over with a new attempt: nothing of the old one counts any more.

        Periodic checkpoints are off until `start_periodic`. A checkpoint whose metadata is being
        written stays: it may exist already, and its outcome is needed before a restore.
        """
        self.attempt = attempt
        return self._stop_all(FailureReason.JOB_FAILOVER_REGION)

    def on_job_end(self, end: JobEnd) -> list[Action]:
        """The job is over: abort what is pending and delete what its retention does not keep.

        As for a failover, the outcome of a metadata write must have been reported before.
        """
        suspended = end is JobEnd.SUSPENDED
        reason = (
            FailureReason.CHECKPOINT_COORDINATOR_SUSPEND
            if suspended
            else FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        )
        actions = self._stop_all(reason)
        return actions + self._delete(plan_job_end(self.completed, self.settings.retention, end))

    def _request_periodic(self, now_ms: int) -> None:
        due_ms, interval = self._next_periodic_ms, self.settings.interval_ms
        if due_ms is None or interval is None or now_ms < due_ms:
            return
        # A late poll makes up for nothing: missed ticks would come as one burst.
        self._next_periodic_ms = due_ms + ((now_ms - due_ms) // interval + 1) * interval
        if not any(request.is_periodic for request in self.queue):
            request = CheckpointRequest(RequestKind.PERIODIC, now_ms)
            self.queue = enqueue(self.queue, request).queue

    def _begin(self, request: CheckpointRequest) -> TriggerCheckpoint:
        checkpoint_id = self._next_id
        self._next_id += 1
        directory = request.directory or paths.checkpoint_dir(self.job_id, checkpoint_id)
        kind: Kind = "savepoint" if request.is_savepoint else "checkpoint"
        overtaking = self.settings.overtakes and not request.is_savepoint
        ref = CheckpointRef(checkpoint_id, directory, kind)
        self._triggering = TriggerCheckpoint(ref, request, overtaking)
        return self._triggering

    def _stop_all(self, reason: FailureReason) -> list[Action]:
        self._next_periodic_ms = None
        actions: list[Action] = []
        if self._triggering is not None:
            actions += self.on_trigger_failed(self._triggering.ref.checkpoint_id, reason)
        actions += self._abort_where(lambda _: True, reason)
        actions += [RejectRequest(request, reason) for request in self.queue]
        self.queue = ()
        return actions

    def _abort_where(
        self, condition: Callable[[PendingCheckpoint], bool], reason: FailureReason
    ) -> list[Action]:
        chosen = [p for p in self.pending.values() if not p.is_writing and condition(p)]
        return [action for p in chosen for action in self._abort(p, reason)]

    def _abort(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        *,
        detail: str = "",
        from_task: bool = False,
    ) -> list[Action]:
        checkpoint_id = pending.ref.checkpoint_id
        del self.pending[checkpoint_id]
        self._remember(checkpoint_id, completed=False)
        return [
            NotifyAborted(checkpoint_id, pending.request, reason, detail),
            DiscardPending(pending.ref, pending.files),
            *self._count(
                checkpoint_id, pending.request, reason, from_task=from_task, detail=detail
            ),
        ]

    def _count(
        self,
        checkpoint_id: int,
        request: CheckpointRequest,
        reason: FailureReason,
        *,
        from_task: bool,
        detail: str = "",
    ) -> list[Action]:
        failure = CheckpointFailure(
            checkpoint_id,
            reason,
            is_savepoint=request.is_savepoint,
            is_synchronous=request.synchronous,
            from_task=from_task,
        )
        if not self.failures.on_failure(failure):
            return []
        what = "savepoint" if request.is_savepoint else "checkpoint"
        tolerated = f"{self.failures.tolerable} failed checkpoints are tolerated"
        why = f"{reason.value} ({detail})" if detail else reason.value
        return [FailJob(f"{what} {checkpoint_id} failed: {why}; {tolerated}")]

    def _delete(self, refs: Iterable[CheckpointRef]) -> list[Action]:
        actions: list[Action] = []
        for ref in refs:
            self.completed.remove(ref)
            self._cleaning.add(ref.checkpoint_id)
            actions.append(DeleteCheckpoint(ref))
        return actions

    def _remember(self, checkpoint_id: int, *, completed: bool) -> None:
        self._outcomes[checkpoint_id] = completed
        while len(self._outcomes) > _REMEMBERED_OUTCOMES:
            forgotten, _ = self._outcomes.popitem(last=False)
            self._floor = max(self._floor, forgotten + 1)

    def _was_never_used(self, checkpoint_id: int) -> bool:
        """Tell for certain that no completed checkpoint contains files of this one."""
        return checkpoint_id >= self._floor and not self._outcomes.get(checkpoint_id, False)


def _delete(files: tuple[str, ...]) -> list[Action]:
    return [DeleteFiles(files)] if files else []
