"""The coordinator under random orders of events, against an independent account.

Invariants: no checkpoint completes twice; none completes without every acknowledgement of the
current attempt; no file of a completed checkpoint is ever given up; the job fails if and only if
the counting rule, recomputed here from the events alone, says so.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from weir.checkpoint.actions import (
    Ack,
    Action,
    CheckpointCompleted,
    DeleteCheckpoint,
    DeleteFiles,
    DiscardPending,
    FailJob,
    NotifyAborted,
    TriggerCheckpoint,
    WriteMetadata,
)
from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.decider import CheckpointRequest, RequestKind
from weir.checkpoint.failure import FailureReason
from weir.checkpoint.retention import newest
from weir.checkpoint.settings import CheckpointSettings
from weir.ids import JobId

TOLERABLE = 2
SUBTASKS = 3
COUNTED = (FailureReason.CHECKPOINT_DECLINED, FailureReason.CHECKPOINT_ASYNC_EXCEPTION)
UNCOUNTED = (FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, FailureReason.TASK_FAILURE)
IDS = st.integers(1, 12)


class CoordinatorMachine(RuleBasedStateMachine):
    """Feed events; keep an account of what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.attempt = 1
        self.coordinator = CheckpointCoordinator(
            CheckpointSettings(
                max_concurrent=3, timeout_ms=50, tolerable_failures=TOLERABLE, num_retained=2
            ),
            JobId("job"),
            attempt=1,
        )
        self.acked: dict[int, set[tuple[int, int]]] = {}
        self.began: dict[int, int] = {}
        self.completed: set[int] = set()
        self.aborted: set[int] = set()
        self.writing: set[int] = set()
        self.kept_files: set[str] = set()
        self.failed_in_a_row: set[int] = set()

    def account(self, actions: list[Action]) -> None:
        """Check each action against what is known, and follow the counting rule."""
        expected_failures = 0
        for action in actions:
            if isinstance(action, WriteMetadata):
                number = action.ref.checkpoint_id
                needed = {(s, self.began[number]) for s in range(SUBTASKS)}
                assert needed <= self.acked[number]
                assert all(a.attempt == self.began[number] for a in action.acks.values())
                assert number not in self.completed | self.aborted | self.writing
                self.writing.add(number)
                self.kept_files |= {f for a in action.acks.values() for f in a.files}
            elif isinstance(action, CheckpointCompleted):
                number = action.ref.checkpoint_id
                assert number in self.writing
                assert number not in self.completed | self.aborted
                self.completed.add(number)
                if number == max(self.completed):
                    self.failed_in_a_row.clear()
            elif isinstance(action, NotifyAborted):
                assert action.checkpoint_id not in self.completed | self.aborted
                by_write = action.reason is FailureReason.FINALIZE_CHECKPOINT_FAILURE
                assert by_write == (action.checkpoint_id in self.writing)
                self.aborted.add(action.checkpoint_id)
                expected_failures += self.count(action)
            elif isinstance(action, FailJob):
                expected_failures -= 1
            elif isinstance(action, DiscardPending):
                assert action.ref.checkpoint_id in self.aborted
                self.kept_files -= set(action.files)
            elif isinstance(action, DeleteFiles):
                assert not self.kept_files & set(action.files)
            elif isinstance(action, DeleteCheckpoint):
                assert action.ref.checkpoint_id in self.completed
                assert action.ref.checkpoint_id != max(self.completed)
                self.coordinator.on_cleaned(action.ref.checkpoint_id)
            elif isinstance(action, TriggerCheckpoint):
                number = action.ref.checkpoint_id
                assert number not in self.began
                self.began[number] = self.attempt
                self.acked[number] = set()
                self.coordinator.on_trigger(number, range(SUBTASKS), self.now)
        assert expected_failures == 0

    def count(self, action: NotifyAborted) -> int:
        counted = (
            *COUNTED,
            FailureReason.CHECKPOINT_EXPIRED,
            FailureReason.FINALIZE_CHECKPOINT_FAILURE,
        )
        outdated = self.completed and action.checkpoint_id <= max(self.completed)
        if action.reason not in counted or outdated:
            return 0
        self.failed_in_a_row.add(action.checkpoint_id)
        if len(self.failed_in_a_row) <= TOLERABLE:
            return 0
        self.failed_in_a_row.clear()
        return 1

    @rule()
    def ask(self) -> None:
        self.account(self.coordinator.submit(CheckpointRequest(RequestKind.MANUAL, self.now)))
        self.account(self.coordinator.poll(self.now))

    @rule(number=IDS, subtask=st.integers(0, SUBTASKS), age=st.integers(0, 1), copy=st.booleans())
    def acknowledge(self, number: int, subtask: int, age: int, copy: bool) -> None:
        attempt = self.attempt - age
        if number in self.acked and number not in self.aborted | self.completed:
            self.acked[number].add((subtask, attempt))
        suffix = "-copy" if copy else ""
        file = f"chk-{number}/s{subtask}-a{attempt}{suffix}"
        self.account(self.coordinator.on_ack(Ack(number, subtask, attempt, (file,))))

    @rule(data=st.data())
    @precondition(lambda self: bool(self.coordinator.pending))
    def acknowledge_what_is_needed(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.coordinator.pending)))
        self.acknowledge(number, data.draw(st.integers(0, SUBTASKS - 1)), 0, False)

    @rule(data=st.data())
    @precondition(lambda self: bool(self.completed))
    def repeat_an_old_acknowledgement(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.completed)))
        subtask, attempt = data.draw(st.integers(0, SUBTASKS - 1)), self.began[number]
        file = f"chk-{number}/s{subtask}-a{attempt}"
        self.account(self.coordinator.on_ack(Ack(number, subtask, attempt, (file,))))

    @rule(number=IDS, reason=st.sampled_from(COUNTED + UNCOUNTED), age=st.integers(0, 1))
    def decline(self, number: int, reason: FailureReason, age: int) -> None:
        self.account(self.coordinator.on_decline(number, self.attempt - age, reason))

    @rule(elapsed=st.integers(0, 30))
    def pass_time(self, elapsed: int) -> None:
        self.now += elapsed
        self.account(self.coordinator.poll(self.now))

    @rule(data=st.data(), success=st.booleans())
    @precondition(lambda self: bool(self.writing - self.completed - self.aborted))
    def finish_writing(self, data: st.DataObject, success: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.writing - self.completed - self.aborted)))
        if success:
            self.account(self.coordinator.on_metadata_written(number, self.now))
        else:
            self.account(self.coordinator.on_metadata_failed(number))

    @rule(number=IDS)
    def pretend_that_metadata_was_written(self, number: int) -> None:
        if number not in self.writing:
            assert self.coordinator.on_metadata_written(number, self.now) == []

    @rule()
    def restart(self) -> None:
        self.attempt += 1
        self.account(self.coordinator.on_failover(self.attempt))
        assert all(p.is_writing for p in self.coordinator.pending.values())

    @invariant()
    def every_checkpoint_is_pending_completed_or_aborted(self) -> None:
        pending = set(self.coordinator.pending)
        assert pending | self.completed | self.aborted == set(self.began)
        assert not pending & (self.completed | self.aborted)

    @invariant()
    def the_newest_completed_checkpoint_is_kept(self) -> None:
        latest = newest(self.coordinator.completed)
        assert (latest.checkpoint_id if latest else None) == max(self.completed, default=None)


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None
)
