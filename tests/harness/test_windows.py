"""Windows in whole jobs: PyFlink's own cases, late data, and what state survives."""

from __future__ import annotations

from functools import cache

import pytest
from examples.hourly_counts import TOO_LATE, VISIT, VISITS, hourly
from tests.harness.overtaking import Overtake, job
from tests.harness.programs import environment, run, started

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import load_checkpoint
from weir.cli.state_text import show_lines
from weir.common import Row, Time, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from weir.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from weir.errors import UsageError, WeirError
from weir.jobmanager.recovery import RestorePoint
from weir.notices import _said
from weir.offline import describe
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import HarnessOptions, JobHarness, collect

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
H = [("hi", n) for n in (1, 2, 3, 4, 5, 8, 9, 15)]
S = [("hi", n) for n in (1, 2, 3, 4, 8, 9, 15)]
AB = [("a", 1), ("a", 2), ("b", 3), ("a", 6), ("b", 8), ("b", 9), ("a", 15)]


def in_order():
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return strategy.with_timestamp_assigner(lambda value, _: value[1])


def timed(env, records, types=PAIR):
    stream = env.from_collection(records, types)
    return stream.assign_timestamps_and_watermarks(in_order())


def keyed(env, records, types=PAIR):
    return timed(env, records, types).key_by(lambda v: v[0], Types.STRING())


class Bounds(ProcessWindowFunction[tuple, tuple, str, Window]):
    """(key, start, end, number of records)."""

    def process(self, key, context, elements):
        window = context.window()
        return [(key, window.start, window.end, len(list(elements)))]

    def clear(self, context):
        pass


class AllBounds(ProcessAllWindowFunction[tuple, tuple, Window]):
    def process(self, context, elements):
        yield context.window().start, context.window().end, len(list(elements))


class SumValues(WindowFunction[tuple, tuple, str, Window]):
    def apply(self, key, window, inputs):
        yield key, sum(v for _, v in inputs)


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element[1]


def ms(n):
    return Time.milliseconds(n)


CASES = {
    "tumbling": (
        H,
        lambda: TumblingEventTimeWindows.of(ms(5)),
        [(0, 5, 4), (5, 10, 3), (15, 20, 1)],
    ),
    "sliding": (
        H,
        lambda: SlidingEventTimeWindows.of(ms(5), ms(2)),
        [
            (-2, 3, 2),
            (0, 5, 4),
            (2, 7, 4),
            (4, 9, 3),
            (6, 11, 2),
            (8, 13, 2),
            (12, 17, 1),
            (14, 19, 1),
        ],
    ),
    "sessions": (S, lambda: EventTimeSessionWindows.with_gap(ms(5)), [(1, 14, 6), (15, 20, 1)]),
    "dynamic": (
        [("hi", n) for n in (1, 2, 3, 4, 9, 9, 15)],
        lambda: EventTimeSessionWindows.with_dynamic_gap(Gap()),
        [(1, 8, 4), (9, 30, 3)],
    ),
    "dynamic, in PyFlink's example": (
        S,
        lambda: EventTimeSessionWindows.with_dynamic_gap(Gap()),
        [(1, 30, 7)],
    ),
}


@pytest.mark.parametrize("take", [None, 1, 3])
@pytest.mark.parametrize("name", CASES)
def test_event_time_windows(name, take):
    records, assigner, expected = CASES[name]
    env = environment()
    collect(keyed(env, records).window(assigner()).process(Bounds()))
    found = run(env, take=take).collected()
    assert sorted(found, key=lambda r: r[1]) == [("hi", *window) for window in expected]


def test_a_record_that_comes_late_makes_two_sessions_one():
    env = environment()
    records = [("hi", 0), ("hi", 8), ("hi", 4)]
    collect(keyed(env, records).window(EventTimeSessionWindows.with_gap(5)).process(Bounds()))
    assert run(env).collected() == [("hi", 0, 13, 3)]


def test_sessions_with_a_purging_trigger():
    env = environment()
    windowed = keyed(env, S).window(EventTimeSessionWindows.with_gap(ms(3)))
    windowed.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
    collect(windowed.process(Bounds()))
    assert run(env).collected() == [("hi", 1, 7, 4), ("hi", 8, 12, 2), ("hi", 15, 18, 1)]


