"""What each trigger decides, sets and keeps: the rules and golden values of Flink's tests.

A trigger is called as a window operator calls it, with the state and the timers of a real one, but
one call at a time and without contents.
"""

from __future__ import annotations

import pytest
from tests.window_driver import MAX, MIN, Driver

from weir.common import Types
from weir.datastream import AggregateFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from weir.errors import UsageError

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
PURGE, FIRE_AND_PURGE = TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE
FIRST, SECOND, BOTH = TimeWindow(0, 2), TimeWindow(2, 4), TimeWindow(0, 4)
HOUR = 3_600_000


class Called:
    """A trigger of one key, called by hand; `states` and `timers` are how many it has left."""

    def __init__(self, trigger):
        driver = Driver(lambda s: s.window(TumblingEventTimeWindows.of(2)).reduce(lambda a, b: a))
        self.trigger, self.op, self.clock = trigger, driver.op, driver.clock
        self.op.current.key, self.op.current.group = "k", 0

    def at(self, window):
        """Point the context at a window."""
        context, space = self.op.trigger_context, self.op.spaces.of(window)
        context.namespace = self.op.current.namespace = space
        return context

    def element(self, window, value=1, timestamp=MIN):
        return self.trigger.on_element(value, timestamp, window, self.at(window))

    def watermark(self, time):
        """Let event time come so far; return what timers that are due then bring, by window."""
        self.op.watermark = time
        return self._due(self.op.event_timers, time, self.trigger.on_event_time)

    def now(self, time):
        self.clock.set(time)
        return self._due(self.op.processing_timers, time, self.trigger.on_processing_time)

    def _due(self, timers, time, decide):
        found = [(t.timestamp, self.op.spaces.window(t.namespace)) for t in timers.pop_due(time)]
        return [(window, decide(at, window, self.at(window))) for at, window in found]

    def merge(self, result, *members):
        """Merge windows as the operator does."""
        context = self.at(result)
        context.merged = [self.op.spaces.of(member) for member in members]
        self.trigger.on_merge(result, context)
        context.merged = ()

    def clear(self, window):
        self.trigger.clear(window, self.at(window))

    @property
    def states(self):
        return self.op.backend.size()

    @property
    def timers(self):
        return len(self.op.event_timers) + len(self.op.processing_timers)


def added(called):
    """Add three records to one window and two to the next one."""
    return [called.element(w) for w in (FIRST, FIRST, FIRST, SECOND, SECOND)]


def test_event_time_sets_one_timer_for_each_window():
    called = Called(EventTimeTrigger.create())
    assert added(called) == [CONTINUE] * 5
    assert (called.states, called.timers) == (0, 2)
    assert called.watermark(2) == [(FIRST, FIRE)]
    assert called.timers == 1
    assert called.watermark(4) == [(SECOND, FIRE)]
    assert (called.states, called.timers) == (0, 0)


def test_event_time_fires_late_records_at_once_without_a_timer():
    called = Called(EventTimeTrigger.create())
    called.watermark(2)
    assert called.element(FIRST) is FIRE
    assert called.timers == 0


def test_event_time_fires_at_the_end_of_its_window_only():
    trigger = EventTimeTrigger.create()
    assert trigger.on_event_time(0, FIRST, None) is CONTINUE
    assert trigger.on_event_time(1, FIRST, None) is FIRE
    assert trigger.on_processing_time(1, FIRST, None) is CONTINUE


def test_event_time_clears_the_timer_of_one_window():
    called = Called(EventTimeTrigger.create())
    added(called)
    called.clear(SECOND)
    assert called.watermark(10) == [(FIRST, FIRE)]


@pytest.mark.parametrize(("reached", "timers"), [(MIN, 1), (2, 1), (3, 0), (10, 0)])
def test_merged_event_time_windows_get_a_timer_unless_they_are_over(reached, timers):
    called = Called(EventTimeTrigger.create())
    called.watermark(reached)
    called.merge(BOTH, FIRST, SECOND)
    assert called.timers == timers


def test_processing_time_sets_a_timer_and_fires_at_any():
    called = Called(ProcessingTimeTrigger.create())
    assert added(called) == [CONTINUE] * 5
    assert (called.states, called.timers) == (0, 2)
    assert called.trigger.on_processing_time(17, FIRST, None) is FIRE
    assert called.trigger.on_event_time(1, FIRST, None) is CONTINUE
    called.clear(SECOND)
    assert called.now(10) == [(FIRST, FIRE)]


