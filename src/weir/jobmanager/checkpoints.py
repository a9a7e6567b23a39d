"""Carries out what the checkpoint coordinator decides: metadata, notifications, deletion.

Thread-safe: acknowledgements come from network threads, triggers from the epoch loop. The driver
itself takes part in every checkpoint as subtask `DRIVER`: it acknowledges when the epoch's job has
returned, so that a checkpoint never completes before the driver holds the epoch's results; where
the barrier overtook rows, those results come again after a restore and are not waited for. Slots
are told in the background: one that is busy must not keep anybody waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

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
from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.decider import CheckpointRequest, RequestKind, savepoint_request
from weir.checkpoint.failure import FailureReason
from weir.checkpoint.metadata import CheckpointMetadata, SourcePositions
from weir.checkpoint.paths import resolve
from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.checkpoint.store import load_checkpoint, write_metadata
from weir.clock import Clock
from weir.errors import (
    CorruptStateError,
    JobExecutionError,
    StorageError,
    UsageError,
    WeirError,
    assert_never,
)
from weir.failpoint import reach
from weir.graph.plan import JobPlan
from weir.ids import unique_suffix
from weir.jobmanager.assembly import EpochFacts, assemble
from weir.jobmanager.background import Background
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.history import CheckpointEntry, CheckpointHistory, subtask_entry
from weir.runtime.epoch import Barrier
from weir.slot.messages import Acknowledge, Decline

log = logging.getLogger("weir.checkpoint")
DRIVER = -1
Describe = Callable[[str | None], SourcePositions]
"""Gives the positions of the sources; those for the savepoint at a URI need no other files."""


class CommittingSlots(Protocol):
    """The slots, as far as the outcome of checkpoints is concerned."""

    def complete(self, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        """Let all slots commit; return what they staged for the driver."""

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up."""


@dataclass
class CheckpointEvents:
    """Who wants to know what: filled in by the supervisor.

    `completed` learns where the sources were, and which results do not come again.
    """

    completed: Callable[[CheckpointRef, EpochFacts], None] = lambda ref, facts: None
    failed: Callable[[str], None] = lambda message: None
    staged: Callable[[int, list[tuple[str, list[bytes]]]], None] = lambda checkpoint, staged: None


@dataclass(frozen=True)
class _Written:
    """Metadata that was handed to the storage."""

    action: WriteMetadata
    metadata: CheckpointMetadata