def test_the_global_window_with_a_purging_trigger_never_emits_the_seventh():
    class Size(ProcessWindowFunction):
        def process(self, key, context, elements):
            yield key, len(list(elements))

    env = environment()
    windowed = keyed(env, S).window(GlobalWindows.create())
    collect(windowed.trigger(PurgingTrigger.of(CountTrigger.of(2))).process(Size()))
    assert run(env, take=3).collected() == [("hi", 2)] * 3


WORDS = [("hi", 1), ("hello", 2), ("hi", 3), ("hello", 4), ("hello", 6), ("hi", 5)]


@pytest.mark.parametrize("take", [None, 1])
@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (lambda s: s.count_window(3), [("hello", 12), ("hi", 9)]),
        (lambda s: s.count_window(2), [("hello", 6), ("hi", 4)]),
        (
            lambda s: s.window(CountSlidingWindowAssigner(2, 1)),
            [("hello", 6), ("hello", 10), ("hi", 4), ("hi", 8)],
        ),
        (lambda s: s.count_window(2, 1), [("hello", 6), ("hello", 10), ("hi", 4), ("hi", 8)]),
    ],
)
def test_count_windows(windows, expected, take):
    env = environment()
    collect(windows(env.from_collection(WORDS, PAIR).key_by(lambda v: v[0])).apply(SumValues()))
    found = run(env, take=take, partitions=1).collected()
    assert sorted(found, key=lambda r: (r[0] != "hello", r[1])) == expected


def reducing(a, b):
    return b[0], a[1] + b[1]


class StartAnd(ProcessWindowFunction):
    def process(self, key, context, elements):
        [only] = elements
        yield (*only, context.window().start)


class AllStartAnd(ProcessAllWindowFunction):
    def process(self, context, elements):
        [only] = elements
        yield (*only, context.window().start)


class LastAndDifference(AggregateFunction):
    """(key, first value minus the sum of the others), in an accumulator that changes in place."""

    def create_accumulator(self):
        return ["", None]

    def add(self, value, accumulator):
        accumulator[0] = value[0]
        first = accumulator[1] is None
        accumulator[1] = value[1] if first else accumulator[1] - value[1]
        return accumulator

    def get_result(self, accumulator):
        return tuple(accumulator)

    def merge(self, acc_a, acc_b):
        return [acc_a[0], acc_a[1] - acc_b[1]]


class EvenMinusOdd(AggregateFunction):
    """PyFlink's own case: (key, even numbers minus odd ones), in a map that changes in place."""

    def create_accumulator(self):
        return "", {0: 0, 1: 0}

    def add(self, value, accumulator):
        accumulator[1][value[1] % 2] += 1
        return value[0], accumulator[1]

    def get_result(self, accumulator):
        return accumulator[0], accumulator[1][0] - accumulator[1][1]

    def merge(self, acc_a, acc_b):
        return acc_a[0], {n: acc_a[1][n] + acc_b[1][n] for n in (0, 1)}


class SumPairs(AggregateFunction):
    def create_accumulator(self):
        return "", 0

    def add(self, value, accumulator):
        return value[0], accumulator[1] + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a[0], acc_a[1] + acc_b[1]


SUMS = [("a", 3), ("a", 6), ("a", 15), ("b", 3), ("b", 17)]


