"""Triggers and evictors in the operator: golden values of Flink's tests."""

from __future__ import annotations

import pytest
from tests.window_driver import MAX, Driver

from weir.common import Types
from weir.datastream import AggregateFunction, ProcessWindowFunction, WindowFunction
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    TimeEvictor,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.errors import UsageError


def add(a, b):
    return (a[0], a[1] + b[1])


def summing(assigner, trigger=None, evictor=None, lateness=0):
    def declare(stream):
        windowed = stream.window(assigner).allowed_lateness(lateness)
        if trigger is not None:
            windowed.trigger(trigger)
        if evictor is not None:
            windowed.evictor(evictor)
        windowed.reduce(add)

    return Driver(declare)


def sums(op):
    return [(value[1], stamp) for value, stamp in op.take()]


def test_results_say_whether_they_fire_and_purge():
    assert [(r.name, r.is_fire(), r.is_purge()) for r in TriggerResult] == [
        ("CONTINUE", False, False),
        ("FIRE_AND_PURGE", True, True),
        ("FIRE", True, False),
        ("PURGE", False, True),
    ]


def test_event_time_fires_at_the_end_and_then_for_every_late_record():
    op = summing(TumblingEventTimeWindows.of(2), lateness=100)
    op.epoch(("k", 1, 0), ("k", 1, 1), ("k", 1, 0), ("k", 1, 2), ("k", 1, 3))
    assert op.timers == 4
    op.watermark(2)
    assert sums(op) == [(3, 1)]
    # Without a timer of the trigger: two of (2, 4) and the cleanup of (0, 2) are left.
    op.epoch(("k", 1, 0), ("k", 1, 1))
    assert op.timers == 3
    assert sums(op) == [(4, 1), (5, 1)]


def test_merged_event_time_windows_have_one_timer():
    op = summing(EventTimeSessionWindows.with_gap(2))
    op.add(("k", 1, 0), ("k", 1, 2))
    assert op.timers == 1
    assert op.op.event_timers.next_timestamp() == 3


def test_counts_of_merged_windows_add_up():
    op = summing(EventTimeSessionWindows.with_gap(2), CountTrigger.of(3))
    op.add(("k", 1, 0), ("k", 1, 4))
    op.add(("k", 1, 2))
    assert sums(op) == [(3, 5)]


def test_continuous_event_time_keeps_a_time_and_a_timer_at_the_end():
    op = summing(TumblingEventTimeWindows.of(2), ContinuousEventTimeTrigger.of(3_600_000))
    op.add(("k", 1, 0), ("k", 1, 2))
    # Both are the end of the window here: contents and time of two windows, one timer each.
    assert (op.entries, op.timers) == (4, 2)
    op.watermark(2)
    assert sums(op) == [(1, 1)]


def test_continuous_processing_time_of_tumbling_processing_windows():
    op = summing(TumblingProcessingTimeWindows.of(10), ContinuousProcessingTimeTrigger.of(5))
    op.now(0).add(("k", 1, 0)).now(2).add(("k", 2, 0))
    assert sums(op.now(5)) == [(3, 9)]
    op.now(7).add(("k", 3, 0))
    assert sums(op.now(9)) == [(6, 9)]
    op.now(10).add(("k", 3, 0))
    assert sums(op.now(15)) == [(3, 19)]
    op.now(18).add(("k", 3, 0))
    assert sums(op.now(20)) == [(6, 19)]


def test_continuous_processing_time_of_tumbling_event_windows():
    op = summing(TumblingEventTimeWindows.of(10), ContinuousProcessingTimeTrigger.of(5))
    op.add(("k", 1, 1), ("k", 2, 3), ("k", 3, 7))
    assert sums(op.now(5)) == [(6, 9)]
    op.add(("k", 3, 8))
    op.now(9)
    assert sums(op.now(10)) == [(9, 9)]
    op.add(("k", 3, 12))
    assert sums(op.now(15)) == [(3, 19)]


def test_continuous_processing_time_of_sessions():
    op = summing(ProcessingTimeSessionWindows.with_gap(10), ContinuousProcessingTimeTrigger.of(5))
    op.now(0).add(("k", 1, 0)).now(2).add(("k", 2, 0))
    assert sums(op.now(5)) == [(3, 11)]
    assert sums(op.now(9)) == []
    assert sums(op.now(10)) == [(3, 11)]
    assert sums(op.now(15)) == [(3, 11)]
    assert sums(op.now(100)) == []
    assert (op.entries, op.timers) == (0, 0)