@pytest.mark.parametrize(("now", "timers"), [(0, 1), (2, 1), (3, 0)])
def test_merged_processing_time_windows_get_a_timer_unless_they_are_over(now, timers):
    called = Called(ProcessingTimeTrigger.create())
    called.clock.set(now)
    called.merge(BOTH, FIRST, SECOND)
    assert called.timers == timers


def test_counts_are_those_of_the_window():
    called = Called(CountTrigger.of(3))
    assert [called.element(FIRST), called.element(SECOND), called.element(FIRST)] == [CONTINUE] * 3
    assert called.states == 2
    assert called.element(FIRST) is FIRE
    # The count begins anew.
    assert called.states == 1
    assert called.element(FIRST) is CONTINUE
    called.clear(FIRST)
    called.clear(SECOND)
    assert (called.states, called.timers) == (0, 0)


def test_merged_counts_fire_with_the_next_record():
    called = Called(CountTrigger.of(3))
    called.element(FIRST)
    called.element(SECOND)
    called.merge(BOTH, FIRST, SECOND)
    assert called.states == 1
    assert called.element(BOTH) is FIRE
    assert called.states == 0


def test_time_means_nothing_to_a_count():
    trigger = CountTrigger.of(1)
    assert trigger.on_event_time(1, FIRST, None) is trigger.on_processing_time(1, FIRST, None)
    assert trigger.on_event_time(1, FIRST, None) is CONTINUE


def test_continuous_event_time_has_a_time_and_two_timers_for_each_window():
    """Records without a timestamp, as in Flink's test: the next time is far in the past."""
    called = Called(ContinuousEventTimeTrigger.of(HOUR))
    assert added(called) == [CONTINUE] * 5
    assert (called.states, called.timers) == (2, 4)
    assert (FIRST, FIRE) in called.watermark(2)
    assert (called.states, called.timers) == (2, 3)


def test_continuous_event_time_fires_late_records_and_other_timers_do_nothing():
    called = Called(ContinuousEventTimeTrigger.of(5))
    called.watermark(10)
    assert called.element(FIRST) is FIRE
    assert (called.states, called.timers) == (0, 0)
    assert called.trigger.on_event_time(20, FIRST, called.at(FIRST)) is CONTINUE


def test_continuous_event_time_leaves_the_timer_at_the_end_when_it_is_cleared():
    called = Called(ContinuousEventTimeTrigger.of(HOUR))
    added(called)
    called.clear(SECOND)
    assert (called.states, called.timers) == (1, 3)
    called.clear(FIRST)
    assert (called.states, called.timers) == (0, 2)


def test_merged_continuous_event_time_goes_on_with_the_earliest_time():
    called = Called(ContinuousEventTimeTrigger.of(HOUR))
    called.element(FIRST)
    called.element(SECOND)
    called.merge(BOTH, FIRST, SECOND)
    # Timers of the merged windows stay: they are ignored when they are due.
    assert (called.states, called.timers) == (1, 5)
    assert (BOTH, FIRE) in called.watermark(4)


@pytest.mark.parametrize(
    ("timestamp", "window", "next_time"),
    [
        (0, (0, 100), 10),
        (9, (0, 100), 10),
        (10, (0, 100), 20),
        (95, (0, 100), 99),
        # Floored, as in Python: Java's remainder would give 10.
        (-7, (-100, 100), 0),
    ],
)
def test_continuous_event_time_fires_at_multiples_and_no_later_than_the_end(
    timestamp, window, next_time
):
    called = Called(ContinuousEventTimeTrigger.of(10))
    called.element(TimeWindow(*window), timestamp=timestamp)
    assert called.op.event_timers.next_timestamp() == next_time
    assert called.watermark(next_time) == [(TimeWindow(*window), FIRE)]
    if next_time < window[1] - 1:
        following = min(next_time + 10, window[1] - 1)
        assert called.op.event_timers.next_timestamp() == following


def test_continuous_event_time_of_negative_timestamps_follows_pyflink():
    called = Called(ContinuousEventTimeTrigger.of(2000))
    called.element(TimeWindow(-3000, 9000), timestamp=-1500)
    assert called.op.event_timers.next_timestamp() == 0


def test_continuous_processing_time_also_fires_at_the_end():
    called = Called(ContinuousProcessingTimeTrigger.of(5))
    window = TimeWindow(0, 10)
    called.clock.set(2)
    assert called.element(window) is CONTINUE
    assert (called.states, called.timers) == (1, 1)
    assert called.now(5) == [(window, FIRE)]
    assert called.now(9) == [(window, FIRE)]
    assert called.trigger.on_processing_time(7, window, called.at(window)) is CONTINUE
    called.clear(window)
    assert (called.states, called.timers) == (0, 0)


