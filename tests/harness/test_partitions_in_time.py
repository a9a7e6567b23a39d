"""Watermarks of source partitions: none that lags, comes, ends or restarts loses a record."""

from __future__ import annotations

import pytest
from tests.harness.overtaking import Overtake, job
from tests.harness.programs import environment, started

from weir.checkpoint.store import list_completed
from weir.common import Duration
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.decoder import Partition
from weir.datastream import KeyedProcessFunction
from weir.testing.harness import collect

MIN = -(1 << 63)


def by_second(value, _):
    return value[1]


def in_order():
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(by_second)


class Judge(KeyedProcessFunction):
    """Says of every record whether it is late, as a window would."""

    def process_element(self, value, ctx):
        watermark = ctx.timer_service().current_watermark()
        yield value[0], value[1], "late" if value[1] <= watermark else "in time", watermark


def judged(env, strategy=None):
    stream = env.from_collection([]).assign_timestamps_and_watermarks(strategy or in_order())
    collect(stream.key_by(lambda v: 0).process(Judge()).uid("judge"))


def log_partition(value):
    """The partition of a log: it goes on for ever."""
    return Partition(value[0])


def file_of(value):
    """A file: it is read in one epoch, and over."""
    return Partition(value[0], ends=True)


def late(harness):
    return [r[:2] for r in harness.collected() if r[2] == "late"]


def watermark(harness):
    return min(op.watermark for op in harness.operators("judge"))


def test_a_partition_that_lags_loses_nothing():
    env = environment()
    judged(env)
    harness = started(env, 2, partition_of=log_partition)
    for n in range(5):
        harness.run_epoch([("fast", 1000 * n + 999), ("slow", n)])
        assert watermark(harness) == n - 1
    assert late(harness) == []


def test_a_lagging_partition_that_is_silent_for_some_epochs_loses_nothing():
    env = environment()
    judged(env)
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("fast", 100), ("slow", 10)])
    harness.run_epoch([("fast", 5000)])
    harness.run_epoch([("slow", 11)])
    assert late(harness) == []
    assert watermark(harness) == 10


def test_without_names_of_partitions_the_furthest_record_counts():
    env = environment()
    judged(env)
    harness = started(env, 2)
    harness.run_epoch([("fast", 999), ("slow", 0)])
    harness.run_epoch([("fast", 1999), ("slow", 1)])
    assert late(harness) == [("slow", 1)]


def test_a_partition_that_appears_holds_the_watermark_from_then_on():
    env = environment()
    judged(env)
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("old", 100)])
    harness.run_epoch([("old", 300), ("new", 200)])
    assert watermark(harness) == 199
    harness.run_epoch([("old", 900)])
    harness.run_epoch([("new", 201)])
    assert late(harness) == []


def test_files_that_lag_behind_others_lose_nothing_and_hold_nothing_once_they_are_read():
    env = environment()
    judged(env)
    harness = started(env, 2, partition_of=file_of)
    harness.run_epoch([("a1", 0), ("a1", 1000), ("b1", 0), ("b1", 10)])
    assert watermark(harness) == 9
    harness.run_epoch([("a2", 1001), ("a2", 2000), ("b2", 11), ("b2", 20)])
    assert late(harness) == []
    assert watermark(harness) == 19
    harness.run_epoch([("a3", 3000)])
    assert watermark(harness) == 2999


@pytest.mark.parametrize("parallelism", [2, 3, 1])
def test_a_restored_operator_begins_at_its_watermark(parallelism):
    env = environment()
    judged(env)
    first = started(env, 2)
    first.run_epoch([("k", 1000)], checkpoint=True)
    second = first.restart(parallelism)
    assert [op.watermark for op in second.operators("judge")] == [999] * parallelism
    second.run_epoch([("k", 5), ("k", 1001)])
    assert second.collected() == [("k", 5, "late", 999), ("k", 1001, "in time", 999)]


def test_a_failover_begins_at_the_watermark_of_the_checkpoint_not_at_the_last_one():
    env = environment()
    judged(env)
    harness = started(env, 2, wait_for_checkpoints=True)
    harness.run_epoch([("k", 1000)], checkpoint=True)
    harness.run_epoch([("k", 2000)])
    harness.fail_over()
    assert watermark(harness) == 999
    harness.run_epoch([("k", 1500)])
    harness.checkpoint()
    assert late(harness) == []


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_lagging_partition_is_known_after_a_restore(parallelism):
    env = environment()
    judged(env)
    first = started(env, 2, partition_of=log_partition)
    first.run_epoch([("fast", 1000), ("slow", 10)], checkpoint=True)
    second = first.restart(parallelism)
    second.run_epoch([("fast", 5000)])
    assert watermark(second) == 9
    second.run_epoch([("slow", 11)])
    assert late(second) == []


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_that_was_drained_begins_anew_and_one_that_was_stopped_does_not(drain, tmp_path):
    env = environment()
    judged(env)
    first = started(env, 2)
    first.run_epoch([("k", 1000)])
    asked = first.control.stop(str(tmp_path), drain=drain)
    first.turn_until(asked.done)
    second = first.successor(2, [asked.result(0)]).start()
    assert watermark(second) == (MIN if drain else 999)
    for n in range(3):
        second.run_epoch([("k", n)])
    assert late(second) == ([] if drain else [("k", 0), ("k", 1), ("k", 2)])
    assert watermark(second) == (1 if drain else 999)


