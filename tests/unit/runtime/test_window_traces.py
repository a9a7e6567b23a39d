"""Traces of Flink's tests of its window operator, one record at a time.

A trace is a list of steps: `add` records `key:value@timestamp`, `wm` a watermark, `now` a moment of
processing time, `restore` goes on with a new operator over the same state. Every step that gives
results lists them, as (key, sum, start, end) for time windows and (key, sum) for others.
"""

from __future__ import annotations

import re

import pytest
from tests.databases import scratch_directory
from tests.window_driver import MAX, Driver

from weir.backend.factory import BackendSettings
from weir.datastream import AggregateFunction, ProcessWindowFunction, WindowFunction
from weir.datastream.output_tag import OutputTag
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

RECORD = re.compile(r"(\w+):(-?\d+)@(-?\d+)")
DATA = "k2:1@3999 k2:1@3000 k1:1@20 k1:1@0 k1:1@999 k2:1@1998 k2:1@1999 k2:1@1000"


def shown(key, window, total):
    if isinstance(window, TimeWindow):
        return key, total, window.start, window.end
    return key, total


class SumApply(WindowFunction):
    def apply(self, key, window, inputs):
        return [shown(key, window, sum(v for _, v in inputs))]


class SumProcess(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield shown(key, context.window(), sum(v for _, v in elements))


class Sum(AggregateFunction):
    def create_accumulator(self):
        return [0]

    def add(self, value, accumulator):
        accumulator[0] += value[1]
        return accumulator

    def get_result(self, accumulator):
        return None, accumulator[0]

    def merge(self, acc_a, acc_b):
        return [acc_a[0] + acc_b[0]]


ENDINGS = {
    "reduce": lambda w: w.reduce(lambda a, b: (a[0], a[1] + b[1]), SumProcess()),
    "aggregate": lambda w: w.aggregate(Sum(), SumApply()),
    "apply": lambda w: w.apply(SumApply()),
    "process": lambda w: w.process(SumProcess()),
}


class Point(MergingWindowAssigner):
    """Sessions of three seconds; a value of 33 is a window without length."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp, timestamp + (0 if element[1] == 33 else 3000))]

    def merge_windows(self, windows, callback):
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env):
        return EventTimeTrigger()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


def dynamic_gap(element):
    key, value = element
    return 3000 if key == "k1" else 1000 if value == 10 else 2000


def tumbling(size, kind=TumblingEventTimeWindows):
    return lambda: kind.of(size)


def session(gap, kind=EventTimeSessionWindows):
    return lambda: kind.with_gap(gap)


# name: (assigner, settings, steps)
TRACES = {
    "sliding": (
        lambda: SlidingEventTimeWindows.of(3000, 1000),
        {},
        [
            ("add", DATA),
            ("wm", 999, ("k1", 3, -2000, 1000)),
            ("wm", 1999, ("k1", 3, -1000, 2000), ("k2", 3, -1000, 2000)),
            ("wm", 2999, ("k1", 3, 0, 3000), ("k2", 3, 0, 3000)),
            ("restore",),
            ("wm", 3999, ("k2", 5, 1000, 4000)),
            ("wm", 4999, ("k2", 2, 2000, 5000)),
            ("wm", 5999, ("k2", 2, 3000, 6000)),
            ("wm", 6999),
            ("wm", 7999),
            ("empty",),
        ],
    ),
    "tumbling": (
        tumbling(3000),
        {},
        [
            ("add", DATA),
            ("wm", 999),
            ("wm", 1999),
            ("restore",),
            ("wm", 2999, ("k1", 3, 0, 3000), ("k2", 3, 0, 3000)),
            ("wm", 3999),
            ("wm", 4999),
            ("wm", 5999, ("k2", 2, 3000, 6000)),
            ("empty",),
        ],
    ),
    "sessions": (
        session(3000),
        {},
        [
            ("add", "k2:1@0 k2:2@1000 k2:3@2500 k1:1@10 k1:2@1000"),
            ("restore",),
            ("add", "k1:3@2500 k2:4@5501 k2:5@6000 k2:5@6000 k2:6@6050"),
            ("wm", 12000, ("k1", 6, 10, 5500), ("k2", 6, 0, 5500), ("k2", 20, 5501, 9050)),
            ("add", "k2:10@15000 k2:20@15000"),
            ("wm", 17999, ("k2", 30, 15000, 18000)),
            ("empty",),
        ],
    ),
    "sessions that fire by count": (
        session(3000),
        {"trigger": lambda: PurgingTrigger.of(CountTrigger.of(4))},
        [
            ("add", "k2:1@0 k2:2@1000 k2:3@2500 k2:4@3500", ("k2", 10, 0, 6500)),
            ("add", "k1:1@10 k1:2@1000"),
            ("restore",),
            ("add", "k1:3@2500 k1:1@6000 k1:2@6500 k1:3@7000"),
            ("add", "k1:10@4500", ("k1", 22, 10, 10000)),
        ],
    ),
    "sessions that fire again and again": (
        session(3000),
        {"trigger": lambda: ContinuousEventTimeTrigger.of(2000)},
        [
            ("add", "k1:1@1500 k2:1@0 k2:3@2500 k2:2@1000"),
            ("wm", 2500, ("k1", 1, 1500, 4500), ("k2", 6, 0, 5500)),
            ("add", "k2:5@4000"),
            ("wm", 3000),
            ("restore",),
            ("add", "k1:2@4000 k2:4@3500"),
            ("wm", 4000, ("k1", 3, 1500, 7000), ("k2", 15, 0, 7000)),
        ],
    ),
    "sessions of points": (
        Point,
        {},
        [
            ("add", "k2:1@0 k2:33@1000 k2:33@2500 k1:1@10 k1:2@1000 k1:33@2500"),
            ("wm", 12000, ("k1", 36, 10, 4000), ("k2", 67, 0, 3000)),
            ("empty",),
        ],
    ),
    "sessions of gaps that records say": (
        lambda: EventTimeSessionWindows.with_dynamic_gap(dynamic_gap),
        {},
        [
            ("add", "k1:3@10 k2:4@5000 k2:5@6000"),
            ("wm", 8999, ("k1", 3, 10, 3010), ("k2", 9, 5000, 8000)),
            ("add", "k2:1@9000 k2:2@10000 k2:10@10500"),
            ("wm", 12999, ("k2", 13, 9000, 12000)),
            ("add", "k2:10@13000 k2:10@13500 k2:1@14000"),
            ("wm", 16999, ("k2", 21, 13000, 16000)),
            ("empty",),
        ],
    ),
    "the global window, again and again": (
        GlobalWindows.create,
        {"trigger": lambda: ContinuousEventTimeTrigger.of(3000)},
        [
            ("add", "k1:1@0 k2:1@3000 k2:1@3999 k1:1@20 k1:1@999 k2:1@1998 k2:1@1999 k2:1@1000"),
            ("wm", 1000),
            ("wm", 2000),
            ("wm", 3000, ("k1", 3)),
            ("wm", 4000),
            ("wm", 5000),
            ("wm", 6000, ("k1", 3), ("k2", 5)),
            ("wm", 7000),
            ("wm", 8000),
        ],
    ),
    "the global window by count": (
        GlobalWindows.create,
        {"trigger": lambda: PurgingTrigger.of(CountTrigger.of(4))},
        [
            ("add", "k2:1@0 k2:1@1 k1:1@2 k1:1@3 k1:1@4 k2:1@5 k2:1@6", ("k2", 4)),
            ("restore",),
            ("add", "k2:1@7 k1:1@8", ("k1", 4)),
            ("add", "k2:1@9 k2:1@10 k2:1@11", ("k2", 4)),
        ],
    ),
    "the global window at the end of the input": (
        GlobalWindows.create_with_end_of_stream_trigger,
        {},
        [("add", DATA), ("wm", 10000), ("wm", MAX, ("k1", 3), ("k2", 5))],
    ),
    "tumbling by processing time": (
        tumbling(3000, TumblingProcessingTimeWindows),
        {},
        [
            ("now", 3),
            ("add", "k2:1@0 k2:1@0 k2:1@0 k1:1@0 k1:1@0"),
            ("now", 5000, ("k2", 3, 0, 3000), ("k1", 2, 0, 3000)),
            ("add", "k1:1@0 k1:1@0 k1:1@0"),
            ("now", 7000, ("k1", 3, 3000, 6000)),
            ("empty",),
        ],
    ),
    "sliding by processing time": (
        lambda: SlidingProcessingTimeWindows.of(3000, 1000),
        {},
        [
            ("now", 3),
            ("add", "k2:1@0"),
            ("now", 1000, ("k2", 1, -2000, 1000)),
            ("add", "k2:1@0 k2:1@0"),
            ("now", 2000, ("k2", 3, -1000, 2000)),
            ("add", "k1:1@0 k1:1@0"),
            ("now", 3000, ("k2", 3, 0, 3000), ("k1", 2, 0, 3000)),
            ("add", "k1:1@0 k1:1@0 k1:1@0"),
            (
                "now",
                7000,
                ("k2", 2, 1000, 4000),
                ("k1", 5, 1000, 4000),
                ("k1", 5, 2000, 5000),
                ("k1", 3, 3000, 6000),
            ),
            ("empty",),
        ],
    ),
    "sessions by processing time": (
        session(3000, ProcessingTimeSessionWindows),
        {},
        [
            ("now", 3),
            ("add", "k2:1@0"),
            ("now", 1000),
            ("add", "k2:1@0"),
            ("now", 5000, ("k2", 2, 3, 4000)),
            ("add", "k2:1@0 k2:1@0 k1:1@0 k1:1@0 k1:1@0"),
            ("now", 10000, ("k2", 2, 5000, 8000), ("k1", 3, 5000, 8000)),
            ("empty",),
        ],
    ),
    "late records of windows that stay": (
        tumbling(2000),
        {"lateness": 500, "trigger": lambda: PurgingTrigger.of(EventTimeTrigger.create())},
        [
            ("add", "k2:1@500"),
            ("wm", 1500),
            ("add", "k2:1@1300"),
            ("wm", 2300, ("k2", 2, 0, 2000)),
            ("add", "k2:1@1997", ("k2", 1, 0, 2000)),
            ("wm", 6000),
            ("add", "k2:1@1998"),
            ("late", ("k2", 1)),
            ("empty",),
        ],
    ),
    "a cleanup time beyond the end of time": (
        tumbling(1000),
        {"lateness": 2000},
        [
            ("add", f"k2:1@{MAX - 1750}"),
            ("wm", MAX - 1500),
            ("wm", MAX - 808, ("k2", 1, MAX - 1807, MAX - 807)),
        ],
    ),
    "tumbling with a side output": (
        tumbling(2000),
        {},
        [
            ("add", "k2:1@1000"),
            ("wm", 1985),
            ("add", "k2:1@1980"),
            ("wm", 1999, ("k2", 2, 0, 2000)),
            ("add", "k2:1@1998"),
            ("late", ("k2", 1)),
            ("add", "k2:1@2001"),
            ("wm", 3999, ("k2", 1, 2000, 4000)),
            ("empty",),
        ],
    ),
    "sliding with a side output": (
        lambda: SlidingEventTimeWindows.of(3000, 1000),
        {},
        [
            ("add", "k2:1@1000"),
            ("wm", 1999, ("k2", 1, -1000, 2000)),
            ("add", "k2:1@2000"),
            ("wm", 3000, ("k2", 2, 0, 3000)),
            ("add", "k1:1@3001 k2:1@2400 k2:1@2400 k1:1@3001 k2:1@3900"),
            (
                "wm",
                6000,
                ("k2", 5, 1000, 4000),
                ("k1", 2, 1000, 4000),
                ("k2", 4, 2000, 5000),
                ("k1", 2, 2000, 5000),
                ("k2", 1, 3000, 6000),
                ("k1", 2, 3000, 6000),
            ),
            ("add", "k1:1@3001"),
            ("late", ("k1", 1)),
            ("empty",),
        ],
    ),
    "cleanup without contents": (
        tumbling(2000),
        {"lateness": 1, "trigger": lambda: PurgingTrigger.of(EventTimeTrigger.create())},
        [("add", "k2:1@1000"), ("wm", 1999, ("k2", 1, 0, 2000)), ("wm", 2000), ("empty",)],
    ),
}


def driver(name, ending, backend=None, directory=None):
    assigner, settings, _ = TRACES[name]

    def declare(stream):
        windowed = stream.window(assigner()).allowed_lateness(settings.get("lateness", 0))
        if "trigger" in settings:
            windowed.trigger(settings["trigger"]())
        ENDINGS[ending](windowed.side_output_late_data(OutputTag("late")))

    return Driver(declare, backend, directory=directory)


def follow(driven, steps):
    for step in steps:
        kind, *rest = step
        if kind == "add":
            for key, value, time in RECORD.findall(rest.pop(0)):
                driven.add((key, int(value), int(time)))
        elif kind == "wm":
            driven.watermark(rest.pop(0))
        elif kind == "now":
            driven.now(rest.pop(0))
        elif kind == "restore":
            driven.restore()
        elif kind == "late":
            assert [value for value, _ in driven.take_late()] == rest
            continue
        else:
            assert (driven.entries, driven.timers) == (0, 0)
        found = driven.take()
        assert sorted(value for value, _ in found) == sorted(rest), step
        for value, stamp in found:
            if len(value) == 4:
                assert stamp == value[3] - 1, "stamped with the window's last millisecond"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", TRACES)
def test_a_trace_of_flink_gives_the_same_results(name, ending):
    follow(driver(name, ending), TRACES[name][2])


@pytest.mark.matrix
@pytest.mark.parametrize("ending", ["reduce", "process"])
@pytest.mark.parametrize("name", TRACES)
def test_a_trace_gives_the_same_results_on_disk(name, ending):
    with scratch_directory() as directory:
        driven = driver(name, ending, BackendSettings("rocksdb"), directory)
        follow(driven, TRACES[name][2])
        driven.op.close()


BEGIN = [
    ("add", "k2:1@1000"),
    ("wm", 1999),
    ("add", "k2:1@2000"),
    ("wm", 4998),
    ("add", "k2:1@4500 k2:1@8500"),
    ("wm", 7400),
    ("add", "k2:1@7000"),
    ("wm", 11501, ("k2", 5, 1000, 11500)),
    ("add", "k2:1@11600"),
    ("wm", 14600, ("k2", 1, 11600, 14600)),
]


@pytest.mark.parametrize(
    ("lateness", "purging", "bridge", "after"),
    [
        (0, True, None, (1, 14500, 17500)),
        (0, False, None, (1, 14500, 17500)),
        (10, True, (1, 10000, 14600), (1, 10000, 17500)),
        (10, False, (2, 10000, 14600), (3, 10000, 17500)),
        (10000, True, (1, 1000, 14600), (1, 1000, 17500)),
        (10000, False, (7, 1000, 14600), (8, 1000, 17500)),
    ],
)
@pytest.mark.parametrize("ending", ENDINGS)
def test_late_records_of_sessions(lateness, purging, bridge, after, ending):
    def declare(stream):
        windowed = stream.window(EventTimeSessionWindows.with_gap(3000))
        windowed.allowed_lateness(lateness).side_output_late_data(OutputTag("late"))
        if purging:
            windowed.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
        ENDINGS[ending](windowed)

    driven = Driver(declare)
    follow(driven, BEGIN)
    follow(driven, [("add", "k2:1@10000", *([("k2", *bridge)] if bridge else []))])
    if bridge is None:
        # A second late record must not join the first one, which is gone.
        follow(driven, [("late", ("k2", 1)), ("add", "k2:1@10100"), ("late", ("k2", 1))])
    follow(driven, [("add", "k2:1@14500"), ("wm", 20000, ("k2", *after)), ("wm", 100000)])
    follow(driven, [("empty",)])
