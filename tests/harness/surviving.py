"""Programs with state of windows, joins, patterns and async calls, of which nothing is late.

So each has one right answer, however its epochs are cut, and whatever happens half-way.
"""

from __future__ import annotations

from functools import cache

from tests.harness.programs import environment, started

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern
from weir.common import Duration, Time, Types
from weir.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CountAggregate,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from weir.datastream.state import StateTtlConfig, ValueStateDescriptor
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
    WindowStagger,
)
from weir.testing.campaign_windows import strategy
from weir.testing.harness import collect

EVENT = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
EVENTS = [(n, "abcde"[n * n % 11 % 5], n * 5 - (0, 7, 3)[n % 3]) for n in range(36)]
HALF = 17


class Numbers(ProcessWindowFunction):
    """The window with its numbers, in order."""

    def process(self, key, context, elements):
        window = context.window()
        bounds = (window.start, window.end) if hasattr(window, "start") else ()
        yield key, *bounds, tuple(sorted(n for n, *_ in elements))


class Counted(ProcessWindowFunction):
    """The how-many-th window of its key this is: state of the user, which expires in an hour."""

    def __init__(self):
        self.seen = ValueStateDescriptor("seen", Types.LONG())
        self.seen.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.own = ValueStateDescriptor("own", Types.LONG())

    def process(self, key, context, elements):
        seen = context.global_state().get_state(self.seen)
        seen.update((seen.value() or 0) + 1)
        own = context.window_state().get_state(self.own)
        own.update((own.value() or 0) + 1)
        yield key, context.window().start, seen.value(), own.value()

    def clear(self, context):
        context.window_state().get_state(self.own).clear()


class WholeOnce(Numbers):
    """The window with its numbers when it is over: what it shows before depends on epochs."""

    def __init__(self):
        self.said = ValueStateDescriptor("said", Types.LONG())

    def process(self, key, context, elements):
        said = context.window_state().get_state(self.said)
        if context.current_watermark() >= context.window().max_timestamp() and not said.value():
            yield from super().process(key, context, elements)
            said.update(1)

    def clear(self, context):
        context.window_state().get_state(self.said).clear()


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[0]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Gap(SessionWindowTimeGapExtractor):
    """Sessions of every third event last longer."""

    def extract(self, element):
        return 30 if element[0] % 3 == 0 else 15


class Parity(Window):
    """Even or odd numbers: a window of the program's own, which is stored pickled."""

    def __init__(self, odd):
        self.odd = odd

    def max_timestamp(self):
        return 100

    def __eq__(self, other):
        return isinstance(other, Parity) and other.odd == self.odd

    def __hash__(self):
        return int(self.odd)


class ByParity(WindowAssigner):
    def assign_windows(self, element, timestamp, context):
        return [Parity(element[0] % 2 == 1)] if timestamp <= 100 else []

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return None

    def is_event_time(self):
        return True


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[0], right[0], ctx.get_timestamp()


class Twice(AsyncFunction):
    async def async_invoke(self, value):
        return [value, (-value[0], *value[1:])]


def added(a, b):
    return a[0] + b[0], a[1], b[2]


def key(event):
    return event[1]


def keyed(stream):
    return stream.key_by(key, Types.STRING())


def pattern(stream):
    soon = Pattern.begin("a").where(lambda e: e[0] % 2 == 0).followed_by("b")
    soon = soon.where(lambda e: e[0] % 3 == 0).within(Duration.of_millis(70))
    return CEP.pattern(keyed(stream), soon).select(lambda m: (m["a"][0][0], m["b"][0][0]))


def joined(stream):
    other = stream.filter(lambda e: e[0] % 2 == 0)
    both = stream.co_group(other).where(key, Types.STRING()).equal_to(key, Types.STRING())
    windowed = both.window(TumblingEventTimeWindows.of(40))
    return windowed.apply(lambda a, b: [(sorted(x[0] for x in a), sorted(x[0] for x in b))])


def joined_in_sessions(stream):
    other = stream.filter(lambda e: e[0] % 2 == 0)
    both = stream.join(other).where(key, Types.STRING()).equal_to(key, Types.STRING())
    return both.window(EventTimeSessionWindows.with_gap(12)).apply(lambda a, b: (a[0], b[0]))


