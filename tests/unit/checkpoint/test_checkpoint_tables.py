"""Flink's facts about its coordinator: concurrency, pauses, savepoints, declines, subsumption."""

from __future__ import annotations

from typing import Any

import pytest

from weir.checkpoint.actions import (
    Ack,
    Action,
    CheckpointCompleted,
    DeleteCheckpoint,
    DiscardPending,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    RejectRequest,
    TriggerCheckpoint,
)
from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.decider import CheckpointRequest, RequestKind, savepoint_request
from weir.checkpoint.failure import CheckpointFailure, FailureCounter, FailureReason
from weir.checkpoint.retention import CheckpointRef, JobEnd, newest
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.ids import JobId

JOB = JobId("cd" * 16)
DECLINED = FailureReason.CHECKPOINT_DECLINED


class Driver:
    """A coordinator whose triggers are carried out at once, with one subtask."""

    def __init__(self, **settings: Any) -> None:
        self.coordinator = CheckpointCoordinator(CheckpointSettings(**settings), JOB, attempt=1)
        self.now = 0
        self.started: list[TriggerCheckpoint] = []
        self.rejected: list[FailureReason] = []

    def advance(self, to_ms: int) -> list[Action]:
        """Let time pass to each moment at which something happens; poll there and at the end."""
        actions: list[Action] = []
        while True:
            due = self.coordinator.next_event_ms()
            self.now = to_ms if due is None or due > to_ms else max(due, self.now)
            actions += self.poll()
            if self.now == to_ms:
                return actions

    def poll(self) -> list[Action]:
        """Poll until nothing is triggered any more."""
        actions: list[Action] = []
        while True:
            found = self.coordinator.poll(self.now)
            actions += found
            self.rejected += [a.reason for a in found if isinstance(a, RejectRequest)]
            triggers = [a for a in found if isinstance(a, TriggerCheckpoint)]
            for trigger in triggers:
                self.started.append(trigger)
                self.coordinator.on_trigger(trigger.ref.checkpoint_id, [0], self.now)
            if not triggers:
                return actions

    def ask(self, request: CheckpointRequest) -> list[Action]:
        return [*self.coordinator.submit(request), *self.poll()]

    def savepoint(self, name: str, timestamp_ms: int = 0) -> list[Action]:
        settings = self.coordinator.settings
        return self.ask(savepoint_request(settings, name, timestamp_ms=timestamp_ms))

    def complete(self, number: int) -> list[Action]:
        self.coordinator.on_ack(Ack(number, 0, 1, (f"f{number}",)))
        actions = self.coordinator.on_metadata_written(number, self.now)
        for action in actions:
            if isinstance(action, DeleteCheckpoint):
                self.coordinator.on_cleaned(action.ref.checkpoint_id)
        return actions + self.poll()

    @property
    def ids(self) -> list[int]:
        return [trigger.ref.checkpoint_id for trigger in self.started]

    @property
    def pending(self) -> list[int]:
        return sorted(self.coordinator.pending)


def manual(timestamp_ms: int = 0, token: str = "") -> CheckpointRequest:
    return CheckpointRequest(RequestKind.MANUAL, timestamp_ms, token=token)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_as_many_periodic_checkpoints_run_as_are_allowed_and_one_more_per_completion(
    limit: int,
) -> None:
    driver = Driver(interval_ms=10, max_concurrent=limit)
    driver.coordinator.start_periodic(0)
    driver.advance(10 * (limit + 5))
    assert driver.ids == driver.pending == list(range(1, limit + 1))
    driver.complete(1)
    assert driver.pending == list(range(2, limit + 2))
    driver.advance(driver.now + 200)
    assert driver.pending == list(range(2, limit + 2))


def test_a_completion_that_subsumes_frees_more_than_one_place() -> None:
    driver = Driver(interval_ms=10, max_concurrent=2)
    driver.coordinator.start_periodic(0)
    driver.advance(100)
    assert driver.pending == [1, 2]
    actions = driver.complete(2)
    assert [a.checkpoint_id for a in actions if isinstance(a, NotifyAborted)] == [1]
    driver.advance(driver.now + 100)
    assert driver.pending == [3, 4]


