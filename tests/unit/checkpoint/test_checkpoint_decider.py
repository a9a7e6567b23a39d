"""Which request is triggered when: the facts of Flink's request decider."""

from __future__ import annotations

import pytest

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
    savepoint_request,
)
from weir.checkpoint.failure import FailureReason
from weir.checkpoint.settings import CheckpointSettings

DAY = 86_400_000
ONE = CheckpointSettings()
PERIODIC = CheckpointRequest(RequestKind.PERIODIC, 1)
MANUAL = CheckpointRequest(RequestKind.MANUAL, 1)
SAVEPOINT = CheckpointRequest(RequestKind.SAVEPOINT, 1, force=True)
UNFORCED_SAVEPOINT = CheckpointRequest(RequestKind.SAVEPOINT, 1)


def queue_of(*requests: CheckpointRequest) -> Queue:
    queue: Queue = ()
    for request in requests:
        queue = enqueue(queue, request).queue
    return queue


def test_nothing_waits_when_nobody_asked() -> None:
    assert isinstance(decide_trigger(TriggerFacts((), DAY), ONE), Wait)


def test_nothing_is_triggered_while_another_is_being_triggered() -> None:
    facts = TriggerFacts((SAVEPOINT,), DAY, is_triggering=True)
    assert isinstance(decide_trigger(facts, ONE), Wait)


def test_a_forced_request_ignores_the_number_of_running_checkpoints() -> None:
    assert decide_trigger(TriggerFacts((SAVEPOINT,), DAY, pending=5), ONE) == Trigger(SAVEPOINT)


@pytest.mark.parametrize("request_", [PERIODIC, MANUAL, UNFORCED_SAVEPOINT])
def test_other_requests_wait_for_a_free_place(request_: CheckpointRequest) -> None:
    assert isinstance(decide_trigger(TriggerFacts((request_,), DAY, pending=1), ONE), Wait)
    assert decide_trigger(TriggerFacts((request_,), DAY), ONE) == Trigger(request_)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_as_many_run_as_are_allowed(limit: int) -> None:
    settings = CheckpointSettings(max_concurrent=limit)
    facts = TriggerFacts((PERIODIC,), DAY, pending=limit - 1)
    assert decide_trigger(facts, settings) == Trigger(PERIODIC)
    facts = TriggerFacts((PERIODIC,), DAY, pending=limit)
    assert isinstance(decide_trigger(facts, settings), Wait)


def test_too_much_unfinished_cleaning_blocks_every_request() -> None:
    settings = CheckpointSettings(max_concurrent=10)
    for request in (PERIODIC, SAVEPOINT):
        facts = TriggerFacts((request,), DAY, cleaning=11)
        assert isinstance(decide_trigger(facts, settings), Wait)
        facts = TriggerFacts((request,), DAY, cleaning=10)
        assert decide_trigger(facts, settings) == Trigger(request)


@pytest.mark.parametrize("request_", [MANUAL, SAVEPOINT, UNFORCED_SAVEPOINT])
def test_requests_of_people_ignore_the_pause(request_: CheckpointRequest) -> None:
    settings = CheckpointSettings(min_pause_ms=10)
    facts = TriggerFacts((request_,), DAY, last_completion_ms=DAY)
    assert decide_trigger(facts, settings) == Trigger(request_)


def test_a_periodic_request_inside_the_pause_is_dropped_and_due_again_after_it() -> None:
    settings = CheckpointSettings(min_pause_ms=10)
    for now in range(DAY, DAY + 10):
        facts = TriggerFacts((PERIODIC,), now, last_completion_ms=DAY)
        assert decide_trigger(facts, settings) == Drop(
            PERIODIC, FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, DAY + 10
        )
    facts = TriggerFacts((PERIODIC,), DAY + 10, last_completion_ms=DAY)
    assert decide_trigger(facts, settings) == Trigger(PERIODIC)


def test_before_the_first_completion_there_is_no_pause() -> None:
    settings = CheckpointSettings(min_pause_ms=10**9)
    assert decide_trigger(TriggerFacts((PERIODIC,), 0), settings) == Trigger(PERIODIC)


def test_the_queue_is_ordered_by_savepoint_force_person_and_age() -> None:
    older_periodic = CheckpointRequest(RequestKind.PERIODIC, 0)
    forced_manual = CheckpointRequest(RequestKind.MANUAL, 9, force=True)
    late_manual = CheckpointRequest(RequestKind.MANUAL, 9)
    expected = (
        SAVEPOINT,
        UNFORCED_SAVEPOINT,
        forced_manual,
        MANUAL,
        late_manual,
        older_periodic,
        PERIODIC,
    )
    assert queue_of(*reversed(expected)) == expected
    assert queue_of(*expected) == expected


def test_equal_requests_keep_the_order_in_which_they_came() -> None:
    requests = [CheckpointRequest(RequestKind.MANUAL, 1, token=str(i)) for i in range(5)]
    assert queue_of(*requests) == tuple(requests)


def test_a_full_queue_drops_periodic_requests_first() -> None:
    assert enqueue((PERIODIC,), SAVEPOINT, cap=1).dropped == PERIODIC
    assert enqueue((PERIODIC,), SAVEPOINT, cap=1).queue == (SAVEPOINT,)
    newer = CheckpointRequest(RequestKind.PERIODIC, 2)
    assert enqueue((PERIODIC,), newer, cap=1).dropped == newer


def test_a_full_queue_of_people_refuses_the_new_request() -> None:
    result = enqueue((MANUAL,), SAVEPOINT, cap=1)
    assert result.dropped == SAVEPOINT
    assert result.queue == (MANUAL,)


@pytest.mark.slow
def test_the_queue_holds_a_thousand_requests() -> None:
    queue: Queue = ()
    dropped = 0
    for i in range(1003):
        result = enqueue(queue, CheckpointRequest(RequestKind.PERIODIC, i))
        queue, dropped = result.queue, dropped + (result.dropped is not None)
    assert (len(queue), dropped) == (1000, 3)


def test_savepoints_are_forced_unless_checkpoints_are_unaligned() -> None:
    aligned = savepoint_request(CheckpointSettings(), "savepoint-1", timestamp_ms=5)
    assert (aligned.force, aligned.is_savepoint, aligned.full) == (True, True, True)
    unaligned = savepoint_request(CheckpointSettings(unaligned=True), "s", timestamp_ms=5)
    assert not unaligned.force


def test_an_unforced_savepoint_jumps_the_queue() -> None:
    manual = [CheckpointRequest(RequestKind.MANUAL, i, token=str(i)) for i in range(10)]
    savepoint = savepoint_request(CheckpointSettings(unaligned=True), "s", timestamp_ms=99)
    assert queue_of(*manual, savepoint)[0] == savepoint
