"""The workloads with windows as PyFlink DataStream programs; Weir and PyFlink run the same text.

PyFlink's windows have no `sum` and no `max_by`: there a reduction does the same, and a class of the
program counts. The types of accumulators are new objects: PyFlink cannot ship a type that was used
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.contenders.flink_api import (
    PYFLINK,
    AggregateFunction,
    CountAggregate,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    Time,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    record,
)
from benchmarks.workloads.catalogue import AUCTION, GAP_MS, PERSON, SLIDE_MS, TUMBLE_MS
from benchmarks.workloads.windows import end_of

LONG = Types.LONG()
END_OF_TIME = (1 << 63) - 1
Shape = Callable[[Any], Iterable[tuple[Any, ...]]]


def longs(count: int) -> Any:
    """Return the type of a record of so many integers."""
    return Types.ROW([LONG] * count)


def tumbling(size: int = TUMBLE_MS) -> Any:
    """Return windows in event time."""
    return TumblingEventTimeWindows.of(Time.milliseconds(size))


def sum_of(windowed: Any) -> Any:
    """Return the first record of each window with the sum of the second field."""
    if PYFLINK:
        return windowed.reduce(lambda a, b: record(a[0], a[1] + b[1], a[2]))
    return windowed.sum(1)


def dearest(windowed: Any) -> Any:
    """Return the bid with the highest price of each window."""
    if PYFLINK:
        return windowed.reduce(lambda a, b: a if a[2] >= b[2] else b)
    return windowed.max_by(2)


class Spread(ProcessWindowFunction):
    """How many values a window has, and how far they lie apart."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Look at all records of the window."""
        values = [element[1] for element in elements]
        yield record(key, len(values), max(values) - min(values), context.window().end)


class OwnCount(AggregateFunction):
    """Counts records."""

    def create_accumulator(self) -> int:
        """Begin with nothing."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """Count one more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """Return the number."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """Add up two windows that became one."""
        return acc_a + acc_b


Count: Any = OwnCount if PYFLINK else CountAggregate


class Kinds(OwnCount):
    """Whether there was a person, and whether there was an auction."""

    def add(self, value: Any, accumulator: int) -> int:
        """Note the kind of one more."""
        return accumulator | int(value[1])


class WithEnd(ProcessWindowFunction):
    """A count with its key and the end of its window."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Look at the one count."""
        for count in elements:
            yield record(key, count, context.window().end)


class NewUsers(ProcessWindowFunction):
    """Who is new in a window and sells something in it."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Look at the kinds of events."""
        for kinds in elements:
            if kinds == PERSON | AUCTION:
                yield record(key, context.window().end)


class Session(ProcessWindowFunction):
    """A count with its key and its session."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Look at the one count."""
        window = context.window()
        for count in elements:
            yield record(key, count, window.start, window.end)


class Hottest(ProcessWindowFunction):
    """The auctions with the most bids of all that were counted for one window."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        """Compare the counts."""
        found = list(elements)
        most = max(count[1] for count in found)
        yield from (count for count in found if count[1] == most)


class ClockOrEnd(Trigger):
    """Fires by the clock, and at the end of the input, where windows are otherwise dropped."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        """Wait for both."""
        ctx.register_processing_time_timer(window.max_timestamp())
        ctx.register_event_time_timer(END_OF_TIME)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> Any:
        """Fire by the clock."""
        return TriggerResult.FIRE_AND_PURGE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> Any:
        """Fire at the end."""
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window: Any, ctx: Any) -> None:
        """Do nothing: these windows do not merge."""

    def clear(self, window: Any, ctx: Any) -> None:
        """Forget the timers."""
        ctx.delete_processing_time_timer(window.max_timestamp())
        ctx.delete_event_time_timer(END_OF_TIME)


def build(kind: str, keyed: Any, verify: bool) -> Any:
    """Return the stream of results of one kind of work over a keyed stream."""
    if kind == "window-sum":
        return sum_of(keyed.window(tumbling())).uid("work")
    if kind == "window-process":
        return keyed.window(tumbling()).process(Spread(), longs(4)).uid("work")
    if kind == "hot-items":
        return hot_items(keyed)
    if kind == "highest-bid":
        first = dearest(keyed.window(tumbling())).uid("first")
        windows = first.key_by(lambda bid: bid[3] // TUMBLE_MS, LONG).window(tumbling())
        return dearest(windows).uid("work")
    if kind == "new-users":
        windows = keyed.window(tumbling())
        return windows.aggregate(Kinds(), NewUsers(), Types.LONG(), longs(2)).uid("work")
    if kind == "sessions":
        windows = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
        return windows.aggregate(Count(), Session(), Types.LONG(), longs(4)).uid("work")
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.milliseconds(TUMBLE_MS)))
    if verify:
        windows = windows.trigger(ClockOrEnd())
    return windows.aggregate(Count(), WithEnd(), Types.LONG(), longs(3)).uid("work")


def hot_items(keyed: Any) -> Any:
    """Count in sliding windows, then compare the counts of each window.

    A count has the last moment of its window, so those of one window are in one tumbling window of
    the length of the slide.
    """
    size, slide = Time.milliseconds(TUMBLE_MS), Time.milliseconds(SLIDE_MS)
    windows = keyed.window(SlidingEventTimeWindows.of(size, slide))
    counts = windows.aggregate(Count(), WithEnd(), Types.LONG(), longs(3)).uid("first")
    by_window = counts.key_by(lambda count: count[2], LONG).window(tumbling(SLIDE_MS))
    return by_window.process(Hottest(), longs(3)).uid("work")


def with_end(row: Any) -> Iterable[tuple[Any, ...]]:
    """Return a record whose last field is a time, with the end of its window instead."""
    yield *row[:-1], end_of(row[-1])


def each_bid(row: Any) -> Iterable[tuple[Any, ...]]:
    """Return a count as what was counted: how many windows it was in does not matter."""
    return [(row[0],)] * row[1]


# How records of results become the rows that are expected, where they differ.
SHAPES: dict[str, Shape] = {
    "window-sum": with_end,
    "highest-bid": with_end,
    "processing-time": each_bid,
}