def timeout(**options):
    nested = CountTrigger.of(3)
    trigger = ProcessingTimeoutTrigger.of(nested, 50, **options)
    return summing(TumblingEventTimeWindows.of(1000), trigger)


def test_a_timeout_fires_what_is_incomplete():
    op = timeout().now(0).add(("k", 1, 0)).now(10).add(("k", 1, 0))
    assert sums(op.now(49)) == []
    assert sums(op.now(50)) == [(2, 999)]
    assert op.entries == 1  # the contents: states of both triggers are gone
    op.add(("k", 1, 0), ("k", 1, 0))
    assert sums(op) == []
    assert sums(op.add(("k", 1, 0))) == [(5, 999)]


def test_a_timeout_may_begin_anew_with_every_record():
    op = timeout(reset_timer_on_new_record=True)
    op.now(0).add(("k", 1, 0)).now(10).add(("k", 1, 0))
    assert sums(op.now(50)) == []
    assert sums(op.now(60)) == [(2, 999)]


def test_a_timeout_may_leave_the_other_trigger_alone():
    op = timeout(should_clear_on_timeout=False)
    op.now(0).add(("k", 1, 0))
    assert sums(op.now(50)) == [(1, 999)]
    assert op.entries == 3


def test_a_delta_fires_beyond_its_threshold():
    trigger = DeltaTrigger.of(
        2, lambda a, b: b[1] - a[1], Types.TUPLE([Types.STRING(), Types.INT()])
    )
    op = summing(GlobalWindows.create(), PurgingTrigger.of(trigger))
    op.add(("k", 1, 0), ("k", 3, 1))
    assert sums(op) == []
    op.add(("k", 4, 2))
    assert sums(op) == [(8, 2)]
    op.add(("k", 6, 3))
    assert sums(op) == []


EVICTIONS = [
    (CountEvictor.of(4, True), "k1", [1] * 4, None, [2, 4]),
    (CountEvictor.of(4, True), "k2", [1] * 8, None, [2, 4, 6, 6]),
    (CountEvictor.of(4), "k1", [1] * 4, None, [2, 4]),
    (CountEvictor.of(4), "k2", [1] * 6, None, [2, 4, 4]),
    (TimeEvictor.of(2000, True), "k1", [1] * 4, [20, 0, 999, 10999], [2, 4]),
    (TimeEvictor.of(2000, True), "k2", [1] * 6, [1000, 4000, 3500, 2001, 1001, 1002], [2, 3, 5]),
    (TimeEvictor.of(2000, True), "k1", [1] * 4, [None] * 4, [2, 4]),
    (TimeEvictor.of(2000, True), "k2", [1] * 6, [None] * 6, [2, 4, 6]),
    (DeltaEvictor.of(2, lambda e, last: last[1] - e[1]), "k1", [1, 1, 5, 3], None, [2, 8]),
    (
        DeltaEvictor.of(2, lambda e, last: last[1] - e[1]),
        "k2",
        [1, 4, 5, 6, 1, 10],
        None,
        [4, 11, 10],
    ),
    (DeltaEvictor.of(2, lambda e, last: last[1] - e[1], True), "k1", [1, 1, 5, 9], None, [2, 16]),
    (
        DeltaEvictor.of(2, lambda e, last: last[1] - e[1], True),
        "k2",
        [1, 4, 5, 6, 1, 10],
        None,
        [5, 15, 22],
    ),
]


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return "sum", accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Total(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, sum(v for _, v in elements)


class TotalApplied(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, sum(v for _, v in inputs))]


class Seen(ProcessWindowFunction):
    """Shows how many elements there were, and what the first one is."""

    def process(self, key, context, elements):
        given = list(elements)
        yield len(given), given[0][1] if given else None


class SeenApplied(WindowFunction):
    def apply(self, key, window, inputs):
        return Seen().process(key, None, inputs)


# Every way to end a windowed stream. Flink lets an evictor go with all of them: what reduces or
# aggregates runs over the records that are left, and a window function behind it gets the result.
ENDINGS = {
    "reduce": lambda w: w.reduce(add),
    "reduce, apply": lambda w: w.reduce(add, TotalApplied()),
    "reduce, process": lambda w: w.reduce(add, Total()),
    "aggregate": lambda w: w.aggregate(Sum()),
    "aggregate, apply": lambda w: w.aggregate(Sum(), TotalApplied()),
    "aggregate, process": lambda w: w.aggregate(Sum(), Total()),
    "sum": lambda w: w.sum(1),
    "apply": lambda w: w.apply(TotalApplied()),
    "process": lambda w: w.process(Total()),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("evictor", "key", "values", "times", "expected"), EVICTIONS)
