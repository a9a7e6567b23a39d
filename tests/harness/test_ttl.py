"""State that expires, in whole jobs: checkpoints, failover, rescaling, clean-up, event time."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.backend.factory import BackendSettings
from weir.common import Time
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
)
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from weir.errors import WeirError
from weir.testing.harness import collect


def ttl(change=lambda builder: builder, length=100):
    return change(StateTtlConfig.new_builder(Time.milliseconds(length))).build()


def descriptors(config):
    made = [
        ValueStateDescriptor("count", Types.LONG()),
        ListStateDescriptor("seen", Types.LONG()),
        MapStateDescriptor("last", Types.LONG(), Types.STRING()),
        ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()),
    ]
    for descriptor in made:
        descriptor.enable_time_to_live(config)
    return made


class Remember(KeyedProcessFunction):
    """Says what it remembers of a key, then writes the record down; (key, None) only asks."""

    def __init__(self, config):
        self.config = config

    def open(self, runtime_context):
        value, elements, entries, folded = descriptors(self.config)
        self.count = runtime_context.get_state(value)
        self.seen = runtime_context.get_list_state(elements)
        self.last = runtime_context.get_map_state(entries)
        self.sum = runtime_context.get_reducing_state(folded)

    def process_element(self, value, ctx):
        key, number = value[:2]
        count = self.count.value()
        yield key, count, list(self.seen.get()), dict(self.last.items()), self.sum.get()
        if number is not None:
            self.count.update((count or 0) + 1)
            self.seen.add(number)
            self.last.put(number, key)
            self.sum.add(number)


NOTHING = (None, [], {}, None)


def remembering(config, records=(), parallelism=2, **options):
    env = environment()
    stream = env.from_collection(list(records)).key_by(lambda v: v[0])
    collect(stream.process(Remember(config)).uid("remember"))
    return started(env, parallelism, **options)


def ask(harness, keys):
    before = len(harness.collected())
    harness.run_epoch([(key, None) for key in keys])
    # Questions that came after a checkpoint are asked again when a job goes on from it.
    return {r[0]: r[1:] for r in harness.collected()[before:] if r[0] in keys}


def entries(harness):
    return sum(op.backend.size() for op in harness.operators("remember"))


KEYS = [f"k{i}" for i in range(30)]


@pytest.mark.parametrize(
    "backend",
    [BackendSettings(), BackendSettings(incremental=True), BackendSettings(changelog=True)],
    ids=["full", "incremental", "changelog"],
)
def test_state_expires_with_the_clock_across_checkpoint_failover_and_rescaling(backend):
    first = remembering(ttl(), [(key, 1) for key in KEYS], backend=backend)
    first.run_epoch(checkpoint=True)
    first.clock.advance(60)
    assert ask(first, KEYS) == {k: (1, [1], {1: k}, 1) for k in KEYS}
    first.run_epoch([(key, 2) for key in KEYS[:10]], checkpoint=True)
    first.kill_slot(1)
    first.fail_over()
    first.clock.advance(39)
    assert ask(first, KEYS)["k0"] == (2, [1, 2], {1: "k0", 2: "k0"}, 3)
    second = first.restart(3)
    assert ask(second, KEYS[10:]) == {k: (1, [1], {1: k}, 1) for k in KEYS[10:]}
    second.clock.advance(1)
    asked = ask(second, KEYS)
    assert {k: asked[k] for k in KEYS[10:]} == dict.fromkeys(KEYS[10:], NOTHING)
    assert {k: asked[k] for k in KEYS[:10]} == {k: (2, [2], {2: k}, 3) for k in KEYS[:10]}
    third = second.restart(1)
    third.clock.advance(60)
    assert ask(third, KEYS) == dict.fromkeys(KEYS, NOTHING)
    assert entries(third) == 0


def test_expired_state_is_gone_after_a_failover_however_late():
    harness = remembering(ttl(lambda b: b.cleanup_full_snapshot()), [(key, 1) for key in KEYS])
    harness.run_epoch(checkpoint=True)
    harness.clock.advance(10_000)
    harness.checkpoint()
    harness.kill_slot(0)
    harness.fail_over()
    harness.clock.set(50)
    assert ask(harness, KEYS) == dict.fromkeys(KEYS, NOTHING)


def test_background_clean_up_runs_at_the_end_of_epochs():
    harness = remembering(ttl(), [(key, 1) for key in KEYS])
    harness.run_epoch()
    assert entries(harness) == 4 * len(KEYS)
    harness.clock.advance(100)
    harness.run_epoch([(f"other {i}", 1) for i in range(30)])
    assert entries(harness) == 4 * 30


def test_a_test_can_look_into_state_that_expires():
    harness = remembering(ttl(), [("a", 5)])
    harness.run_epoch()
    value, elements, pairs, folded = descriptors(ttl())
    assert harness.state("remember", value, "a").value() == 1
    assert list(harness.state("remember", elements, "a").get()) == [5]
    assert harness.state("remember", folded, "a").get() == 5
    harness.clock.advance(100)
    assert harness.state("remember", pairs, "a").get(5) is None


def next_timers(harness):
    return {op.next_processing_timer() for op in harness.operators("remember")}


def test_timers_empty_the_state_of_an_idle_job():
    harness = remembering(ttl(lambda b: b.cleanup_by_timer()), [(key, 1) for key in KEYS])
    harness.run_epoch(checkpoint=True)
    assert next_timers(harness) == {100}
    harness.clock.advance(99)
    harness.run_epoch()
    assert entries(harness) == 4 * len(KEYS)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch()
    assert next_timers(harness) == {100}
    harness.clock.advance(1)
    harness.run_epoch()
    assert entries(harness) == 0
    assert next_timers(harness) == {None}


def test_expiry_is_switched_on_and_off_over_a_checkpoint():
    harness = remembering(StateTtlConfig.DISABLED, [(key, 1) for key in KEYS])
    harness.run_epoch(checkpoint=True)
    harness.clock.advance(5000)
    on = _successor(harness, ttl())
    assert ask(on, ["k1"]) == {"k1": (1, [1], {1: "k1"}, 1)}
    on.checkpoint()
    off = _successor(on, StateTtlConfig.DISABLED)
    off.clock.advance(5000)
    assert ask(off, ["k1"]) == {"k1": (1, [1], {1: "k1"}, 1)}
    off.checkpoint()
    again = _successor(off, ttl())
    again.clock.advance(100)
    assert ask(again, KEYS) == dict.fromkeys(KEYS, NOTHING)


def _successor(harness, config):
    """Resume a changed program from the last checkpoint."""
    env = environment()
    stream = env.from_collection([]).key_by(lambda v: v[0])
    collect(stream.process(Remember(config)).uid("remember"))
    harness._graph = env.build_graph()
    return harness.restart(2)


# ---- event time


def keyed_in_event_time(env, records):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda value, _: value[2])
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    return stream.key_by(lambda v: v[0])


def event_time(function, records, length=100):
    env = environment()
    keyed = keyed_in_event_time(env, records)
    config = ttl(lambda b: b.use_event_time(), length)
    how = {KeyedProcessFunction: "process", MapFunction: "map", FlatMapFunction: "flat_map"}
    method = next(name for kind, name in how.items() if issubclass(function, kind))
    collect(getattr(keyed, method)(function(config)).uid("remember"))
    return env


class Previous(MapFunction):
    """Gives the previous record of the key, and the sum of all remembered."""

    def __init__(self, config):
        self.config = config

    def open(self, runtime_context):
        value, _, _, folded = descriptors(self.config)
        self.last = runtime_context.get_state(value)
        self.sum = runtime_context.get_reducing_state(folded)

    def map(self, value):
        before = self.last.value()
        self.last.update(value[1])
        self.sum.add(value[1])
        return value[0], before, self.sum.get()


class PreviousProcessed(Previous, KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield self.map(value)


class PreviousFlat(FlatMapFunction):
    """The same by `flat_map`."""

    def __init__(self, config):
        self._inner = Previous(config)

    def open(self, runtime_context):
        self._inner.open(runtime_context)

    def flat_map(self, value):
        yield self._inner.map(value)


class PreviousAskedLate(Previous):
    """The same with states that are asked for while a record is handled."""

    def open(self, runtime_context):
        self._context = runtime_context

    def map(self, value):
        super().open(self._context)
        return super().map(value)


@pytest.mark.parametrize("function", [Previous, PreviousFlat, PreviousProcessed, PreviousAskedLate])
def test_event_time_expires_with_watermarks_and_stamps_by_record(function):
    harness = started(event_time(function, []), 1)
    harness.clock.set(10**12)
    harness.run_epoch([("a", 1, 1000), ("b", 2, 1050)])
    harness.run_epoch([("c", 9, 1101)])
    harness.run_epoch([("a", 3, 1102), ("b", 4, 1102)])
    assert harness.collected()[3:] == [("a", None, 3), ("b", 2, 6)]
    harness.clock.advance(10**9)
    harness.run_epoch([("b", 5, 1103)])
    assert harness.collected()[5:] == [("b", 4, 11)]


class PreviousInWindows(ProcessWindowFunction):
    """The same, by the records of windows in state that all windows of a key share."""

    def __init__(self, config):
        self._inner = Previous(config)

    def process(self, key, context, elements):
        self._inner.open(context.global_state())
        for value in elements:
            yield self._inner.map(value)


def with_each_record(windows):
    return windows.trigger(PurgingTrigger.of(CountTrigger.of(1)))


@pytest.mark.parametrize(
    "windows",
    [
        lambda keyed: keyed.count_window(1),
        lambda keyed: with_each_record(keyed.window(GlobalWindows.create())),
        lambda keyed: with_each_record(keyed.window(TumblingEventTimeWindows.of(10**6))),
        lambda keyed: with_each_record(keyed.window(EventTimeSessionWindows.with_gap(10))),
    ],
    ids=["count", "global", "tumbling", "sessions"],
)
def test_a_window_that_a_record_fires_stamps_by_that_record(windows):
    env = environment()
    config = ttl(lambda b: b.use_event_time())
    collect(windows(keyed_in_event_time(env, [])).process(PreviousInWindows(config)))
    harness = started(env, 1)
    harness.clock.set(10**12)
    harness.run_epoch([("a", 1, 1000), ("b", 2, 1050)])
    harness.run_epoch([("c", 9, 1101)])
    harness.run_epoch([("a", 3, 1102), ("b", 4, 1102)])
    assert harness.collected()[3:] == [("a", None, 3), ("b", 2, 6)]
    harness.clock.advance(10**9)
    harness.run_epoch([("b", 5, 1103)])
    assert harness.collected()[5:] == [("b", 4, 11)]


class FirstOfAWhile(Trigger):
    """Lets a record through if the trigger remembers none of its key."""

    def __init__(self, config):
        self._config = config

    def on_element(self, element, timestamp, window, ctx):
        seen = ctx.get_partitioned_state(descriptors(self._config)[0])
        is_first = seen.value() is None
        seen.update(1)
        return TriggerResult.FIRE_AND_PURGE if is_first else TriggerResult.PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    on_event_time = on_processing_time

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


def test_a_trigger_stamps_its_state_by_the_record():
    env = environment()
    config = ttl(lambda b: b.use_event_time())
    windows = keyed_in_event_time(env, []).window(GlobalWindows.create())
    collect(windows.trigger(FirstOfAWhile(config)).reduce(lambda a, b: b))
    harness = started(env, 1)
    harness.clock.set(10**12)
    first = [("a", 1, 1000), ("b", 2, 1050), ("a", 3, 1060)]
    harness.run_epoch(first)
    assert harness.collected() == first[:2]
    harness.run_epoch([("c", 4, 1151)])
    harness.run_epoch([("a", 5, 1152), ("b", 6, 1152)])
    assert harness.collected()[2:] == [("c", 4, 1151), ("b", 6, 1152)]


def test_event_time_survives_a_failover_before_the_first_watermark():
    harness = started(event_time(PreviousProcessed, []), 2)
    harness.run_epoch([("a", 1, 1000), ("b", 2, 1090)], checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    harness.clock.advance(10**9)
    harness.run_epoch([("b", 3, 1150)])
    assert harness.collected()[-1] == ("b", 2, 5)
    harness.run_epoch([("a", 4, 1150)])
    assert harness.collected()[-1] == ("a", None, 4)


class AtTheEnd(KeyedProcessFunction):
    """Gives what it remembers when event time has passed the record by 50."""

    def __init__(self, config):
        self.config = config

    def open(self, runtime_context):
        self.last = runtime_context.get_state(descriptors(self.config)[0])

    def process_element(self, value, ctx):
        self.last.update(value[1])
        ctx.timer_service().register_event_time_timer(value[2] + 50)
        return []

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.last.value()


def test_timers_at_the_end_of_input_still_see_state_of_event_time():
    harness = run(event_time(AtTheEnd, [("a", 1, 1000), ("b", 2, 1090)]))
    assert sorted(harness.collected()) == [("a", 1), ("b", 2)]


# ---- mistakes


class Unkeyed(MapFunction):
    def open(self, runtime_context):
        descriptor = descriptors(ttl())[0]
        self.state = runtime_context.get_state(descriptor)

    def map(self, value):
        return value


def test_state_that_expires_needs_a_key_like_any_other():
    env = environment()
    collect(env.from_collection([1]).rebalance().map(Unkeyed()))
    with pytest.raises(WeirError, match="keyed stream"):
        run(env)
