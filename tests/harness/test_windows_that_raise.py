"""What functions of windows, joins, patterns and watermarks raise fails the attempt by name.

Above all `StopIteration`, which Python takes for the end of an iteration. What comes afterwards is
what a run without the exception gives: no record is lost.
"""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started
from tests.harness.test_functions_that_raise import BAD, ERRORS, Trap, trip

from weir.cep import CEP, Pattern, PatternFlatSelectFunction, PatternProcessFunction
from weir.common import Duration, Types
from weir.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from weir.datastream import (
    AggregateFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from weir.datastream.window import (
    EventTimeSessionWindows,
    Evictor,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from weir.errors import UserFunctionError
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix

VALUES = [1, 2, 3, 4, 5, 6]
STRATEGY = WatermarkStrategy.for_monotonous_timestamps()
TIMES = STRATEGY.with_timestamp_assigner(lambda value, _: value)


def timed(env):
    return env.from_collection(VALUES, Types.LONG()).assign_timestamps_and_watermarks(TIMES)


def keyed(env):
    return timed(env).key_by(lambda value: 0, Types.LONG())


def tumbling(env):
    return keyed(env).window(TumblingEventTimeWindows.of(2))


class Adding(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + trip(value2)


class Aggregated(AggregateFunction):
    """Trips in one of its methods."""

    def __init__(self, method):
        self.method = method

    def _reach(self, method, value=BAD):
        if method == self.method:
            trip(value)

    def create_accumulator(self):
        self._reach("create_accumulator")
        return 0

    def add(self, value, accumulator):
        self._reach("add", value)
        return accumulator + value

    def get_result(self, accumulator):
        self._reach("get_result")
        return accumulator

    def merge(self, a, b):
        self._reach("merge")
        return a + b


class Applied(WindowFunction):
    def apply(self, key, window, inputs):
        return [trip(value) for value in inputs]


class AppliedLazily(WindowFunction):
    def apply(self, key, window, inputs):
        return (trip(value) for value in inputs)


class AppliedByMap(WindowFunction):
    def apply(self, key, window, inputs):
        return map(trip, inputs)


class Processed(ProcessWindowFunction):
    def process(self, key, context, elements):
        for value in elements:
            yield trip(value)


class Cleared(ProcessWindowFunction):
    def process(self, key, context, elements):
        return list(elements)

    def clear(self, context):
        trip()


class AllProcessed(ProcessAllWindowFunction):
    def process(self, context, elements):
        return [trip(value) for value in elements]


class Triggered(Trigger):
    """Fires at the end of its window; trips in one of its methods."""

    def __init__(self, method):
        self.method = method

    def _reach(self, method):
        if method == self.method:
            trip()
        return TriggerResult.CONTINUE

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())
        return self._reach("on_element")

    def on_event_time(self, time, window, ctx):
        self._reach("on_event_time")
        return TriggerResult.FIRE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        self._reach("on_merge")

    def can_merge(self):
        return True

    def clear(self, window, ctx):
        self._reach("clear")


class Evicted(Evictor):
    def evict_before(self, elements, size, window, evictor_context):
        trip()

    def evict_after(self, elements, size, window, evictor_context):
        pass


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return trip(element)


class Assigning(TumblingEventTimeWindows):
    def assign_windows(self, element, timestamp, context):
        trip(element)
        return super().assign_windows(element, timestamp, context)


class Summed:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Summed(self.value + trip(other.value))


class Paired(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield trip(left)


class Joined(JoinFunction):
    def join(self, first, second):
        return trip(first)


class FlatJoined(FlatJoinFunction):
    def join(self, first, second):
        return (trip(value) for value in [first])


class Grouped(CoGroupFunction):
    def co_group(self, first, second):
        return map(trip, first)


class Selected(PatternFlatSelectFunction):
    def flat_select(self, pattern):
        return map(trip, pattern["a"])


class Matched(PatternProcessFunction):
    def process_match(self, match, ctx):
        yield trip(match["a"][0])


class Generated(WatermarkGenerator):
    """Trips in one of its methods."""

    def __init__(self, method):
        self.method = method

    def on_event(self, event, event_timestamp, output):
        if self.method == "on_event":
            trip(event)

    def on_periodic_emit(self, output):
        if self.method == "on_periodic_emit":
            trip()


def joined(env):
    both = timed(env).join(timed(env)).where(lambda v: 0).equal_to(lambda v: 0)
    return both.window(TumblingEventTimeWindows.of(1))


def co_grouped(env):
    both = timed(env).co_group(timed(env)).where(lambda v: 0).equal_to(lambda v: 0)
    return both.window(TumblingEventTimeWindows.of(1))


def pattern(env):
    return CEP.pattern(keyed(env), Pattern.begin("a").where(lambda value: value > 0))


def generating(method):
    strategy = WatermarkStrategy.for_generator(lambda ctx: Generated(method))
    return strategy.with_timestamp_assigner(lambda value, _: value)


def sessions(env):
    return keyed(env).window(EventTimeSessionWindows.with_gap(2))


def bridged(env):
    """Two sessions, and a record between them that makes them one."""
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10))
    times = times.with_timestamp_assigner(lambda value, _: value)
    stream = env.from_collection([1, 5, 3], Types.LONG()).assign_timestamps_and_watermarks(times)
    return stream.key_by(lambda value: 0).window(EventTimeSessionWindows.with_gap(3))


STREAMS = {
    "reduce": lambda env: tumbling(env).reduce(Adding()),
    "reduce by a function": lambda env: tumbling(env).reduce(lambda a, b: a + trip(b)),
    "reduce in slices": lambda env: (
        keyed(env).window(SlidingEventTimeWindows.of(4, 2)).reduce(Adding())
    ),
    "reduce in sessions": lambda env: sessions(env).reduce(Adding()),
    "reduce, then a function": lambda env: tumbling(env).reduce(
        lambda a, b: b, window_function=Processed()
    ),
    "reduce counted": lambda env: keyed(env).count_window(3).reduce(Adding()),
    **{
        f"aggregate, {method}": lambda env, method=method: tumbling(env).aggregate(
            Aggregated(method)
        )
        for method in ("create_accumulator", "add", "get_result")
    },
    "aggregate, merge": lambda env: bridged(env).aggregate(Aggregated("merge")),
    "apply": lambda env: tumbling(env).apply(Applied()),
    "apply lazily": lambda env: tumbling(env).apply(AppliedLazily()),
    "apply by map": lambda env: tumbling(env).apply(AppliedByMap()),
    "process": lambda env: tumbling(env).process(Processed()),
    "process, clear": lambda env: tumbling(env).process(Cleared()),
    "process all": lambda env: (
        timed(env).window_all(TumblingEventTimeWindows.of(2)).process(AllProcessed())
    ),
    **{
        f"trigger, {method}": lambda env, method=method: (
            tumbling(env).trigger(Triggered(method)).process(Processed())
        )
        for method in ("on_element", "on_event_time", "clear")
    },
    "trigger, on_merge": lambda env: (
        bridged(env).trigger(Triggered("on_merge")).process(Processed())
    ),
    "evictor": lambda env: tumbling(env).evictor(Evicted()).process(Processed()),
    "gap": lambda env: (
        keyed(env).window(EventTimeSessionWindows.with_dynamic_gap(Gap())).process(Processed())
    ),
    "assigner": lambda env: keyed(env).window(Assigning(2, 0)).process(Processed()),
    "sum": lambda env: (
        timed(env)
        .map(lambda v: (0, Summed(v)))
        .key_by(lambda row: row[0])
        .sum(1)
        .map(lambda row: row[1].value)
    ),
    "interval join": lambda env: (
        keyed(env).interval_join(keyed(env)).between(0, 0).process(Paired())
    ),
    "join": lambda env: joined(env).apply(Joined()),
    "flat join": lambda env: joined(env).apply(FlatJoined()),
    "co_group": lambda env: co_grouped(env).apply(Grouped()),
    "condition": lambda env: CEP.pattern(
        keyed(env), Pattern.begin("a").where(lambda value: trip(value) > 0)
    ).select(lambda match: match["a"][0]),
    "select": lambda env: pattern(env).select(lambda match: trip(match["a"][0])),
    "flat_select": lambda env: pattern(env).flat_select(Selected()),
    "match": lambda env: pattern(env).process(Matched()),
    "watermarks, on_event": lambda env: env.from_collection(
        VALUES, Types.LONG()
    ).assign_timestamps_and_watermarks(generating("on_event")),
    "watermarks, on_periodic_emit": lambda env: env.from_collection(
        VALUES, Types.LONG()
    ).assign_timestamps_and_watermarks(generating("on_periodic_emit")),
}


def job(name):
    env = environment()
    collect(STREAMS[name](env).name("under test"))
    return started(env, wait_for_checkpoints=True, partitions=1)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STREAMS)
def test_what_a_function_raises_is_an_error_of_its_operator_and_nothing_is_lost(name, error):
    expected = sorted(job(name).run(take=2).collected())
    assert expected
    harness = job(name)
    Trap.error = ERRORS[error]
    try:
        with pytest.raises(UserFunctionError) as caught:
            harness.run(take=2)
    finally:
        Trap.error = None
    assert error in caught.value.user_traceback
    assert "weir/runtime" not in caught.value.user_traceback
    if name != "sum":  # the map behind it has the name
        assert caught.value.operator == "under test"
    harness.fail_over()
    assert sorted(harness.run(take=2).collected()) == expected
