"""Silence counts while somebody looks at the sources and finds nothing, and at no other time.

A partition whose records wait, for the next trigger or behind slow slots, is not idle: the
watermark would jump, and its records would be late.
"""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started
from tests.harness.test_partitions_in_time import Stage, in_order, judged, late, log_partition
from tests.harness.test_partitions_in_time import watermark as of_judge
from tests.harness.test_watermark_generators import strategy as generated

from weir.common import Duration
from weir.datastream import KeyedProcessFunction
from weir.testing.clock import ManualClock
from weir.testing.harness import collect
from weir.testing.harness_slots import Hooks

BOTH = [("a", 1000), ("b", 900)]
NEXT = [("a", 1001), ("b", 901)]


def seconds(count):
    return Duration.of_seconds(count)


def beside_the_source(env, idleness):
    judged(env, in_order().with_idleness(idleness))


def by_generators(env, idleness):
    judged(env, generated().with_idleness(idleness))


@pytest.fixture(params=[beside_the_source, by_generators])
def program(request):
    return request.param


class Slow(Hooks):
    """Lets time pass at a step of an epoch."""

    def __init__(self):
        self.clock = ManualClock()
        self.at, self.takes_ms = "", 0

    def step(self, label):
        if label == self.at:
            self.clock.advance(self.takes_ms)


def slow(env):
    hooks = Slow()
    return started(env, 2, hooks=hooks, clock=hooks.clock, partition_of=log_partition), hooks


def test_records_that_wait_for_the_next_trigger_are_no_silence(program):
    env = environment()
    program(env, seconds(5))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch(BOTH)
    before = harness.epoch, of_judge(harness)
    harness.sources.arrive(NEXT)
    for _ in range(9):
        harness.clock.advance(1000)
        harness.turn()
    assert (harness.epoch, of_judge(harness)) == before
    harness.clock.advance(1000)
    harness.run_epoch()
    assert late(harness) == []


@pytest.mark.parametrize("step", ["level 1 is sent", "epoch is decided"])
def test_time_that_an_epoch_takes_after_it_was_planned_is_no_silence(program, step):
    env = environment()
    program(env, seconds(5))
    harness, hooks = slow(env)
    harness.run_epoch(BOTH)
    harness.clock.advance(500)
    hooks.at, hooks.takes_ms = step, 6000
    harness.run_epoch([("a", n) for n in range(1001, 1100)])
    hooks.at = ""
    assert of_judge(harness) <= 900
    harness.run_epoch([("b", 901)])
    assert late(harness) == []


class EverySecond(KeyedProcessFunction):
    """Wants a control epoch now and then."""

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1000)

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_time_that_slots_work_is_no_silence_in_the_control_epoch_behind_it(program):
    env = environment()
    program(env, seconds(10))
    timers = env.from_collection([]).key_by(lambda v: 0).process(EverySecond())
    ticks = collect(timers)
    harness, hooks = slow(env)
    # The slots have heard all of them, and then work for long.
    hooks.at, hooks.takes_ms = "epoch's results are here", 20_000
    harness.run_epoch({0: BOTH, 1: ["tick"]})
    hooks.at = ""
    before = harness.epoch
    harness.sources.arrive(NEXT)
    harness.clock.advance(1001)
    harness.turn()
    assert harness.epoch == before + 1
    assert len(harness.collected(ticks)) == 1
    assert of_judge(harness) <= 900
    harness.run_epoch()
    assert late(harness) == []  # of the first of the two collected streams


def test_a_checkpoint_of_its_own_is_no_look_at_the_sources(program):
    env = environment()
    program(env, seconds(5))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch(BOTH)
    harness.sources.arrive(NEXT)
    harness.clock.advance(30_000)
    harness.checkpoint()
    assert of_judge(harness) <= 900
    harness.run_epoch()
    assert late(harness) == []


def test_a_partition_without_records_is_idle_when_it_was_looked_at(program):
    env = environment()
    program(env, seconds(5))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch(BOTH)
    harness.clock.advance(5001)
    harness.run_epoch([("a", 2000)])
    assert of_judge(harness) == 1999


def test_what_timers_bring_between_two_looks_is_heard_behind_an_exchange():
    env = environment()
    behind = env.from_collection([]).key_by(lambda v: 0).process(EverySecond())
    timed = behind.assign_timestamps_and_watermarks(
        in_order().with_timestamp_assigner(lambda v, _: v).with_idleness(Duration.of_millis(800))
    )
    collect(timed.key_by(lambda v: 0).process(Stage()).uid("judge"))
    harness = started(env, 1)
    harness.run_epoch(["tick"])
    harness.sources.arrive(["tick"])
    harness.clock.advance(1000)
    harness.turn()
    assert harness.collected() == [1000]
    harness.clock.advance(700)
    harness.run_epoch()
    [judge] = harness.operators("judge")
    assert not judge.idle
    harness.clock.advance(101)
    harness.turn()
    assert judge.idle
