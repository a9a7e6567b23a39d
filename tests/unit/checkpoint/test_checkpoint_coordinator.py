"""The coordinator, event by event."""

from __future__ import annotations

from typing import Any

import pytest

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
from weir.checkpoint.retention import CheckpointRef, JobEnd, newest
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.errors import UsageError
from weir.ids import JobId

JOB = JobId("ab" * 16)
MANUAL = CheckpointRequest(RequestKind.MANUAL, 0)


def coordinator(**settings: Any) -> CheckpointCoordinator:
    return CheckpointCoordinator(CheckpointSettings(**settings), JOB, attempt=1)


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


def triggered(actions: list[Action]) -> TriggerCheckpoint:
    (action,) = actions
    assert isinstance(action, TriggerCheckpoint)
    return action


def begin(
    c: CheckpointCoordinator,
    request: CheckpointRequest = MANUAL,
    *,
    now: int = 0,
    subtasks: int = 2,
) -> int:
    assert c.submit(request) == []
    number = triggered(c.poll(now)).ref.checkpoint_id
    c.on_trigger(number, range(subtasks), now)
    return number


def ack(number: int, subtask: int, *, attempt: int = 1, file: str = "") -> Ack:
    return Ack(number, subtask, attempt, (file or f"chk-{number}/s{subtask}",))


def acknowledge(c: CheckpointCoordinator, number: int) -> WriteMetadata:
    assert c.on_ack(ack(number, 0)) == []
    (action,) = c.on_ack(ack(number, 1))
    assert isinstance(action, WriteMetadata)
    return action


def complete(c: CheckpointCoordinator, number: int, *, now: int = 0) -> list[Action]:
    acknowledge(c, number)
    return c.on_metadata_written(number, now)


def savepoint(c: CheckpointCoordinator, name: str, *, synchronous: bool = False) -> int:
    request = savepoint_request(c.settings, name, timestamp_ms=0, synchronous=synchronous)
    return begin(c, request)


def test_a_checkpoint_completes_after_the_last_acknowledgement_and_the_metadata() -> None:
    c = coordinator()
    number = begin(c)
    write = acknowledge(c, number)
    assert write.ref == CheckpointRef(1, f"{JOB}/chk-1")
    assert sorted(write.acks) == [0, 1]
    assert c.completed == []
    actions = c.on_metadata_written(number, 5)
    assert actions == [CheckpointCompleted(write.ref, MANUAL), NotifyComplete(1)]
    assert newest(c.completed) == write.ref
    assert c.on_metadata_written(number, 5) == []


def test_ids_go_on_from_the_restored_checkpoint() -> None:
    c = CheckpointCoordinator(CheckpointSettings(), JOB, next_checkpoint_id=18)
    assert begin(c) == 18


def test_a_trigger_that_nobody_decided_is_refused() -> None:
    c = coordinator()
    with pytest.raises(UsageError, match="was not asked for"):
        c.on_trigger(1, [0], 0)
    c.submit(MANUAL)
    c.poll(0)
    with pytest.raises(UsageError, match="was not asked for"):
        c.on_trigger(1, [], 0)


def test_one_trigger_at_a_time_until_its_barrier_is_on_the_way() -> None:
    c = coordinator(max_concurrent=5)
    c.submit(MANUAL)
    c.submit(MANUAL)
    first = triggered(c.poll(0))
    assert c.poll(0) == []
    c.on_trigger(first.ref.checkpoint_id, [0], 0)
    assert triggered(c.poll(0)).ref.checkpoint_id == 2


def test_a_failed_trigger_frees_the_place() -> None:
    c = coordinator()
    c.submit(MANUAL)
    number = triggered(c.poll(0)).ref.checkpoint_id
    reason = FailureReason.TRIGGER_CHECKPOINT_FAILURE
    assert kinds(c.on_trigger_failed(number, reason)) == [NotifyAborted, DiscardPending]
    assert c.on_trigger_failed(number, reason) == []
    assert begin(c) == number + 1


def test_periodic_checkpoints_come_by_the_interval_and_missed_ones_are_not_made_up() -> None:
    c = coordinator(interval_ms=100)
    assert c.poll(1000) == []
    c.start_periodic(0)
    assert c.next_event_ms() == 100
    assert c.poll(99) == []
    for now in (100, 200, 755):
        number = triggered(c.poll(now)).ref.checkpoint_id
        c.on_trigger(number, [0, 1], now)
        complete(c, number, now=now)
        assert c.poll(now) == []
    assert c.next_event_ms() == 800


