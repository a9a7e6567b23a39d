"""Side outputs that window functions give by their context, and windows that are staggered."""

from __future__ import annotations

import pytest
from tests.window_driver import MAX, Driver

from weir.common import Time, Types
from weir.datastream import ProcessWindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowStagger,
)
from weir.errors import UserFunctionError

ASIDE = OutputTag("late", Types.LONG())


class Aside(ProcessWindowFunction):
    """Gives the sum to the main output and each value aside; in the end the window's start."""

    def __init__(self, lazily=True, tag=ASIDE):
        self.lazily, self.tag = lazily, tag

    def process(self, key, context, elements):
        return self.given(context, elements) if self.lazily else self.silent(context, elements)

    def given(self, context, elements):
        for _, value in elements:
            context.output(self.tag, value)
        yield sum(value for _, value in elements)

    def silent(self, context, elements):
        for _, value in elements:
            context.output(self.tag, value)

    def clear(self, context):
        if hasattr(context.window(), "start"):
            context.output(self.tag, -context.window().start)


def driver(assigner, function, trigger=None):
    def declared(stream):
        # The tag of late records is what the driver listens to.
        windowed = stream.window(assigner).side_output_late_data(ASIDE)
        if trigger is not None:
            windowed.trigger(trigger)
        windowed.process(function)

    return Driver(declared)


@pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(5)]
)
def test_what_a_function_gives_aside_has_the_last_moment_of_its_window(assigner):
    found = driver(assigner, Aside()).add(("k", 1, 12), ("k", 2, 14)).watermark(100)
    [(total, last)] = found.take()
    assert total == 3
    values = found.take_late()
    assert [value for value, _ in values][:2] == [1, 2]
    assert {stamp for _, stamp in values} == {last}
    # Also what it gives when the window is over.
    assert len(values) == 3


def test_a_function_may_give_nothing_but_asides():
    found = driver(TumblingEventTimeWindows.of(10), Aside(lazily=False)).add(("k", 7, 1))
    found.watermark(9)
    assert found.take() == []
    assert found.take_late() == [(7, 9), (0, 9)]


def test_asides_of_global_windows_have_the_time_of_what_fired_them():
    trigger = PurgingTrigger.of(CountTrigger.of(2))
    found = driver(GlobalWindows.create(), Aside(), trigger).add(("k", 1, 3), ("k", 2, 8))
    assert found.take() == [(3, 8)]
    assert found.take_late() == [(1, 8), (2, 8)]


def test_asides_need_a_tag():
    found = driver(TumblingEventTimeWindows.of(10), Aside(tag="late"))
    with pytest.raises(UserFunctionError, match=r"output\(\) expects an OutputTag, found 'late'"):
        found.add(("k", 1, 1)).watermark(9)


class Bounds(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, len(list(elements))


def staggered(assigner, backend=None):
    return Driver(lambda stream: stream.window(assigner).process(Bounds()), backend)


def test_natural_staggering_begins_a_window_with_the_first_record_of_the_key():
    found = staggered(TumblingEventTimeWindows.of(10, 0, WindowStagger.NATURAL))
    found.now(1234).add(("a", 1, 4), ("a", 1, 13), ("a", 1, 14)).now(1237).add(("b", 1, 7))
    found.watermark(MAX)
    results = sorted(result for result, _ in found.take())
    assert results == [("a", 4, 14, 2), ("a", 14, 24, 1), ("b", 7, 17, 1)]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("stagger", [WindowStagger.NATURAL, WindowStagger.RANDOM])
def test_staggered_windows_stay_what_they_are_when_they_are_restored(stagger, parallelism):
    rows = [(key, 1, time) for key in "abcdef" for time in (2, 13, 28)]
    later = [(key, 1, time) for key in "abcdef" for time in (4, 17, 29)]
    whole = staggered(TumblingEventTimeWindows.of(10, 3, stagger))
    whole.now(57).epoch(*rows).epoch(*later).watermark(MAX)
    parted = staggered(TumblingEventTimeWindows.of(10, 3, stagger))
    parted.now(57).epoch(*rows).restore(parallelism).now(91).epoch(*later).watermark(MAX)
    assert sorted(parted.take()) == sorted(whole.take())


def test_random_staggering_spreads_keys_over_the_size():
    found = staggered(TumblingEventTimeWindows.of(1000, 0, WindowStagger.RANDOM))
    found.epoch(*((f"key{n}", 1, 5000) for n in range(40))).watermark(MAX)
    starts = {start for (_, start, _, _), _ in found.take()}
    assert len(starts) > 20
    assert all(4000 < start <= 5000 for start in starts)


def test_windows_of_processing_time_are_staggered_too():
    found = staggered(TumblingProcessingTimeWindows.of(10, 0, WindowStagger.NATURAL))
    found.now(1003).add(("a", 1, None)).now(1011).add(("a", 1, None)).now(1020)
    assert [result for result, _ in found.take()] == [("a", 1003, 1013, 2)]


def test_aligned_is_what_windows_are_without_staggering():
    plain = TumblingEventTimeWindows.of(Time.seconds(5))
    assert type(TumblingEventTimeWindows.of(5000, 0, WindowStagger.ALIGNED)) is type(plain)
    shifted = TumblingEventTimeWindows.of(5000, 100, WindowStagger.NATURAL)
    assert repr(shifted) == "TumblingEventTimeWindows(5000, 100).NATURAL"
    assert isinstance(shifted.get_default_trigger(None), EventTimeTrigger)
    with pytest.raises(TypeError, match="expected a WindowStagger, found 7"):
        TumblingEventTimeWindows.of(5000, 0, 7)
