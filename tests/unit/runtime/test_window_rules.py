"""Rules of the window operator that no trace shows: stamps, lateness, functions, evictors."""

from __future__ import annotations

import pytest
from tests.window_driver import MAX, Driver

from weir.common import Types
from weir.datastream import AggregateFunction, ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.state import ValueStateDescriptor
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import UserFunctionError, WeirError

LATE = OutputTag("late")
CALLS: list[tuple] = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def values(elements):
    return [value for _, value in elements]


class Gives(ProcessWindowFunction):
    """Gives what a function makes of the values; tells when it is opened and closed."""

    def __init__(self, make=list):
        self.make = make

    def open(self, runtime_context):
        CALLS.append(("open", runtime_context.get_task_name()))

    def close(self):
        CALLS.append(("close",))

    def process(self, key, context, elements):
        return self.make([(key, value) for value in values(elements)])


def windowed(assigner, *, function=None, trigger=None, evictor=None, lateness=0):
    def declare(stream):
        found = stream.window(assigner).allowed_lateness(lateness).side_output_late_data(LATE)
        if trigger is not None:
            found.trigger(trigger)
        if evictor is not None:
            found.evictor(evictor)
        found.process(function or Gives())

    return Driver(declare)


def add(a, b):
    return (a[0], a[1] + b[1])


def reduced(assigner, trigger=None, evictor=None):
    def declare(stream):
        found = stream.window(assigner)
        if trigger is not None:
            found.trigger(trigger)
        if evictor is not None:
            found.evictor(evictor)
        found.reduce(add)

    return Driver(declare)


# ---- stamps and order


def test_results_of_the_global_window_have_the_time_of_the_timer_that_fired_it():
    op = reduced(GlobalWindows.create(), ContinuousEventTimeTrigger.of(10))
    op.add(("k", 1, 3)).watermark(25)
    assert op.take() == [(("k", 1), 10), (("k", 1), 20)]


def test_results_of_the_global_window_by_the_clock_have_its_time():
    op = reduced(GlobalWindows.create(), ContinuousProcessingTimeTrigger.of(10))
    op.now(3).add(("k", 1, 777)).now(10)
    assert op.take() == [(("k", 1), 10)]


@pytest.mark.parametrize("interval", [1, 10])
def test_the_end_of_time_is_not_reached_interval_by_interval(interval):
    """A window without an end would have 2**63 of them."""
    op = reduced(GlobalWindows.create(), ContinuousEventTimeTrigger.of(interval))
    op.add(("k", 1, 3), ("j", 2, 25)).watermark(15)
    op.take()
    op.watermark(MAX)
    found = op.take()
    last = {1: 26, 10: 30}[interval]
    # Each at its next interval, and at the end, which is behind all intervals.
    assert found[-2:] == [(("j", 2), last + 1), (("k", 1), last + 1)]
    assert len(found) == 4
    assert op.timers == 0


def test_windows_fire_in_the_order_of_their_ends():
    op = reduced(TumblingEventTimeWindows.of(10))
    op.epoch(("a", 1, 25), ("b", 2, 5), ("c", 3, 15), ("a", 4, 1))
    op.watermark(MAX)
    assert [stamp for _, stamp in op.results] == [9, 9, 19, 29]


def test_what_comes_too_late_keeps_its_value_and_its_timestamp():
    op = windowed(TumblingEventTimeWindows.of(10), lateness=5)
    op.watermark(100).add(("k", 7, 42))
    assert op.take_late() == [(("k", 7), 42)]


# ---- lateness


@pytest.mark.parametrize("lateness", [0, 50])
def test_the_global_window_knows_no_late_records(lateness):
    op = windowed(GlobalWindows.create(), trigger=CountTrigger.of(1), lateness=lateness)
    op.watermark(1000).add(("k", 1, 3))
    assert op.take() == [(("k", 1), 3)]
    assert op.take_late() == []


def test_count_windows_know_no_late_records():
    op = Driver(
        lambda s: s.count_window(2).allowed_lateness(9).side_output_late_data(LATE).reduce(add)
    )
    op.watermark(1000).add(("k", 1, 3), ("k", 2, 4))
    assert op.take() == [(("k", 3), 4)]
    assert op.take_late() == []


def test_sessions_by_the_clock_know_no_late_records():
    op = windowed(ProcessingTimeSessionWindows.with_gap(5), lateness=9)
    op.watermark(1000).now(7).add(("k", 1, 3)).now(11)
    assert op.take() == [(("k", 1), 11)]
    assert op.take_late() == []


@pytest.mark.parametrize(
    ("second", "windows"), [(3000, [(0, 6000)]), (3001, [(0, 3000), (3001, 6001)])]
)
@pytest.mark.parametrize("lateness", [0, 10], ids=["folded", "by record"])
def test_records_exactly_a_gap_apart_share_a_session(second, windows, lateness):
    class Bounds(ProcessWindowFunction):
        def process(self, key, context, elements):
            yield context.window().start, context.window().end

    sessions = EventTimeSessionWindows.with_gap(3000)
    op = windowed(sessions, function=Bounds(), lateness=lateness)
    op.add(("k", 1, 0), ("k", 1, second)).watermark(MAX)
    assert sorted(value for value, _ in op.take()) == windows