def test_a_periodic_checkpoint_that_waited_for_its_place_comes_right_after() -> None:
    c = coordinator(interval_ms=100)
    c.start_periodic(0)
    number = triggered(c.poll(100)).ref.checkpoint_id
    c.on_trigger(number, [0, 1], 100)
    for now in (200, 300, 400):
        assert c.poll(now) == []
    complete(c, number, now=450)
    second = triggered(c.poll(450)).ref.checkpoint_id
    c.on_trigger(second, [0, 1], 450)
    complete(c, second, now=460)
    assert c.poll(460) == []


def test_the_pause_counts_from_the_completion() -> None:
    c = coordinator(interval_ms=1000, min_pause_ms=1000)
    c.start_periodic(0)
    number = triggered(c.poll(1000)).ref.checkpoint_id
    c.on_trigger(number, [0, 1], 1000)
    complete(c, number, now=1900)
    (rejected,) = c.poll(2000)
    assert isinstance(rejected, RejectRequest)
    assert rejected.reason is FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    assert c.next_event_ms() == 2900
    assert c.poll(2899) == []
    assert triggered(c.poll(2900)).ref.checkpoint_id == 2


@pytest.mark.slow
def test_a_full_queue_rejects() -> None:
    c = coordinator()
    for _ in range(1000):
        assert c.submit(MANUAL) == []
    assert c.submit(MANUAL) == [RejectRequest(MANUAL, FailureReason.TOO_MANY_CHECKPOINT_REQUESTS)]


def test_savepoints_run_beside_everything_with_aligned_checkpoints() -> None:
    c = coordinator(min_pause_ms=10**8)
    begin(c)
    numbers = [savepoint(c, f"savepoint-{i}") for i in range(5)]
    assert len(c.pending) == 6
    for i, number in enumerate(numbers):
        (done,) = complete(c, number)
        assert isinstance(done, CheckpointCompleted)
        assert done.ref == CheckpointRef(number, f"savepoint-{i}", "savepoint")


def test_savepoints_wait_their_turn_with_unaligned_checkpoints_and_are_aligned() -> None:
    c = coordinator(unaligned=True)
    c.submit(MANUAL)
    first = triggered(c.poll(0))
    assert first.overtaking
    c.on_trigger(first.ref.checkpoint_id, [0, 1], 0)
    for _ in range(3):
        c.submit(MANUAL)
    c.submit(savepoint_request(c.settings, "s", timestamp_ms=9))
    assert c.poll(0) == []
    complete(c, first.ref.checkpoint_id)
    second = triggered(c.poll(0))
    assert second.request.is_savepoint
    assert not second.overtaking


def test_a_savepoint_commits_and_replaces_nothing() -> None:
    c = coordinator(max_concurrent=2)
    first, second = begin(c), begin(c)
    complete(c, first)
    third = savepoint(c, "savepoint-x")
    assert kinds(complete(c, third)) == [CheckpointCompleted]
    assert second in c.pending
    latest = newest(c.completed)
    assert latest is not None
    assert latest.checkpoint_id == first


def test_the_savepoint_of_a_stop_commits_and_is_recovered_from() -> None:
    c = coordinator()
    complete(c, begin(c))
    number = savepoint(c, "savepoint-x", synchronous=True)
    assert kinds(complete(c, number)) == [CheckpointCompleted, NotifyComplete]
    assert newest(c.completed) == CheckpointRef(number, "savepoint-x", "savepoint")
    assert len(c.completed) == 2


def test_a_checkpoint_replaces_older_pending_ones_but_no_savepoints() -> None:
    c = coordinator(max_concurrent=2)
    first = begin(c)
    saving = savepoint(c, "savepoint-x")
    c.on_ack(ack(first, 0))
    c.pending[saving].started_ms = 0
    third = begin_beside(c)
    actions = complete(c, third)
    assert kinds(actions) == [CheckpointCompleted, NotifyComplete, NotifyAborted, DiscardPending]
    assert actions[2] == NotifyAborted(first, MANUAL, FailureReason.CHECKPOINT_SUBSUMED)
    assert isinstance(actions[3], DiscardPending)
    assert actions[3].files == (f"chk-{first}/s0",)
    assert list(c.pending) == [saving]


