"""What windows without an end give when time is over: operators of event time can take it."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.cep import CEP, Pattern
from weir.common import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import OutputTag, ProcessWindowFunction
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    EndOfStreamTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.graph.runtime_mode import RuntimeMode
from weir.testing.harness import collect

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RECORDS = [("a", 1003), ("b", 1005), ("a", 1012)]
ASIDE = OutputTag("aside", PAIR)


def timed(env, strategy=WatermarkStrategy.for_monotonous_timestamps):
    by_second = strategy().with_timestamp_assigner(lambda value, _: value[1])
    return env.from_collection([], PAIR).assign_timestamps_and_watermarks(by_second)


class Total(ProcessWindowFunction):
    """The sum of a window, also aside."""

    def process(self, key, context, elements):
        found = key, sum(v for _, v in elements)
        context.output(ASIDE, found)
        yield found


class Bounds(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield window.start, window.end, sorted(elements)


def whole(stream, trigger):
    return stream.key_by(lambda v: v[0]).window(GlobalWindows.create()).trigger(trigger)


SUMS = [("a", 2015), ("b", 1005)]


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        # The watermark was at 1011, so 1012 is the first moment that is not late.
        (EndOfStreamTrigger(), [(1000, 1100, SUMS)]),
        # It fires at its next interval, 2000, and behind that at the end.
        (ContinuousEventTimeTrigger.of(2000), [(2000, 2100, sorted([*SUMS, *SUMS]))]),
    ],
    ids=["end", "continuous"],
)
def test_a_window_behind_them_takes_what_the_end_of_time_fires(trigger, expected, aside):
    env = environment()
    totals = whole(timed(env), trigger).process(Total(), PAIR)
    totals = totals.get_side_output(ASIDE) if aside else totals
    behind = totals.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(100)).process(Bounds())
    collect(behind)
    harness = started(env, 2)
    harness.run_epoch(RECORDS)
    assert harness.collected() == []
    harness.finish()
    assert harness.collected() == expected


@pytest.mark.parametrize(
    "assigner",
    [
        EventTimeSessionWindows.with_gap(1),
        SlidingEventTimeWindows.of(2, 1),
        TumblingEventTimeWindows.of(1),
    ],
    ids=repr,
)
def test_it_is_late_for_no_window(assigner):
    env = environment()
    totals = whole(timed(env), EndOfStreamTrigger()).process(Total(), PAIR)
    collect(totals.key_by(lambda v: v[0]).window(assigner).process(Bounds()))
    harness = started(env, 2)
    harness.run_epoch(RECORDS)
    harness.finish()
    found = {pair for _, _, pairs in harness.collected() for pair in pairs}
    assert sorted(found) == SUMS


def test_patterns_and_interval_joins_take_it_too():
    env = environment()
    totals = whole(timed(env), EndOfStreamTrigger()).process(Total(), PAIR).key_by(lambda v: v[0])
    pattern = CEP.pattern(totals, Pattern.begin("any"))
    collect(pattern.select(lambda match: match["any"][0]))
    harness = started(env, 2)
    harness.run_epoch(RECORDS)
    harness.finish()
    assert sorted(harness.collected()) == SUMS


@pytest.mark.parametrize("mode", [RuntimeMode.STREAMING, RuntimeMode.BATCH])
def test_where_event_time_never_began_it_has_the_time_of_the_latest_record(mode):
    env = environment()
    stream = timed(env, WatermarkStrategy.no_watermarks)
    totals = whole(stream, EndOfStreamTrigger()).process(Total(), PAIR)
    collect(totals.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(10)).process(Bounds()))
    harness = started(env, 1, mode=mode)
    harness.run_epoch(RECORDS)
    harness.finish()
    assert harness.collected() == [(1010, 1020, SUMS)]


def test_after_a_restore_it_is_what_the_watermark_says():
    env = environment()
    totals = whole(timed(env), EndOfStreamTrigger()).process(Total(), PAIR).uid("totals")
    behind = totals.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(1))
    collect(behind.process(Bounds()).uid("behind"))
    first = started(env, 2)
    first.run_epoch(RECORDS, checkpoint=True)
    second = first.restart(3)
    second.finish()
    assert second.collected() == [(1012, 1013, SUMS)]
