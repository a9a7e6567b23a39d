"""What a trigger, an assigner and a window function may rely on, after Flink's contract tests."""

from __future__ import annotations

import pytest
from tests.window_driver import MAX, Driver

from weir.backend.base import NO_KEY, VOID
from weir.common import Types
from weir.datastream import AggregateFunction, ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from weir.errors import CorruptStateError, UserFunctionError, WeirError
from weir.runtime.window_operator import LATE_COUNTER

CALLS: list[tuple] = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


class Scripted(Trigger):
    """Keeps a count per window, sets a timer at its end plus `ahead`, and answers as told."""

    def __init__(self, on_element=TriggerResult.CONTINUE, on_timer=TriggerResult.CONTINUE, at=None):
        self.answer, self.timer_answer, self.at = on_element, on_timer, at
        self.seen = ReducingStateDescriptor("seen", lambda a, b: a + b, Types.LONG())

    def on_element(self, element, timestamp, window, ctx):
        state = ctx.get_partitioned_state(self.seen)
        state.add(1)
        CALLS.append(("element", window.start, window.end, state.get()))
        ctx.register_event_time_timer(window.max_timestamp() if self.at is None else self.at)
        return self.answer

    def on_event_time(self, time, window, ctx):
        CALLS.append(("event", time, window.start, window.end))
        return self.timer_answer

    def on_processing_time(self, time, window, ctx):
        CALLS.append(("processing", time, window.start, window.end))
        return self.timer_answer

    def can_merge(self):
        return True

    def on_merge(self, window, ctx):
        ctx.merge_partitioned_state(self.seen)
        CALLS.append(
            ("merge", window.start, window.end, ctx.get_partitioned_state(self.seen).get())
        )

    def clear(self, window, ctx):
        CALLS.append(("clear", window.start, window.end))
        ctx.get_partitioned_state(self.seen).clear()


class Fixed(WindowAssigner):
    """Gives every record the same windows."""

    def __init__(self, *windows, event_time=True):
        self.windows, self.event_time = windows, event_time

    def assign_windows(self, element, timestamp, context):
        CALLS.append(("assign", element))
        return [TimeWindow(*w) for w in self.windows]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create() if self.event_time else ProcessingTimeTrigger.create()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return self.event_time


class ByValue(MergingWindowAssigner, Fixed):
    """The record's value is its window; windows that touch merge into what `result` says."""

    def __init__(self, result=None, event_time=True):
        self.result, self.event_time = result, event_time

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(*element[1])]

    def merge_windows(self, windows, callback):
        def merge(members, result):
            callback.merge(members, result if self.result is None else TimeWindow(*self.result))

        TimeWindow.merge_windows(windows, merge)


class Tell(ProcessWindowFunction):
    """Yields the values of a window, and what its context says."""

    def process(self, key, context, elements):
        yield context.window(), [v for _, v in elements], context.current_watermark()

    def clear(self, context):
        CALLS.append(("function clear", context.window().start, context.current_watermark()))
        assert context.current_processing_time() >= 0


def driven(assigner, trigger=None, lateness=0, function=None, tag=None):
    def declare(stream):
        windowed = stream.window(assigner).allowed_lateness(lateness)
        if trigger is not None:
            windowed.trigger(trigger)
        if tag is not None:
            windowed.side_output_late_data(tag)
        windowed.process(function or Tell())

    return Driver(declare)


def of(kind):
    return [call for call in CALLS if call[0] == kind]


TWO = ((0, 2), (2, 4))


def test_a_record_is_assigned_once_and_each_window_sees_its_own_state():
    op = driven(Fixed(*TWO), Scripted())
    op.add(("k", 1, 0), ("k", 2, 0))
    assert len(of("assign")) == 2
    assert of("element") == [
        ("element", 0, 2, 1),
        ("element", 2, 4, 1),
        ("element", 0, 2, 2),
        ("element", 2, 4, 2),
    ]


@pytest.mark.parametrize(
    ("answer", "results", "entries"),
    [
        (TriggerResult.CONTINUE, 0, 4),
        (TriggerResult.FIRE, 2, 4),
        (TriggerResult.FIRE_AND_PURGE, 2, 2),
        (TriggerResult.PURGE, 0, 2),
    ],
)
def test_what_a_trigger_answers_to_a_record(answer, results, entries):
    op = driven(Fixed(*TWO), Scripted(answer), lateness=10)
    op.add(("k", 1, 0))
    assert len(op.take()) == results
    assert (op.entries, op.timers) == (entries, 4)
    assert of("clear") == []