def skipping(stream):
    """Two of three, then a multiple of three: matches that wait for others to end."""
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    found = Pattern.begin("a", skip).where(lambda e: e[0] % 3 != 0).one_or_more().greedy()
    found = found.followed_by("b").where(lambda e: e[0] % 3 == 0).within(Duration.of_millis(90))
    matches = CEP.pattern(keyed(stream), found)
    return matches.select(lambda m: ([e[0] for e in m["a"]], m["b"][0][0]))


SUBJECTS = {
    "tumbling": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).process(Numbers()),
    "sliding": lambda s: keyed(s).window(SlidingEventTimeWindows.of(40, 20)).reduce(added),
    "sessions": lambda s: keyed(s).window(EventTimeSessionWindows.with_gap(22)).process(Numbers()),
    "counted": lambda s: keyed(s).count_window(3).reduce(added),
    "staggered": lambda s: (
        keyed(s).window(TumblingEventTimeWindows.of(30, 0, WindowStagger.RANDOM)).process(Numbers())
    ),
    "evicted": lambda s: (
        keyed(s)
        .window(GlobalWindows.create())
        .trigger(CountTrigger.of(2))
        .evictor(CountEvictor.of(3))
        .process(Numbers())
    ),
    "evicted aggregate": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(30))
        .evictor(CountEvictor.of(2))
        .aggregate(Sum(), accumulator_type=Types.LONG())
    ),
    "purged": lambda s: (
        keyed(s)
        .window(EventTimeSessionWindows.with_gap(22))
        .trigger(PurgingTrigger.of(CountTrigger.of(2)))
        .reduce(added)
    ),
    "dynamic sessions": lambda s: (
        keyed(s).window(EventTimeSessionWindows.with_dynamic_gap(Gap())).process(Numbers())
    ),
    "allowed to be late": lambda s: (
        keyed(s).window(SlidingEventTimeWindows.of(40, 20)).allowed_lateness(35).process(Numbers())
    ),
    "sliding counted": lambda s: keyed(s).count_window(4, 2).process(Numbers()),
    "delta": lambda s: (
        keyed(s)
        .window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(DeltaTrigger.of(40, lambda a, b: b[2] - a[2], EVENT)))
        .process(Numbers())
    ),
    "timeout": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(60))
        .trigger(ProcessingTimeoutTrigger.of(CountTrigger.of(2), Time.hours(1)))
        .process(Numbers())
    ),
    "end of stream": lambda s: (
        keyed(s).window(GlobalWindows.create_with_end_of_stream_trigger()).process(Numbers())
    ),
    "staggered by the clock": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(30, 3, WindowStagger.NATURAL))
        .process(Numbers())
    ),
    "windows behind windows": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(20))
        .reduce(added)
        .uid("first")
        .key_by(key, Types.STRING())
        .window(TumblingEventTimeWindows.of(100))
        .reduce(added)
    ),
    "windows of its own": lambda s: keyed(s).window(ByParity()).process(Numbers()),
    "summed": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).sum(0),
    "greatest": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).max_by(0),
    "least of slices": lambda s: keyed(s).window(SlidingEventTimeWindows.of(40, 20)).min(2),
    "how many": lambda s: (
        keyed(s).window(SlidingEventTimeWindows.of(40, 20)).aggregate(CountAggregate())
    ),
    "step by step": lambda s: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(60))
        .trigger(ContinuousEventTimeTrigger.of(7))
        .process(WholeOnce())
    ),
    "counted in all": lambda s: s.count_window_all(5).reduce(added),
    "all": lambda s: s.window_all(TumblingEventTimeWindows.of(30)).reduce(added),
    "user state": lambda s: keyed(s).window(TumblingEventTimeWindows.of(30)).process(Counted()),
    "co-group": joined,
    "interval join": lambda s: keyed(s).interval_join(keyed(s)).between(-20, 15).process(Pairs()),
    "join in sessions": joined_in_sessions,
    "pattern": pattern,
    "pattern that skips": skipping,
    "async": lambda s: AsyncDataStream.ordered_wait(keyed(s), Twice(), Time.seconds(30)),
}


def program(subject):
    env = environment()
    timed = env.from_collection(EVENTS, EVENT).uid("events")
    found = SUBJECTS[subject](timed.assign_timestamps_and_watermarks(strategy()))
    collect(found.uid("subject"))
    return env


@cache
def undisturbed(subject):
    found = in_order(started(program(subject)).run(7).collected())
    assert len(found) >= 4
    return found


def in_order(records):
    """Return results in an order that does not depend on epochs and subtasks."""
    return sorted(records, key=repr)
