"""Timestamps, watermarks and timers of both time domains."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.common import Duration
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    TimeDomain,
)
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.testing.harness import collect

MIN = -(1 << 63)
MAX = (1 << 63) - 1


def in_order():
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value[1]
    )


class Timers(KeyedProcessFunction):
    """Sets a timer per record, `delay` behind it, and says when it fires."""

    def __init__(self, delay=0):
        self.delay = delay

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + self.delay)
        yield "seen", value[0], ctx.timestamp(), ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield "fired", ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def timed(env, records, function, strategy=None):
    stream = env.from_collection(records)
    stream = stream.assign_timestamps_and_watermarks(strategy or in_order())
    return stream.key_by(lambda v: v[0]).process(function)


def fired(harness):
    return [r for r in harness.collected() if r[0] == "fired"]


def test_event_time_timers_fire_in_order_when_the_watermark_passes_them():
    env = environment()
    collect(timed(env, [("k", 30), ("k", 10), ("k", 20), ("k", 50)], Timers()))
    harness = started(env, 1)
    harness.run_epoch()
    assert [r[2] for r in fired(harness)] == [10, 20, 30]
    assert {r[3] for r in fired(harness)} == {49}
    harness.finish()
    assert [r[2] for r in fired(harness)] == [10, 20, 30, 50]
    assert fired(harness)[-1][3] == MAX


def test_records_carry_their_timestamps_and_see_the_watermark_of_the_epoch_before():
    env = environment()
    collect(timed(env, [("k", 10), ("k", 20)], Timers(1000)))
    harness = started(env, 1)
    harness.run_epoch(take=1)
    harness.run_epoch(take=1)
    assert harness.collected() == [("seen", "k", 10, MIN), ("seen", "k", 20, 9)]


def test_a_timer_behind_the_watermark_fires_at_the_next_one():
    env = environment()
    collect(timed(env, [("k", 100), ("k", 5), ("k", 101)], Timers()))
    harness = started(env, 1)
    harness.run_epoch(take=1)
    harness.run_epoch(take=1)
    harness.run_epoch(take=1)
    assert [r[2] for r in fired(harness)] == [5, 100]


def test_bounded_disorder_holds_the_watermark_back():
    env = environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(15))
    strategy = strategy.with_timestamp_assigner(lambda value, _: value[1])
    collect(timed(env, [("k", 10), ("k", 30)], Timers(), strategy))
    harness = started(env, 1)
    harness.run_epoch()
    assert [(r[2], r[3]) for r in fired(harness)] == [(10, 14)]


def test_a_timer_of_one_key_and_time_fires_once():
    env = environment()
    collect(timed(env, [("k", 10), ("k", 10), ("j", 10), ("k", 20)], Timers()))
    harness = run(env, 1)
    assert sorted(r[1:3] for r in fired(harness)) == [("j", 10), ("k", 10), ("k", 20)]


def test_event_timers_survive_a_failover_and_a_restart_at_another_parallelism():
    env = environment()
    records = [(f"k{i}", 10 + i) for i in range(20)]
    collect(timed(env, records, Timers(1000)).uid("timers"))
    first = started(env, 2, wait_for_checkpoints=True)
    first.run_epoch(checkpoint=True)
    first.kill_slot(1)
    first.fail_over()
    second = first.restart(3)
    second.finish()
    assert sorted(r[1:3] for r in fired(second)) == sorted((k, t + 1000) for k, t in records)


class Alarm(KeyedProcessFunction):
    """Sets a processing-time timer 100 ms behind the first record of a key."""

    def open(self, runtime_context):
        self.set = runtime_context.get_state(ValueStateDescriptor("set", Types.LONG()))

    def process_element(self, value, ctx):
        if self.set.value() is None:
            at = ctx.timer_service().current_processing_time() + 100
            self.set.update(at)
            ctx.timer_service().register_processing_time_timer(at)
        return []

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, ctx.time_domain()


def alarms(env, keys):
    collect(env.from_collection(keys).key_by(lambda k: k).process(Alarm()).uid("alarm"))


def test_processing_time_timers_fire_when_the_clock_reaches_them():
    env = environment()
    alarms(env, ["a"])
    harness = started(env, 1)
    harness.run_epoch()
    harness.clock.advance(99)
    harness.run_epoch()
    assert harness.collected() == []
    harness.clock.advance(1)
    harness.run_epoch()
    assert harness.collected() == [("a", 100, TimeDomain.PROCESSING_TIME)]


def test_processing_time_timers_survive_a_failover_and_fire_late():
    env = environment()
    alarms(env, ["a", "b", "c"])
    harness = started(env, 2)
    harness.run_epoch(checkpoint=True)
    harness.clock.advance(500)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch()
    assert sorted(r[:2] for r in harness.collected()) == [("a", 100), ("b", 100), ("c", 100)]


def test_the_end_of_input_fires_no_processing_time_timers():
    env = environment()
    alarms(env, ["a"])
    assert run(env).collected() == []


class Deleting(KeyedProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        if value[2]:
            service.register_event_time_timer(500)
        else:
            service.delete_event_time_timer(500)
        return []

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key()


def test_a_deleted_timer_does_not_fire():
    env = environment()
    records = [("a", 1, True), ("b", 2, True), ("a", 3, False), ("c", 4, False)]
    collect(timed(env, records, Deleting()))
    assert run(env).collected() == ["b"]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class LateAlarm(KeyedBroadcastProcessFunction):
    """Sets a timer ten seconds behind each record; when it fires, tells what was broadcast."""

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)

    def on_timer(self, timestamp, ctx):
        rules = sorted(ctx.get_broadcast_state(RULES).keys())
        yield ctx.get_current_key(), timestamp, ctx.time_domain(), rules


def test_timers_beside_a_broadcast_fire_by_the_slower_of_both_streams():
    env = environment()
    records, rules = (
        env.from_collection([]).uid(uid).assign_timestamps_and_watermarks(in_order())
        for uid in ("records", "rules")
    )
    keyed = records.key_by(lambda v: v[0])
    collect(keyed.connect(rules.broadcast(RULES)).process(LateAlarm()).uid("alarms"))
    harness = started(env, 2)
    harness.run_epoch({0: [("a", 1_000), ("b", 2_000)], 1: [("r", 1_000)]}, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch({0: [("a", 20_000)]})
    assert harness.collected() == []
    harness.run_epoch({1: [("s", 11_001)]})
    domain = TimeDomain.EVENT_TIME
    assert harness.collected() == [("a", 11_000, domain, ["r", "s"])]
    harness.finish()
    assert sorted(r[:2] for r in harness.collected()[1:]) == [("a", 30_000), ("b", 12_000)]


@pytest.mark.parametrize("interval_ms", [0, 2000])
def test_watermarks_move_once_an_epoch_whatever_their_interval_is(interval_ms):
    env = environment()
    env.get_config().set_auto_watermark_interval(interval_ms)
    assert env.get_config().get_auto_watermark_interval() == interval_ms
    collect(timed(env, [("k", 10), ("k", 20), ("k", 30)], Timers()))
    harness = started(env, 1)
    for _ in range(3):  # while the clock stands still
        harness.run_epoch(take=1)
    seen = [r[2:] for r in harness.collected() if r[0] == "seen"]
    assert seen == [(10, MIN), (20, 9), (30, 19)]
    assert [r[2:] for r in fired(harness)] == [(10, 19), (20, 29)]


class Watermark(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        return []

    def process_element2(self, value, ctx):
        return []

    def on_timer(self, timestamp, ctx):
        yield timestamp


def two_inputs(env, right=None):
    left = env.from_collection([]).assign_timestamps_and_watermarks(in_order())
    right_stream = env.from_collection([]).assign_timestamps_and_watermarks(right or in_order())
    connected = left.connect(right_stream).key_by(lambda v: v[0], lambda v: v[0])
    collect(connected.process(Watermark()))


def test_event_time_of_two_inputs_is_that_of_the_slower_one():
    env = environment()
    two_inputs(env)
    harness = started(env, 1)
    harness.run_epoch({0: [("k", 10), ("k", 100)]})
    assert harness.collected() == []
    harness.run_epoch({1: [("k", 50)]})
    assert harness.collected() == [10]


def test_an_idle_input_holds_nothing_back():
    env = environment()
    two_inputs(env, in_order().with_idleness(Duration.of_millis(1000)))
    harness = started(env, 1)
    harness.run_epoch({0: [("k", 10), ("k", 20)], 1: [("k", 1)]})
    assert harness.collected() == []
    harness.clock.advance(1001)  # idle is what has been silent for longer than allowed
    harness.run_epoch({0: [("k", 30)]})
    assert harness.collected() == [10, 20]


def test_a_union_of_sources_is_as_far_as_the_slower_source():
    env = environment()
    streams = [
        env.from_collection([]).assign_timestamps_and_watermarks(in_order()) for _ in range(2)
    ]
    collect(streams[0].union(streams[1]).key_by(lambda v: v[0]).process(Timers()))
    harness = started(env, 1)
    harness.run_epoch({0: [("k", 10), ("k", 100)]})
    assert fired(harness) == []
    harness.run_epoch({1: [("k", 50)]})
    assert [r[2] for r in fired(harness)] == [10]


def test_a_second_keyed_stage_sees_the_watermark_and_the_timestamps():
    env = environment()
    first = timed(env, [("k", 10), ("j", 20), ("k", 30)], Timers())
    collect(first.key_by(lambda r: 0).process(Echo()))
    harness = started(env, 2)
    harness.run_epoch()
    harness.run_epoch([("k", 40)])
    stamps = {(r[0], r[1]): r[2] for r in harness.collected() if r[0] != "stage"}
    assert stamps[("seen", 30)] == 30
    assert stamps[("fired", 10)] == 10
    assert max(r[1] for r in harness.collected() if r[0] == "stage") == 29


class Echo(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value[0], value[2], ctx.timestamp()
        yield "stage", ctx.timer_service().current_watermark(), None