def test_a_pause_lies_between_the_end_of_one_and_the_start_of_the_next() -> None:
    driver = Driver(interval_ms=12, min_pause_ms=1000)
    assert driver.coordinator.settings.interval_ms == 1000
    driver.coordinator.start_periodic(0)
    driver.advance(1000)
    driver.advance(1600)
    driver.complete(1)
    driver.advance(2599)
    assert driver.ids == [1]
    assert set(driver.rejected) == {FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS}
    driver.advance(2600)
    assert driver.ids == [1, 2]


def test_after_a_drop_the_period_starts_over() -> None:
    driver = Driver(interval_ms=100, min_pause_ms=50)
    driver.coordinator.start_periodic(0)
    driver.advance(180)
    driver.complete(1)
    starts = []
    for _ in range(3):
        before = len(driver.started)
        while len(driver.started) == before:
            driver.advance(driver.now + 1)
        starts.append(driver.now)
        driver.complete(driver.ids[-1])
    assert starts == [230, 330, 430]


def test_a_savepoint_starts_the_pause_of_periodic_checkpoints_anew() -> None:
    driver = Driver(interval_ms=100, min_pause_ms=100)
    driver.coordinator.start_periodic(0)
    driver.now = 90
    driver.savepoint("s")
    driver.complete(1)
    driver.advance(189)
    assert driver.ids == [1]
    driver.advance(190)
    assert driver.ids == [1, 2]


def test_savepoints_ignore_the_pause() -> None:
    driver = Driver(min_pause_ms=10**8)
    driver.savepoint("first")
    driver.complete(1)
    driver.savepoint("second")
    assert driver.ids == [1, 2]
    assert driver.rejected == []


def test_five_savepoints_run_together_whatever_is_allowed() -> None:
    driver = Driver(max_concurrent=1)
    for number in range(5):
        driver.savepoint(f"s{number}")
    assert driver.pending == [1, 2, 3, 4, 5]
    for number in (5, 3, 1, 2, 4):
        (done,) = driver.complete(number)
        assert isinstance(done, CheckpointCompleted)
    assert driver.pending == []


def test_with_unaligned_checkpoints_a_savepoint_waits_but_before_all_others() -> None:
    driver = Driver(unaligned=True)
    driver.ask(manual())
    for number in range(10):
        driver.ask(manual(number, token=str(number)))
    driver.savepoint("s", timestamp_ms=99)
    assert driver.pending == [1]
    assert len(driver.coordinator.queue) == 11
    driver.complete(1)
    assert driver.started[-1].request.is_savepoint
    assert not driver.started[-1].request.force
    assert not driver.started[-1].overtaking
    driver.complete(2)
    assert driver.started[-1].overtaking
    assert driver.started[-1].request.token == "0"


def test_savepoints_are_not_subsumed_and_subsume_nothing() -> None:
    driver = Driver(max_concurrent=10)
    driver.ask(manual())
    driver.savepoint("s1")
    driver.ask(manual(token="2"))
    actions = driver.complete(3)
    assert [a.checkpoint_id for a in actions if isinstance(a, NotifyAborted)] == [1]
    assert driver.pending == [2]
    driver.ask(manual(token="3"))
    driver.savepoint("s2")
    assert [type(a) for a in driver.complete(5)] == [CheckpointCompleted]
    assert driver.pending == [2, 4]
    assert [type(a) for a in driver.complete(2)] == [CheckpointCompleted]
    assert driver.pending == [4]
    assert newest(driver.coordinator.completed) == CheckpointRef(3, f"{JOB}/chk-3")


def test_a_decline_of_one_checkpoint_leaves_the_others_alone() -> None:
    driver = Driver(max_concurrent=10, tolerable_failures=5)
    driver.ask(manual())
    driver.ask(manual(token="2"))
    actions = driver.coordinator.on_decline(1, 1, DECLINED)
    assert [type(a) for a in actions] == [NotifyAborted, DiscardPending]
    assert driver.pending == [2]
    assert driver.coordinator.on_decline(1, 1, DECLINED) == []
    assert [type(a) for a in driver.complete(2)] == [CheckpointCompleted, NotifyComplete]