@pytest.mark.parametrize(
    ("answer", "results", "entries"),
    [
        (TriggerResult.CONTINUE, 0, 4),
        (TriggerResult.FIRE, 2, 4),
        (TriggerResult.FIRE_AND_PURGE, 2, 2),
        (TriggerResult.PURGE, 0, 2),
    ],
)
def test_what_a_trigger_answers_to_a_timer(answer, results, entries):
    op = driven(Fixed(*TWO), Scripted(on_timer=answer, at=0), lateness=10)
    op.add(("k", 1, 0)).watermark(0)
    assert len(op.take()) == results
    assert (op.entries, op.timers) == (entries, 2)
    assert len(of("event")) == 2


def test_one_timer_for_the_end_and_the_cleanup_calls_the_trigger_once():
    op = driven(Fixed((0, 2)), Scripted(on_timer=TriggerResult.FIRE))
    op.add(("k", 1, 0))
    assert op.timers == 1
    op.watermark(1)
    assert of("event") == [("event", 1, 0, 2)]
    assert [r[0][1] for r in op.take()] == [[1]]
    assert of("clear") == [("clear", 0, 2)]
    assert of("function clear") == [("function clear", 0, 1)]
    assert (op.entries, op.timers) == (0, 0)


def test_the_trigger_is_asked_at_cleanup_and_may_still_fire():
    op = driven(Fixed((0, 2)), Scripted(on_timer=TriggerResult.FIRE, at=100), lateness=20)
    op.add(("k", 1, 0)).watermark(21)
    assert of("event") == [("event", 21, 0, 2)]
    assert len(op.take()) == 1
    assert (op.entries, op.timers) == (0, 1)


def test_a_timer_of_a_purged_window_asks_the_trigger_and_calls_no_function():
    op = driven(Fixed((0, 2)), Scripted(TriggerResult.PURGE, TriggerResult.FIRE), lateness=5)
    op.add(("k", 1, 0)).watermark(1)
    assert of("event") == [("event", 1, 0, 2)]
    assert op.take() == []


def test_the_function_clears_also_when_the_window_never_fired():
    op = driven(Fixed((0, 2)), Scripted(TriggerResult.PURGE))
    op.add(("k", 1, 0))
    assert of("function clear") == []
    op.watermark(1)
    assert of("function clear") == [("function clear", 0, 1)]


@pytest.mark.parametrize(("watermark", "taken"), [(20, True), (21, False)])
def test_lateness_is_judged_by_window(watermark, taken):
    op = driven(Fixed((0, 2)), Scripted(TriggerResult.FIRE), lateness=20, tag=OutputTag("late"))
    op.watermark(watermark).add(("k", 1, 0))
    assert bool(op.take()) is taken
    assert bool(op.take_late()) is not taken


def test_a_late_record_without_a_tag_is_counted():
    op = driven(Fixed((0, 2)))
    op.watermark(5).add(("k", 1, 0), ("k", 1, 1))
    found = [s.value for s in op.op.metrics.sample(0) if s.name == LATE_COUNTER]
    assert found == [2]


@pytest.mark.parametrize(("time", "late"), [(5, False), (-1, True), (0, True)])
def test_a_record_without_windows_is_late_by_its_own_timestamp(time, late):
    op = driven(Fixed(), tag=OutputTag("late"))
    op.watermark(0).add(("k", 1, time))
    assert op.take_late() == ([(("k", 1), time)] if late else [])


@pytest.mark.parametrize(("time", "late"), [(3, True), (4, False), (8, False)])
@pytest.mark.parametrize("assigner", [Fixed(), SlidingEventTimeWindows.of(2, 10)])
def test_a_record_in_a_gap_between_windows_may_be_late_too(assigner, time, late):
    op = driven(assigner, lateness=5, tag=OutputTag("late"))
    op.watermark(8).add(("k", 1, time))
    assert op.take_late() == ([(("k", 1), time)] if late else [])