@pytest.mark.parametrize("take", [None, 1])
@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (lambda w: w.reduce(lambda a, b: (b[0], a[1] + b[1])), SUMS),
        (lambda w: w.reduce(lambda a, b: (b[0], a[1] + b[1]), output_type=PAIR), SUMS),
        (
            lambda w: w.reduce(reducing, window_function=StartAnd(), output_type=None),
            [("a", 3, 1), ("a", 6, 6), ("a", 15, 15), ("b", 3, 3), ("b", 17, 8)],
        ),
        (
            lambda w: w.aggregate(LastAndDifference()),
            [("a", -1), ("a", 6), ("a", 15), ("b", -1), ("b", 3)],
        ),
        (
            lambda w: w.aggregate(EvenMinusOdd(), output_type=PAIR),
            [("a", -1), ("a", 0), ("a", 1), ("b", -1), ("b", 0)],
        ),
        (lambda w: w.aggregate(SumPairs(), accumulator_type=PAIR, output_type=PAIR), SUMS),
        (
            lambda w: w.aggregate(SumPairs(), StartAnd(), Types.TUPLE(PAIR.get_field_types())),
            [("a", 3, 1), ("a", 6, 6), ("a", 15, 15), ("b", 3, 3), ("b", 17, 8)],
        ),
        (lambda w: w.sum(1), SUMS),
        (lambda w: w.max(1), [("a", 2), ("a", 6), ("a", 15), ("b", 3), ("b", 9)]),
        (lambda w: w.min(1), [("a", 1), ("a", 6), ("a", 15), ("b", 3), ("b", 8)]),
        (lambda w: w.max_by(1), [("a", 2), ("a", 6), ("a", 15), ("b", 3), ("b", 9)]),
        (lambda w: w.min_by(1), [("a", 1), ("a", 6), ("a", 15), ("b", 3), ("b", 8)]),
    ],
)
def test_incremental_functions_of_sessions(ending, expected, take):
    env = environment()
    collect(ending(keyed(env, AB).window(EventTimeSessionWindows.with_gap(ms(2)))))
    found = run(env, take=take).collected()
    assert sorted(found) == sorted(expected)


def test_windows_of_a_whole_stream():
    env = environment()
    collect(timed(env, H).window_all(TumblingEventTimeWindows.of(ms(5))).process(AllBounds()))
    assert run(env).collected() == [(0, 5, 4), (5, 10, 3), (15, 20, 1)]


class AllSum(AllWindowFunction):
    def apply(self, window, inputs):
        return [sum(v for _, v in inputs)]


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (lambda w: w.reduce(reducing), [("b", 6), ("b", 23), ("a", 15)]),
        (lambda w: w.reduce(reducing, AllStartAnd()), [("b", 6, 1), ("b", 23, 6), ("a", 15, 15)]),
        (lambda w: w.aggregate(SumPairs()), [("b", 6), ("b", 23), ("a", 15)]),
        (
            lambda w: w.aggregate(SumPairs(), AllStartAnd()),
            [("b", 6, 1), ("b", 23, 6), ("a", 15, 15)],
        ),
        (lambda w: w.apply(AllSum()), [6, 23, 15]),
        (lambda w: w.sum(1), [("a", 6), ("a", 23), ("a", 15)]),
    ],
)
def test_functions_of_windows_of_a_whole_stream(ending, expected):
    env = environment()
    collect(ending(timed(env, AB).window_all(EventTimeSessionWindows.with_gap(ms(2)))))
    assert run(env, partitions=1).collected() == expected


@pytest.mark.parametrize("take", [None, 1])
@pytest.mark.parametrize(
    ("size", "expected"), [((3,), [6, 15]), ((3, 2), [6, 13]), ((2, 3), [3, 10])]
)
def test_count_windows_of_a_whole_stream(size, expected, take):
    env = environment()
    collect(env.from_collection(WORDS, PAIR).count_window_all(*size).apply(AllSum()))
    assert run(env, partitions=1, take=take).collected() == expected


def test_late_data_goes_to_its_side_output():
    env = environment()
    tag = OutputTag("late-data", Types.ROW([Types.STRING(), Types.INT()]))
    stream = env.from_collection([Row("a", n) for n in (0, 8, 4, 6)])
    stream = stream.assign_timestamps_and_watermarks(in_order()).key_by(lambda v: v[0])
    windowed = stream.window(TumblingEventTimeWindows.of(ms(5))).allowed_lateness(0)
    main = windowed.side_output_late_data(tag).process(Bounds())
    ends, late = collect(main), collect(main.get_side_output(tag))
    harness = run(env, take=1)
    assert harness.collected(ends) == [("a", 0, 5, 1), ("a", 5, 10, 2)]
    assert harness.collected(late) == [Row("a", 4)]