def begin_beside(c: CheckpointCoordinator) -> int:
    return begin(c, CheckpointRequest(RequestKind.MANUAL, 0, force=True))


def test_older_completed_checkpoints_are_deleted_as_retention_says() -> None:
    c = coordinator(num_retained=2)
    for expected in ([], [], [1], [2]):
        actions = complete(c, begin(c))
        deleted = [a.ref.checkpoint_id for a in actions if isinstance(a, DeleteCheckpoint)]
        assert deleted == expected
        for number in deleted:
            c.on_cleaned(number)


def test_restored_checkpoints_are_subsumed_too() -> None:
    old = CheckpointRef(7, "other/chk-7")
    c = CheckpointCoordinator(
        CheckpointSettings(), JOB, attempt=1, next_checkpoint_id=8, completed=[old]
    )
    assert newest(c.completed) == old
    assert complete(c, begin(c))[-1] == DeleteCheckpoint(old)


def test_unfinished_deletions_hold_new_checkpoints_back() -> None:
    c = coordinator()
    for _ in range(3):
        complete(c, begin(c))
    c.submit(MANUAL)
    assert c.poll(0) == []
    c.on_cleaned(1)
    assert triggered(c.poll(0)).ref.checkpoint_id == 4


def test_a_checkpoint_expires() -> None:
    c = coordinator(timeout_ms=100, tolerable_failures=1)
    number = begin(c, now=50)
    c.on_ack(ack(number, 0))
    assert c.next_event_ms() == 150
    assert c.on_timeout(149) == []
    assert c.on_timeout(150) == [
        NotifyAborted(number, MANUAL, FailureReason.CHECKPOINT_EXPIRED),
        DiscardPending(CheckpointRef(number, f"{JOB}/chk-1"), ("chk-1/s0",)),
    ]
    second = begin(c, now=200)
    assert kinds(c.poll(300)) == [NotifyAborted, DiscardPending, FailJob]
    assert second not in c.pending


def test_a_checkpoint_whose_metadata_is_being_written_cannot_be_aborted() -> None:
    c = coordinator(timeout_ms=100)
    number = begin(c)
    acknowledge(c, number)
    assert c.on_timeout(1000) == []
    assert c.on_decline(number, 1, FailureReason.CHECKPOINT_DECLINED) == []
    assert c.on_failover(2) == []
    assert c.next_event_ms() is None
    assert kinds(c.on_metadata_written(number, 0)) == [CheckpointCompleted, NotifyComplete]


def test_unwritable_metadata_aborts_and_counts() -> None:
    c = coordinator()
    number = begin(c)
    assert c.on_metadata_failed(number) == []
    acknowledge(c, number)
    actions = c.on_metadata_failed(number, "disk full")
    assert kinds(actions) == [NotifyAborted, DiscardPending, FailJob]
    assert isinstance(actions[1], DiscardPending)
    assert actions[1].files == ("chk-1/s0", "chk-1/s1")
    assert c.on_metadata_written(number, 0) == []


def test_a_decline_aborts_and_says_why() -> None:
    c = coordinator()
    number = begin(c)
    actions = c.on_decline(number, 1, FailureReason.CHECKPOINT_DECLINED, "no memory")
    assert kinds(actions) == [NotifyAborted, DiscardPending, FailJob]
    assert isinstance(actions[0], NotifyAborted)
    assert actions[0].detail == "no memory"
    assert isinstance(actions[2], FailJob)
    assert "checkpoint 1 failed: a subtask declined" in actions[2].message
    assert c.on_decline(number, 1, FailureReason.CHECKPOINT_DECLINED) == []


def test_declines_of_an_older_attempt_are_fenced() -> None:
    c = coordinator()
    number = begin(c)
    assert c.on_decline(number, 0, FailureReason.CHECKPOINT_DECLINED) == []
    assert number in c.pending


def test_a_repeated_acknowledgement_changes_nothing() -> None:
    c = coordinator()
    number = begin(c)
    for _ in range(3):
        assert c.on_ack(ack(number, 0)) == []
    complete_rest = c.on_ack(ack(number, 1))
    assert kinds(complete_rest) == [WriteMetadata]
    assert c.on_ack(ack(number, 1)) == []
    c.on_metadata_written(number, 0)
    assert c.on_ack(ack(number, 1)) == []