def test_a_record_that_one_window_took_is_not_late():
    op = driven(Fixed((0, 2), (10, 12)), tag=OutputTag("late"))
    op.watermark(5).add(("k", 1, 0))
    assert op.take_late() == []


def test_no_cleanup_timer_where_the_window_never_ends():
    op = driven(Fixed((0, MAX - 5)), Scripted(at=3), lateness=20)
    op.add(("k", 1, 0))
    assert op.timers == 1
    everything = driven(GlobalWindows.create())
    everything.add(("k", 1, 0))
    assert (everything.entries, everything.timers) == (1, 0)


def test_processing_time_cleanup_knows_no_lateness():
    op = driven(Fixed((0, MAX - 10), event_time=False), Scripted(at=3), lateness=20)
    op.add(("k", 1, 0))
    assert op.op.processing_timers.next_timestamp() == MAX - 11


def test_processing_time_is_never_late():
    op = driven(Fixed((0, 2), event_time=False), tag=OutputTag("late"))
    op.watermark(100).add(("k", 1, 0))
    op.now(5)
    assert len(op.take()) == 1
    assert op.take_late() == []


def test_timers_of_the_other_time_do_not_end_a_window():
    op = driven(Fixed((0, 2)), Scripted())
    op.add(("k", 1, 0))
    op.op.processing_timers.register(1, "k", op.op.current.group, (0, 2))
    op.now(1)
    assert of("processing") == [("processing", 1, 0, 2)]
    assert of("clear") == []
    assert op.entries == 2


def test_merging_moves_contents_trigger_state_and_timers():
    op = driven(ByValue(), Scripted())
    op.add(("k", (0, 2), 0), ("k", (3, 5), 0))
    assert (op.entries, op.timers) == (5, 2)
    op.add(("k", (1, 4), 0))
    assert of("merge") == [("merge", 0, 5, 2)]
    assert {call[1:] for call in of("clear")} == {(0, 2), (3, 5)}
    # Contents, trigger state, windows in flight; the trigger's own timers of old windows stay.
    assert op.entries == 3
    assert op.op.event_timers.next_timestamp() in (1, 4)
    op.restore().watermark(10)
    assert [call for call in of("event") if call[2:] != (0, 5)] == []
    assert (op.entries, op.timers) == (0, 0)


def test_merged_windows_have_one_timer_to_fire_and_one_to_end():
    op = driven(ByValue(), EventTimeTrigger.create(), lateness=10)
    op.add(("k", (0, 2), 0), ("k", (3, 5), 0))
    assert op.timers == 4
    op.add(("k", (1, 4), 0))
    assert (op.entries, op.timers) == (2, 2)
    assert [t.timestamp for t in op.op.event_timers.pop_due(100)] == [4, 14]


def test_a_timer_of_a_window_that_was_merged_away_is_ignored():
    op = driven(ByValue(), Scripted(on_timer=TriggerResult.FIRE))
    op.add(("k", (0, 2), 0), ("k", (1, 4), 0)).watermark(1)
    assert of("event") == []
    assert op.take() == []


def test_purging_keeps_the_windows_in_flight():
    op = driven(ByValue(), Scripted(TriggerResult.PURGE))
    op.add(("k", (0, 2), 0))
    assert op.entries == 2  # trigger state, windows in flight
    op.add(("k", (1, 4), 0))
    assert of("merge") == [("merge", 0, 4, 1)]


@pytest.mark.parametrize(("end", "passes"), [(22, False), (23, True)])
def test_a_merge_must_not_end_before_the_watermark(end, passes):
    op = driven(ByValue((0, end)), Scripted())
    op.watermark(21).add(("k", (0, 25), 0))
    if passes:
        op.add(("k", (20, 30), 0))
        return
    with pytest.raises(WeirError, match="which is over, as the watermark is at"):
        op.add(("k", (20, 30), 0))


@pytest.mark.parametrize(("end", "passes"), [(20, False), (21, True)])
def test_a_merge_must_not_end_before_the_processing_time(end, passes):
    op = driven(ByValue((0, end), event_time=False), Scripted())
    op.now(19).add(("k", (0, 25), 0))
    if passes:
        op.add(("k", (20, 30), 0))
        assert of("merge") == [("merge", 0, end, 1)]
        return
    with pytest.raises(WeirError, match="which is over, as processing time is at"):
        op.add(("k", (20, 30), 0))


