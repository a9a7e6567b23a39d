"""Windows and assigners: golden values of Flink's tests."""

from __future__ import annotations

import io
import pickle
from datetime import timedelta

import pytest

from weir.common import Duration, Time
from weir.datastream.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.errors import UsageError

MIN, MAX = -(1 << 63), (1 << 63) - 1
STARTS = {
    0: {-8: -14, -7: -7, -6: -7, -1: -7, 1: 0, 6: 0, 7: 7, 8: 7},
    3: {-10: -11, -9: -11, -3: -4, -2: -4, -1: -4, 1: -4, 2: -4, 3: 3, 9: 3, 10: 10},
    -2: {-12: -16, -7: -9, -4: -9, -3: -9, 2: -2, -1: -2, 1: -2, -2: -2, 3: -2, 4: -2, 7: 5}
    | {12: 12},
}


class Context:
    """A clock, and a number that is keyed state."""

    def __init__(self, now=0):
        self.now, self.number = now, None

    def get_current_processing_time(self):
        return self.now

    def get_runtime_context(self):
        return self

    def get_state(self, state_descriptor):
        return self

    def value(self):
        return self.number

    def update(self, value):
        self.number = value


def assigned(assigner, timestamp, element=None):
    return [(w.start, w.end) for w in assigner.assign_windows(element, timestamp, Context())]


@pytest.mark.parametrize(
    ("offset", "timestamp", "start"),
    [(offset, t, s) for offset, table in STARTS.items() for t, s in table.items()],
)
def test_the_start_of_a_window_of_seven(offset, timestamp, start):
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, 7) == start


def test_the_start_of_a_day_in_another_time_zone():
    day, hours = 86_400_000, 3_600_000
    found = TimeWindow.get_window_start_with_offset(1470902048450, -8 * hours, day)
    assert found == 1470844800000


@pytest.mark.parametrize(
    ("offset", "timestamp", "window"),
    [
        (0, 0, (0, 5000)),
        (0, 4999, (0, 5000)),
        (0, 5000, (5000, 10000)),
        (100, 100, (100, 5100)),
        (100, 5099, (100, 5100)),
        (100, 5100, (5100, 10100)),
        (-100, 0, (-100, 4900)),
        (-100, 4899, (-100, 4900)),
        (-100, 4900, (4900, 9900)),
    ],
)
@pytest.mark.parametrize("kind", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
def test_tumbling_windows(kind, offset, timestamp, window):
    assigner = kind.of(Time.milliseconds(5000), Time.milliseconds(offset))
    found = assigner.assign_windows(None, timestamp, Context(timestamp))
    assert [(w.start, w.end) for w in found] == [window]


@pytest.mark.parametrize(
    ("offset", "timestamp", "latest"),
    [
        (0, 0, 0),
        (0, 4999, 4000),
        (0, 5000, 5000),
        (100, 100, 100),
        (100, 5099, 4100),
        (100, 5100, 5100),
        (-100, 0, -100),
        (-100, 4899, 3900),
        (-100, 4900, 4900),
        (500, 100, -500),
        (500, 5499, 4500),
        (500, 5100, 4500),
    ],
)
@pytest.mark.parametrize("kind", [SlidingEventTimeWindows, SlidingProcessingTimeWindows])
def test_sliding_windows_are_given_latest_first(kind, offset, timestamp, latest):
    assigner = kind.of(5000, 1000, offset)
    found = assigner.assign_windows(None, timestamp, Context(timestamp))
    expected = [(s, s + 5000) for s in range(latest, latest - 5000, -1000)]
    assert [(w.start, w.end) for w in found] == expected


def test_a_slide_that_does_not_divide_the_size():
    assert assigned(SlidingEventTimeWindows.of(5, 2), 1) == [(0, 5), (-2, 3)]


def test_a_slide_longer_than_the_size_leaves_gaps():
    assert assigned(SlidingEventTimeWindows.of(2, 5), 3) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows.of(Time.seconds(-1)),
        lambda: TumblingEventTimeWindows.of(Time.seconds(10), Time.seconds(20)),
        lambda: TumblingEventTimeWindows.of(Time.seconds(10), Time.seconds(-11)),
        lambda: TumblingProcessingTimeWindows.of(0),
        lambda: SlidingEventTimeWindows.of(Time.seconds(-2), Time.seconds(1)),
        lambda: SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(-1)),
        lambda: SlidingEventTimeWindows.of(Time.seconds(-20), Time.seconds(10), Time.seconds(-1)),
        lambda: SlidingEventTimeWindows.of(Time.seconds(20), Time.seconds(10), Time.seconds(-11)),
        lambda: SlidingProcessingTimeWindows.of(Time.seconds(20), Time.seconds(10), 11_000),
        lambda: SlidingEventTimeWindows.of(10_000_001, 1),
        lambda: EventTimeSessionWindows.with_gap(0),
        lambda: ProcessingTimeSessionWindows.with_gap(Time.seconds(-1)),
        lambda: CountTumblingWindowAssigner.of(0),
        lambda: CountSlidingWindowAssigner.of(2, 0),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(UsageError):
        make()


def test_a_session_begins_at_its_record():
    sessions = EventTimeSessionWindows.with_gap(Duration.of_seconds(5))
    assert assigned(sessions, 0) == [(0, 5000)]
    assert assigned(sessions, 4999) == [(4999, 9999)]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element


