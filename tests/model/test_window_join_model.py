"""Joins and co-groups in windows, against Flink's rules for windows in plain Python.

Records of both streams come out of order and late; between two epochs a job may be killed, rescaled
or go on as another job. The model has the windows of both streams together and parts their records
by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, product
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.joining import events, left, right, side, watermark
from tests.model.disturbed_job import DISTURBANCES, DisturbedJob
from tests.model.plain_windows import PlainWindows
from tests.window_driver import MAX, MIN

from weir.datastream import (
    CoGroupFunction,
    JoinFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from weir.testing.harness import collect

ASSIGNERS = [
    TumblingEventTimeWindows.of(5, 1),
    SlidingEventTimeWindows.of(6, 4, -1),
    SlidingEventTimeWindows.of(3, 5),
    EventTimeSessionWindows.with_gap(3),
]


@dataclass(frozen=True)
class Terms:
    """What a program says about its windows."""

    assigner: Any
    trigger: Any
    evictor: Any
    lateness: int


TERMS = st.builds(
    Terms,
    st.sampled_from(ASSIGNERS),
    st.sampled_from([None, None, PurgingTrigger.of(EventTimeTrigger.create()), CountTrigger.of(2)]),
    st.sampled_from([None, None, CountEvictor.of(3), TimeEvictor.of(3)]),
    st.sampled_from([0, 0, 2, 6]),
)


@dataclass(frozen=True)
class Step:
    """An epoch, how far the watermark goes in it, and what happens behind it."""

    events: list[tuple[str, str, int]]
    to: int | None
    then: str
    parallelism: int


STEPS = st.lists(
    st.builds(
        Step,
        st.lists(
            st.tuples(st.sampled_from("LR"), st.sampled_from("ab"), st.integers(0, 20)), max_size=8
        ),
        st.none() | st.integers(-2, 24),
        DISTURBANCES,
        st.integers(1, 3),
    ),
    max_size=6,
)


class Pair(JoinFunction):
    def join(self, first, second):
        return first[0], first[1], second[1]


class Groups(CoGroupFunction):
    def co_group(self, first, second):
        yield tuple(tuple(sorted(number for _, number in group)) for group in (first, second))


class Stamped(ProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


def pairs_of(key, groups):
    return [(key, a, b) for a, b in product(*groups)]


# The method that lets streams meet, its function, and what that gives of a key and both groups.
MEETINGS = {
    "join": (Pair(), pairs_of),
    "co_group": (Groups(), lambda _, groups: [groups]),
}


def job_of(meeting, terms, kind):
    """Return a job that is not disturbed yet, and the handle of its results."""
    env = StreamExecutionEnvironment()
    timed = events(env)
    joined = getattr(side(timed, "L"), meeting)(side(timed, "R"))
    windows = joined.where(itemgetter(0)).equal_to(itemgetter(0)).window(terms.assigner)
    windows.allowed_lateness(terms.lateness)
    if terms.trigger is not None:
        windows.trigger(terms.trigger)
    if terms.evictor is not None:
        windows.evictor(terms.evictor)
    main = collect(windows.apply(MEETINGS[meeting][0]).uid("meeting").process(Stamped()))
    # From one partition records come in their order, on which late firings and evictors depend.
    return DisturbedJob(env, kind, partitions=1), main


def expected(meeting, plain):
    """Return the results of the model, each with its timestamp."""
    found = []
    for (key, *_, values), stamp in plain.results:
        groups = tuple(tuple(n for which, n in values if which == name) for name in "LR")
        found += [(*result, stamp) for result in MEETINGS[meeting][1](key, groups)]
    return sorted(found)


def follow(plan, job, plain):
    """Let a job and the model go through the same epochs, all but the end."""
    numbers = count()
    for step in plan:
        arrived = [
            (left if which == "L" else right)(next(numbers), time, key)
            for which, key, time in step.events
        ]
        for which, key, number, time in sorted(arrived, key=itemgetter(0)):
            plain.add(key, (which, number), time)
        marks = [] if step.to is None else [watermark(step.to)]
        if step.to is not None and step.to > plain.wm:
            plain.watermark(step.to)
        job.harness.run_epoch([*arrived, *marks], checkpoint=True)
        job.disturb(step.then, step.parallelism)
        if step.then != "none" and plain.wm != MIN:
            # Whether a restored job knows its watermark at once is not what this is about.
            plain.watermark(plain.wm + 1)
            job.harness.run_epoch([watermark(plain.wm)])


@pytest.mark.parametrize("kind", ["hashmap", "hashmap-incremental", "hashmap-changelog", "rocksdb"])
@pytest.mark.parametrize("meeting", MEETINGS)
def test_streams_meet_in_windows_as_the_rules_say(meeting, kind):
    tried = {"hashmap": 60, "rocksdb": 8}.get(kind, 15)

    @settings(max_examples=examples(tried), deadline=None)
    @given(TERMS, STEPS)
    def run(terms, plan):
        trigger = terms.trigger or terms.assigner.get_default_trigger(None)
        plain = PlainWindows(terms.assigner, trigger, terms.evictor, terms.lateness)
        job, main = job_of(meeting, terms, kind)
        follow(plan, job, plain)
        if all(step.then == "none" for step in plan):
            counted = job.harness.metrics("meeting").get("numLateRecordsDropped", [])
            assert sum(counted) == len(plain.late)
        job.harness.finish()
        plain.watermark(MAX)
        assert sorted(job.results(main)) == expected(meeting, plain)

    run()