def test_functions_are_told_the_processing_time():
    class Now(ProcessWindowFunction):
        def process(self, key, context, elements):
            yield context.current_processing_time()

        def clear(self, context):
            CALLS.append(("clear at", context.current_processing_time()))

    op = driven(Fixed((0, 2)), Scripted(TriggerResult.FIRE), function=Now())
    op.now(70).add(("k", 1, 0))
    op.now(90).watermark(5)
    assert [value for value, _ in op.take()] == [70]
    assert of("clear at") == [("clear at", 90)]


def test_a_restored_operator_has_the_same_entries_and_timers():
    op = driven(ByValue(), Scripted(at=100), lateness=3)
    op.add(("k", (0, 2), 0), ("k", (3, 5), 0))
    assert (op.entries, op.timers) == (5, 4)
    op.restore()
    # A trigger's state is counted once the trigger has asked for it again.
    op.op.trigger_context.get_partitioned_state(
        ReducingStateDescriptor("seen", lambda a, b: a + b, Types.LONG())
    )
    assert (op.entries, op.timers) == (5, 4)


class KeepsState(ProcessWindowFunction):
    """Counts firings per window and per key, under one name, and clears the former."""

    def __init__(self, clears=True):
        self.count = ValueStateDescriptor("count", Types.LONG())
        self.clears = clears

    def process(self, key, context, elements):
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(self.count)
            state.update((state.value() or 0) + 1)
        yield (
            context.window_state().get_state(self.count).value(),
            context.global_state().get_state(self.count).value(),
        )

    def clear(self, context):
        if self.clears:
            context.window_state().get_state(self.count).clear()


def test_state_of_a_window_and_state_of_its_key_are_apart():
    op = driven(Fixed(*TWO), Scripted(TriggerResult.FIRE), function=KeepsState())
    op.add(("k", 1, 0), ("k", 2, 0), ("j", 3, 0))
    found = sorted(value for value, _ in op.take())
    assert found == [(1, 1), (1, 1), (1, 2), (1, 2), (2, 3), (2, 4)]
    op.watermark(10)
    assert op.entries == 2  # the two keys' own


def test_state_of_the_global_window_is_not_that_of_the_key():
    class CountAll(KeepsState):
        def process(self, key, context, elements):
            context.window_state().get_state(self.count).update(10)
            yield from super().process(key, context, elements)

    class EveryRecord(Scripted):
        def on_element(self, element, timestamp, window, ctx):
            return TriggerResult.FIRE

    op = driven(GlobalWindows.create(), EveryRecord(), function=CountAll())
    op.add(("k", 1, 0), ("k", 2, 0))
    assert [value for value, _ in op.take()] == [(11, 1), (11, 2)]


def test_a_handle_of_window_state_stays_with_its_window():
    class Keeps(ProcessWindowFunction):
        def process(self, key, context, elements):
            state = context.window_state().get_list_state(ListStateDescriptor("l", Types.LONG()))
            state.add(context.window().start)
            CALLS.append(("handle", state))
            yield list(state.get())

    op = driven(Fixed(*TWO), Scripted(TriggerResult.FIRE), function=Keeps())
    op.add(("k", 1, 0))
    assert [value for value, _ in op.take()] == [[0], [2]]
    op.op.current.key = "k"
    first, second = (call[1] for call in of("handle"))
    assert (list(first.get()), list(second.get())) == ([0], [2])


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


def use_value(store, number):
    state = store.get_state(ValueStateDescriptor("s", Types.LONG()))
    state.update((state.value() or 0) + number)
    return state.value()


def use_list(store, number):
    state = store.get_list_state(ListStateDescriptor("s", Types.LONG()))
    state.add(number)
    assert number in state
    return sum(state)


def use_map(store, number):
    state = store.get_map_state(MapStateDescriptor("s", Types.STRING(), Types.LONG()))
    known = "n" in state
    before = state["n"] or 0
    assert known == (before > 0)
    state["n"], state["gone"] = before + number, 0
    del state["gone"]
    assert "gone" not in state
    assert [key for key in state] == list(state) == ["n"]  # noqa: C416 - iterates as programs do
    return state["n"]


