"""When failed checkpoints fail the job: the tables of Flink's failure manager."""

from __future__ import annotations

import pytest

from weir.checkpoint.failure import CheckpointFailure, FailureCounter, FailureReason

COUNTED = FailureReason.CHECKPOINT_EXPIRED
IGNORED = FailureReason.JOB_FAILOVER_REGION


def job_failures(tolerable: int, *events: tuple[str, int | None]) -> int:
    """Feed ("fail" | "ignored" | "success", id) and count how often the job fails."""
    counter = FailureCounter(tolerable)
    failed = 0
    for event, checkpoint in events:
        if event == "success":
            counter.on_success(checkpoint or 0)
        else:
            reason = COUNTED if event == "fail" else IGNORED
            failed += counter.on_failure(CheckpointFailure(checkpoint, reason))
    return failed


def test_the_job_fails_when_more_than_the_tolerated_fail_in_a_row() -> None:
    assert job_failures(2, ("fail", 1), ("fail", 2), ("ignored", 3)) == 0
    assert job_failures(2, ("fail", 1), ("fail", 2), ("ignored", 3), ("fail", 4)) == 1


def test_a_success_starts_from_zero() -> None:
    assert job_failures(2, ("fail", 1), ("fail", 2), ("success", 4), ("fail", 5)) == 0


def test_failures_up_to_the_last_success_do_not_count() -> None:
    assert job_failures(2, ("success", 2), ("fail", 1), ("fail", 3), ("fail", 4)) == 0
    assert job_failures(1, ("success", 2), ("fail", 1), ("fail", 3), ("fail", 4)) == 1


def test_an_older_success_does_not_start_from_zero() -> None:
    assert job_failures(0, ("success", 5), ("success", 3), ("fail", 4)) == 0


def test_a_checkpoint_counts_once() -> None:
    assert job_failures(2, ("fail", 1), ("fail", 1), ("fail", 1), ("fail", 2)) == 0


def test_failures_before_an_id_was_given_count_each() -> None:
    assert job_failures(2, ("fail", None), ("fail", None)) == 0
    assert job_failures(2, ("fail", None), ("fail", None), ("fail", None)) == 1


def test_after_failing_the_job_counting_starts_from_zero() -> None:
    assert job_failures(1, *(("fail", i) for i in range(1, 9))) == 4


def test_exactly_five_reasons_count() -> None:
    counter = FailureCounter(0)
    failing = [
        reason
        for number, reason in enumerate(FailureReason)
        if counter.on_failure(CheckpointFailure(number, reason))
    ]
    assert set(failing) == {
        FailureReason.IO_EXCEPTION,
        FailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        FailureReason.CHECKPOINT_DECLINED,
        FailureReason.CHECKPOINT_EXPIRED,
        FailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
    assert len(failing) == 5


@pytest.mark.parametrize("from_task", [True, False])
def test_a_savepoint_counts_only_when_a_subtask_reported_it(from_task: bool) -> None:
    counter = FailureCounter(0)
    failure = CheckpointFailure(1, COUNTED, is_savepoint=True, from_task=from_task)
    assert counter.on_failure(failure) is from_task


@pytest.mark.parametrize(
    ("reason", "fails"),
    [
        (FailureReason.CHECKPOINT_EXPIRED, True),
        (FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, True),
        (FailureReason.TOO_MANY_CHECKPOINT_REQUESTS, False),
        (FailureReason.JOB_FAILOVER_REGION, False),
    ],
)
def test_a_failed_savepoint_of_a_stop_fails_the_job_whatever_is_tolerated(
    reason: FailureReason, fails: bool
) -> None:
    failure = CheckpointFailure(1, reason, is_savepoint=True, is_synchronous=True)
    assert FailureCounter(1000).on_failure(failure) is fails
