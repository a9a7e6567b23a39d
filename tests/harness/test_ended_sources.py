"""A bounded source that is over holds nobody back, with or without a record, and ends no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.harness.programs import environment, started

from weir.common import Types, WatermarkStrategy
from weir.common.serialization import SimpleStringSchema
from weir.common.watermark_strategy import WatermarkGenerator
from weir.connector.decoder import END, Partition
from weir.connector.kafka.client import Connection
from weir.connector.kafka.decoder import KafkaRecords
from weir.connector.kafka.offsets import KafkaTopicPartition
from weir.connector.kafka.position import KafkaPosition, plan_ranges
from weir.connector.kafka.reader import KafkaRanges
from weir.connector.source import Opening, PlannedSplits, Source, SplitPlanner
from weir.datastream import KeyedProcessFunction
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK
from weir.testing.harness import collect


class Greatest(WatermarkGenerator):
    """The rule of monotonous timestamps, with state: it lives in a slot."""

    def __init__(self):
        self.greatest = None

    def on_event(self, event, event_timestamp, output):
        self.greatest = max(event_timestamp, self.greatest or event_timestamp)

    def on_periodic_emit(self, output):
        if self.greatest is not None:
            output.emit_watermark(self.greatest - 1)


MADE_BY = {
    "rule": WatermarkStrategy.for_monotonous_timestamps,
    "generator": lambda: WatermarkStrategy.for_generator(Greatest),
}


class Judge(KeyedProcessFunction):
    """Says of every record whether it is late, as a window would."""

    def process_element(self, value, ctx):
        yield value[1], value[1] <= ctx.timer_service().current_watermark()


def timed(stream, made_by):
    strategy = MADE_BY[made_by]().with_timestamp_assigner(lambda value, _: value[1])
    return stream.assign_timestamps_and_watermarks(strategy)


def judged(stream):
    collect(stream.key_by(lambda v: 0).process(Judge()).uid("judge"))


def each_its_own(env, made_by):
    """Two sources, each with a strategy, together behind them."""
    first, second = (timed(env.from_collection([]).uid(uid), made_by) for uid in ("go", "end"))
    judged(first.union(second))


def one_for_both(env, made_by):
    """Two sources, together in front of one strategy: a union in level 0."""
    first, second = (env.from_collection([]).uid(uid) for uid in ("go", "end"))
    judged(timed(first.union(second), made_by))


def behind_functions(env, made_by):
    """The same with functions between the sources and the strategy."""
    streams = [env.from_collection([]).uid(uid).map(lambda v: v) for uid in ("go", "end")]
    judged(timed(streams[0].union(streams[1]), made_by))


PROGRAMS = pytest.mark.parametrize("declare", [each_its_own, one_for_both, behind_functions])
MAKERS = pytest.mark.parametrize("made_by", MADE_BY)


def begun(declare, made_by, **options):
    env = environment()
    declare(env, made_by)
    return started(env, 2, **options)


def watermark(harness):
    return min(op.watermark for op in harness.operators("judge"))


def late(harness):
    return [time for time, is_late in harness.collected() if is_late]


@PROGRAMS
@MAKERS
def test_an_empty_source_holds_nobody_back_when_it_is_over(declare, made_by):
    harness = begun(declare, made_by)
    harness.run_epoch({1: [END]})
    assert watermark(harness) == MIN_WATERMARK
    for time in (5, 1000, 2000):
        harness.run_epoch({0: [("k", time)]})
        assert watermark(harness) == time - 1
    assert late(harness) == []


@PROGRAMS
@MAKERS
def test_its_end_may_come_behind_the_first_records_of_the_other(declare, made_by):
    harness = begun(declare, made_by)
    harness.run_epoch({0: [("k", 5)], 1: [END]})
    assert watermark(harness) == 4
    harness.run_epoch({0: [("k", 9)]})
    assert watermark(harness) == 8
    assert late(harness) == []


@PROGRAMS
@MAKERS
def test_time_is_over_when_both_are(declare, made_by):
    harness = begun(declare, made_by)
    harness.run_epoch({1: [("k", 3), END]})
    harness.run_epoch({0: [("k", 7)]})
    assert watermark(harness) == 6
    harness.run_epoch({0: [END]})
    assert watermark(harness) == MAX_WATERMARK


@PROGRAMS
@MAKERS
@pytest.mark.parametrize("read", [True, False])
def test_the_end_is_known_after_a_failure_and_in_a_later_job(declare, made_by, read):
    harness = begun(declare, made_by)
    harness.run_epoch({1: [("k", 3), END] if read else [END]}, checkpoint=True)
    harness.fail_over()
    harness.run_epoch({0: [("k", 100)]}, checkpoint=True)
    assert watermark(harness) == 99
    for parallelism in (3, 1):
        harness = harness.restart(parallelism)
        time = 100 * (10 - parallelism)
        harness.run_epoch({0: [("k", time)]}, checkpoint=True)
        assert watermark(harness) == time - 1
    assert late(harness) == []


@PROGRAMS
@MAKERS
def test_an_end_that_no_checkpoint_covers_is_said_again(declare, made_by):
    harness = begun(declare, made_by, wait_for_checkpoints=True)
    harness.run_epoch({0: [("k", 5)]}, checkpoint=True)
    harness.run_epoch({1: [END]})
    harness.fail_over()
    assert watermark(harness) == (MIN_WATERMARK if declare is each_its_own else 4)
    harness.run_epoch({0: [("k", 8)]})
    assert watermark(harness) == 7


@MAKERS
def test_a_partition_that_is_over_holds_the_others_back_no_longer(made_by):
    env = environment()
    judged(timed(env.from_collection([]).uid("log"), made_by))
    harness = started(env, 2, partitions=1)
    harness.run_epoch([Partition("p0"), ("k", 10)])
    harness.run_epoch([Partition("p1"), ("k", 500)])
    assert watermark(harness) == 9
    harness.run_epoch([Partition("p0", over=True), ("k", 11)], checkpoint=True)
    assert watermark(harness) == 499
    harness = harness.restart(3)
    harness.run_epoch([Partition("p1"), ("k", 600)])
    assert watermark(harness) == 599


# ---- Kafka's ranges ----------------------------------------------------------------------------


class Until(SplitPlanner):
    """Plans what lies between two positions of bounded topics; nobody asks a broker."""

    def __init__(self, start: KafkaPosition) -> None:
        self._start = start

    def begin(self) -> dict[str, Any]:
        return self._start.to_json()

    def advance(self, position: dict[str, Any] | None) -> dict[str, Any]:
        return self._start.to_json()

    def plan(self, start: dict[str, Any], end: dict[str, Any], tasks: int) -> list[tuple[str, ...]]:
        first, last = KafkaPosition.of(start), KafkaPosition.of(end)
        return plan_ranges(first, last, tasks, every=True)


@dataclass(frozen=True)
class EmptyTopic(Source):
    """A bounded topic of two partitions without records."""

    def get_produced_type(self) -> Any:
        return Types.STRING()

    def open(self, opening: Opening) -> PlannedSplits:
        offsets = {KafkaTopicPartition("empty", n): 7 * n for n in range(2)}
        planner = Until(KafkaPosition(offsets, {}, offsets))
        reader = KafkaRanges(Connection({"bootstrap.servers": "nobody:1"}))
        return PlannedSplits(planner, reader, KafkaRecords(SimpleStringSchema()))


@pytest.mark.parametrize("together", [True, False])
def test_an_empty_bounded_topic_beside_a_stream_ends_at_once(together):
    env = environment()
    stream = env.from_collection([]).uid("go")
    topic = env.from_source(EmptyTopic(), WatermarkStrategy.no_watermarks(), "topic")
    topic = topic.uid("topic").map(lambda text: ("topic", int(text)))
    if together:
        judged(timed(stream.union(topic), "rule"))
    else:
        judged(timed(stream, "rule").union(topic))
    harness = started(env, 2)
    harness.run_epoch({0: [("k", 5)]}, checkpoint=True)
    assert watermark(harness) == 4
    harness = harness.restart(1)
    harness.run_epoch({0: [("k", 9)]})
    assert watermark(harness) == 8
