"""Windows and patterns that cannot be meant: a clear message before or at the first record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weir.cep import CEP, Pattern
from weir.common import Duration, Types, WatermarkStrategy
from weir.datastream import (
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from weir.datastream.functions import CountAggregate
from weir.datastream.window import (
    CountEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import UsageError
from weir.notices import _said
from weir.testing.harness import JobHarness, collect

RECORD = Types.TUPLE([Types.STRING(), Types.LONG()])
LAST = 2**63 - 1
Build = Callable[[Any], Any]


class OfRecord(SessionWindowTimeGapExtractor):
    """The gap is the number in the record; joins show a record with its side."""

    def extract(self, element: Any) -> Any:
        record = element[1] if isinstance(element[1], tuple) else element
        return record[1]


class Count(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


class CountApplied(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [(key, len(list(inputs)))]


class CountAll(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        yield len(list(elements))


ASSIGNERS = {
    "tumbling": lambda: TumblingEventTimeWindows.of(5),
    "sliding": lambda: SlidingEventTimeWindows.of(5, 2),
    "session": lambda: EventTimeSessionWindows.with_gap(5),
    "dynamic session": lambda: EventTimeSessionWindows.with_dynamic_gap(OfRecord()),
}


def keyed(stream: Any) -> Any:
    return stream.key_by(lambda record: record[0], Types.STRING())


def joined(stream: Any, assigner: Any) -> Any:
    both = stream.join(stream).where(lambda record: record[0]).equal_to(lambda record: record[0])
    return both.window(assigner)


# All ways to ask for windows: contents as records, as columns, without keys, of two streams.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "process": lambda stream, assigner: keyed(stream).window(assigner).process(Count()),
    "sum": lambda stream, assigner: keyed(stream).window(assigner).sum(1),
    "all": lambda stream, assigner: stream.window_all(assigner).process(CountAll()),
    "join": lambda stream, assigner: joined(stream, assigner).apply(lambda a, b: (a, b)),
}


def run(build: Build, records: list[tuple[str, int]], *, times: Any = 1) -> None:
    """Run a program over records whose timestamps are a field, a function, or not there."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], RECORD)
    if times is not None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(times)
        stream = stream.assign_timestamps_and_watermarks(strategy)
    collect(build(stream))
    job = JobHarness(env.build_graph(), parallelism=1).start()
    job.run_epoch(records)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ASSIGNERS)
def test_a_record_without_a_timestamp_is_refused_by_name(name: str, way: str) -> None:
    expected = r"operator '.*Windows' at record .*'x', 1\).*without a timestamp.*assign_timestamps"
    with pytest.raises(UsageError, match=expected):
        run(lambda stream: WAYS[way](stream, ASSIGNERS[name]()), [("x", 1)], times=None)


@pytest.mark.parametrize("times", [1, lambda record, _: record[1]], ids=["field", "function"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ASSIGNERS)
def test_a_window_that_ends_beyond_64_bits_is_refused(name: str, way: str, times: Any) -> None:
    expected = r"at record .*the window from \d+ to \d+ does not fit 64 bits.*milliseconds"
    with pytest.raises(UsageError, match=expected):
        run(lambda stream: WAYS[way](stream, ASSIGNERS[name]()), [("x", LAST - 1)], times=times)


@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows.of(2**64), EventTimeSessionWindows.with_gap(LAST)],
    ids=repr,
)
def test_a_window_that_is_too_long_is_refused(assigner: Any) -> None:
    with pytest.raises(UsageError, match=r"does not fit 64 bits.*length"):
        run(lambda stream: WAYS["process"](stream, assigner), [("x", 10)])


@pytest.mark.parametrize("purging", [False, True])
@pytest.mark.parametrize("name", ["session", "dynamic session"])
def test_a_trigger_that_cannot_merge_is_refused_for_sessions(name: str, purging: bool) -> None:
    trigger: Any = DeltaTrigger.of(1, lambda a, b: 1, RECORD)
    trigger = PurgingTrigger.of(trigger) if purging else trigger
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([], RECORD)
    assigner = ASSIGNERS[name]()
    for windowed in (
        keyed(stream).window(assigner),
        stream.window_all(assigner),
        joined(stream, assigner),
    ):
        with pytest.raises(TypeError, match=r"does not support merging.*Session.*DeltaTrigger"):
            windowed.trigger(trigger).apply(lambda a, b: None)


def test_a_negative_lateness_is_refused() -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([], RECORD)
    assigner = TumblingEventTimeWindows.of(5)
    for windowed in (
        keyed(stream).window(assigner),
        stream.window_all(assigner),
        joined(stream, assigner),
    ):
        for lateness in (-1, Duration.of_millis(-1)):
            with pytest.raises(UsageError, match="lateness cannot be negative, found -1 millisec"):
                windowed.allowed_lateness(lateness)


@pytest.mark.parametrize("gap", [0, -1])
@pytest.mark.parametrize("kind", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
def test_a_gap_that_is_no_time_is_refused(kind: Any, gap: int) -> None:
    with pytest.raises(UsageError, match=f"{kind.__name__} .*0 < size, found {gap} milliseconds"):
        kind.with_gap(gap)


@pytest.mark.parametrize("gap", [0, -1])
@pytest.mark.parametrize("kind", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
def test_an_extracted_gap_that_is_no_time_is_refused_at_its_record(kind: Any, gap: int) -> None:
    with pytest.raises(UsageError, match=rf"at record \('x', {gap}\).*0 < gap, found {gap}"):
        run(lambda stream: WAYS["process"](stream, kind.with_dynamic_gap(OfRecord())), [("x", gap)])


def test_an_evictor_takes_pre_aggregation_away_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Flink it works, over what the evictor leaves; but windows then hold all records."""
    _said.clear()
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([], RECORD)
    windowed = keyed(stream).window(TumblingEventTimeWindows.of(5)).evictor(CountEvictor.of(1))
    windowed.process(Count())
    windowed.apply(CountApplied())
    assert caplog.text == ""
    for declare in (
        lambda: windowed.sum(1),
        lambda: windowed.reduce(lambda a, b: a),
        lambda: windowed.reduce(lambda a, b: a, Count()),
        lambda: windowed.aggregate(CountAggregate()),
        lambda: windowed.aggregate(CountAggregate(), CountApplied()),
    ):
        _said.clear()
        caplog.clear()
        declare()
        assert "hold all of their records" in caplog.text
        assert "CountEvictor" in caplog.text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (
            lambda: Pattern.begin("a").not_followed_by("b"),
            "NotFollowedBy is not supported without windowTime.*'b'.*within",
        ),
        (lambda: Pattern.begin("a").not_followed_by("b").within(0), "within.*at least one milli"),
        (
            lambda: Pattern.begin("a").followed_by(Pattern.begin("b").not_followed_by("c")),
            "a group must not end with not_followed_by.*'c'",
        ),
    ],
    ids=["not followed by", "within nothing", "group"],
)
def test_a_pattern_without_end_is_refused(pattern: Any, expected: str) -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([], RECORD)
    with pytest.raises(UsageError, match=expected):
        CEP.pattern(keyed(stream), pattern()).select(lambda match: match)
