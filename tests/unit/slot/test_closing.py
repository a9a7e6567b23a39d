"""Operators are closed once, with more time at the end of a job, and a time-out is told."""

from __future__ import annotations

import threading

import pytest
from tests.harness.programs import environment, started

from weir.datastream import MapFunction
from weir.jobmanager.failures import from_failure
from weir.slot.build import SlotIdentity
from weir.slot.closing import CLOSE_S, FINISHED_CLOSE_S, Closing, patience_s
from weir.slot.messages import FINISHED, NEXT_ATTEMPT
from weir.testing.harness import collect

LONG_S = 60.0


class Operators:
    """Operators that are closed when they may be."""

    def __init__(self, error=None):
        self.closed, self.begun, self.allowed = 0, threading.Event(), threading.Event()
        self._error = error

    def close(self):
        self.begun.set()
        assert self.allowed.wait(LONG_S)
        self.closed += 1
        if self._error is not None:
            raise self._error


@pytest.fixture
def closing():
    return Closing(SlotIdentity(3, 1))


def test_a_job_that_has_finished_gives_functions_more_time_than_one_that_goes_on():
    assert patience_s(FINISHED) == FINISHED_CLOSE_S
    assert patience_s(NEXT_ATTEMPT) == patience_s("fenced") == CLOSE_S < FINISHED_CLOSE_S


def test_who_comes_second_waits_until_the_operators_are_closed(closing):
    operators = Operators()
    both = [
        threading.Thread(target=closing.close, args=(operators, seconds), daemon=True)
        for seconds in (LONG_S, 0.01)
    ]
    both[0].start()
    assert operators.begun.wait(LONG_S)
    both[1].start()
    both[1].join(0.2)
    assert both[1].is_alive()
    operators.allowed.set()
    for thread in both:
        thread.join(LONG_S)
    assert operators.closed == 1


def test_what_went_wrong_is_told_to_everybody(closing):
    operators = Operators(RuntimeError("no"))
    operators.allowed.set()
    assert closing.close(None, LONG_S) is None
    failures = [closing.close(operators, LONG_S) for _ in range(2)]
    assert "RuntimeError: no" in failures[0].message
    assert failures[0] is failures[1]
    assert (failures[0].attempt, failures[0].subtask, operators.closed) == (3, 1, 1)


class SlowToClose(MapFunction):
    """Closes when it may."""

    allowed = threading.Event()

    def map(self, value):
        return value

    def close(self):
        assert self.allowed.wait(LONG_S)


def test_operators_that_take_too_long_to_close_are_told_by_name_and_place(closing):
    env = environment()
    collect(env.from_sequence(1, 3).key_by(lambda n: n).map(SlowToClose()).name("slow one"))
    harness = started(env, 1)
    try:
        failure = closing.close(harness.slots.slots[0].service, 0.2)
    finally:
        SlowToClose.allowed.set()
    harness.end_slots()
    assert str(from_failure(failure, "")) == (
        "slot 1 failed:\nits operators were not closed within 0.2 s, and it ended without that; "
        "at work: operator 'slow one', in close (test_closing.py:81)"
    )
