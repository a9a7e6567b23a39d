"""What is deleted when: the tables of Flink's checkpoint properties."""

from __future__ import annotations

import pytest

from weir.checkpoint.retention import (
    CheckpointRef,
    JobEnd,
    is_discarded,
    plan_job_end,
    plan_subsumption,
)
from weir.checkpoint.settings import Retention

ENDS = (JobEnd.FINISHED, JobEnd.CANCELED, JobEnd.FAILED, JobEnd.SUSPENDED)


def ref(number: int) -> CheckpointRef:
    return CheckpointRef(number, f"job/chk-{number}")


def savepoint(number: int) -> CheckpointRef:
    return CheckpointRef(number, f"savepoint-{number}", "savepoint")


@pytest.mark.parametrize(
    ("retention", "discarded"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, (True, True, True, True)),
        (Retention.DELETE_ON_CANCELLATION, (True, True, False, True)),
        (Retention.RETAIN_ON_CANCELLATION, (True, False, False, False)),
    ],
)
def test_the_end_of_the_job_decides_by_its_retention(
    retention: Retention, discarded: tuple[bool, ...]
) -> None:
    assert tuple(is_discarded("checkpoint", retention, end) for end in ENDS) == discarded
    for end, gone in zip(ENDS, discarded, strict=True):
        planned = plan_job_end([ref(9), savepoint(8), ref(7)], retention, end)
        assert planned == ((ref(7), ref(9)) if gone else ())


@pytest.mark.parametrize("retention", list(Retention))
@pytest.mark.parametrize("end", list(JobEnd))
def test_savepoints_outlive_the_job(retention: Retention, end: JobEnd) -> None:
    assert not is_discarded("savepoint", retention, end)


def test_each_new_checkpoint_replaces_the_one_before() -> None:
    completed: list[CheckpointRef] = []
    for number in range(4):
        completed.append(ref(number))
        gone = plan_subsumption(completed, 1)
        assert gone == ((ref(number - 1),) if number else ())
        completed = [kept for kept in completed if kept not in gone]


def test_savepoints_are_not_subsumed_and_not_counted() -> None:
    completed = [ref(1), savepoint(2), ref(3), savepoint(4), ref(5)]
    assert plan_subsumption(completed, 1) == (ref(1), ref(3))
    assert plan_subsumption(completed, 2) == (ref(1),)
    assert plan_subsumption(completed, 3) == ()


def test_plans_go_from_old_to_new() -> None:
    assert plan_subsumption([ref(10), ref(9), ref(2)], 1) == (ref(2), ref(9))