class Stage(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


def two_levels(env, strategy):
    """A strategy next to the source, then two keyed stages; the second one judges."""
    stream = env.from_collection([]).assign_timestamps_and_watermarks(strategy)
    first = stream.key_by(lambda v: v[0]).process(Stage())
    collect(first.key_by(lambda v: 0).process(Judge()).uid("judge"))


def test_an_idle_partition_holds_nothing_back_and_comes_back():
    env = environment()
    two_levels(env, in_order().with_idleness(Duration.of_millis(100)))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("a", 1000), ("b", 10)])
    assert watermark(harness) == 9
    harness.clock.advance(101)
    harness.run_epoch([("a", 2000)])
    assert watermark(harness) == 1999
    harness.run_epoch([("b", 20), ("a", 3000)])
    assert watermark(harness) == 1999
    harness.run_epoch([("b", 2500)])
    assert watermark(harness) == 2499


def test_silence_runs_an_epoch_of_its_own_that_lets_event_time_go_on():
    env = environment()
    two_levels(env, in_order().with_idleness(Duration.of_millis(100)))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("a", 1000), ("b", 10)])
    before = harness.epoch
    harness.clock.advance(100)
    harness.turn()
    assert harness.epoch == before
    harness.clock.advance(1)
    harness.turn()
    assert harness.epoch == before + 1
    # All partitions are idle: nobody holds back the one that came furthest.
    assert watermark(harness) == 999
    harness.clock.advance(10_000)
    harness.turn()
    assert harness.epoch == before + 1


def connected(env, left, right):
    """Two keyed stages, one per source, then an operator that reads both."""
    streams = [
        env.from_collection([])
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda v: v[0])
        .process(Stage())
        for strategy in (left, right)
    ]
    collect(streams[0].union(streams[1]).key_by(lambda v: 0).process(Judge()).uid("judge"))


def test_idleness_is_passed_on_by_operators_all_of_whose_inputs_are_idle():
    env = environment()
    connected(env, in_order(), in_order().with_idleness(Duration.of_millis(100)))
    harness = started(env, 2)
    harness.run_epoch({0: [("l", 1000)], 1: [("r", 10)]})
    assert watermark(harness) == 9
    harness.clock.advance(101)
    harness.run_epoch({0: [("l", 2000)]})
    assert watermark(harness) == 1999
    harness.run_epoch({1: [("r", 20)]})
    assert watermark(harness) == 1999


def test_a_source_that_is_silent_from_the_start_is_idle_in_the_end():
    env = environment()
    connected(env, in_order(), in_order().with_idleness(Duration.of_millis(100)))
    harness = started(env, 2)
    harness.run_epoch({0: [("l", 1000)]})
    assert watermark(harness) == MIN
    harness.clock.advance(101)
    harness.turn()
    assert watermark(harness) == 999


@pytest.mark.parametrize("parallelism", [2, 3])
def test_what_a_source_says_reaches_operators_behind_several_exchanges(parallelism):
    env = environment()
    timed = env.from_collection([]).assign_timestamps_and_watermarks(in_order())
    first = timed.key_by(lambda v: v[0]).process(Stage())
    collect(first.union(timed).key_by(lambda v: 0).process(Judge()).uid("judge"))
    harness = started(env, 2, partition_of=log_partition)
    harness.run_epoch([("fast", 1000), ("slow", 10)], checkpoint=True)
    assert watermark(harness) == 9
    second = harness.restart(parallelism)
    second.run_epoch([("fast", 2000)])
    assert watermark(second) == 9
    second.run_epoch([("slow", 20)])
    assert watermark(second) == 19
    assert late(second) == []


def test_a_strategy_in_a_slot_is_idle_when_it_sees_nothing():
    env = environment()
    behind = env.from_collection([]).key_by(lambda v: v[0]).process(Stage())
    behind = behind.assign_timestamps_and_watermarks(
        in_order().with_idleness(Duration.of_millis(100))
    )
    collect(behind.key_by(lambda v: 0).process(Judge()).uid("judge"))
    harness = started(env, 2)
    harness.run_epoch([("a", 1000)])
    assert watermark(harness) == MIN
    harness.clock.advance(101)
    harness.turn()
    assert watermark(harness) == 999


def test_the_same_input_gives_the_same_watermarks_whoever_reads_it():
    def marks(**options):
        env = environment()
        judged(env)
        harness = started(env, partition_of=log_partition, **options)
        found = []
        for n in range(6):
            harness.run_epoch([("a", 100 * n), ("b", 70 * n), ("c", 90 * n)][n % 2 :])
            found.append(watermark(harness))
        return found

    expected = marks(parallelism=1, partitions=1)
    assert expected == marks(parallelism=3, partitions=4)
    assert expected == marks(parallelism=2, partitions=3, repeated=True)


@pytest.mark.parametrize("mode", ["unaligned", "at-least-once"])
@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("at", [1, 3])
def test_a_barrier_that_overtakes_rows_overtakes_no_watermark(mode, parallelism, at):
    env = environment()
    two_levels(env, in_order())
    hooks = Overtake(at=at)
    first = job(env, hooks, mode=mode, partition_of=log_partition)
    first.run_epoch([("fast", 50), ("slow", 5)])
    hooks.again(at)
    first.run_epoch([("fast", 1000), ("fast", 1001), ("slow", 10)], checkpoint=True)
    assert hooks.settled
    (stored,) = list_completed(first.options.storage, first.job_id)
    (judge,) = [op for op in stored.metadata.operators if op.uid == "judge"]
    assert {s.watermark for s in judge.subtasks} == {4}  # the rows of the epoch are in flight
    # An epoch that is read again tells once more how far it came.
    expected = [1000, 9] if mode == "unaligned" else [49, 4]
    assert [p.watermark for p in stored.metadata.partitions] == expected
    second = first.restart(parallelism)
    second.run_epoch([("fast", 5000)])
    assert watermark(second) == 9
    second.run_epoch([("slow", 11)])
    second.checkpoint()
    assert late(second) == []
