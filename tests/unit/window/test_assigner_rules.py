"""Assigners row by row: windows, default triggers, spellings of time, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.window.test_windows import Context

from weir.common import Duration, Time, WatermarkStrategy
from weir.common.time import to_ms
from weir.datastream.state import StateTtlConfig
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EndOfStreamTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.errors import UsageError

MIN = -(1 << 63)
OFFSET = r"parameters must satisfy abs\(offset\) < "


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(-1000), f"TumblingEventTimeWindows {OFFSET}size"),
        (lambda: TumblingEventTimeWindows.of(0), f"{OFFSET}size, found size 0"),
        (lambda: TumblingEventTimeWindows.of(10, 10), f"{OFFSET}size.* offset 10"),
        (lambda: TumblingEventTimeWindows.of(10, -10), f"{OFFSET}size.* offset -10"),
        (lambda: TumblingProcessingTimeWindows.of(10, 11), f"TumblingProcessing.* {OFFSET}size"),
        (lambda: SlidingEventTimeWindows.of(-2, 1), f"SlidingEvent.* {OFFSET}slide and size > 0"),
        (lambda: SlidingEventTimeWindows.of(2, -1), f"{OFFSET}slide"),
        (lambda: SlidingEventTimeWindows.of(20, 10, 10), f"{OFFSET}slide"),
        (lambda: SlidingProcessingTimeWindows.of(20, 10, -11), f"SlidingProcess.* {OFFSET}slide"),
        (lambda: SlidingEventTimeWindows.of(10_000_001, 1), "more than 10000000 windows"),
        (lambda: EventTimeSessionWindows.with_gap(0), "EventTimeSessionWindows .* 0 < size"),
        (lambda: ProcessingTimeSessionWindows.with_gap(-1), "ProcessingTimeSess.* 0 < size"),
        (lambda: CountTumblingWindowAssigner.of(0), "CountTumblingWindowAssigner needs a size"),
        (lambda: CountSlidingWindowAssigner.of(2, -1), "CountSlidingWindowAssigner needs a slide"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_the_most_windows_a_record_may_have():
    assert SlidingEventTimeWindows.of(10_000_000, 1).size == 10_000_000


@pytest.mark.parametrize(
    ("assigner", "shown", "trigger", "event_time"),
    [
        (DynamicEventTimeSessionWindows(Gap()), "()", EventTimeTrigger, True),
        (DynamicProcessingTimeSessionWindows(Gap()), "()", ProcessingTimeTrigger, False),
        (GlobalWindows.create_with_end_of_stream_trigger(), "()", EndOfStreamTrigger, False),
        # Emptied when they fire: nothing else would ever do it.
        (CountTumblingWindowAssigner.of(3), "(3)", PurgingTrigger, False),
        (CountSlidingWindowAssigner.of(2, 1), "(2, 1)", PurgingTrigger, False),
    ],
)
def test_further_assigners_say_what_they_are(assigner, shown, trigger, event_time):
    assert repr(assigner) == type(assigner).__name__ + shown
    found = assigner.get_default_trigger(None)
    assert type(found) is trigger
    assert assigner.is_event_time() is event_time
    if trigger is PurgingTrigger:
        assert isinstance(found.nested_trigger, CountTrigger)
        assert repr(found) == f"PurgingTrigger(CountTrigger({assigner.window_size}))"


@pytest.mark.parametrize("timestamp", [MIN, 0, 99_999])
@pytest.mark.parametrize(
    ("assigner", "windows"),
    [
        (TumblingProcessingTimeWindows.of(5), [(10, 15)]),
        (SlidingProcessingTimeWindows.of(5, 2), [(12, 17), (10, 15), (8, 13)]),
        (ProcessingTimeSessionWindows.with_gap(5), [(12, 17)]),
        (ProcessingTimeSessionWindows.with_dynamic_gap(Gap()), [(12, 19)]),
        (DynamicProcessingTimeSessionWindows.with_dynamic_gap(Gap()), [(12, 19)]),
    ],
    ids=repr,
)
def test_windows_by_the_clock_do_not_look_at_timestamps(assigner, windows, timestamp):
    found = assigner.assign_windows(7, timestamp, Context(12))
    assert [(w.start, w.end) for w in found] == windows


def test_the_global_window_is_the_one_of_every_record():
    for timestamp in (MIN, 5):
        found = GlobalWindows.create().assign_windows("any", timestamp, Context())
        assert list(found) == [GlobalWindow.get()]


def test_windows_are_covered_by_the_least_one_that_holds_both():
    assert TimeWindow(0, 5).cover(TimeWindow(3, 9)) == TimeWindow(0, 9)
    assert TimeWindow(3, 9).cover(TimeWindow(0, 5)) == TimeWindow(0, 9)
    assert TimeWindow(0, 9).cover(TimeWindow(3, 5)) == TimeWindow(0, 9)


@pytest.mark.parametrize("extractor", [5, None, Gap])
def test_what_extracts_no_gap_is_refused(extractor):
    with pytest.raises(TypeError, match="needs a SessionWindowTimeGapExtractor"):
        EventTimeSessionWindows.with_dynamic_gap(extractor)


@pytest.mark.parametrize("gap", [0, -1, 2.5, None, "5"])
@pytest.mark.parametrize("kind", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
def test_an_extracted_gap_is_a_whole_number_above_zero(kind, gap):
    with pytest.raises(UsageError, match="Dynamic session time gap must satisfy 0 < gap"):
        kind.with_dynamic_gap(Gap()).assign_windows(gap, 0, Context())


# Everything that takes a length of time, as a function of it; what it becomes in milliseconds.
PLACES = {
    "tumbling": lambda length: TumblingEventTimeWindows.of(length).size,
    "tumbling offset": lambda length: TumblingEventTimeWindows.of(99_999, length).offset,
    "tumbling by the clock": lambda length: TumblingProcessingTimeWindows.of(length).size,
    "sliding": lambda length: SlidingEventTimeWindows.of(length, 1000).size,
    "slide": lambda length: SlidingEventTimeWindows.of(99_999, length).slide,
    "sliding offset": lambda length: SlidingEventTimeWindows.of(99_999, 9_999, length).offset,
    "sliding by the clock": lambda length: SlidingProcessingTimeWindows.of(9, length).slide,
    "gap": lambda length: EventTimeSessionWindows.with_gap(length).session_gap,
    "gap by the clock": lambda length: ProcessingTimeSessionWindows.with_gap(length).session_gap,
    "event interval": lambda length: ContinuousEventTimeTrigger.of(length).interval,
    "interval": lambda length: ContinuousProcessingTimeTrigger.of(length).interval,
    "timeout": lambda length: ProcessingTimeoutTrigger.of(CountTrigger.of(1), length)._timeout,
    "evictor": lambda length: TimeEvictor.of(length)._length,
    "time to live": lambda length: to_ms(StateTtlConfig.new_builder(length).build().get_ttl()),
    "disorder": lambda length: (
        WatermarkStrategy.for_bounded_out_of_orderness(length).out_of_orderness_ms
    ),
    "idleness": lambda length: WatermarkStrategy.no_watermarks().with_idleness(length).idleness_ms,
    "drift": lambda length: (
        (
            WatermarkStrategy.no_watermarks().with_watermark_alignment("g", length).alignment
        ).max_drift_ms
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "length",
    [5000, Time.seconds(5), Duration.of_seconds(5), timedelta(seconds=5)],
    ids=["int", "Time", "Duration", "timedelta"],
)
def test_a_length_of_time_has_every_spelling_everywhere(place, length):
    assert PLACES[place](length) == 5000


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_length_of_time_is_refused_everywhere(place):
    with pytest.raises(UsageError, match="expected a Duration, a Time, a timedelta"):
        PLACES[place]("5 s")