def test_sessions_that_merge_behind_the_watermark_fire_with_the_record_alone():
    """The window is still allowed to be late: the merge sets no timer, the record fires."""
    op = windowed(EventTimeSessionWindows.with_gap(10), lateness=1000)
    op.add(("k", 1, 0), ("k", 2, 15)).watermark(100)
    op.take()
    op.add(("k", 3, 8))
    assert sorted(value for (_, value), _ in op.take()) == [1, 2, 3]
    # One to clean up the merged window; the trigger has none.
    assert op.timers == 1
    assert op.watermark(2000).take() == []
    assert (op.entries, op.timers) == (0, 0)


# ---- functions


@pytest.mark.parametrize(
    ("make", "results"),
    [
        (lambda found: None, []),
        (lambda found: [], []),
        (lambda found: iter(found), [("k", 1), ("k", 2)]),
        (lambda found: (pair for pair in found), [("k", 1), ("k", 2)]),
        (tuple, [("k", 1), ("k", 2)]),
    ],
    ids=["None", "empty", "iterator", "generator", "tuple"],
)
def test_a_function_gives_any_iterable_or_nothing(make, results):
    op = windowed(TumblingEventTimeWindows.of(5), function=Gives(make))
    op.add(("k", 1, 0), ("k", 2, 1)).watermark(4)
    assert [value for value, _ in op.take()] == results
    assert (op.entries, op.timers) == (0, 0)


@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger.create())])
def test_a_window_whose_function_gave_nothing_is_cleaned_up(trigger):
    silent = Gives(lambda _: None)
    size = TumblingEventTimeWindows.of(2000)
    op = windowed(size, function=silent, trigger=trigger, lateness=1)
    op.add(("k2", 1, 1000)).watermark(1999)
    assert op.timers == 1
    op.watermark(2000)
    assert op.take() == []
    assert (op.entries, op.timers) == (0, 0)


def test_a_window_function_is_opened_and_closed():
    op = windowed(TumblingEventTimeWindows.of(5))
    assert [call[0] for call in CALLS] == ["open"]
    op.close()
    assert [call[0] for call in CALLS] == ["open", "close"]


def test_a_function_sees_records_in_the_order_in_which_they_came():
    op = windowed(TumblingEventTimeWindows.of(100))
    op.add(("k", 3, 30), ("k", 1, 10)).epoch(("k", 2, 20), ("k", 9, 5)).watermark(99)
    assert [value for (_, value), _ in op.results] == [3, 1, 2, 9]


@pytest.mark.parametrize("lateness", [0, 10], ids=["folded", "by record"])
def test_reduced_sessions_are_merged_into_the_one_that_stays(lateness):
    def declare(stream):
        sessions = stream.window(EventTimeSessionWindows.with_gap(10)).allowed_lateness(lateness)
        sessions.reduce(lambda a, b: (a[0], f"{a[1]}{b[1]}"))

    op = Driver(declare)
    op.add(("k", "a", 0), ("k", "b", 15), ("k", "c", 8)).watermark(MAX)
    # What the session holds comes before what is merged into it, and before the new record.
    assert [value for (_, value), _ in op.take()] == ["abc"]


class Unmergeable(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator):
        return list(accumulator)

    def merge(self, acc_a, acc_b):
        msg = "nobody merges"
        raise NotImplementedError(msg)


@pytest.mark.parametrize("size", [TumblingEventTimeWindows.of(5), SlidingEventTimeWindows.of(5, 5)])
def test_an_aggregation_needs_no_merge_where_windows_do_not(size):
    op = Driver(lambda s: s.window(size).aggregate(Unmergeable()))
    op.add(("k", 1, 0), ("k", 2, 1)).watermark(4)
    assert [value for value, _ in op.take()] == [[1, 2]]


def test_an_aggregation_needs_merge_where_windows_merge():
    op = Driver(lambda s: s.window(EventTimeSessionWindows.with_gap(10)).aggregate(Unmergeable()))
    with pytest.raises(WeirError, match="nobody merges"):
        op.add(("k", 1, 0), ("k", 2, 15), ("k", 3, 8)).watermark(MAX)