@pytest.mark.parametrize("tagged", [False, True])
def test_late_data_that_nobody_reads_is_counted(tagged):
    env = environment()
    windowed = keyed(env, [("a", n) for n in (0, 8, 4, 6, 3)])
    windowed = windowed.window(TumblingEventTimeWindows.of(ms(5)))
    if tagged:
        windowed.side_output_late_data(OutputTag("late", PAIR))
    collect(windowed.process(Bounds()).uid("w"))
    harness = started(env, 1)
    for _ in range(5):
        harness.run_epoch(take=1)
    assert harness.metrics("w")["numLateRecordsDropped"] == [2]


def test_results_behind_windows_line_up_in_windows_of_the_same_size():
    env = environment()
    first = keyed(env, AB).window(TumblingEventTimeWindows.of(ms(5))).sum(1)
    collect(first.window_all(TumblingEventTimeWindows.of(ms(5))).process(AllBounds()))
    assert run(env, take=2).collected() == [(0, 5, 2), (5, 10, 2), (15, 20, 1)]


def test_windows_of_keys_with_three_fields_and_a_map_behind_them():
    minute = 60_000
    records = [("a", "b", "c", n, n * minute) for n in (1, 2, 3, 11)]
    env = environment()
    stream = env.from_collection(records).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[4])
    )
    windowed = stream.key_by(lambda v: (v[0], v[1], v[2])).window(
        TumblingEventTimeWindows.of(Time.minutes(5))
    )
    summed = windowed.reduce(lambda a, b: (*a[:3], a[3] + b[3], b[4]))
    collect(summed.map(lambda v: (v[2], v[3])))
    assert run(env).collected() == [("c", 6), ("c", 11)]


def test_functions_that_make_contents_are_not_opened_and_that_is_said(caplog):
    _said.clear()

    class Opened(SumPairs):
        def open(self, runtime_context):
            raise AssertionError

    env = environment()
    collect(keyed(env, AB).window(TumblingEventTimeWindows.of(5)).aggregate(Opened()))
    assert len(run(env).collected()) == 5
    assert "do not call open of Opened" in caplog.text


def test_a_window_function_may_yield_to_side_outputs():
    tag = OutputTag("many", PAIR)

    class Split(ProcessWindowFunction):
        def process(self, key, context, elements):
            found = list(elements)
            yield key, len(found)
            yield tag, (key, len(found))

    env = environment()
    main = keyed(env, AB).window(TumblingEventTimeWindows.of(5)).process(Split())
    side, out = collect(main.get_side_output(tag)), collect(main)
    harness = run(env)
    assert sorted(harness.collected(side)) == sorted(harness.collected(out))
    assert len(harness.collected(side)) == 5


def test_processing_time_windows_fire_as_the_clock_goes_on_and_not_at_the_end():
    env = environment()
    stream = env.from_collection(WORDS, PAIR).key_by(lambda v: v[0])
    collect(stream.window(TumblingProcessingTimeWindows.of(ms(100))).sum(1))
    harness = started(env, 1)
    harness.run_epoch(take=4)
    harness.clock.advance(99)
    harness.run_epoch(take=0)
    first = sorted(harness.collected())
    assert len(first) == 2
    harness.clock.advance(50)
    harness.run_epoch()
    harness.finish()
    assert sorted(harness.collected()) == first


def test_the_count_of_a_processing_time_window_survives_a_failure():
    env = environment()
    stream = env.from_collection(WORDS, PAIR).key_by(lambda v: v[0])
    collect(stream.window(TumblingProcessingTimeWindows.of(ms(100))).sum(1).uid("w"))
    harness = started(env, 2)
    harness.run_epoch(checkpoint=True)
    harness.clock.advance(500)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run_epoch(take=0)
    assert sorted(harness.collected()) == [("hello", 12), ("hi", 9)]


# ---- what survives

