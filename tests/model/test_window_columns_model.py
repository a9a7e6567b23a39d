"""Aggregates of windows over columns against records one by one, and against a plain model.

Streams are random, out of order and late; operators are restored from snapshots on the way, with
other parallelisms and other backends. Columns and records make the same results in the same order,
the same late records, the same state and the same timers; so do rows that the sender combined.
"""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.databases import scratch_directory
from tests.examples import examples
from tests.model.test_windows_model import Model
from tests.window_driver import MAX, MIN, Driver

from weir.backend.factory import BackendSettings
from weir.common import Types
from weir.datastream import AggregateFunction, CountAggregate, ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    EventTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import WeirError
from weir.runtime.combining import can_combine

RECORD = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
OPS = ("sum", "min", "max", "min_by", "max_by", "count", "counted", "reduce", "listed")
# Few key groups, so that some keys share one: their order is that of their first records.
GROUPS = 3


class Whole(ProcessWindowFunction):
    """Gives the records of a window, as one record of the same type."""

    def process(self, key, context, elements):
        records = list(elements)
        yield key, ",".join(other for _, other, _ in records), sum(n for _, _, n in records)


def fold(a, b):
    """Neither associative nor commutative: records must come in order, one by one."""
    return a[0], b[1], (a[2] * 31 + b[2]) % 1_000_003