def test_a_record_may_say_how_long_its_session_lasts():
    sessions = EventTimeSessionWindows.with_dynamic_gap(Gap())
    assert isinstance(sessions, DynamicEventTimeSessionWindows)
    assert assigned(sessions, 4999, 4000) == [(4999, 8999)]
    assert assigned(sessions, 5000, 9000) == [(5000, 14000)]
    with pytest.raises(UsageError, match="0 < gap"):
        assigned(sessions, 0, -1)


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(5),
        SlidingEventTimeWindows.of(5, 2),
        EventTimeSessionWindows.with_gap(5),
        DynamicEventTimeSessionWindows(Gap()),
    ],
)
def test_event_time_needs_timestamps(assigner):
    with pytest.raises(UsageError, match="assign_timestamps_and_watermarks"):
        assigner.assign_windows(1, MIN, Context())


@pytest.mark.parametrize(
    ("assigner", "timestamp"),
    [
        (TumblingEventTimeWindows.of(1 << 40), MAX - 5),
        (EventTimeSessionWindows.with_gap(10), MAX - 9),
        (TumblingEventTimeWindows.of(1 << 40, 2), MIN + 1),
    ],
)
def test_a_window_that_does_not_fit_64_bits_is_refused(assigner, timestamp):
    with pytest.raises(UsageError, match="64 bits"):
        assigner.assign_windows(1, timestamp, Context())


@pytest.mark.parametrize(
    ("other", "touches"),
    [((20, 30), True), ((21, 30), False), ((19, 22), True), ((10, 20), True), ((0, 10), True)],
)
def test_windows_that_touch_intersect(other, touches):
    assert TimeWindow(10, 20).intersects(TimeWindow(*other)) is touches


@pytest.mark.parametrize(
    ("windows", "groups"),
    [
        ([(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)], {(0, 3): 3, (4, 6): 2}),
        ([(1, 1), (0, 2), (4, 7), (5, 6)], {(0, 2): 2, (4, 7): 2}),
        ([(0, 1)], {}),
        ([(0, 3000), (3000, 6000)], {(0, 6000): 2}),
        ([(0, 3000), (3001, 6001)], {}),
    ],
)
def test_merging_windows(windows, groups):
    found = {}
    TimeWindow.merge_windows(
        [TimeWindow(*w) for w in windows],
        lambda members, result: found.update({(result.start, result.end): len(list(members))}),
    )
    assert found == groups


def test_windows_are_ordered_by_start_then_end():
    base = TimeWindow(100, 200)
    assert base <= TimeWindow(100, 200)
    for lesser, greater in [
        (base, TimeWindow(150, 250)),
        (TimeWindow(50, 150), base),
        (TimeWindow(100, 180), base),
    ]:
        assert lesser <= greater
        assert not greater <= lesser
        assert lesser < greater


def test_windows_are_values():
    for window in (TimeWindow(0, 5), CountWindow(3), GlobalWindow.get()):
        again = pickle.loads(pickle.dumps(window))
        assert again == window
        assert len({again, window}) == 1
    assert repr(TimeWindow(0, 5)) == "TimeWindow(start=0, end=5)"
    assert repr(CountWindow(3)) == "CountWindow(id=3)"
    assert repr(GlobalWindow.get()) == "GlobalWindow"
    assert TimeWindow(0, 5).max_timestamp() == 4
    assert CountWindow(3).max_timestamp() == GlobalWindow.get().max_timestamp() == MAX


@pytest.mark.parametrize(
    ("serializer", "window", "size"),
    [
        (TimeWindowSerializer(), TimeWindow(-7, 1 << 40), 16),
        (CountWindowSerializer(), CountWindow(5), 8),
        (GlobalWindowSerializer(), GlobalWindow.get(), 1),
    ],
)
def test_windows_have_bytes(serializer, window, size):
    stream = io.BytesIO()
    serializer.serialize(window, stream)
    assert stream.tell() == size
    stream.seek(0)
    assert serializer.deserialize(stream) == window


@pytest.mark.parametrize(
    ("assigner", "ids"),
    [
        (CountTumblingWindowAssigner.of(3), [[0], [0], [0], [1], [1]]),
        (CountSlidingWindowAssigner.of(2, 1), [[0], [1, 0], [2, 1], [3, 2], [4, 3]]),
        (CountSlidingWindowAssigner.of(3, 2), [[0], [0], [1, 0], [1], [2, 1]]),
        (CountSlidingWindowAssigner.of(1, 2), [[0], [], [1], [], [2]]),
    ],
)
def test_count_windows_by_the_number_of_a_record(assigner, ids):
    context = Context()
    found = [[w.id for w in assigner.assign_windows(None, 0, context)] for _ in ids]
    assert found == ids


@pytest.mark.parametrize(
    ("assigner", "shown", "trigger", "event_time"),
    [
        (TumblingEventTimeWindows.of(5000), "(5000, 0)", EventTimeTrigger, True),
        (TumblingProcessingTimeWindows.of(5000), "(5000, 0)", ProcessingTimeTrigger, False),
        (SlidingEventTimeWindows.of(5000, 2000), "(5000, 2000, 0)", EventTimeTrigger, True),
        (SlidingProcessingTimeWindows.of(5, 2), "(5, 2, 0)", ProcessingTimeTrigger, False),
        (EventTimeSessionWindows.with_gap(5000), "(5000)", EventTimeTrigger, True),
        (ProcessingTimeSessionWindows.with_gap(5), "(5)", ProcessingTimeTrigger, False),
        (GlobalWindows.create(), "()", NeverTrigger, False),
    ],
)
def test_assigners_say_what_they_are(assigner, shown, trigger, event_time):
    assert repr(assigner) == type(assigner).__name__ + shown
    assert type(assigner.get_default_trigger(None)) is trigger
    assert assigner.is_event_time() is event_time


def test_lengths_of_time_are_given_in_any_form():
    for size in (5000, Time.seconds(5), Duration.of_seconds(5), timedelta(seconds=5)):
        assert repr(TumblingEventTimeWindows.of(size)) == "TumblingEventTimeWindows(5000, 0)"