def test_a_second_acknowledgement_with_other_files_gives_them_up() -> None:
    c = coordinator()
    number = begin(c)
    c.on_ack(ack(number, 0))
    assert c.on_ack(ack(number, 0, file="other")) == [DeleteFiles(("other",))]
    assert c.on_ack(ack(number, 9, file="stranger")) == [DeleteFiles(("stranger",))]


def test_acknowledgements_of_an_older_attempt_are_fenced() -> None:
    c = coordinator()
    number = begin(c)
    c.on_ack(ack(number, 0))
    assert c.on_ack(ack(number, 1, attempt=0, file="old")) == [DeleteFiles(("old",))]
    assert number in c.pending


def test_late_acknowledgements_of_an_aborted_checkpoint_give_their_files_up() -> None:
    c = coordinator(tolerable_failures=9)
    number = begin(c)
    c.on_decline(number, 1, FailureReason.CHECKPOINT_DECLINED)
    assert c.on_ack(ack(number, 0)) == [DeleteFiles(("chk-1/s0",))]
    assert c.on_ack(Ack(number, 0, 1)) == []


def test_files_of_checkpoints_before_the_restored_one_are_never_given_up() -> None:
    c = CheckpointCoordinator(CheckpointSettings(), JOB, attempt=2, next_checkpoint_id=6)
    assert c.on_ack(ack(5, 0, attempt=1)) == []
    assert c.on_ack(ack(6, 0, attempt=1)) == [DeleteFiles(("chk-6/s0",))]


def test_files_of_completed_checkpoints_are_never_given_up_however_late() -> None:
    c = coordinator()
    for _ in range(1100):
        number = begin(c)
        for action in complete(c, number):
            if isinstance(action, DeleteCheckpoint):
                c.on_cleaned(action.ref.checkpoint_id)
    for number in range(1, 1101):
        assert c.on_ack(ack(number, 0)) == []


def test_a_failover_aborts_rejects_and_fences() -> None:
    c = coordinator(interval_ms=100)
    c.start_periodic(0)
    number = begin(c)
    c.submit(MANUAL)
    c.submit(savepoint_request(c.settings, "s", timestamp_ms=0))
    triggering = triggered(c.poll(0)).ref.checkpoint_id
    actions = c.on_failover(2)
    assert kinds(actions) == [
        NotifyAborted,
        DiscardPending,
        NotifyAborted,
        DiscardPending,
        RejectRequest,
    ]
    assert c.next_event_ms() is None
    assert c.on_ack(ack(number, 0)) == [DeleteFiles(("chk-1/s0",))]
    with pytest.raises(UsageError):
        c.on_trigger(triggering, [0], 0)
    c.start_periodic(1000)
    assert triggered(c.poll(1100)).ref.checkpoint_id == 3


def test_a_failed_savepoint_of_a_stop_fails_the_job() -> None:
    c = coordinator(tolerable_failures=100, timeout_ms=10)
    savepoint(c, "s", synchronous=True)
    assert kinds(c.on_timeout(10)) == [NotifyAborted, DiscardPending, FailJob]


def test_an_expired_savepoint_concerns_only_who_asked() -> None:
    c = coordinator(timeout_ms=10)
    savepoint(c, "s")
    assert kinds(c.on_timeout(10)) == [NotifyAborted, DiscardPending]


def test_the_end_of_the_job_aborts_and_deletes_what_is_not_retained() -> None:
    for retention, deleted in (
        (Retention.RETAIN_ON_CANCELLATION, []),
        (Retention.DELETE_ON_CANCELLATION, [DeleteCheckpoint]),
    ):
        c = coordinator(retention=retention)
        complete(c, begin(c))
        begin(c)
        assert kinds(c.on_job_end(JobEnd.CANCELED)) == [NotifyAborted, DiscardPending, *deleted]


def test_a_checkpoint_that_is_overtaken_while_written_still_completes_and_goes_at_once() -> None:
    c = coordinator(max_concurrent=2)
    first, second = begin(c), begin(c)
    acknowledge(c, first)
    acknowledge(c, second)
    c.on_metadata_written(second, 0)
    actions = c.on_metadata_written(first, 0)
    assert kinds(actions) == [CheckpointCompleted, NotifyComplete, DeleteCheckpoint]
    latest = newest(c.completed)
    assert latest is not None
    assert latest.checkpoint_id == second
