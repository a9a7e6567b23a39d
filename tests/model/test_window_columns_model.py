"""Aggregates of windows over columns against records one by one, and against a plain model.

Streams are random, out of order and late; operators are restored from snapshots on the way, with
other parallelisms and other backends. Columns and records make the same results in the same order,
the same late records, the same state and the same timers.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.databases import scratch_directory
from tests.examples import examples
from tests.model.test_windows_model import Model
from tests.window_driver import MAX, Driver

from weir.backend.factory import BackendSettings
from weir.common import Types
from weir.datastream import ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    EventTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

RECORD = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
OPS = ("sum", "min", "max", "min_by", "max_by")


class Whole(ProcessWindowFunction):
    """Gives the records of a window, as one record of the same type."""

    def process(self, key, context, elements):
        records = list(elements)
        yield key, ",".join(other for _, other, _ in records), sum(n for _, _, n in records)


def aggregated(op, records):
    """What an aggregate is, in plain Python."""
    first, numbers = records[0], [r[2] for r in records]
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
        st.sampled_from("abcde"),
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
        else:
            getattr(windowed, op)(2)

    return declared


class Pair:
    """The same windows twice, by columns and by records, and the model."""

    def __init__(self, kind, op, options, directory=None):
        declared = declare(kind, op, *options)
        self.op = op
        self.fast = Driver(declared, types=RECORD, directory=directory)
        self.slow = Driver(declared, types=RECORD, directory=directory)
        self.model = Model(kind, options[0], options[1])
        self.dropped = [0, 0]
        self.taken = []

    def rows(self, rows, columns):
        made = [((key, other, n), t) for key, other, n, t in rows]
        if not made:
            return
        self.taken += self.fast.typed_epoch(*made, columns=columns)
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

    def check(self):
        fast, slow = list(self.fast.results), list(self.slow.results)
        self.fast.results.clear()
        self.slow.results.clear()
        expected = [(aggregated(self.op, r[3]), t) for r, t in self.model.results]
        self.model.results.clear()
        assert fast == slow
        assert sorted(fast) == sorted(expected)
        assert self.fast.take_late() == self.slow.take_late()
        assert (self.fast.entries, self.fast.timers) == (self.slow.entries, self.slow.timers)

    def close(self, tagged):
        self._count()
        assert self.dropped == ([0, 0] if tagged else [len(self.model.late)] * 2)
        assert (self.fast.entries, self.fast.timers) == (0, 0)
        self.fast.close()
        self.slow.close()


def compare(kind, op, options, steps, backends=None, directory=None):
    pair = Pair(kind, op, options, directory)
    now, restored = 0, 0
    for number, (step, what) in enumerate([*steps, ("end", None)]):
        if step == "rows":
            # Now and then an epoch comes as records, as after a restore with rows in flight.
            pair.rows(what, columns=number % 5 != 4)
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