def test_merged_continuous_processing_time_goes_on_with_the_earliest_time():
    called = Called(ContinuousProcessingTimeTrigger.of(5))
    early, late = TimeWindow(0, 10), TimeWindow(8, 18)
    called.element(early)
    called.now(7)
    called.element(late)
    called.merge(TimeWindow(0, 18), early, late)
    assert called.states == 1
    assert called.op.processing_timers.next_timestamp() == 9
    assert (TimeWindow(0, 18), FIRE) in called.now(9)


class Answering(Trigger):
    """Gives the same answer to everything, and says who asked."""

    def __init__(self, answer, *, merges=True):
        self.answer, self.merges, self.asked = answer, merges, []

    def _say(self, what):
        self.asked.append(what)
        return self.answer

    def on_element(self, element, timestamp, window, ctx):
        return self._say("element")

    def on_processing_time(self, time, window, ctx):
        return self._say("processing")

    def on_event_time(self, time, window, ctx):
        return self._say("event")

    def can_merge(self):
        return self.merges

    def on_merge(self, window, ctx):
        self._say("merge")

    def clear(self, window, ctx):
        self._say("clear")


@pytest.mark.parametrize(
    ("answer", "purging"),
    [
        (CONTINUE, CONTINUE),
        (FIRE, FIRE_AND_PURGE),
        (PURGE, PURGE),
        (FIRE_AND_PURGE, FIRE_AND_PURGE),
    ],
)
def test_purging_turns_every_firing_into_one_that_purges(answer, purging):
    nested = Answering(answer)
    trigger = PurgingTrigger.of(nested)
    assert trigger.on_element(1, 0, FIRST, None) is purging
    assert trigger.on_event_time(0, FIRST, None) is purging
    assert trigger.on_processing_time(0, FIRST, None) is purging
    trigger.on_merge(FIRST, None)
    trigger.clear(FIRST, None)
    assert nested.asked == ["element", "event", "processing", "merge", "clear"]


def test_never_never_does_anything():
    trigger = NeverTrigger()
    assert trigger.on_element(1, 0, FIRST, None) is CONTINUE
    assert trigger.on_event_time(MAX, FIRST, None) is CONTINUE
    assert trigger.on_processing_time(MAX, FIRST, None) is CONTINUE


def test_a_delta_compares_with_the_record_that_fired_last():
    called = Called(DeltaTrigger.of(3, lambda last, new: new - last, Types.LONG()))
    answers = [called.element(FIRST, value) for value in (1, 4, 5, 8, 9)]
    # 4 is exactly the threshold away from 1, and 8 from 5.
    assert answers == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]
    assert called.element(SECOND, 100) is CONTINUE
    assert called.states == 2
    called.clear(FIRST)
    assert called.states == 1


def test_the_end_of_the_stream_is_the_end_of_time():
    called = Called(EndOfStreamTrigger())
    called.element(FIRST)
    called.element(FIRST)
    assert called.timers == 1
    assert called.watermark(MAX - 1) == []
    assert called.trigger.on_event_time(MAX - 1, FIRST, None) is CONTINUE
    assert called.watermark(MAX) == [(FIRST, FIRE)]


def test_a_timeout_fires_once_and_leaves_nothing():
    called = Called(ProcessingTimeoutTrigger.of(CountTrigger.of(3), 50))
    assert [called.element(FIRST), called.element(FIRST)] == [CONTINUE, CONTINUE]
    assert (called.states, called.timers) == (2, 1)
    assert called.now(50) == [(FIRST, FIRE)]
    assert (called.states, called.timers) == (0, 0)


def test_a_timeout_whose_other_trigger_fires_clears_both():
    called = Called(ProcessingTimeoutTrigger.of(CountTrigger.of(2), 50))
    called.element(FIRST)
    assert called.element(FIRST) is FIRE
    assert (called.states, called.timers) == (0, 0)


@pytest.mark.parametrize(("reset", "at"), [(False, 50), (True, 60)])
def test_a_timeout_counts_from_the_first_record_or_from_the_last(reset, at):
    called = Called(ProcessingTimeoutTrigger.of(CountTrigger.of(3), 50, reset))
    called.element(FIRST)
    called.now(10)
    called.element(FIRST)
    assert called.timers == 1
    assert called.op.processing_timers.next_timestamp() == at


def test_a_timeout_may_keep_what_it_has():
    trigger = ProcessingTimeoutTrigger.of(CountTrigger.of(3), 50, should_clear_on_timeout=False)
    called = Called(trigger)
    called.element(FIRST)
    assert called.now(50) == [(FIRST, FIRE)]
    assert called.states == 2