RECORDS = [(f"k{i % 7}", 3 * i - (i % 4) * 5) for i in range(60)]
PROGRAMS = {
    "tumbling reduce": lambda s: s.window(TumblingEventTimeWindows.of(20)).reduce(reducing),
    "sliding process": lambda s: s.window(SlidingEventTimeWindows.of(30, 10)).process(Bounds()),
    "sessions aggregate": lambda s: s.window(EventTimeSessionWindows.with_gap(22)).aggregate(
        SumPairs()
    ),
    "sessions process": lambda s: s.window(EventTimeSessionWindows.with_gap(22)).process(Bounds()),
    "count sliding": lambda s: s.count_window(3, 2).sum(1),
    "global delta": lambda s: (
        s.window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(DeltaTrigger.of(30, lambda a, b: b[1] - a[1], PAIR)))
        .sum(1)
    ),
}


def program(name):
    env = environment()
    stream = env.from_collection(RECORDS, PAIR).uid("records")
    stream = stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(ms(20)).with_timestamp_assigner(
            lambda value, _: value[1]
        )
    )
    collect(PROGRAMS[name](stream.key_by(lambda v: v[0], Types.STRING())).uid("windows"))
    return env


@cache
def undisturbed(name):
    return sorted(run(program(name), take=10, partitions=1).collected())


KINDS = ["hashmap", "hashmap-incremental", "hashmap-changelog", "rocksdb-incremental"]


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_survive_a_dying_slot_and_another_parallelism(name, kind):
    first = started(
        program(name), 2, backend=settings_of(kind), wait_for_checkpoints=True, partitions=1
    )
    first.run_epoch(take=10)
    first.run_epoch(take=10, checkpoint=True)
    first.run_epoch(take=10)
    first.kill_slot(1)
    first.fail_over()
    first.run_epoch(take=10, checkpoint=True)
    second = first.restart(3)
    second.run(take=10)
    assert sorted([*first.collected(), *second.collected()]) == undisturbed(name)


