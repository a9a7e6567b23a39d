"""Strategies of event time row by row: the watermarks they make, and what they ignore."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started
from tests.harness.test_partitions_in_time import MIN, Judge, Stage, log_partition, watermark

from weir.common import Duration, WatermarkStrategy
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream import ProcessFunction, WindowFunction
from weir.datastream.window import ProcessingTimeSessionWindows, TumblingProcessingTimeWindows
from weir.errors import UsageError
from weir.testing.clock import ManualClock
from weir.testing.harness import collect

MAX = (1 << 63) - 1


def by_time(strategy):
    return strategy.with_timestamp_assigner(lambda value, _: value[1])


def judged(stream):
    collect(stream.key_by(lambda v: 0).process(Judge()).uid("judge"))


def bounded(bound_ms):
    return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(bound_ms))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (bounded(10), [MIN, 1326, 12334, 12334, 723445]),
        (bounded(0), [MIN, 1336, 12344, 12344, 723455]),
        (WatermarkStrategy.for_monotonous_timestamps(), [MIN, 1336, 12344, 12344, 723455]),
        (WatermarkStrategy.no_watermarks(), [MIN] * 5),
    ],
    ids=["bound 10", "bound 0", "monotonous", "none"],
)
def test_the_watermark_is_behind_the_greatest_timestamp(strategy, expected):
    env = environment()
    judged(env.from_collection([]).assign_timestamps_and_watermarks(by_time(strategy)))
    harness = started(env, 2)
    found = []
    for times in ([], [1337], [12345, 12300], [12340, 12280], [723456]):
        harness.run_epoch([("k", time) for time in times])
        found.append(watermark(harness))
    assert found == expected
    harness.finish()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bounded(-1), "must not be negative"),
        (lambda: bounded(1).with_idleness(Duration.of_millis(0)), "must be greater than zero"),
        (lambda: bounded(1).with_idleness(Duration.of_millis(-5)), "must be greater than zero"),
        (lambda: bounded(1).with_timestamp_assigner(1.5), "a timestamp assigner has"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_an_alignment_looks_every_second_unless_told():
    aligned = bounded(1).with_watermark_alignment("g", Duration.of_seconds(2))
    assert (aligned.alignment.max_drift_ms, aligned.alignment.update_interval_ms) == (2000, 1000)
    other = bounded(1).with_watermark_alignment("g", Duration.of_millis(0), Duration.of_millis(5))
    assert (other.alignment.max_drift_ms, other.alignment.update_interval_ms) == (0, 5)


def test_the_assigner_is_set_on_the_strategy_itself():
    strategy = bounded(1)
    assert by_time(strategy) is strategy
    assert strategy.timestamp_assigner is not None


class Before(TimestampAssigner):
    """The time of a record is in it; shows the one that it had."""

    def extract_timestamp(self, value, record_timestamp):
        value.append(record_timestamp)
        return value[1]


NO_MOMENTS = [None, "soon", float("nan"), 1 << 63, -(1 << 63) - 1, 1 << 70]


@pytest.mark.parametrize("bad", NO_MOMENTS)
@pytest.mark.parametrize("behind", [False, True], ids=["next to the source", "in a slot"])
def test_a_timestamp_that_is_none_is_refused_with_its_record(behind, bad):
    env = environment()
    stream = env.from_collection([])
    if behind:
        stream = stream.key_by(lambda v: v[0]).process(Stage())
    judged(stream.assign_timestamps_and_watermarks(by_time(bounded(0))))
    harness = started(env, 1)
    expected = r"Timestamps/Watermarks' at record \('k', .*extract_timestamp.*64 bits"
    with pytest.raises(UsageError, match=expected):
        harness.run_epoch([("j", 7), ("k", bad)])


@pytest.mark.parametrize("time", [-(1 << 63) + 1, -1, (1 << 63) - 1, True, 2.9])
def test_a_timestamp_may_be_any_moment_of_64_bits(time):
    env = environment()
    judged(env.from_collection([]).assign_timestamps_and_watermarks(by_time(bounded(10))))
    harness = started(env, 1)
    harness.run_epoch([("k", time)])
    assert watermark(harness) == max(int(time) - 11, MIN)


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def test_an_assigner_is_given_the_timestamp_that_a_record_has():
    env = environment()
    once = env.from_collection([]).assign_timestamps_and_watermarks(
        bounded(0).with_timestamp_assigner(Before())
    )
    twice = once.assign_timestamps_and_watermarks(bounded(0).with_timestamp_assigner(Before()))
    collect(twice.process(Times()))
    harness = started(env, 1)
    harness.run_epoch([["k", 5]])
    assert harness.collected() == [(["k", 5, MIN, 5], 5)]


def test_records_keep_their_timestamps_through_functions_without_time():
    env = environment()
    timed = env.from_collection([]).assign_timestamps_and_watermarks(by_time(bounded(0)))
    changed = timed.map(lambda v: v[1]).filter(lambda n: n > 1).flat_map(lambda n: [n, -n])
    collect(changed.rebalance().process(Times()))
    harness = started(env, 2)
    harness.run_epoch([("k", 1), ("k", 2), ("k", 3)])
    assert sorted(harness.collected()) == [(-3, 3), (-2, 2), (2, 2), (3, 3)]


@pytest.mark.parametrize("behind", [False, True], ids=["next to the source", "in a slot"])
def test_a_second_strategy_begins_anew_and_knows_only_the_end(behind):
    env = environment()
    early = env.from_collection([]).assign_timestamps_and_watermarks(
        by_time(WatermarkStrategy.for_monotonous_timestamps())
    )
    if behind:
        early = early.key_by(lambda v: v[0]).process(Stage())
    judged(early.assign_timestamps_and_watermarks(by_time(bounded(100))))
    harness = started(env, 1)
    harness.run_epoch([("k", 1000)])
    assert watermark(harness) == 899
    operators = list(harness.operators("judge"))
    harness.finish()
    assert {op.watermark for op in operators} == {MAX}


def test_a_second_strategy_does_not_know_that_the_first_one_is_idle():
    env = environment()
    first = by_time(WatermarkStrategy.for_monotonous_timestamps())
    early = env.from_collection([]).assign_timestamps_and_watermarks(
        first.with_idleness(Duration.of_millis(100))
    )
    behind = early.key_by(lambda v: v[0]).process(Stage())
    late = behind.assign_timestamps_and_watermarks(by_time(bounded(0)))
    other = env.from_collection([]).assign_timestamps_and_watermarks(by_time(bounded(0)))
    judged(late.union(other))
    harness = started(env, 1)
    harness.run_epoch({0: [("a", 10)], 1: [("b", 1000)]})
    harness.clock.advance(1000)
    harness.run_epoch({1: [("b", 2000)]})
    # It is silent, and holds the union back: nobody told the second strategy of idleness.
    assert watermark(harness) == 9


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_partition_that_comes_behind_the_watermark_is_late_and_holds_nothing_back(parallelism):
    """Only what it brings is late: event time never goes back, and goes on with the slowest."""
    env = environment()
    judged(env.from_collection([]).assign_timestamps_and_watermarks(by_time(bounded(0))))
    harness = started(env, parallelism, partition_of=log_partition)
    harness.run_epoch([("old", 1000)])
    harness.run_epoch([("old", 1500), ("new", 10)])
    assert watermark(harness) == 999
    harness.run_epoch([("old", 2000), ("new", 2500)])
    assert watermark(harness) == 1999


class Restless(ManualClock):
    """A clock that goes on whenever somebody looks at it."""

    def now_ms(self):
        self.advance(7)
        return super().now_ms()


class Starts(WindowFunction):
    def apply(self, key, window, inputs):
        return [window.start]


@pytest.mark.parametrize(
    "assigner",
    [TumblingProcessingTimeWindows.of(5), ProcessingTimeSessionWindows.with_gap(5)],
    ids=repr,
)
def test_an_epoch_has_one_processing_time_in_all_slots(assigner):
    env = environment()
    keyed = env.from_collection([]).key_by(lambda v: v[0])
    collect(keyed.window(assigner).apply(Starts()))
    harness = started(env, 4, clock=Restless())
    harness.run_epoch([(f"k{n}", 0) for n in range(40)])
    harness.clock.advance(1000)
    harness.run_epoch()
    found = harness.collected()
    assert len(found) == 40
    assert len(set(found)) == 1