@pytest.mark.parametrize(
    ("nested", "answer"), [(CONTINUE, FIRE), (FIRE, FIRE), (PURGE, FIRE_AND_PURGE)]
)
def test_a_timeout_purges_if_the_other_trigger_does(nested, answer):
    called = Called(ProcessingTimeoutTrigger.of(Answering(nested), 50))
    assert called.trigger.on_processing_time(50, FIRST, called.at(FIRST)) is answer
    assert called.trigger.on_event_time(50, FIRST, called.at(FIRST)) is answer


@pytest.mark.parametrize(
    ("trigger", "merges"),
    [
        (EventTimeTrigger.create(), True),
        (ProcessingTimeTrigger.create(), True),
        (CountTrigger.of(1), True),
        (ContinuousEventTimeTrigger.of(1), True),
        (ContinuousProcessingTimeTrigger.of(1), True),
        (PurgingTrigger.of(CountTrigger.of(1)), True),
        (PurgingTrigger.of(EndOfStreamTrigger()), False),
        (NeverTrigger(), True),
        (DeltaTrigger.of(1, lambda a, b: 0), False),
        (ProcessingTimeoutTrigger.of(CountTrigger.of(1), 1), False),
        (EndOfStreamTrigger(), False),
    ],
    ids=repr,
)
def test_triggers_say_whether_they_can_merge(trigger, merges):
    assert trigger.can_merge() is merges


def test_a_trigger_cannot_merge_unless_it_says_so():
    class Silent(Answering):
        can_merge = Trigger.can_merge

    assert not Silent(CONTINUE).can_merge()
    names = {"on_element", "on_processing_time", "on_event_time", "on_merge", "clear"}
    assert Trigger.__abstractmethods__ == names


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return -accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


VALUE = ValueStateDescriptor("value", Types.LONG())
LIST = ListStateDescriptor("list", Types.LONG())
MAP = MapStateDescriptor("map", Types.LONG(), Types.LONG())
REDUCED = ReducingStateDescriptor("reduced", lambda a, b: a + b, Types.LONG())
AGGREGATED = AggregatingStateDescriptor("aggregated", Total(), Types.LONG())


def test_a_trigger_has_all_kinds_of_state_each_of_its_window():
    called = Called(NeverTrigger())
    for number, window in enumerate((FIRST, SECOND), 1):
        state = called.at(window).get_partitioned_state
        state(VALUE).update(number)
        state(LIST).add(number)
        state(MAP).put(number, number)
        for descriptor in (REDUCED, AGGREGATED):
            state(descriptor).add(number)
    state = called.at(FIRST).get_partitioned_state
    assert state(VALUE).value() == state(REDUCED).get() == 1
    assert (list(state(LIST).get()), dict(state(MAP).items())) == ([1], {1: 1})
    assert state(AGGREGATED).get() == -1
    assert called.states == 10


@pytest.mark.parametrize(
    ("descriptor", "read", "merged"),
    [
        (LIST, lambda state: list(state.get()), [1, 2]),
        (REDUCED, lambda state: state.get(), 3),
        (AGGREGATED, lambda state: state.get(), -3),
    ],
)
def test_state_that_folds_is_merged(descriptor, read, merged):
    called = Called(NeverTrigger())
    for number, window in enumerate((FIRST, SECOND), 1):
        called.at(window).get_partitioned_state(descriptor).add(number)
    context = called.at(BOTH)
    context.merged = [called.op.spaces.of(FIRST), called.op.spaces.of(SECOND)]
    context.merge_partitioned_state(descriptor)
    assert read(context.get_partitioned_state(descriptor)) == merged
    assert called.states == 1


@pytest.mark.parametrize("descriptor", [VALUE, MAP])
def test_state_that_does_not_fold_cannot_be_merged(descriptor):
    called = Called(NeverTrigger())
    with pytest.raises(UsageError, match=r"does not refer to a mergeable state \(MergingState\)"):
        called.at(FIRST).merge_partitioned_state(descriptor)


def test_the_context_of_a_trigger_tells_times_and_metrics():
    called = Called(NeverTrigger())
    called.clock.set(77)
    called.watermark(66)
    context = called.at(FIRST)
    assert context.get_current_processing_time() == 77
    assert context.get_current_watermark() == 66
    context.get_metric_group().counter("fired").inc()
    assert [s.value for s in called.op.metrics.sample(0) if s.name == "fired"] == [1]