class Odd(AggregateFunction):
    """The sum, where it is odd; otherwise there is no result."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator if accumulator % 2 else None

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Shows(ProcessWindowFunction):
    def process(self, key, context, elements):
        return elements


@pytest.mark.parametrize("function", [None, Shows()], ids=["alone", "with a function"])
@pytest.mark.parametrize("lateness", [0, 5], ids=["folded", "by record"])
@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(10),
        SlidingEventTimeWindows.of(10, 20),
        EventTimeSessionWindows.with_gap(5),
    ],
    ids=repr,
)
def test_a_window_without_a_result_gives_nothing_and_calls_nobody(assigner, lateness, function):
    def declare(stream):
        stream.window(assigner).allowed_lateness(lateness).aggregate(Odd(), function)

    op = Driver(declare)
    op.add(("j", 1, 0), ("k", 2, 1), ("j", 4, 3)).watermark(100)
    assert [value for value, _ in op.take()] == [5]
    assert (op.entries, op.timers) == (0, 0)


class Keeps(ProcessWindowFunction):
    """Counts firings in the window's own state, and never clears it."""

    def __init__(self):
        self.count = ValueStateDescriptor("count", Types.LONG())

    def process(self, key, context, elements):
        state = context.window_state().get_state(self.count)
        state.update((state.value() or 0) + 1)
        yield state.value()


def test_state_of_a_window_stays_until_the_function_clears_it():
    op = windowed(TumblingEventTimeWindows.of(5), function=Keeps())
    op.add(("k", 1, 0)).watermark(100)
    assert op.take() == [(1, 4)]
    assert (op.entries, op.timers) == (1, 0)


def test_a_function_may_name_its_state_as_a_trigger_does():
    """Flink has one space of names, in which these two would clash."""
    op = windowed(TumblingEventTimeWindows.of(100), function=Keeps(), trigger=CountTrigger.of(2))
    op.add(*[("k", n, n) for n in range(6)])
    assert [value for value, _ in op.take()] == [1, 2, 3]


def test_the_count_windows_of_java_are_the_global_one_with_an_evictor():
    """Java: every `slide` records, with at most the last `size`; so the first are partial."""
    op = reduced(GlobalWindows.create(), CountTrigger.of(1), CountEvictor.of(2))
    op.add(("k", 1, 0), ("k", 3, 1), ("k", 5, 2))
    assert [value for (_, value), _ in op.results] == [1, 4, 8]


@pytest.mark.parametrize(
    ("size", "slide", "sums"), [(2, 0, [4]), (2, 1, [4, 8]), (3, 0, [9]), (2, 2, [4])]
)
def test_the_count_windows_of_pyflink_fire_when_they_are_full(size, slide, sums):
    op = Driver(lambda s: s.count_window(size, slide).reduce(add))
    op.add(("k", 1, 0), ("k", 3, 1), ("k", 5, 2)).watermark(MAX)
    assert [value for (_, value), _ in op.results] == sums


# ---- evictors


@pytest.mark.parametrize(("threshold", "kept"), [(0, []), (1, [5, 5]), (4, [5, 2, 5])])
def test_a_delta_evictor_compares_the_last_record_with_itself_too(threshold, kept):
    op = windowed(
        TumblingEventTimeWindows.of(10),
        evictor=DeltaEvictor.of(threshold, lambda e, last: last[1] - e[1]),
    )
    op.add(*[("k", value, n) for n, value in enumerate((1, 5, 2, 5))]).watermark(9)
    assert [value for (_, value), _ in op.results] == kept


class Looks(Evictor):
    """Tells what it sees; keeps the last record."""

    def evict_before(self, elements, size, window, evictor_context):
        times = (
            evictor_context.get_current_processing_time(),
            evictor_context.get_current_watermark(),
        )
        evictor_context.get_metric_group().counter("evicted").inc(size - 1)
        CALLS.append(("before", [tuple(e) for e in elements], size, window.start, times))
        del elements[:-1]

    def evict_after(self, elements, size, window, evictor_context):
        CALLS.append(("after", [e.value[1] for e in elements], size))


def test_an_evictor_sees_records_with_their_times_before_and_after():
    op = windowed(TumblingEventTimeWindows.of(10), evictor=Looks(), lateness=20)
    op.now(77).add(("k", 1, 3), ("k", 2, 4)).watermark(9)
    found = [call for call in CALLS if call[0] in ("before", "after")]
    assert found == [
        ("before", [(("k", 1), 3), (("k", 2), 4)], 2, 0, (77, 9)),
        ("after", [2], 1),
    ]
    assert [value for (_, value), _ in op.take()] == [2]
    # What was evicted is gone when the window fires again.
    op.add(("k", 3, 5))
    assert CALLS[-2][1] == [(("k", 2), 4), (("k", 3), 5)]
    assert [s.value for s in op.op.metrics.sample(0) if s.name == "evicted"] == [2]


def test_what_an_evictor_raises_names_the_operator():
    class Raises(Looks):
        def evict_before(self, elements, size, window, evictor_context):
            msg = "no"
            raise ValueError(msg)

    op = windowed(TumblingEventTimeWindows.of(10), evictor=Raises())
    with pytest.raises(UserFunctionError, match="TumblingEventTimeWindows"):
        op.add(("k", 1, 3)).watermark(9)
