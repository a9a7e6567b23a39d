"""What a Kafka planner lets an engine read: new partitions, bounds and rates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from weir.checkpoint.metadata import SourcePositions
from weir.common.serialization import SimpleStringSchema
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Found, Subscription
from weir.connector.kafka.offsets import KafkaTopicPartition, Offsets
from weir.connector.kafka.planner import KafkaPlanner, Pace
from weir.connector.kafka.position import KafkaPosition, Range
from weir.datastream.connectors.kafka import FlinkKafkaConsumer
from weir.errors import IncompatibleStateError, JobExecutionError, UsageError
from weir.spark.planned_source import refuse_unread
from weir.testing.clock import ManualClock

A, B, C = (KafkaTopicPartition("t", n) for n in range(3))
WANTED = Subscription(topics=("t",))
SOON = 1


class Partitions:
    """A cluster in memory: where partitions begin and end."""

    def __init__(self) -> None:
        self.begins: Offsets = {A: 0}
        self.ends: Offsets = {A: 0}
        self.id = "id"

    def add(self, partition: KafkaTopicPartition, begin: int, end: int) -> None:
        self.begins[partition], self.ends[partition] = begin, end

    def find(self, wanted: Subscription) -> Found:
        return Found(tuple(sorted(self.ends)), {"t": self.id})

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.id)

    def earliest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        return {p: self.begins[p] for p in partitions}

    def latest(self, partitions: Iterable[KafkaTopicPartition]) -> Offsets:
        return {p: self.ends[p] for p in partitions}

    def close(self) -> None:
        """Nothing is open."""


class Ticking(ManualClock):
    """A clock on which ten milliseconds pass whenever somebody looks at it."""

    def monotonic_ms(self) -> int:
        self.advance(10)
        return super().monotonic_ms()


def planner(
    cluster: Partitions, start: KafkaPosition, clock: ManualClock | None = None, **pace: Any
) -> KafkaPlanner:
    made = KafkaPlanner(
        Connection({"bootstrap.servers": "h:1"}),
        WANTED,
        start,
        Pace(**{"discovery_ms": SOON, **pace}),
        group=None,
        clock=clock or ManualClock(),
    )
    made._cluster = cluster
    return made


def ranges(made: KafkaPlanner, start: Any, end: Any) -> list[Range]:
    tasks = made.plan(start, end, 4)
    found = [Range(**json.loads(split)) for task in tasks for split in task]
    return [r for r in found if not r.is_empty]


def read_on(made: KafkaPlanner, position: Any) -> tuple[Counter[Any], Any]:
    """Read as an engine does to which a position that stays the same is the end."""
    read: Counter[Any] = Counter()
    while (end := json.loads(json.dumps(made.advance(position)))) != position:
        for found in ranges(made, position, end):
            read.update((found.partition, n) for n in range(found.start, found.end))
        position = end
    return read, position


def test_a_run_up_to_now_reads_partitions_that_were_added_since_its_savepoint() -> None:
    cluster = Partitions()
    cluster.add(A, 0, 9)
    cluster.add(B, 2, 5)
    saved = KafkaPosition({A: 7}, {"t": "id"})
    made = planner(cluster, saved)
    made.bound()
    cluster.add(A, 0, 20)
    cluster.add(B, 2, 20)
    cluster.add(C, 0, 20)
    read, end = read_on(made, saved.to_json())
    assert read == Counter([(0, 7), (0, 8), (1, 2), (1, 3), (1, 4)])
    assert end["offsets"] == {"t": {"0": 9, "1": 5}}
    later = planner(cluster, KafkaPosition.of(end))
    later.bound()
    read, end = read_on(later, end)
    assert end["offsets"] == {"t": {"0": 20, "1": 20, "2": 20}}
    assert set(read.values()) == {1}


def test_epochs_that_take_no_time_do_not_end_bounded_input() -> None:
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 10)
    start = KafkaPosition({A: 0}, {"t": "id"}, {A: 10})
    made = planner(cluster, start, clock, records_per_epoch=3)
    made.bound()
    read, end = read_on(made, start.to_json())
    assert read == Counter((0, n) for n in range(10))
    assert made.is_over(end)


def test_an_engine_that_asks_all_the_time_is_not_answered_each_time_where_there_is_no_end() -> None:
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 10)
    start = KafkaPosition({A: 0}, {"t": "id"})
    made = planner(cluster, start, clock)
    first = made.advance(start.to_json())
    cluster.add(A, 0, 20)
    assert made.advance(first) == first
    clock.advance(50)
    assert made.advance(first)["offsets"] == {"t": {"0": 20}}


def test_a_query_that_ends_before_its_input_is_refused() -> None:
    start = KafkaPosition({A: 0, B: 0}, {"t": "id"}, {A: 10, B: 3})
    planners = {0: planner(Partitions(), start)}

    def at(position: KafkaPosition) -> SourcePositions:
        return SourcePositions(1, offset_lines=("v1", "{}", json.dumps(position.to_json())))

    refuse_unread(planners, at(KafkaPosition({A: 10, B: 3})))
    for early in ({A: 9, B: 3}, {A: 10}):
        with pytest.raises(JobExecutionError, match="before its input was over: source 0 was read"):
            refuse_unread(planners, at(KafkaPosition(early)))
    with pytest.raises(JobExecutionError, match="t: 0=0, 1=0"):
        refuse_unread(planners, SourcePositions())
    endless = {0: planner(Partitions(), KafkaPosition({A: 0}))}
    refuse_unread(endless, at(KafkaPosition({A: 9})))


@pytest.mark.parametrize(("rate", "every_ms"), [(1, 50), (3, 50), (7, 130), (1000, 50)])
def test_a_rate_is_kept_however_low_it_is_and_however_often_it_is_asked_for(rate, every_ms) -> None:
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 10**6)
    position = KafkaPosition({A: 0}, {"t": "id"}).to_json()
    made = planner(cluster, KafkaPosition.of(position), clock, records_per_second=rate)
    for _ in range(20_000 // every_ms):
        position = made.advance(position)
        clock.advance(every_ms)
    read = position["offsets"]["t"]["0"]
    # At first what a second gives may come at once.
    assert 20 * rate - rate * every_ms / 1000 - 1 <= read <= 21 * rate


def test_what_a_rate_gave_while_nothing_came_adds_up_for_a_second_at_most() -> None:
    cluster, clock = Partitions(), ManualClock()
    position = KafkaPosition({A: 0}, {"t": "id"}).to_json()
    made = planner(cluster, KafkaPosition.of(position), clock, records_per_second=10)
    for _ in range(100):
        assert made.advance(position) == position
        clock.advance(100)
    cluster.add(A, 0, 1000)
    assert made.advance(position)["offsets"] == {"t": {"0": 10}}


def test_a_low_rate_does_not_end_bounded_input() -> None:
    cluster, clock = Partitions(), Ticking()
    cluster.add(A, 0, 150)
    start = KafkaPosition({A: 0}, {"t": "id"}, {A: 150})
    made = planner(cluster, start, clock, records_per_second=100)
    made.bound()
    read, end = read_on(made, start.to_json())
    assert sum(read.values()) == 150
    assert made.is_over(end)
    assert clock.monotonic_ms() >= 500


def test_an_engine_that_does_not_say_where_it_is_misses_nothing_of_a_new_partition() -> None:
    """Spark 4.1 asks how far it may read, and says only afterwards from where."""
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 5)
    start = KafkaPosition({A: 0}, {"t": "id"})
    made = planner(cluster, start, clock, discovery_ms=1000)
    first = made.advance(None)
    assert first == KafkaPosition({A: 5}, {"t": "id"}).to_json()
    cluster.add(B, 3, 8)
    clock.advance(1000)
    second = made.advance(None)
    assert [(r.partition, r.start, r.end) for r in ranges(made, first, second)] == [(1, 3, 8)]
    cluster.add(B, 3, 9)
    third = made.advance(None)
    assert [(r.partition, r.start, r.end) for r in ranges(made, second, third)] == [(1, 8, 9)]
    # Another process of the same job knows the job's beginning alone.
    again = planner(cluster, start, clock)
    assert again.advance(None) == third
    assert [(r.start, r.end) for r in ranges(again, first, third)] == [(3, 9)]
    # A later Spark goes on from there.
    clock.advance(1000)
    cluster.add(A, 0, 6)
    end = again.advance(third)
    assert end == KafkaPosition({A: 6, B: 9}, {"t": "id"}).to_json()


@pytest.mark.parametrize("pace", [{"records_per_second": 5}, {"records_per_epoch": 5}])
def test_limits_are_refused_where_the_engine_hears_of_none(pace) -> None:
    made = planner(Partitions(), KafkaPosition({A: 0}, {"t": "id"}), **pace)
    with pytest.raises(UsageError, match=r"'max\.records\.per\.\w+' .* needs Spark 4\.2 or later"):
        made.advance(None)


def test_where_input_ends_is_said_by_the_source_and_not_by_an_older_position() -> None:
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 10)
    cluster.add(B, 4, 6)
    # A job without an end is gone on with by one that has an end, and found a partition more.
    saved = KafkaPosition({A: 2}, {"t": "id"})
    made = planner(cluster, KafkaPosition({A: 2, B: 4}, {"t": "id"}, {A: 8, B: 6}), clock)
    made.bound()
    read, end = read_on(made, saved.to_json())
    assert read == Counter([*((0, n) for n in range(2, 8)), (1, 4), (1, 5)])
    assert made.is_over(end)
    # And the other way round.
    endless = planner(cluster, KafkaPosition({A: 8, B: 6}, {"t": "id"}), clock)
    assert endless.advance(end) == KafkaPosition({A: 10, B: 6}, {"t": "id"}).to_json()


def test_a_bounded_run_refuses_a_topic_that_was_exchanged_or_cut_on_the_way() -> None:
    cluster, clock = Partitions(), ManualClock()
    cluster.add(A, 0, 10)
    start = KafkaPosition({A: 0}, {"t": "id"})
    made = planner(cluster, start, clock, records_per_epoch=3)
    made.bound()
    with pytest.raises(IncompatibleStateError, match="ends at offset 10, and was read up to 11"):
        made.advance(KafkaPosition({A: 11}, {"t": "id"}).to_json())
    cluster.id = "another"
    clock.advance(1000)
    with pytest.raises(IncompatibleStateError, match="another one than that which was read"):
        made.advance(start.to_json())


@pytest.mark.parametrize(("given", "found"), [("5000", 5000), ("0", 1), ("-1", -1)])
def test_the_older_spelling_has_a_name_of_its_own_for_how_often_partitions_are_looked_for(
    given: str, found: int
) -> None:
    properties = {"bootstrap.servers": "h:1", "group.id": "g"}
    properties["flink.partition-discovery.interval-millis"] = given
    source = FlinkKafkaConsumer("t", SimpleStringSchema(), properties)._source()
    assert source._pace().discovery_ms == found
    assert "flink.partition-discovery.interval-millis" not in source.properties
    properties["flink.partition-discovery.interval-millis"] = "soon"
    with pytest.raises(UsageError, match="is 'soon', expected a number of milliseconds"):
        FlinkKafkaConsumer("t", SimpleStringSchema(), properties)
