"""The Kafka source against a real broker, without Spark: planning, reading, what it refuses."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka.topics import Topics, records_of, until

from weir.common.serialization import ByteArraySchema, SimpleStringSchema
from weir.connector.decoder import Columns, Mark, Partition
from weir.connector.source import Opening, PlannedSplits, Source, SplitRows
from weir.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.testing.clock import ManualClock
from weir.testing.source_conformance import PlannedSourceConformance

pytestmark = pytest.mark.kafka
LATEST = KafkaOffsetsInitializer.latest()


@pytest.fixture(scope="module")
def topics(kafka: str) -> Topics:
    return Topics(kafka)


def builder(topics: Topics, *names: str) -> Any:
    made = KafkaSource.builder().set_bootstrap_servers(topics.address)
    made.set_value_only_deserializer(SimpleStringSchema())
    made.set_property("isolation.level", "read_committed")
    made.set_property("partition.discovery.interval.ms", "1")
    return made.set_topics(*names) if names else made


def opened(made: Any, tmp_path: Any, position: str | None = None) -> PlannedSplits:
    return made.build().open(Opening("kafka", tmp_path, position=position))


class TestRanges(PlannedSourceConformance):
    @pytest.fixture(autouse=True)
    def _topic(self, topics: Topics) -> None:
        self.topics, self.topic = topics, topics.new(3)
        for partition in range(3):
            topics.send(self.topic, self.values(partition), partition)

    def make_source(self, directory: Path) -> Source:
        made = builder(self.topics, self.topic).set_bounded(LATEST)
        source: Source = made.set_property("max.records.per.epoch", "7").build()
        return source

    def records(self) -> list[str]:
        return [value for partition in range(3) for value in self.values(partition)]

    @staticmethod
    def values(partition: int) -> list[str]:
        return [f"{partition}-{n}" for n in range(3 * partition + 2)]


class Job:
    """A source that is read epoch by epoch, as an engine does."""

    def __init__(self, stream: PlannedSplits, position: Any = None) -> None:
        self.planner = pickle.loads(pickle.dumps(stream.planner))
        self.rows = pickle.loads(pickle.dumps(SplitRows(stream.reader, stream.decoder)))
        self.position = position or self.planner.begin()
        self.last: Any = None

    def pieces(self, tasks: int = 2) -> list[Any]:
        """Read one epoch."""
        self.planner._asked_ms = None  # do not wait until it asks again
        self.last = self.position, self.planner.advance(self.position)
        planned = self.planner.plan(*self.last, tasks)
        assert len(planned) <= tasks
        self.position = json.loads(json.dumps(self.last[1]))
        return self.read([s for task in planned for s in task])

    def read(self, splits: list[str]) -> list[Any]:
        names = pa.record_batch({"split": pa.array(splits, pa.string())})
        return list(self.rows.decode(names))

    def values(self) -> list[Any]:
        return [value for piece in self.pieces() for value in records_of(piece)]

    def awaited(self, count: int) -> list[Any]:
        """Read epochs until so many records came: brokers learn of changes a moment later."""
        found = self.values()
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += self.values()
        return found


def test_all_partitions_are_read_once_and_then_what_is_new(topics: Topics, tmp_path) -> None:
    topic = topics.new(2)
    topics.send(topic, ["a", "b"], partition=0)
    topics.send(topic, ["c"], partition=1)
    job = Job(opened(builder(topics, topic), tmp_path))
    assert sorted(job.values()) == ["a", "b", "c"]
    assert job.values() == []
    topics.send(topic, ["d"], partition=1)
    assert job.values() == ["d"]
    assert job.position["offsets"] == {topic: {"0": 2, "1": 2}}


def test_the_same_positions_give_the_same_records_again(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(50))
    stream = opened(builder(topics, topic), tmp_path)
    job = Job(stream)
    first = job.values()
    topics.send(topic, range(50, 60))
    again = Job(stream)
    planned = again.planner.plan(*job.last, 2)
    read = again.read([s for task in planned for s in task])
    assert [v for p in read for v in records_of(p)] == first


def test_records_have_kafkas_timestamps_and_partitions(topics: Topics, tmp_path) -> None:
    topic = topics.new(2)
    topics.send(topic, ["a"], partition=0, timestamp=1000)
    topics.send(topic, ["b"], partition=1, timestamp=2000)
    pieces = Job(opened(builder(topics, topic), tmp_path)).pieces()
    names = [p.name for p in pieces if isinstance(p, Partition)]
    assert sorted(names) == [f"{topic}-0", f"{topic}-1"]
    columns = [p for p in pieces if isinstance(p, Columns)]
    records = [(records_of(p), p.timestamps.to_pylist()) for p in columns]
    assert sorted(records) == [(["a"], [1000]), (["b"], [2000])]


def test_aborted_and_open_transactions_are_not_read(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    with topics.transaction(topic, ["aborted"] * 5) as producer:
        producer.abort_transaction(20)
    job = Job(opened(builder(topics, topic), tmp_path))
    # The range holds aborted records and a marker alone: nothing is delivered, and it ends.
    assert job.values() == []

    def further() -> list[int]:
        assert job.values() == []
        return [*range(job.position["offsets"][topic]["0"])]

    # The marker is written a moment later.
    until(further, 1)
    assert job.position["offsets"][topic]["0"] == 6
    with topics.transaction(topic, ["late"]) as producer:
        topics.send(topic, ["behind an open transaction"])
        assert job.values() == []
        assert job.position["offsets"][topic]["0"] == 6
        producer.commit_transaction(20)
    assert job.awaited(2) == ["late", "behind an open transaction"]


def test_a_range_ends_although_a_marker_is_its_last_offset(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    with topics.transaction(topic, ["x", "y"]) as producer:
        producer.commit_transaction(20)
    topics.awaited(topic, 1)
    topics.send(topic, ["z"])
    made = builder(topics, topic).set_property("max.records.per.epoch", "3")
    job = Job(opened(made, tmp_path))
    assert job.values() == ["x", "y"]
    assert job.position["offsets"][topic]["0"] == 3
    assert job.values() == ["z"]
    whole = builder(topics, topic).set_deserializer(KafkaRecordDeserializationSchema())
    rows = Job(opened(whole, tmp_path)).values()
    assert [(row.offset, row.value) for row in rows] == [(0, b"x"), (1, b"y"), (3, b"z")]


def test_an_epoch_is_no_larger_than_it_may_be(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(25))
    job = Job(opened(builder(topics, topic).set_property("max.records.per.epoch", "10"), tmp_path))
    assert [len(job.values()) for _ in range(4)] == [10, 10, 5, 0]


def test_new_partitions_and_topics_are_read_from_their_beginning(topics: Topics, tmp_path) -> None:
    first = topics.new(1)
    made = builder(topics).set_topic_pattern(f"{first}.*").set_starting_offsets(LATEST)
    topics.send(first, ["before"])
    job = Job(opened(made, tmp_path))
    assert job.values() == []
    topics.grow(first, 2)
    topics.send(first, ["grown"], partition=1)
    topics.new(1, f"{first}-more")
    topics.send(f"{first}-more", ["another"])
    assert sorted(job.awaited(2)) == ["another", "grown"]


def test_a_run_up_to_now_reads_partitions_that_were_added_since_its_savepoint(
    topics: Topics, tmp_path
) -> None:
    topic = topics.new(1)
    topics.send(topic, ["before"])
    job = Job(opened(builder(topics, topic), tmp_path))
    assert job.values() == ["before"]
    saved = job.position
    topics.grow(topic, 2)
    topics.send(topic, ["grown", "more"], partition=1)
    topics.send(topic, ["after"], partition=0)
    resumed = Job(opened(builder(topics, topic), tmp_path, json.dumps(saved)), saved)
    resumed.planner.bound()
    topics.send(topic, ["later"], partition=1)
    found, before = [], None
    while resumed.position != before:
        before = resumed.position
        found += resumed.values()
    assert sorted(found) == ["after", "grown", "more"]
    # What came later is read by the next run.
    assert Job(resumed_stream(topics, topic, tmp_path, before), before).values() == ["later"]


def resumed_stream(topics: Topics, topic: str, tmp_path: Any, position: Any) -> PlannedSplits:
    return opened(builder(topics, topic), tmp_path, json.dumps(position))


def test_an_end_that_is_set_only_now_counts_for_all_partitions_that_are_there(
    topics: Topics, tmp_path
) -> None:
    topic = topics.new(1)
    topics.send(topic, ["before"])
    job = Job(opened(builder(topics, topic), tmp_path))
    job.values()
    topics.grow(topic, 2)
    topics.send(topic, ["grown"], partition=1)
    made = builder(topics, topic).set_bounded(LATEST)
    ending = Job(opened(made, tmp_path, json.dumps(job.position)), job.position)
    topics.send(topic, ["too late"], partition=1)
    ending.planner.bound()
    assert ending.values() + ending.values() + ending.values() == ["grown"]
    assert ending.planner.is_over(ending.position)
    # And without it there is none any more.
    endless = Job(resumed_stream(topics, topic, tmp_path, ending.position), ending.position)
    assert endless.values() == ["too late"]


def test_a_source_that_reads_other_topics_than_its_state_says_so(topics: Topics, tmp_path) -> None:
    first, second = topics.new(1), topics.new(1)
    topics.send(first, ["a"])
    job = Job(opened(builder(topics, first, second), tmp_path))
    job.values()
    with pytest.raises(IncompatibleStateError, match=f"{first!r}, which the source does not read"):
        opened(builder(topics, second), tmp_path, json.dumps(job.position))
    more = opened(builder(topics, second, first), tmp_path, json.dumps(job.position))
    assert Job(more, job.position).values() == []


def test_bounded_input_ends_where_it_ended_at_the_start(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(5))
    job = Job(opened(builder(topics, topic).set_bounded(LATEST), tmp_path))
    topics.send(topic, range(5, 9))
    pieces = job.pieces()
    assert [v for p in pieces for v in records_of(p)] == list("01234")
    assert any(isinstance(p, Mark) and p.last for p in pieces)
    assert job.values() == []
    # A job that resumes knows it by the position alone.
    resumed = opened(builder(topics, topic).set_bounded(LATEST), tmp_path, json.dumps(job.position))
    assert Job(resumed).values() == []


def test_where_to_begin_is_decided_once(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, ["old"])
    stream = opened(builder(topics, topic).set_starting_offsets(LATEST), tmp_path)
    topics.send(topic, ["new"])
    assert Job(stream).values() == ["new"]
    assert Job(stream).values() == ["new"]


def test_every_way_to_say_where_to_begin(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    for n in range(4):
        topics.send(topic, [n], timestamp=1000 * (n + 1))
    partition = KafkaTopicPartition(topic, 0)
    start = KafkaOffsetsInitializer
    cases = {
        start.earliest(): ["0", "1", "2", "3"],
        start.timestamp(2500): ["2", "3"],
        start.timestamp(9000): [],
        start.offsets({partition: 1}): ["1", "2", "3"],
        start.committed_offsets(KafkaOffsetResetStrategy.EARLIEST): ["0", "1", "2", "3"],
        start.committed_offsets(KafkaOffsetResetStrategy.LATEST): [],
    }
    for wanted, expected in cases.items():
        made = builder(topics, topic).set_group_id("nobody").set_starting_offsets(wanted)
        assert Job(opened(made, tmp_path)).values() == expected, wanted
    with pytest.raises(UsageError, match="has committed no offset"):
        opened(
            builder(topics, topic)
            .set_group_id("nobody")
            .set_starting_offsets(start.committed_offsets()),
            tmp_path,
        )


def test_the_group_is_told_how_far_checkpoints_are(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(7))
    stream = opened(builder(topics, topic).set_group_id(topic), tmp_path)
    job = Job(stream)
    job.values()
    assert topics.committed(topic, topic) == -1001
    stream.planner.committed(job.position)
    stream.planner.close()
    assert topics.committed(topic, topic) == 7
    made = builder(topics, topic).set_group_id(topic)
    made.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    assert Job(opened(made, tmp_path)).values() == []


def test_single_partitions_are_read_alone(topics: Topics, tmp_path) -> None:
    topic = topics.new(3)
    for n in range(3):
        topics.send(topic, [n], partition=n)
    made = builder(topics).set_partitions({KafkaTopicPartition(topic, 1)})
    assert Job(opened(made, tmp_path)).values() == ["1"]
    with pytest.raises(UsageError, match="no partition"):
        opened(builder(topics).set_partitions({KafkaTopicPartition(topic, 7)}), tmp_path)


def test_whole_records_are_rows(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, [b"\xff"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=5)
    topics.send(topic, [None], timestamp=6)
    made = builder(topics, topic).set_deserializer(KafkaRecordDeserializationSchema())
    rows = Job(opened(made, tmp_path)).values()
    assert [tuple(row) for row in rows] == [
        (topic, 0, 0, 5, b"k", b"\xff", [("h", b"1"), ("h", None)]),
        (topic, 0, 1, 6, None, None, []),
    ]
    assert rows[0].offset == 0
    made.build().get_produced_type().check(rows[0])


def test_a_record_that_is_no_text_fails_or_is_left_out(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, ["good", b"\xff\xfe", None, "also good"])
    with pytest.raises(UsageError, match=rf"offset 1 of '{topic}', partition 0, cannot be"):
        Job(opened(builder(topics, topic), tmp_path)).values()
    made = builder(topics, topic).set_property("on.deserialization.error", "skip")
    assert Job(opened(made, tmp_path)).values() == ["good", "also good"]
    made = builder(topics, topic).set_value_only_deserializer(ByteArraySchema())
    assert Job(opened(made, tmp_path)).values() == [b"good", b"\xff\xfe", b"also good"]


def test_deleted_records_are_missed(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(10))
    job = Job(opened(builder(topics, topic), tmp_path))
    topics.truncate(topic, 4)
    with pytest.raises(CorruptStateError, match="are gone: they were deleted"):
        job.values()


def test_another_topic_of_the_same_name_is_refused(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(3))
    job = Job(opened(builder(topics, topic), tmp_path))
    job.values()
    topics.delete(topic)
    with pytest.raises(IncompatibleStateError, match="is gone"):
        job.values()
    topics.new(1, topic)
    topics.send(topic, range(9))
    with pytest.raises(IncompatibleStateError, match="another one than that which was read"):
        job.values()
    with pytest.raises(IncompatibleStateError, match="another one"):
        opened(builder(topics, topic), tmp_path, json.dumps(job.position))


def test_a_topic_that_is_exchanged_between_two_looks_for_partitions_is_refused(
    topics: Topics, tmp_path
) -> None:
    """It has more records than were read, so nothing but its id tells that it is another one."""
    topic, clock = topics.new(), ManualClock()
    topics.send(topic, range(3))
    never = builder(topics, topic).set_property("partition.discovery.interval.ms", "0")
    job = Job(opened(never, tmp_path))
    job.planner._clock = clock
    assert len(job.values()) == 3
    topics.delete(topic)
    topics.new(1, topic)
    topics.send(topic, range(9))
    clock.advance(1000)
    with pytest.raises(IncompatibleStateError, match="another one than that which was read"):
        job.values()


def test_a_position_of_sparks_own_connector_is_gone_on_from(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, range(3))
    stream = opened(builder(topics, topic), tmp_path, json.dumps({topic: {"0": 2}}))
    assert Job(stream).values() == ["2"]


def test_a_missing_topic_and_a_missing_broker_are_named(topics: Topics, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="has no topic 'nowhere'"):
        opened(builder(topics, "nowhere"), tmp_path)
    monkeypatch.setattr("weir.connector.kafka.client.TIMEOUT_S", 1.0)
    made = builder(topics, "nowhere").set_bootstrap_servers("127.0.0.1:1")
    with pytest.raises(StorageError, match=r"'127.0.0.1:1' did not answer"):
        opened(made, tmp_path)


def test_a_property_that_the_client_does_not_have_is_found_when_the_source_is_opened(
    topics: Topics, tmp_path
) -> None:
    made = builder(topics, topics.new()).set_property("fetch.mim.bytes", "1")
    with pytest.raises(UsageError, match=r"fetch\.mim\.bytes"):
        opened(made, tmp_path)