def test_evictors_of_the_global_window(evictor, key, values, times, expected, ending):
    def declare(stream):
        windowed = stream.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        ENDINGS[ending](windowed.evictor(evictor))

    op = Driver(declare)
    op.add(*zip([key] * len(values), values, times or range(len(values)), strict=True))
    assert [value[1] for value, _ in op.results] == expected


@pytest.mark.parametrize("function", [Seen, SeenApplied])
@pytest.mark.parametrize("first", ["reduce", "aggregate"])
def test_a_window_function_behind_an_aggregation_gets_one_result_of_what_is_left(first, function):
    def declare(stream):
        windowed = stream.window(GlobalWindows.create()).trigger(CountTrigger.of(3))
        windowed.evictor(CountEvictor.of(2))
        if first == "reduce":
            windowed.reduce(add, function())
        else:
            windowed.aggregate(Sum(), function())

    op = Driver(declare)
    op.add(*[("k", value, value) for value in (1, 2, 4, 8, 16, 32)])
    assert [value for value, _ in op.results] == [(1, 2 + 4), (1, 16 + 32)]


def test_eviction_goes_on_after_a_restore():
    op = summing(GlobalWindows.create(), CountTrigger.of(2), CountEvictor.of(4))
    op.add(*[("k2", 1, n) for n in range(5)])
    op.restore().add(("k2", 1, 6))
    assert [value[1] for value, _ in op.results] == [2, 4, 4]


def test_a_time_evictor_of_tumbling_windows():
    op = summing(TumblingEventTimeWindows.of(4000), CountTrigger.of(2), TimeEvictor.of(2000))
    op.add(*[("k1", 1, t) for t in (20, 0, 999, 5999, 6500)])
    assert sums(op) == [(2, 3999), (2, 7999)]
    op.add(*[("k2", 1, t) for t in (1000, 3999, 3500, 2001, 1001, 1002)])
    assert sums(op) == [(1, 3999), (3, 3999), (3, 3999)]


def test_a_count_evictor_of_tumbling_windows():
    op = summing(TumblingEventTimeWindows.of(4000), evictor=CountEvictor.of(4))
    op.epoch(*[("k1", 1, t) for t in range(6)], ("k2", 1, 0), ("k2", 1, 1))
    assert sums(op.watermark(3999)) == [(4, 3999), (2, 3999)]
    assert (op.entries, op.timers) == (0, 0)


class EvictAll(Evictor):
    def evict_before(self, elements, size, window, evictor_context):
        assert len(elements) == size
        assert evictor_context.get_current_watermark() <= MAX
        elements.clear()

    def evict_after(self, elements, size, window, evictor_context):
        assert elements == []


@pytest.mark.parametrize(
    ("ending", "results"),
    [
        (lambda w: w.process(Total()), [("k", 0)]),
        (lambda w: w.aggregate(Sum()), [("sum", 0)]),
        (lambda w: w.aggregate(Sum(), Seen()), [(1, 0)]),
        (lambda w: w.aggregate(Sum(), SeenApplied()), [(1, 0)]),
        (lambda w: w.reduce(add), []),
        (lambda w: w.reduce(add, Seen()), [(0, None)]),
        (lambda w: w.reduce(add, SeenApplied()), [(0, None)]),
    ],
    ids=[
        "process",
        "aggregate",
        "aggregate, process",
        "aggregate, apply",
        "reduce",
        "reduce, process",
        "reduce, apply",
    ],
)
def test_a_function_is_called_also_when_all_records_were_evicted(ending, results):
    op = Driver(lambda s: ending(s.window(TumblingEventTimeWindows.of(5)).evictor(EvictAll())))
    op.add(("k", 1, 0)).watermark(4)
    assert [value for value, _ in op.take()] == results


@pytest.mark.parametrize(
    "make",
    [
        lambda: CountTrigger.of(0),
        lambda: ContinuousEventTimeTrigger.of(0),
        lambda: ProcessingTimeoutTrigger.of(EventTimeTrigger.create(), -1),
        lambda: CountEvictor.of(0),
        lambda: TimeEvictor.of(-5),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PurgingTrigger.of(EventTimeTrigger),
        lambda: DeltaTrigger.of(1, 5),
        lambda: DeltaEvictor.of(1, "delta"),
    ],
)
def test_things_of_another_kind_are_refused(make):
    with pytest.raises(TypeError):
        make()
