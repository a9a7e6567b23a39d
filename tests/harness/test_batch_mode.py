"""BATCH mode: bounded input comes by key and time, results when all of it is there."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import by_key, environment, run, started

from weir.common import Duration, Time
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.builtin_sources import SequenceSource
from weir.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.errors import UsageError, WeirError
from weir.graph.runtime_mode import RuntimeMode
from weir.runtime.memory import MemoryLimits
from weir.testing.harness import collect

BATCH, AUTOMATIC = RuntimeMode.BATCH, RuntimeMode.AUTOMATIC
MIN = -(1 << 63)
MAX = (1 << 63) - 1
PAIRS = [("a", 3, "x"), ("b", 1, "y"), ("a", 1, "z"), ("a", 2, "w"), ("b", 5, "v")]
NUMBERS = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
NOTHING = MemoryLimits(held=0)


def timed(stream, field=1):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda value, _: value[field])
    )


class Seen(ProcessFunction):
    """Says with which timestamp and watermark a record comes."""

    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


# ---- aggregates


@pytest.mark.parametrize("memory", [MemoryLimits(), NOTHING], ids=["memory", "files"])
@pytest.mark.parametrize("declared", [None, NUMBERS], ids=["pickled", "columns"])
@pytest.mark.parametrize("take", [None, 1])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda s: s.sum(1), [("a", 6, "x"), ("b", 6, "y")]),
        (lambda s: s.min(1), [("a", 1, "x"), ("b", 1, "y")]),
        (lambda s: s.max(1), [("a", 3, "x"), ("b", 5, "y")]),
        (lambda s: s.min_by(1), [("a", 1, "z"), ("b", 1, "y")]),
        (lambda s: s.max_by(1), [("a", 3, "x"), ("b", 5, "v")]),
        (
            lambda s: s.reduce(lambda a, b: (a[0], a[1] * 10 + b[1], b[2])),
            [("a", 312, "w"), ("b", 15, "v")],
        ),
    ],
    ids=["sum", "min", "max", "min_by", "max_by", "reduce"],
)
def test_aggregates_emit_the_last_result_of_each_key(call, expected, take, declared, memory):
    env = environment()
    collect(call(env.from_collection(PAIRS, declared).key_by(lambda r: r[0])))
    job = run(env, take=take, mode=BATCH, memory=memory)
    assert sorted(job.collected()) == expected


@pytest.mark.parametrize("call", [lambda s: s.sum(1), lambda s: s.reduce(lambda a, b: a)])
def test_results_have_the_greatest_timestamp(call):
    env = environment()
    keyed = timed(env.from_collection(PAIRS, NUMBERS)).key_by(lambda r: r[0])
    collect(call(keyed).process(Seen()))
    assert {(stamp, mark) for _, stamp, mark in run(env, mode=BATCH).collected()} == {(MAX, MIN)}


def test_streaming_is_the_default_and_automatic_follows_the_sources():
    env = environment()
    collect(env.from_collection(PAIRS).key_by(lambda r: r[0]).sum(1))
    assert len(run(env).collected()) == 5
    assert len(run(env, mode=AUTOMATIC).collected()) == 2


records = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(-(1 << 40), 1 << 40),
        st.text("ab", max_size=1),
        st.integers(0, 9),
    ),
    max_size=30,
)
ROW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()])


@settings(max_examples=examples(30))
@given(
    records,
    st.sampled_from(["sum", "min", "max", "min_by", "max_by"]),
    st.sampled_from([None, 1, 7]),
    st.sampled_from(["columns", "records"]),
    st.booleans(),
    st.sampled_from([0, 1 << 20]),
)
def test_aggregates_are_those_of_the_records_in_order_of_time(
    records, op, take, form, in_time, held
):
    env = environment()
    stream = env.from_collection(records, ROW)
    if in_time:
        stream = timed(stream, 3)
    keyed = stream.key_by(lambda r: r[0] if form == "columns" else (r[0],)[0])
    collect(getattr(keyed, op)(1))
    job = run(env, take=take, mode=BATCH, memory=MemoryLimits(held=held))
    assert sorted(job.collected()) == sorted(oracle(records, op, in_time))


def oracle(records, op, in_time):
    """Fold each key's records from the left, the earliest first."""
    ordered = sorted(records, key=lambda r: r[3]) if in_time else records
    results = []
    for found in by_key(ordered).values():
        first, *rest = found
        for r in rest:
            if op == "sum":
                first = (first[0], first[1] + r[1], *first[2:])
            elif op in ("min", "max"):
                first = (first[0], (min if op == "min" else max)(first[1], r[1]), *first[2:])
            elif r[1] < first[1] if op == "min_by" else r[1] > first[1]:
                first = r
        results.append(first)
    return results


