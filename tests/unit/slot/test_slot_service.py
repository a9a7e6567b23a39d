"""A slot in the middle of a level: what it answers at once, what it does between two strides."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from tests.harness.overtaking import Overtake, job, settings
from tests.harness.programs import environment

from weir.datastream import KeyedProcessFunction
from weir.errors import UserFunctionError
from weir.jobmanager.overtake import Outcome
from weir.runtime.subtask import STRIDE_ROWS
from weir.testing.harness import collect
from weir.testing.harness_slots import Hooks

LONG_S = 30.0
GATE = "gate"
SHARED: dict[str, Gate] = {}


class Gate:
    """Lets records pass one by one."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def reached(self):
        """Wait until a record stands at the gate."""
        assert self.waiting.acquire(timeout=LONG_S)

    def let(self, records):
        for _ in range(records):
            self.open.release()


class Gated(KeyedProcessFunction):
    def process_element(self, value, ctx):
        gate = SHARED[GATE]
        gate.waiting.release()
        assert gate.open.acquire(timeout=LONG_S)
        yield value

    def notify_checkpoint_complete(self, checkpoint_id):
        SHARED.setdefault("told", []).append(checkpoint_id)


@pytest.fixture
def gate():
    SHARED.clear()
    SHARED[GATE] = Gate()
    return SHARED[GATE]


@pytest.fixture
def running(gate):
    """A job with one slot, in the middle of an epoch of six records, at its second record."""
    env = environment()
    collect(env.from_sequence(1, 6).key_by(lambda n: 0).process(Gated()).uid("gated"))
    harness = job(env, Overtake(None), 1, checkpoints=settings())
    with ThreadPoolExecutor(2) as pool:
        harness.pool = pool
        harness.epoch_run = pool.submit(harness.run_epoch, checkpoint=True)
        gate.reached()
        gate.let(1)
        gate.reached()
        yield harness
        gate.let(100)
        harness.epoch_run.result(LONG_S)


def service(harness):
    return harness.slots.slots[0].service


def test_the_driver_is_answered_while_a_record_is_being_handled(running):
    assert service(running).where(0, 1, 1) == (1, 0)
    assert service(running).revoke(0, 1) is False


def test_the_checkpoint_is_complete_after_the_slice_and_before_the_level(running, gate):
    assert running.overtake() is Outcome.SETTLED
    assert running.runner.coordinator.completed == []
    gate.let(1)
    gate.reached()
    assert [ref.checkpoint_id for ref in running.runner.coordinator.completed] == [1]
    assert SHARED["told"] == [1]
    assert not running.epoch_run.done()


def test_a_completion_that_arrives_in_the_middle_of_a_level_is_carried_out_between_slices(
    running, gate
):
    told = running.pool.submit(service(running).notify_complete, 0, 42)
    assert not wait([told], 0.05).done
    gate.let(1)
    assert told.result(LONG_S) == []
    assert SHARED["told"] == [42]
    assert not running.epoch_run.done()


def test_nobody_waits_for_a_slot_to_hear_of_an_aborted_checkpoint(running):
    service(running).notify_aborted(0, 42)


def test_an_aborted_checkpoint_is_not_cut(running, gate):
    assert running.overtake() is Outcome.SETTLED
    service(running).notify_aborted(0, 1)
    gate.let(1)
    gate.reached()
    assert running.runner.coordinator.completed == []


class GatedAt(Gated):
    """Stops only at some records."""

    def process_element(self, value, ctx):
        return super().process_element(value, ctx) if value in SHARED["stops"] else (value,)

    def notify_checkpoint_complete(self, checkpoint_id):
        super().notify_checkpoint_complete(checkpoint_id)
        if checkpoint_id == SHARED.get("fails at"):
            msg = "the disk is full"
            raise OSError(msg)


@pytest.fixture
def at_the_end_of_a_stride(gate):
    """An aligned job whose epoch of two strides is at the last record of the first one."""
    SHARED["stops"] = (STRIDE_ROWS, STRIDE_ROWS + 1)
    env = environment()
    collect(
        env.from_sequence(1, STRIDE_ROWS + 5).key_by(lambda n: 0).process(GatedAt()).uid("gated")
    )
    harness = job(env, Hooks(), 1, mode="exactly-once", partitions=1)
    with ThreadPoolExecutor(2) as pool:
        harness.pool = pool
        harness.epoch_run = pool.submit(harness.run_epoch, checkpoint=True)
        gate.reached()
        yield harness
        gate.let(100)


def told_in_the_middle(harness, checkpoint_id):
    """Tell of a completed checkpoint; it waits for the end of the stride."""
    told = harness.pool.submit(service(harness).notify_complete, 0, checkpoint_id)
    while not service(harness).waiting:
        assert not wait([told], 0.01).done
    return told


def test_without_slices_a_completion_is_carried_out_between_two_strides(
    at_the_end_of_a_stride, gate
):
    told = told_in_the_middle(at_the_end_of_a_stride, 42)
    gate.let(1)
    gate.reached()
    assert told.result(LONG_S) == []
    assert SHARED["told"] == [42]
    assert not at_the_end_of_a_stride.epoch_run.done()


def test_a_slot_that_fails_between_two_strides_goes_no_further(at_the_end_of_a_stride, gate):
    SHARED["fails at"] = 42
    told = told_in_the_middle(at_the_end_of_a_stride, 42)
    gate.let(100)
    with pytest.raises(UserFunctionError, match="the disk is full"):
        told.result(LONG_S)
    with pytest.raises(UserFunctionError, match="the disk is full"):
        at_the_end_of_a_stride.epoch_run.result(LONG_S)
    assert not gate.waiting.acquire(blocking=False)
    assert at_the_end_of_a_stride.runner.coordinator.completed == []