@pytest.mark.matrix
@pytest.mark.parametrize(("before", "after"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_survive_a_savepoint_and_another_backend(name, before, after, tmp_path):
    storage = LocalStorage(str(tmp_path))
    settings = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION)
    first = started(
        program(name),
        2,
        backend=settings_of(before),
        checkpoints=settings,
        storage=storage,
        partitions=1,
    )
    for _ in range(3):
        first.run_epoch(take=10)
    asked = first.runner.savepoint(f"{storage.uri}/sp/one")
    first.run_epoch(take=0)
    asked.result(0)
    early = list(first.collected())
    point = RestorePoint(storage.uri, "sp/one", load_checkpoint(storage, "sp/one"))
    options = HarnessOptions(
        storage=storage, backend=settings_of(after), checkpoints=settings, partitions=1
    )
    later = JobHarness(program(name).build_graph(), 1, options, point).start().run(take=10)
    assert sorted([*early, *later.collected()]) == undisturbed(name)


@pytest.mark.matrix
@pytest.mark.parametrize("at", [1, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_survive_a_barrier_that_overtakes_rows(name, at):
    hooks = Overtake(at=at)
    harness = job(program(name), hooks, partitions=1)
    for n in range(3):
        harness.run_epoch(take=10, checkpoint=n == 2)
    assert hooks.settled
    harness.kill_slot(0)
    harness.fail_over()
    harness.run(take=10)
    assert sorted(harness.collected()) == undisturbed(name)


@pytest.mark.parametrize(
    ("name", "shown", "namespace"),
    [
        ("tumbling reduce", "TUPLE<STRING, INT> by STRING and time window", "TUPLE<LONG, LONG>"),
        ("sessions process", "LONG by STRING and time window", "TUPLE<LONG, LONG>"),
        ("count sliding", "TUPLE<STRING, INT> by STRING and count window", "LONG"),
    ],
)
def test_state_of_windows_is_shown_with_its_windows(tmp_path, name, shown, namespace):
    storage = LocalStorage(str(tmp_path))
    harness = started(program(name), 1, storage=storage)
    harness.run_epoch(take=20)
    number = harness.checkpoint()
    found = describe(f"{tmp_path}/{harness.job_id}/chk-{number}")
    assert shown in "\n".join(show_lines(found))
    windows = next(op for op in found.operators if op.uid == "windows")
    assert {state.types["namespace"] for state in windows.states} == {namespace}
    assert not any("PICKLED" in text for s in windows.states for text in s.types.values())


# ---- what is refused


@pytest.mark.parametrize("windows", [lambda s: s.window, lambda s: s.window_all])
def test_a_trigger_that_cannot_merge_is_refused_for_sessions(windows):
    sessions = windows(keyed(environment(), S))(EventTimeSessionWindows.with_gap(5))
    with pytest.raises(TypeError, match="does not support merging"):
        sessions.trigger(DeltaTrigger.of(1, lambda a, b: 0))


@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (lambda w: w.allowed_lateness(-1), UsageError),
        (lambda w: w.trigger(EventTimeTrigger), TypeError),
        (lambda w: w.evictor(CountTrigger.of(1)), TypeError),
        (lambda w: w.side_output_late_data("late"), TypeError),
        (lambda w: w.process(SumValues()), TypeError),
        (lambda w: w.apply(Bounds()), TypeError),
        (lambda w: w.apply(SumValues), TypeError),
        (lambda w: w.reduce(reducing, AllSum()), TypeError),
        (lambda w: w.aggregate(reducing), TypeError),
        (lambda w: w.sum(7), UsageError),
    ],
)
def test_what_windows_cannot_use_is_refused(declare, error):
    windowed = keyed(environment(), S).window(TumblingEventTimeWindows.of(5))
    with pytest.raises(error):
        declare(windowed)


def test_something_else_than_an_assigner_is_refused():
    with pytest.raises(TypeError, match="WindowAssigner"):
        keyed(environment(), S).window(TumblingEventTimeWindows)


def test_windows_by_event_time_need_timestamps():
    env = environment()
    stream = env.from_collection(WORDS, PAIR).key_by(lambda v: v[0])
    collect(stream.window(TumblingEventTimeWindows.of(5)).sum(1))
    with pytest.raises(WeirError, match="assign_timestamps_and_watermarks"):
        run(env)


# ---- windows of the program's own


class Parity(Window):
    """Even or odd numbers."""

    def __init__(self, odd):
        self.odd = odd

    def max_timestamp(self):
        return 100

    def __eq__(self, other):
        return isinstance(other, Parity) and other.odd == self.odd

    def __hash__(self):
        return int(self.odd)


class ByParity(WindowAssigner[tuple, Parity]):
    def assign_windows(self, element, timestamp, context):
        return [Parity(element[1] % 2 == 1)]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return None

    def is_event_time(self):
        return True


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_a_program_may_have_windows_of_its_own(kind):
    class Odd(ProcessWindowFunction):
        def process(self, key, context, elements):
            yield key, context.window().odd, sum(v for _, v in elements)

    env = environment()
    collect(keyed(env, AB).window(ByParity()).process(Odd()).uid("w"))
    first = started(env, 2, backend=settings_of(kind))
    first.run_epoch(take=4, checkpoint=True)
    second = first.restart(1)
    second.run()
    assert sorted(second.collected()) == [
        ("a", False, 8),
        ("a", True, 16),
        ("b", False, 8),
        ("b", True, 12),
    ]


def test_settings_of_windows_are_shown():
    env = environment()
    windowed = keyed(env, S).window(TumblingEventTimeWindows.of(5000))
    assert windowed.get_input_type() == PAIR
    assert windowed.get_execution_environment() is env
    assert windowed.reduce(reducing).get_name() == "TumblingEventTimeWindows"
    operator = env.build_graph().transformations[-1]
    described = operator.options["description"]
    assert described == "Window(TumblingEventTimeWindows(5000, 0), EventTimeTrigger, PlainReduce)"
    assert operator.output_type == PAIR


# ---- the example


def test_visits_are_counted_by_the_hour():
    env = environment()
    counts = hourly(env.from_collection(VISITS, VISIT).uid("visits"))
    main, late = collect(counts), collect(counts.get_side_output(TOO_LATE))
    harness = run(env, take=1, partitions=1)
    assert sorted(harness.collected(main)) == [
        ("/help", "09:00", 1),
        ("/help", "10:00", 1),
        ("/start", "09:00", 3),
        ("/start", "10:00", 1),
        ("/start", "11:00", 1),
    ]
    assert harness.collected(late) == [("/help", "09:50")]
