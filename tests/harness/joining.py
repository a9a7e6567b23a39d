"""Shared by the tests of interval joins: one stream of events for both sides and the watermark.

An event is (side, key, number, time). Events of side "W" only move the watermark, to their time.
"""

from __future__ import annotations

from weir.common import Duration
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import ProcessJoinFunction
from weir.datastream.state import MapStateDescriptor
from weir.testing.harness import collect

EVENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
RECORD = Types.TUPLE([Types.STRING(), Types.LONG()])
# Wide enough that records never move the watermark to where any test looks.
BOUND_MS = 100_000
LEFT = MapStateDescriptor("_left_buffer", Types.LONG(), Types.LIST(RECORD))
RIGHT = MapStateDescriptor("_right_buffer", Types.LONG(), Types.LIST(RECORD))


def left(number, time=None, key="k"):
    return "L", key, number, number if time is None else time


def right(number, time=None, key="k"):
    return "R", key, number, number if time is None else time


def watermark(time):
    return "W", "", 0, time + BOUND_MS + 1


class Pairs(ProcessJoinFunction):
    """Tells key, numbers and all times of a pair."""

    def process_element(self, left, right, ctx):
        times = ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()
        yield left[0], left[1], right[1], *times


def events(env):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    strategy = strategy.with_timestamp_assigner(lambda event, _: event[3])
    stream = env.from_collection([], EVENT).uid("events")
    return stream.assign_timestamps_and_watermarks(strategy)


def side(timed, name, record_type=RECORD):
    chosen = timed.filter(lambda event: event[0] == name)
    return chosen.map(lambda event: event[1:3], record_type).key_by(lambda r: r[0], Types.STRING())


def between(env, lower, upper):
    timed = events(env)
    return side(timed, "L").interval_join(side(timed, "R")).between(lower, upper)


def collect_pairs(env, lower, upper):
    return collect(between(env, lower, upper).process(Pairs()).uid("join"))


def numbers(pairs):
    """Show pairs as texts such as "12": left 1, right 2."""
    return sorted(f"{pair[1]}{pair[2]}" for pair in pairs)


def buffers(harness, key="k"):
    """Return the times that both sides keep for a key."""
    return [sorted(harness.state("join", which, key).keys()) for which in (LEFT, RIGHT)]