def test_concurrent_checkpoints_complete_independently_and_the_older_one_goes() -> None:
    driver = Driver(max_concurrent=2)
    driver.ask(manual())
    driver.ask(manual(token="2"))
    assert [type(a) for a in driver.complete(1)] == [CheckpointCompleted, NotifyComplete]
    kinds = [type(a) for a in driver.complete(2)]
    assert kinds == [CheckpointCompleted, NotifyComplete, DeleteCheckpoint]


def test_messages_about_checkpoints_that_never_were_change_nothing() -> None:
    driver = Driver()
    driver.ask(manual())
    for number in (0, 7, 99):
        driver.coordinator.on_ack(Ack(number, 0, 1, ()))
        assert driver.coordinator.on_decline(number, 1, DECLINED) == []
        assert driver.coordinator.on_metadata_written(number, 0) == []
        assert driver.coordinator.on_metadata_failed(number) == []
    assert driver.pending == [1]


@pytest.mark.parametrize("tolerable", [0, 2])
def test_expired_checkpoints_fail_the_job_when_there_are_more_than_tolerated(
    tolerable: int,
) -> None:
    driver = Driver(timeout_ms=10, tolerable_failures=tolerable)
    failed = []
    for _ in range(tolerable + 1):
        driver.ask(manual())
        failed.append(any(isinstance(a, FailJob) for a in driver.advance(driver.now + 10)))
    assert failed == [False] * tolerable + [True]


MIXED = (FailureReason.IO_EXCEPTION, DECLINED, FailureReason.CHECKPOINT_EXPIRED)


@pytest.mark.parametrize(
    ("tolerable", "events", "job_failures"),
    [
        (2, "1 2 i3 4", 1),
        (2, "1 2 i3 s4 5", 0),
        (2, "2 s2 1 3 4", 0),
        (2, "1 2 i3 2", 0),
        (0, "1 2 3", 3),
        (1, "1 s1 2 s2 3 s3 4", 0),
        (1, "1 2 3", 1),
        (0, "i1 i2 i3", 0),
    ],
)
def test_failures_are_counted_as_in_flinks_table(
    tolerable: int, events: str, job_failures: int
) -> None:
    """In `events` a number is a failed id, with `i` for a reason to ignore, `s` for success."""
    counter = FailureCounter(tolerable)
    failed = 0
    for position, event in enumerate(events.split()):
        number = int(event.lstrip("is"))
        if event.startswith("s"):
            counter.on_success(number)
        else:
            ignored = event.startswith("i")
            reason = FailureReason.JOB_FAILOVER_REGION if ignored else MIXED[position % 3]
            failed += counter.on_failure(CheckpointFailure(number, reason))
    assert failed == job_failures


@pytest.mark.parametrize(
    ("retention", "discarded"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, (True, True, True, True, True)),
        (Retention.DELETE_ON_CANCELLATION, (True, True, True, False, True)),
        (Retention.RETAIN_ON_CANCELLATION, (True, True, False, False, False)),
    ],
)
def test_flags_of_retention_for_subsumed_finished_cancelled_failed_suspended(
    retention: Retention, discarded: tuple[bool, ...]
) -> None:
    def deleted(actions: list[Action], number: int) -> bool:
        return any(
            isinstance(a, DeleteCheckpoint) and a.ref.checkpoint_id == number for a in actions
        )

    driver = Driver(retention=retention)
    driver.ask(manual())
    driver.complete(1)
    driver.ask(manual())
    found = [deleted(driver.complete(2), 1)]
    for end in (JobEnd.FINISHED, JobEnd.CANCELED, JobEnd.FAILED, JobEnd.SUSPENDED):
        driver = Driver(retention=retention)
        driver.ask(manual())
        driver.complete(1)
        driver.savepoint("s")
        driver.complete(2)
        actions = driver.coordinator.on_job_end(end)
        found.append(deleted(actions, 1))
        assert not deleted(actions, 2)
    assert tuple(found) == discarded


@pytest.mark.parametrize("retained", [1, 2, 3])
def test_adding_checkpoints_discards_the_oldest_beyond_the_number_retained(retained: int) -> None:
    driver = Driver(num_retained=retained)
    for _ in range(6):
        driver.ask(manual())
        driver.complete(driver.ids[-1])
    kept = [ref.checkpoint_id for ref in driver.coordinator.completed]
    assert kept == list(range(7 - retained, 7))