class CheckpointRunner:
    """One job's checkpoints, from barrier to commit."""

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        files: CheckpointFiles,
        slots: CommittingSlots,
        clock: Clock,
        events: CheckpointEvents,
        background: Background,
    ) -> None:
        """Bind decisions to effects; slots are told in the background."""
        self.coordinator = coordinator
        self.history = CheckpointHistory()
        self.commits_begun = 0
        self._background = background
        self._asked: dict[str, Future[CheckpointRef]] = {}
        self._closed = False
        self._slots = slots
        self._plan: JobPlan | None = None
        self._unknown: dict[int, _Written] = {}
        self._clock = clock
        self._events = events
        self._lock = threading.RLock()
        self._files = files
        self._epochs: dict[int, EpochFacts] = {}
        self._first_id: int | None = None
        self._uncommitted: set[int] = set()

    def start_periodic(self) -> None:
        """Let periodic checkpoints come."""
        with self._lock:
            self.coordinator.start_periodic(self._clock.monotonic_ms())

    def request(self, kind: RequestKind, *, force: bool = False, token: str = "") -> None:
        """Ask for a checkpoint outside of the schedule."""
        with self._lock:
            now = self._clock.monotonic_ms()
            request = CheckpointRequest(kind, now, force=force, token=token)
            self._perform(self.coordinator.submit(request))

    def checkpoint(self, *, full: bool = False, force: bool = False) -> Future[CheckpointRef]:
        """Take a checkpoint for somebody who waits for it."""
        now, token = self._clock.monotonic_ms(), unique_suffix()
        return self._ask(
            CheckpointRequest(RequestKind.MANUAL, now, force=force, full=full, token=token)
        )

    def last(self) -> Future[CheckpointRef]:
        """Take the checkpoint that an attempt ends with, also when others are refused."""
        now, token = self._clock.monotonic_ms(), unique_suffix()
        request = CheckpointRequest(RequestKind.MANUAL, now, force=True, token=token)
        return self._submit(request)

    def savepoint(
        self, directory: str, *, native: bool = False, synchronous: bool = False
    ) -> Future[CheckpointRef]:
        """Take a savepoint at a URI; `synchronous` for one that the job ends with."""
        return self._ask(
            savepoint_request(
                self.coordinator.settings,
                directory,
                timestamp_ms=self._clock.monotonic_ms(),
                synchronous=synchronous,
                token=unique_suffix(),
                native=native,
            )
        )

    def _ask(self, request: CheckpointRequest) -> Future[CheckpointRef]:
        asked: Future[CheckpointRef] = Future()
        with self._lock:
            if self._closed:
                asked.set_exception(JobExecutionError("the job is finishing: too late"))
                return asked
            return self._submit(request)

    def _submit(self, request: CheckpointRequest) -> Future[CheckpointRef]:
        asked: Future[CheckpointRef] = Future()
        with self._lock:
            self._asked[request.token] = asked
            self._perform(self.coordinator.submit(request))
        return asked

    def close(self) -> None:
        """Take no more requests: the job is about to take its last checkpoint."""
        with self._lock:
            self._closed = True

    def waiting(self) -> bool:
        """Tell whether somebody waits for a checkpoint that has not begun."""
        with self._lock:
            return any(not request.is_periodic for request in self.coordinator.queue)

    def expire(self) -> None:
        """Give up checkpoints whose time is over."""
        with self._lock:
            self._perform(self.coordinator.on_timeout(self._clock.monotonic_ms()))

    def is_given_up(self, checkpoint_id: int) -> bool:
        """Tell that a checkpoint which had begun will never complete."""
        with self._lock:
            if checkpoint_id in self.coordinator.pending:
                return False
            return all(ref.checkpoint_id != checkpoint_id for ref in self.coordinator.completed)

    def _refuse(self, request: CheckpointRequest, reason: FailureReason, detail: str = "") -> None:
        asked = self._asked.pop(request.token, None)
        if asked is not None:
            what = "savepoint" if request.is_savepoint else "checkpoint"
            because = f"{reason.value}: {detail}" if detail else reason.value
            asked.set_exception(JobExecutionError(f"the {what} was not taken: {because}"))

    def due(self) -> bool:
        """Tell whether time alone makes a checkpoint, or its expiry, due now."""
        with self._lock:
            at = self.coordinator.next_event_ms()
            waiting = bool(self.coordinator.queue) and not self.coordinator.pending
            return waiting or (at is not None and at <= self._clock.monotonic_ms())

    def begin_epoch(self, epoch: int, positions: Describe) -> Barrier | None:
        """Decide whether this epoch carries a barrier; `positions` are those after the epoch."""
        with self._lock:
            started: TriggerCheckpoint | None = None
            for action in self.coordinator.poll(self._clock.monotonic_ms()):
                if isinstance(action, TriggerCheckpoint):
                    started = action
                else:
                    self._perform([action])
            if started is None:
                return None
            return self._begin(started, epoch, positions)

    def _begin(self, started: TriggerCheckpoint, epoch: int, positions: Describe) -> Barrier | None:
        number, request = started.ref.checkpoint_id, started.request
        try:
            described = positions(request.directory if request.is_savepoint else None)
        except (WeirError, OSError) as error:
            log.warning("checkpoint %s cannot start: %s", number, error)
            reason = FailureReason.IO_EXCEPTION
            self._perform(self.coordinator.on_trigger_failed(number, reason))
            return None
        self._first_id = number if self._first_id is None else self._first_id
        subtasks = {DRIVER, *range(self.plan.slots)}
        self.coordinator.on_trigger(number, subtasks, self._clock.monotonic_ms())
        timestamp = self._clock.now_ms()
        form = ("NATIVE" if request.native else "CANONICAL") if request.is_savepoint else None
        self._epochs[number] = EpochFacts(epoch, described, timestamp, form)
        self._files.begin(number)
        self.history.triggered(
            CheckpointEntry(
                number,
                timestamp,
                num_subtasks=self.plan.slots,
                is_savepoint=request.is_savepoint,
                savepoint_format=form,
            )
        )
        return Barrier(
            checkpoint_id=number,
            timestamp_ms=timestamp,
            directory=started.ref.directory,
            full=request.full or request.is_savepoint,
            native=request.native,
            overtaking=started.overtaking,
        )

    def epoch_done(self, barrier: Barrier | None) -> None:
        """The driver holds the results of the barrier's epoch."""
        if barrier is None:
            return
        with self._lock:
            attempt = self.coordinator.attempt
            ack = Ack(barrier.checkpoint_id, DRIVER, attempt)
            self._perform(self.coordinator.on_ack(ack))

    def is_pending(self, checkpoint_id: int) -> bool:
        """Tell whether a checkpoint is under way."""
        with self._lock:
            return checkpoint_id in self.coordinator.pending

    def overtook(self, checkpoint_id: int, level: int, before: SourcePositions | None) -> None:
        """The barrier overtook rows at all slots: the checkpoint needs no results of its epoch.

        `before` are the positions before the epoch, if the sources are to read it again.
        """
        with self._lock:
            facts = self._epochs.get(checkpoint_id)
            if facts is None or checkpoint_id not in self.coordinator.pending:
                return
            facts = replace(facts, cut_level=level)
            if before is not None:
                facts = replace(facts, positions=before, replayed=True)
            self._epochs[checkpoint_id] = facts
            self.history.overtook(checkpoint_id)
            ack = Ack(checkpoint_id, DRIVER, self.coordinator.attempt)
            self._perform(self.coordinator.on_ack(ack))

    def give_up(self, checkpoint_id: int, detail: str) -> None:
        """Abort a checkpoint that slots cannot take part in alike; it counts as no failure."""
        with self._lock:
            reason = FailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
            attempt = self.coordinator.attempt
            self._perform(self.coordinator.on_decline(checkpoint_id, attempt, reason, detail))

    def acknowledge(self, message: Acknowledge) -> None:
        """Take a slot's acknowledgement."""
        with self._lock:
            # Also when it comes too late: nobody else knows the files and would delete them.
            made = [*([] if message.file is None else [message.file]), *message.created]
            files = tuple(resolve(message.directory, f.path) for f in made if f.data is None)
            ack = Ack(
                message.checkpoint_id,
                message.subtask,
                message.attempt,
                files=files,
                payload=message,
            )
            self.history.acknowledged(
                message.checkpoint_id, subtask_entry(message, self._clock.now_ms())
            )
            self._perform(self.coordinator.on_ack(ack))

    def decline(self, message: Decline) -> None:
        """Take a slot's refusal."""
        log.warning("checkpoint %s declined: %s", message.checkpoint_id, message.reason)
        with self._lock:
            reason = FailureReason.CHECKPOINT_ASYNC_EXCEPTION
            self._perform(
                self.coordinator.on_decline(
                    message.checkpoint_id, message.attempt, reason, message.reason
                )
            )

    @property
    def plan(self) -> JobPlan:
        """The plan of the current attempt."""
        if self._plan is None:
            msg = "no attempt has begun"
            raise JobExecutionError(msg)
        return self._plan

    def failover(self, attempt: int, plan: JobPlan) -> None:
        """Forget everything pending; older attempts are fenced from here on.

        Raises:
            StorageError: it cannot be found out whether a checkpoint was completed.
        """
        self._background.settle()
        with self._lock:
            self._settle_unknown()
            self._plan = plan
            # Whoever asked before the first attempt is served by it.
            if attempt != self.coordinator.attempt:
                self._perform(self.coordinator.on_failover(attempt))
            self._closed = False
            self._epochs.clear()
            self._files.sweep_attempts(attempt)

    def end(self, end: JobEnd) -> None:
        """Apply the retention policy at the end of the job; nothing else of it stays behind."""
        self._background.settle()
        with self._lock:
            try:
                self._settle_unknown()
            except WeirError as error:
                log.warning("%s", error)
            self._perform(self.coordinator.on_job_end(end))
            self._files.end_foreign(self.coordinator.settings.retention, end)
            self._files.sweep_job(self.coordinator.completed, self._first_id)

    def is_completed(self, checkpoint_id: int) -> bool:
        """Tell whether a checkpoint completed and its commits were carried out."""
        with self._lock:
            pending = checkpoint_id in self.coordinator.pending
            done = any(ref.checkpoint_id == checkpoint_id for ref in self.coordinator.completed)
            return done and not pending and checkpoint_id not in self._uncommitted

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self._perform_one(action)

    def _perform_one(self, action: Action) -> None:
        match action:
            case TriggerCheckpoint():
                msg = f"checkpoint {action.ref.checkpoint_id} can begin only with an epoch"
                raise RuntimeError(msg)
            case WriteMetadata():
                self._write_metadata(action)
            case CheckpointCompleted():
                self._completed(action)
            case NotifyComplete():
                self._complete(action.checkpoint_id)
            case NotifyAborted():
                self._aborted(action)
            case DiscardPending():
                self._epochs.pop(action.ref.checkpoint_id, None)
                self._files.abort(action.ref, action.files)
            case DeleteCheckpoint():
                self._files.delete(action.ref)
                self.history.discarded(action.ref.checkpoint_id)
                self.coordinator.on_cleaned(action.ref.checkpoint_id)
            case DeleteFiles():
                self._files.discard(action.files)
            case FailJob():
                self._events.failed(action.message)
            case RejectRequest():
                log.debug("checkpoint request rejected: %s", action.reason.value)
                self._refuse(action.request, action.reason)
            case _:
                assert_never(action)

    def _completed(self, action: CheckpointCompleted) -> None:
        facts = self._epochs.pop(action.ref.checkpoint_id)
        self._events.completed(action.ref, facts)
        if (asked := self._asked.pop(action.request.token, None)) is not None:
            asked.set_result(action.ref)

    def _aborted(self, action: NotifyAborted) -> None:
        number, reason = action.checkpoint_id, action.reason.value
        log.info("checkpoint %s aborted: %s", number, reason)
        detail = f"{reason}: {action.detail}" if action.detail else reason
        self.history.failed(number, self._clock.now_ms(), detail)
        self._background.run(lambda: self._slots.aborted(number), f"aborting checkpoint {number}")
        self._refuse(action.request, action.reason, action.detail)

    def _write_metadata(self, action: WriteMetadata) -> None:
        number = action.ref.checkpoint_id
        try:
            facts, job = self._epochs[number], self.coordinator.job_id
            metadata = assemble(self.plan, job, ref=action.ref, acks=action.acks, facts=facts)
            self._files.check(action.ref, metadata)
            reach("driver.acknowledged")
        except WeirError as error:
            self._perform(self.coordinator.on_metadata_failed(number, str(error)))
            return
        self._unknown[number] = _Written(action, metadata)
        storage, directory = self._files.place(action.ref.directory)
        try:
            write_metadata(storage, directory, metadata)
        except StorageError as error:
            self._outcome_unknown(number, error)
            return
        reach("driver.metadata")
        self._written(self._unknown.pop(number))

    def _outcome_unknown(self, number: int, error: StorageError) -> None:
        """The write may have succeeded all the same: find out, now or before the next attempt."""
        try:
            self._settle(number, str(error))
        except StorageError as asked:
            # Going on as if it did not exist would undo what it may have prepared.
            what = f"it is not known whether checkpoint {number} was completed"
            self._events.failed(f"{what}: {error}; {asked}")

    def _settle_unknown(self) -> None:
        for number in list(self._unknown):
            self._settle(number, "its metadata was not written")

    def _settle(self, number: int, problem: str) -> None:
        written = self._unknown[number]
        storage, directory = self._files.place(written.action.ref.directory)
        try:
            exists = load_checkpoint(storage, directory) == written.metadata
        except (UsageError, CorruptStateError):
            exists = False
        del self._unknown[number]
        if exists:
            self._written(written)
        else:
            self._perform(self.coordinator.on_metadata_failed(number, problem))

    def _written(self, written: _Written) -> None:
        action, metadata = written.action, written.metadata
        number = action.ref.checkpoint_id
        duration = self._clock.monotonic_ms() - action.started_ms
        rows = {row.subtask: (row.records, row.size) for row in metadata.in_flight}
        self.history.in_flight(number, rows)
        self.history.completed(number, duration, self._files.location(action.ref.directory))
        self._files.complete(action.ref, metadata)
        done = self.coordinator.on_metadata_written(number, self._clock.monotonic_ms())
        self._perform(done)
        if len(self.coordinator.completed) >= self.coordinator.settings.num_retained:
            self._files.subsume_foreign()

    def _complete(self, checkpoint_id: int) -> None:
        self.commits_begun = max(self.commits_begun, checkpoint_id)
        self._uncommitted.add(checkpoint_id)
        attempt = self.coordinator.attempt
        what = f"committing checkpoint {checkpoint_id}"
        self._background.run(lambda: self._commit(checkpoint_id, attempt), what)

    def _commit(self, checkpoint_id: int, attempt: int) -> None:
        try:
            self._events.staged(checkpoint_id, self._slots.complete(checkpoint_id))
        except BaseException as error:
            # The checkpoint stands; its commits are repeated by whoever restores it.
            with self._lock:
                if attempt == self.coordinator.attempt:
                    self._events.failed(f"committing checkpoint {checkpoint_id} failed: {error}")
            if isinstance(error, WeirError):
                return
            raise
        with self._lock:
            self._uncommitted.discard(checkpoint_id)