def use_reducing(store, number):
    descriptor = ReducingStateDescriptor("s", lambda a, b: a + b, Types.LONG())
    state = store.get_reducing_state(descriptor)
    state.add(number)
    return state.get()


def use_aggregating(store, number):
    state = store.get_aggregating_state(AggregatingStateDescriptor("s", Sum(), Types.LONG()))
    state.add(number)
    return state.get()


@pytest.mark.parametrize("use", [use_value, use_list, use_map, use_reducing, use_aggregating])
def test_state_of_a_window_is_used_as_any_other(use):
    class Uses(ProcessWindowFunction):
        def process(self, key, context, elements):
            stores = context.window_state(), context.global_state()
            yield tuple(use(store, context.window().end) for store in stores)

    op = driven(Fixed(*TWO), Scripted(TriggerResult.FIRE), function=Uses())
    op.add(("k", 1, 0), ("k", 2, 0))
    # The windows end at 2 and 4, and each fires twice.
    assert [value for value, _ in op.results] == [(2, 2), (4, 6), (4, 8), (8, 12)]


def test_what_a_kind_of_state_cannot_do_it_refuses_in_windows_too():
    class Uses(ProcessWindowFunction):
        def process(self, key, context, elements):
            state = context.window_state().get_state(ValueStateDescriptor("s", Types.LONG()))
            for use in (iter, lambda s: s["n"], lambda s: 1 in s):
                with pytest.raises(TypeError):
                    use(state)
            yield bool(state)

    op = driven(Fixed((0, 2)), Scripted(TriggerResult.FIRE), function=Uses())
    op.add(("k", 1, 0))
    assert [value for value, _ in op.take()] == [True]


def test_merging_windows_have_no_state_of_their_own():
    op = driven(EventTimeSessionWindows.with_gap(5), function=KeepsState())
    op.add(("k", 1, 0))
    with pytest.raises(WeirError, match="Per-window state is not allowed"):
        op.watermark(100)


def test_a_record_without_a_timestamp_is_refused_in_event_time():
    for assigner in (TumblingEventTimeWindows.of(5), EventTimeSessionWindows.with_gap(5)):
        op = driven(assigner)
        with pytest.raises(WeirError, match="assign_timestamps_and_watermarks"):
            op.epoch(("k", 1, 5), ("k", 2, None))


def test_results_of_count_and_global_windows_have_the_time_of_what_fired_them():
    def declare(stream):
        stream.count_window(2).sum(1)

    op = Driver(declare)
    op.add(("k", 1, 50), ("k", 2, 70), ("k", 3, None), ("k", 4, None))
    assert op.results == [(("k", 3), 70), (("k", 7), None)]


def test_count_windows_leave_nothing_behind_but_the_count():
    def declare(stream):
        stream.count_window(2).sum(1)

    op = Driver(declare)
    op.add(*[("k", n, 0) for n in range(10)])
    assert len(op.take()) == 5
    assert (op.entries, op.timers) == (1, 0)


def test_there_is_no_current_key_between_epochs():
    for assigner in (TumblingEventTimeWindows.of(5), EventTimeSessionWindows.with_gap(5)):
        op = driven(assigner)
        op.add(("k", 1, 0))
        assert op.op.current.key is NO_KEY
        assert op.op.current.namespace is VOID


def test_what_a_function_raises_names_the_operator():
    class Raises(ProcessWindowFunction):
        def process(self, key, context, elements):
            msg = "no"
            raise ValueError(msg)

    op = driven(TumblingEventTimeWindows.of(5), function=Raises())
    op.add(("k", 1, 0))
    with pytest.raises(UserFunctionError, match="TumblingEventTimeWindows"):
        op.watermark(10)


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: a),
        lambda s: s.window(TumblingEventTimeWindows.of(10)).trigger(Scripted()).reduce(max),
        lambda s: s.window(SlidingEventTimeWindows.of(20, 10)).allowed_lateness(5).reduce(max),
    ],
)
def test_a_timer_without_a_window_is_damaged_state(declare):
    driver = Driver(declare)
    driver.op.event_timers.register(9, "a", next(iter(driver.op.key_groups)), VOID)
    with pytest.raises(CorruptStateError, match="belongs to no window"):
        driver.watermark(9)
