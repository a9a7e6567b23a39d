"""Interval joins against a few lines that do the same, with restarts and rescalings in between.

A job sees epochs of events and watermarks. Between two epochs it may be killed, or go on as another
job with another parallelism. The model keeps both sides in lists and looks at all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.joining import Pairs, between, left, right, watermark
from tests.model.disturbed_job import DISTURBANCES, DisturbedJob

from weir.datastream import OutputTag, StreamExecutionEnvironment
from weir.runtime import interval_join
from weir.runtime.interval_join import PENDING_MAX
from weir.testing.harness import collect

MIN = -(1 << 63)
LATE = {"L": OutputTag("late left"), "R": OutputTag("late right")}
times = st.integers(0, 12)
keys = st.sampled_from("ab")
events = st.tuples(st.sampled_from("LR"), keys, times)


@dataclass(frozen=True)
class Step:
    """An epoch, how far the watermark goes in it, and what happens behind it."""

    events: list[tuple[str, str, int]]
    to: int | None
    then: str
    parallelism: int


steps = st.builds(
    Step,
    st.lists(events, max_size=8),
    st.none() | st.integers(-2, 16),
    DISTURBANCES,
    st.integers(1, 3),
)
bounds = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(sorted)


@dataclass
class Model:
    """All pairs and late records, found by looking at everything that is kept."""

    lower: int
    upper: int
    watermark: int = MIN
    kept: list[tuple[str, str, int, int]] = field(default_factory=list)
    pairs: list[tuple[str, int, int]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def epoch(self, events: list[tuple[str, str, int, int]], to: int | None) -> None:
        for event in sorted(events, key=lambda e: e[0]):
            self._take(event)
        if to is not None and to > self.watermark:
            self.watermark = to
            self.kept = [event for event in self.kept if self._last_partner(event) > to]

    def _take(self, event: tuple[str, str, int, int]) -> None:
        side, key, number, time = event
        if time < self.watermark:
            self.late.append(number)
            return
        for other, its_key, its_number, its_time in self.kept:
            if other != side and its_key == key:
                ahead = its_time - time if side == "L" else time - its_time
                if self.lower <= ahead <= self.upper:
                    pair = (number, its_number) if side == "L" else (its_number, number)
                    self.pairs.append((key, *pair))
        self.kept.append(event)

    def _last_partner(self, event: tuple[str, str, int, int]) -> int:
        return event[3] + max(self.upper if event[0] == "L" else -self.lower, 0)


class Job(DisturbedJob):
    """An interval join; `main` and `sides` are the handles of its results."""

    def __init__(self, lower: int, upper: int, kind: str) -> None:
        env = StreamExecutionEnvironment()
        join = between(env, lower, upper).side_output_left_late_data(LATE["L"])
        joined = join.side_output_right_late_data(LATE["R"]).process(Pairs()).uid("join")
        self.main = collect(joined)
        self.sides = [collect(joined.get_side_output(tag)) for tag in LATE.values()]
        super().__init__(env, kind)


@pytest.mark.parametrize("pending", [PENDING_MAX, 2], ids=["in memory", "in state"])
@pytest.mark.parametrize("kind", ["hashmap", "hashmap-incremental", "hashmap-changelog", "rocksdb"])
def test_a_join_gives_the_pairs_and_late_records_of_the_model(kind, pending, monkeypatch):
    monkeypatch.setattr(interval_join, "PENDING_MAX", pending)
    count = {"hashmap": 60, "rocksdb": 8}.get(kind, 20)

    @settings(max_examples=examples(count), deadline=None)
    @given(bounds, st.lists(steps, max_size=6))
    def run(limits, plan):
        lower, upper = limits
        model, job = Model(lower, upper), Job(lower, upper, kind)
        numbered = 0
        for step in plan:
            arrived = []
            for side, key, time in step.events:
                make = left if side == "L" else right
                arrived.append(make(numbered, time, key))
                numbered += 1
            marks = [] if step.to is None else [watermark(step.to)]
            model.epoch(arrived, step.to)
            job.harness.run_epoch([*arrived, *marks], checkpoint=True)
            job.disturb(step.then, step.parallelism)
            if step.then != "none" and model.watermark != MIN:
                # Whether a restored job knows its watermark at once is not what this is about.
                model.epoch([], model.watermark + 1)
                job.harness.run_epoch([watermark(model.watermark)])
        job.harness.finish()
        assert sorted(pair[:3] for pair in job.results(job.main)) == sorted(model.pairs)
        late = [record[1] for handle in job.sides for record in job.results(handle)]
        assert sorted(late) == sorted(model.late)

    run()