# ---- order, timers and state


class Log(KeyedProcessFunction):
    """Shows what it sees; state of a key, timers of both kinds."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        seen = (self.count.value() or 0) + 1
        self.count.update(seen)
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[1] + 5)
        if seen == 1:
            timers.register_processing_time_timer(timers.current_processing_time() + 10_000)
        yield "seen", ctx.get_current_key(), value[1], seen, timers.current_watermark()

    def on_timer(self, timestamp, ctx):
        mark = ctx.timer_service().current_watermark()
        if ctx.time_domain().name == "EVENT_TIME":
            yield "event", ctx.get_current_key(), timestamp, self.count.value(), mark
        else:
            yield "processing", ctx.get_current_key(), None, self.count.value(), mark


@pytest.mark.parametrize("memory", [MemoryLimits(), NOTHING], ids=["memory", "files"])
@pytest.mark.parametrize("take", [None, 1])
def test_a_key_sees_its_records_in_order_of_time_and_then_its_timers(take, memory):
    env = environment()
    given = [("b", 30), ("a", 20), ("b", 10), ("a", 40), ("b", 20)]
    collect(timed(env.from_collection(given)).key_by(lambda r: r[0]).process(Log()))
    found = run(env, parallelism=1, take=take, mode=BATCH, memory=memory).collected()
    a = [
        *(("seen", "a", t, n, MIN) for n, t in enumerate((20, 40), 1)),
        *(("event", "a", t + 5, 2, MAX) for t in (20, 40)),
        ("processing", "a", None, 2, MAX),
    ]
    b = [
        *(("seen", "b", t, n, MIN) for n, t in enumerate((10, 20, 30), 1)),
        *(("event", "b", t + 5, 3, MAX) for t in (10, 20, 30)),
        ("processing", "b", None, 3, MAX),
    ]
    assert found == [*a, *b]


def test_state_is_of_one_key_at_a_time():
    env = environment()
    keyed = env.from_sequence(1, 500).key_by(lambda n: n % 50)
    collect(keyed.process(Count()).uid("count"))
    job = started(env, mode=BATCH, parallelism=1)
    most = []
    (operator,) = job.operators("count")
    operator.function.look = lambda: most.append(operator.backend.size())
    job.run()
    assert max(most) == 1
    assert sorted(job.collected()) == sorted((k, n) for k in range(50) for n in range(1, 11))


class Count(KeyedProcessFunction):
    look = None

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        if self.look is not None:
            self.look()
        yield ctx.get_current_key(), self.count.value()


class Forever(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().register_event_time_timer(timestamp + 1)
        ctx.timer_service().register_processing_time_timer(timestamp + 1)
        yield timestamp


def test_timers_that_timers_register_are_ignored_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr("weir.notices._said", set())
    env = environment()
    collect(env.from_collection([1, 1, 2]).key_by(lambda v: v).process(Forever()))
    with caplog.at_level(logging.WARNING):
        assert run(env, mode=BATCH).collected() == [0, 0]
    assert "quiesced" in caplog.text


def test_equal_times_keep_the_order_of_arrival_over_epochs_and_files():
    env = environment()
    given = [("k", n // 3, n) for n in range(40)]
    stream = timed(env.from_collection(given[::-1]))
    collect(stream.key_by(lambda r: r[0]).map(lambda r: r))
    arrived = given[::-1]
    expected = sorted(arrived, key=lambda r: r[1])
    found = run(env, take=7, mode=BATCH, memory=MemoryLimits(held=100)).collected()
    assert found == expected


# ---- windows and other operators


def test_windows_fire_at_the_end_and_no_record_is_late():
    env = environment()
    given = [("a", 100), ("a", 1), ("b", 7), ("a", 101), ("a", 3)]
    keyed = timed(env.from_collection(given)).key_by(lambda r: r[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    collect(windows.reduce(lambda x, y: (x[0], x[1] + y[1])))
    job = run(env, take=1, mode=BATCH)
    assert sorted(job.collected()) == [("a", 4), ("a", 201), ("b", 7)]


def test_session_windows_of_records_in_any_order():
    env = environment()
    given = [("a", 100), ("a", 1), ("b", 7), ("a", 105), ("a", 3)]
    keyed = timed(env.from_collection(given)).key_by(lambda r: r[0])
    windows = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    collect(windows.reduce(lambda x, y: (x[0], x[1] + y[1])))
    assert sorted(run(env, take=1, mode=BATCH).collected()) == [("a", 4), ("a", 205), ("b", 7)]


def test_processing_time_windows_fire_at_the_end():
    env = environment()
    keyed = env.from_collection(PAIRS).key_by(lambda r: r[0])
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.hours(1)))
    collect(windows.reduce(lambda x, y: (x[0], x[1] + y[1], "")))
    assert sorted(run(env, mode=BATCH).collected()) == [("a", 6, ""), ("b", 6, "")]


def test_a_continuous_trigger_ends():
    env = environment()
    keyed = timed(env.from_collection([("a", 1), ("a", 12), ("a", 55)])).key_by(lambda r: r[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    windows = windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(10)))
    collect(windows.reduce(lambda x, y: (x[0], x[1] + y[1])))
    assert run(env, mode=BATCH).collected()[-1] == ("a", 68)


def test_count_triggers_and_windows_of_everything():
    env = environment()
    stream = env.from_sequence(1, 10)
    windows = stream.key_by(lambda n: n % 2).window(GlobalWindows.create())
    counted = collect(windows.trigger(CountTrigger.of(3)).reduce(lambda x, y: x + y))
    whole = timed(stream.map(lambda n: (n, n)))
    every = whole.window_all(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    summed = collect(every.reduce(lambda x, y: (x[0] + y[0], 0)))
    job = run(env, take=4, mode=BATCH)
    assert len(job.collected(counted)) == 2
    assert sorted(n for n, _ in job.collected(summed)) == [10, 10, 35]


def test_watermarks_of_a_program_are_ignored():
    env = environment()
    stream = timed(env.from_collection([("a", 5), ("a", 1)]))
    again = stream.key_by(lambda r: r[0]).process(Log())
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    strategy = strategy.with_timestamp_assigner(lambda value, _: 1).with_idleness(
        Duration.of_millis(1)
    )
    collect(again.assign_timestamps_and_watermarks(strategy).process(Seen()))
    assert {mark for *_, mark in run(env, take=1, mode=BATCH).collected()} == {MIN}


class Both(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(MAX)
        yield "left", value

    def process_element2(self, value, ctx):
        yield "right", value

    def on_timer(self, timestamp, ctx):
        yield "end", ctx.get_current_key()


def test_two_keyed_inputs_are_merged_key_by_key_in_order_of_time():
    env = environment()
    left = timed(env.from_collection([("b", 1), ("a", 9), ("a", 2)])).key_by(lambda r: r[0])
    right = timed(env.from_collection([("a", 5), ("b", 0), ("a", 2)])).key_by(lambda r: r[0])
    collect(left.connect(right).process(Both()))
    assert run(env, parallelism=1, take=1, mode=BATCH).collected() == [
        ("left", ("a", 2)),
        ("right", ("a", 2)),
        ("right", ("a", 5)),
        ("left", ("a", 9)),
        ("end", "a"),
        ("right", ("b", 0)),
        ("left", ("b", 1)),
        ("end", "b"),
    ]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def _look_up(value, ctx):
    rule = ctx.get_broadcast_state(RULES).get("rule")
    yield value, rule


class Keyed(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from _look_up(value, ctx)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("rule", value)


class Plain(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from _look_up(value, ctx)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("rule", value)


@pytest.mark.parametrize("memory", [MemoryLimits(), NOTHING], ids=["memory", "files"])
@pytest.mark.parametrize("keyed", [True, False])
def test_broadcast_input_is_handled_before_all_other(keyed, memory):
    env = environment()
    rules = env.from_collection([1, 2, 3, 4, 5]).broadcast(RULES)
    stream = env.from_collection(["x", "y"])
    if keyed:
        collect(stream.key_by(lambda v: v).connect(rules).process(Keyed()))
    else:
        collect(stream.connect(rules).process(Plain()))
    found = run(env, take=1, mode=BATCH, memory=memory).collected()
    assert sorted(found) == [("x", 5), ("y", 5)]


def test_keyed_operators_behind_each_other():
    env = environment()
    words = env.from_collection(["to be or not to be", "to be"]).flat_map(str.split)
    counts = words.map(lambda w: (w, 1)).key_by(lambda r: r[0]).sum(1)
    collect(counts.key_by(lambda r: r[1]).reduce(lambda a, b: (a[0] + b[0], a[1])))
    found = run(env, take=1, mode=BATCH).collected()
    assert sorted(("".join(sorted(w)), n) for w, n in found) == [("beot", 3), ("noort", 1)]


# ---- failures and what is refused


def test_a_restart_begins_at_the_beginning():
    env = environment()
    collect(env.from_collection(PAIRS).key_by(lambda r: r[0]).sum(1))
    job = started(env, mode=BATCH, wait_for_checkpoints=True)
    job.run_epoch(take=3)
    job.fail_over()
    job.run(take=2)
    assert sorted(job.collected()) == [("a", 6, "x"), ("b", 6, "y")]
    assert job.attempt == 1


def test_a_failure_at_the_end_gives_every_result_once():
    env = environment()
    collect(env.from_collection(PAIRS).key_by(lambda r: r[0]).sum(1))
    job = started(env, mode=BATCH, wait_for_checkpoints=True)
    while not job.sources.exhausted:
        job.run_epoch(take=2)
    job.kill_slot(0)
    with pytest.raises(WeirError):
        job.finish()
    job.fail_over()
    job.run(take=2)
    assert sorted(job.collected()) == [("a", 6, "x"), ("b", 6, "y")]


@pytest.mark.parametrize("ask", ["savepoint", "stop", "checkpoint", "cancel_with_savepoint"])
def test_what_needs_checkpoints_is_refused(ask, tmp_path):
    env = environment()
    collect(env.from_collection(PAIRS).key_by(lambda r: r[0]).sum(1))
    job = started(env, mode=BATCH)
    arguments = [] if ask == "checkpoint" else [str(tmp_path)]
    with pytest.raises(UsageError, match="BATCH mode"):
        getattr(job.control, ask)(*arguments).result(0)
    with pytest.raises(UsageError, match="BATCH mode"):
        job.control.rescale(1).result(0)
    assert not list(tmp_path.iterdir())
    job.run()
    assert len(job.collected()) == 2


class Endless(SequenceSource):
    @property
    def bounded(self):
        return False


def test_an_unbounded_source_is_refused_in_batch_mode_and_streams_in_automatic():
    env = environment()
    stream = env.from_source(Endless(1, 4), WatermarkStrategy.no_watermarks(), "numbers")
    collect(stream.key_by(lambda n: n % 2).reduce(lambda a, b: a + b))
    with pytest.raises(UsageError, match=r"Detected an UNBOUNDED source.*'Source: numbers'"):
        started(env, mode=BATCH)
    assert sorted(run(env, mode=AUTOMATIC).collected()) == [1, 2, 4, 6]