class Listed(AggregateFunction):
    """Keeps what it has seen in a list that it changes."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value[2])
        return accumulator

    def get_result(self, accumulator):
        return accumulator[-1], len(accumulator), sum(accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Counted(ProcessWindowFunction):
    """Gives the count of a window, as a record of the same type."""

    def process(self, key, context, elements):
        [count] = elements
        yield key, str(context.window().start), count


def aggregated(op, window):
    """What an aggregate is, in plain Python."""
    _, start, _, records = window
    first, numbers = records[0], [r[2] for r in records]
    if op == "count":
        return len(records)
    if op == "reduce":
        return reduce(fold, records)
    if op == "listed":
        return numbers[-1], len(numbers), sum(numbers)
    if op == "counted":
        return first[0], str(start), len(records)
    if op == "process":
        return first[0], ",".join(r[1] for r in records), sum(numbers)
    if op in ("min_by", "max_by"):
        return (min if op == "min_by" else max)(records, key=lambda r: r[2])
    total = {"sum": sum, "min": min, "max": max}[op](numbers)
    return (*first[:2], total)


KINDS = st.one_of(
    st.integers(1, 12).flatmap(
        lambda size: st.tuples(
            st.just("aligned"), st.just(size), st.just(size), st.integers(1 - size, size - 1)
        )
    ),
    st.tuples(st.just("aligned"), st.integers(1, 12), st.integers(1, 8), st.just(0)),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from("abcdefg"),
        st.text("xyz", max_size=2),
        st.integers(-3, 9),
        st.integers(-9, 40),
    ),
    max_size=14,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("watermark"), st.integers(0, 12)),
        st.tuples(st.just("restore"), st.integers(1, 3)),
    ),
    max_size=12,
)


def declare(kind, op, lateness, purging, tagged):
    _, size, slide, offset = kind
    if size == slide:
        assigner = TumblingEventTimeWindows.of(size, offset)
    else:
        assigner = SlidingEventTimeWindows.of(size, slide, offset)

    def declared(stream):
        windowed = stream.window(assigner).allowed_lateness(lateness)
        if tagged:
            windowed.side_output_late_data(OutputTag("late", RECORD))
        if purging:
            windowed.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
        if op == "process":
            windowed.process(Whole(), RECORD)
        elif op == "count":
            windowed.aggregate(CountAggregate())
        elif op == "reduce":
            windowed.reduce(fold)
        elif op == "listed":
            windowed.aggregate(Listed(), accumulator_type=Types.LIST(Types.LONG()))
        elif op == "counted":
            windowed.aggregate(CountAggregate(), Counted(), output_type=RECORD)
        else:
            getattr(windowed, op)(2)

    return declared


class Pair:
    """The same windows twice, by columns and by records, and the model."""

    def __init__(self, kind, op, options, directory=None):
        declared = declare(kind, op, *options)
        self.op = op
        how = {"types": RECORD, "directory": directory, "max_parallelism": GROUPS}
        self.fast = Driver(declared, **how)
        self.slow = Driver(declared, **how)
        self.combines = not options[2] and can_combine(self.fast.plan, self.fast.edge)
        self.model = Model(kind, options[0], options[1])
        self.dropped = [0, 0]
        self.records = [0, 0]
        self.taken = []

    def rows(self, rows, columns, combined):
        made = [((key, other, n), t) for key, other, n, t in rows]
        if not made:
            return
        at_a_time = combined if self.combines else 0
        self.taken += self.fast.typed_epoch(*made, columns=columns, combined=at_a_time)
        self.slow.typed_epoch(*made, columns=False)
        for record, t in made:
            self.model.add(record[0], record, t)

    def restore(self, parallelism, backend):
        self._count()
        self.fast.restore(parallelism, backend)
        self.slow.restore(parallelism, backend)

    def watermark(self, time):
        self.fast.watermark(time)
        self.slow.watermark(time)
        self.model.advance(time)

    def _count(self):
        for i, driver in enumerate((self.fast, self.slow)):
            self.dropped[i] += sum(op._dropped.get_count() for op in driver.ops)
            self.records[i] += sum(op.records_in for op in driver.ops)

    def check(self):
        fast, slow = list(self.fast.results), list(self.slow.results)
        self.fast.results.clear()
        self.slow.results.clear()
        expected = [(aggregated(self.op, r), t) for r, t in self.model.results]
        self.model.results.clear()
        assert fast == slow
        assert sorted(fast) == sorted(expected)
        assert self.fast.take_late() == self.slow.take_late()
        assert (self.fast.entries, self.fast.timers) == (self.slow.entries, self.slow.timers)

    def close(self, tagged):
        self._count()
        assert self.dropped == ([0, 0] if tagged else [len(self.model.late)] * 2)
        assert self.records[0] == self.records[1]
        assert (self.fast.entries, self.fast.timers) == (0, 0)
        self.fast.close()
        self.slow.close()


def compare(kind, op, options, steps, backends=None, directory=None):
    pair = Pair(kind, op, options, directory)
    now, restored = 0, 0
    for number, (step, what) in enumerate([*steps, ("end", None)]):
        if step == "rows":
            # Now and then an epoch comes as records, as after a restore with rows in flight.
            pair.rows(what, columns=number % 5 != 4, combined=(0, 4, 99)[number % 3])
        elif step == "restore":
            restored += 1
            pair.restore(what, None if backends is None else backends[restored % len(backends)])
        else:
            now = MAX if step == "end" else now + what
            pair.watermark(now)
        pair.check()
    pair.close(options[2])
    return pair


OPTIONS = st.tuples(st.sampled_from([0, 0, 4]), st.booleans(), st.booleans())


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(KINDS, st.sampled_from([*OPS, "process"]), OPTIONS, STEPS)
def test_columns_and_records_make_the_same_of_windows(kind, op, options, steps):
    compare(kind, op, options, steps)


@pytest.mark.parametrize("tracked", [False, True])
@settings(max_examples=examples(20), deadline=None)
@given(KINDS, st.sampled_from([*OPS, "process"]), OPTIONS, STEPS)
def test_columns_do_on_every_backend(tracked, kind, op, options, steps):
    backends = [
        BackendSettings("rocksdb", incremental=tracked),
        BackendSettings(incremental=tracked),
        BackendSettings(changelog=tracked),
    ]
    with scratch_directory() as directory:
        compare(kind, op, options, steps, backends, directory)


@pytest.mark.parametrize("columns", [True, False])
def test_what_a_function_reduces_to_nothing_is_no_state_and_no_result(columns):
    def declared(stream):
        stream.window(TumblingEventTimeWindows.of(10)).reduce(
            lambda a, b: None if b[2] < 0 else (*a[:2], a[2] + b[2])
        )

    driver = Driver(declared, types=RECORD)
    rows = [(("a", "x", 1), 1), (("a", "y", -1), 2), (("b", "x", 2), 3), (("b", "x", 3), 4)]
    taken = driver.typed_epoch(*rows, columns=columns)
    assert taken == [columns]
    assert (driver.entries, driver.timers) == (1, 2)
    driver.watermark(20)
    assert driver.take() == [(("b", "x", 5), 9)]
    assert (driver.entries, driver.timers) == (0, 0)
    driver.close()


# ---- keys, numbers and times at the limits

KEYS = {
    Types.LONG(): [0, 1, -1, MIN, MAX, MIN + 1],
    Types.BYTE(): [0, 127, -128],
    Types.STRING(): ["", "a", "\u00e4", "a\0", "\U0001f600"],
    Types.BOOLEAN(): [True, False],
    Types.DOUBLE(): [0.0, -0.0, 1.5],
}
NUMBERS = {
    Types.LONG(): [0, 3, -7, MIN, MAX, 1 << 62, -(1 << 62), (1 << 53) + 1],
    Types.SHORT(): [0, 1, -(1 << 15), (1 << 15) - 1],
    Types.FLOAT(): [0.5, -0.5, 0.0, float("inf"), -float("inf")],
    Types.DOUBLE(): [0.0, -0.0, 1.5, float("nan"), float("inf"), 5e-324],
    Types.BOOLEAN(): [True, False],
}
FAR = [-(1 << 62), -(1 << 61), -(1 << 60), 1 << 60, (1 << 61) - 1, 1 << 62]
SIZES = [
    (5, 5, 0),
    (5, 5, -3),
    (12, 4, 3),
    (12, 5, -2),
    (3, 7, -6),
    (1 << 60, 1 << 59, 1),
    (1 << 61, 1 << 61, 5),
    (5, 1 << 62, (1 << 62) - 1),
    (5, 1 << 63, 0),
]


def mostly(usual, odd):
    """Draw from the usual most times, so that columns can do it, and from odd ones now and then."""
    return st.integers(0, 4).flatmap(lambda n: odd if n == 0 else usual)


@st.composite
def at_the_limits(draw):
    key, number = draw(st.sampled_from(list(KEYS))), draw(st.sampled_from(list(NUMBERS)))
    numbers = draw(
        mostly(
            st.just(st.sampled_from(NUMBERS[number][:3])),
            st.just(st.one_of(st.none(), st.sampled_from(NUMBERS[number]))),
        )
    )
    near = st.integers(-30, 40)
    times = draw(mostly(st.just(near), st.just(st.one_of(near, st.sampled_from(FAR)))))
    rows = st.lists(st.tuples(st.sampled_from(KEYS[key]), numbers, times), min_size=1, max_size=9)
    marks = st.sampled_from([-40, -1, 0, 7, 20, 1 << 60, -(1 << 61), -(1 << 62), MIN + 1])
    steps = st.lists(
        st.one_of(
            st.tuples(st.just("rows"), rows),
            st.tuples(st.just("rows"), rows),
            st.tuples(st.just("watermark"), marks),
            st.tuples(st.just("restore"), st.integers(1, 3)),
        ),
        max_size=7,
    )
    return Types.TUPLE([key, number]), draw(steps)


def outcome(step, *what, **how):
    """Return what a step raised, None if nothing."""
    try:
        step(*what, **how)
    except WeirError as error:
        return type(error)
    return None


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(
    at_the_limits(),
    st.sampled_from(SIZES),
    st.sampled_from(["sum", "min", "max", "min_by", "max_by", "count"]),
    st.sampled_from([0, 0, 4, 1 << 62, MAX]),
    st.sampled_from([0, 2, 99]),
)
def test_columns_are_exact_at_the_limits_of_numbers_and_times(given_, kind, op, lateness, combined):
    types, steps = given_
    size, slide, offset = kind
    assigner = SlidingEventTimeWindows.of(size, slide, offset)
    if size == slide:
        assigner = TumblingEventTimeWindows.of(size, offset)

    def declared(stream):
        windowed = stream.window(assigner).allowed_lateness(lateness)
        windowed.aggregate(CountAggregate()) if op == "count" else getattr(windowed, op)(1)

    fast, slow = (Driver(declared, types=types, max_parallelism=GROUPS) for _ in range(2))
    combined = combined if can_combine(fast.plan, fast.edge) else 0
    reached = MIN
    for step, what in [*steps, ("watermark", MAX)]:
        if step == "rows":
            rows = [((key, number), time) for key, number, time in what]
            found = [
                outcome(fast.typed_epoch, *rows, columns=True, combined=combined),
                outcome(slow.typed_epoch, *rows, columns=False),
            ]
        elif step == "restore":
            found = [outcome(d.restore, what) for d in (fast, slow)]
        else:
            reached = max(reached, what)
            found = [outcome(d.watermark, reached) for d in (fast, slow)]
        assert found[0] == found[1]
        if found[0] is not None:
            break
        # As texts: 0.0 is not -0.0 there, and True is not 1.
        assert repr(fast.results) == repr(slow.results)
        fast.results.clear()
        slow.results.clear()
        assert (fast.entries, fast.timers) == (slow.entries, slow.timers)
    fast.close()
    slow.close()


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ((1 << 60, 1 << 59, 1), [0, 1 << 59]),
        (((1 << 59) + 1, 1 << 59, 0), [0, 1 << 59]),
        ((5, 1 << 63, 0), [4]),
    ],
)
def test_windows_are_counted_in_whole_numbers_however_long(kind, ends, columns):
    record = Types.TUPLE([Types.LONG(), Types.LONG()])
    for op in ("sum", "process"):

        def declared(stream, op=op):
            windowed = stream.window(SlidingEventTimeWindows.of(*kind))
            windowed.sum(1) if op == "sum" else windowed.process(First())

        driver = Driver(declared, types=record)
        driver.typed_epoch(((1, 7), 0), columns=columns)
        driver.watermark(MAX)
        assert driver.results == [((1, 7), end) for end in ends]
        driver.close()


class First(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield next(iter(elements))
