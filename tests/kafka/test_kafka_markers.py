"""Where the markers of an exactly-once Kafka sink lie, and what becomes of them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.topics import Topics, until

from weir.common.serialization import SimpleStringSchema
from weir.connector.commit_target import Commits, CommitWriter
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Cluster
from weir.connector.kafka.deadline import CALLS_MAX, Calls
from weir.connector.kafka.offsets import KafkaTopicPartition
from weir.connector.kafka.target import KafkaTarget
from weir.connector.sink import WriterContext
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from weir.errors import StorageError, UsageError

kafka = pytest.mark.kafka


@pytest.fixture(scope="module")
def topics(kafka: str) -> Topics:
    return Topics(kafka)


def first_word(record: str) -> str:
    return record.partition(" ")[0]


def sink(topics: Topics, topic: Any, prefix: str = "", **properties: str) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder()
    schema.set_value_serialization_schema(SimpleStringSchema())
    chosen = schema.set_topic if isinstance(topic, str) else schema.set_topic_selector
    made = KafkaSink.builder().set_bootstrap_servers(topics.address)
    made.set_record_serializer(chosen(topic).build())
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    made.set_transactional_id_prefix(prefix or f"weir-{uuid.uuid4().hex[:6]}")
    for key, value in properties.items():
        made.set_property(key.replace("_", "."), value)
    return made.build()


def writer(made: KafkaSink, attempt: int = 0) -> CommitWriter:
    context = WriterContext("0a" * 16, "ab" * 16, attempt=attempt, subtask=0, parallelism=1)
    created: CommitWriter = made.create_writer(context)
    return created


def prepared(of: CommitWriter, checkpoint: int, *records: str) -> list[bytes]:
    of.write_batch(list(records), None)
    return of.prepare(checkpoint)


def until_there(topics: Topics, topic: str, count: int) -> list[bytes]:
    """Return what is there; transactions become visible a moment after their commit."""
    return [value for _, value in topics.awaited(topic, count)]


@kafka
def test_a_topic_that_is_created_anew_brings_the_rows_of_no_other_twice(topics: Topics) -> None:
    one, other = sorted([topics.new(), topics.new()])
    made = sink(topics, first_word)
    before = writer(made)
    both = prepared(before, 1, f"{one} a", f"{other} a")
    before.commit(both)
    until_there(topics, other, 1)
    topics.delete(one)
    topics.new(name=one)
    heir = writer(made, attempt=1)
    heir.restore(both)
    heir.commit(prepared(heir, 2, f"{one} b", f"{other} b"))
    assert until_there(topics, other, 2) == [f"{other} {x}".encode() for x in "ab"]
    assert until_there(topics, one, 1) == [f"{one} b".encode()]


@kafka
def test_checkpoints_with_other_topics_each_are_found_one_by_one(topics: Topics) -> None:
    one, other = topics.new(), topics.new()
    made = sink(topics, first_word)
    before = writer(made)
    several = [
        *prepared(before, 1, f"{one} 1"),
        *prepared(before, 2, f"{other} 2"),
        *prepared(before, 3, f"{one} 3"),
    ]
    before.commit(several[:2])
    writer(made, attempt=1).restore(several)
    writer(made, attempt=2).restore(several)
    assert until_there(topics, one, 2) == [f"{one} 1".encode(), f"{one} 3".encode()]
    assert until_there(topics, other, 1) == [f"{other} 2".encode()]


@kafka
def test_a_sink_that_writes_elsewhere_now_finds_what_it_wrote_before(topics: Topics) -> None:
    """Rows go to the topic for which they were prepared, and their marker is looked for there."""
    former, later, prefix = topics.new(), topics.new(), f"weir-{uuid.uuid4().hex[:6]}"
    before = writer(sink(topics, former, prefix))
    first = prepared(before, 1, "one")
    before.commit(first)
    second = prepared(before, 2, "two")
    for attempt in (1, 2):
        writer(sink(topics, later, prefix), attempt).restore([*first, *second])
    assert until_there(topics, former, 2) == [b"one", b"two"]
    assert topics.read(later) == []


@kafka
def test_only_the_topics_of_the_rows_are_asked_about(topics: Topics) -> None:
    topic, other, prefix = topics.new(), topics.new(), f"weir-{uuid.uuid4().hex[:6]}"
    before = writer(sink(topics, topic, prefix))
    (committable,) = prepared(before, 7, "row")
    before.commit([committable])
    known = json.loads(committable)
    assert known["places"] == [topic]
    target = KafkaTarget(Connection({"bootstrap.servers": topics.address}), prefix)
    identity = known["identity"]
    assert target.committed_in(identity, [topic]) == 7
    assert target.committed_in(identity, [other]) is None
    # What an earlier version prepared does not say where its marker is: every topic is asked.
    assert target.committed(identity) == 7
    del known["places"]
    writer(sink(topics, topic, prefix), attempt=1).restore([json.dumps(known).encode()])
    assert topics.read(topic) == [(None, b"row")]


@kafka
def test_a_transaction_that_holds_a_marker_back_is_named(topics: Topics, monkeypatch) -> None:
    monkeypatch.setattr("weir.connector.kafka.target._CALL_S", 2.0)
    monkeypatch.setattr("weir.connector.kafka.target._ASK_S", 1.0)
    topic, prefix = topics.new(), f"weir-{uuid.uuid4().hex[:6]}"
    target = KafkaTarget(Connection({"bootstrap.servers": topics.address}), prefix)
    group = Consumer({"bootstrap.servers": topics.address, "group.id": f"{prefix}.one"})
    with topics.transaction(topic, ["row"]) as producer:
        place = TopicPartition(topic, 0, 5)
        producer.send_offsets_to_transaction([place], group.consumer_group_metadata())
        with pytest.raises(StorageError, match=r"open transaction.*kafka-transactions.sh"):
            target.committed_in("one", [topic])
        producer.commit_transaction()
    group.close()
    assert target.committed_in("one", [topic]) == 5


@kafka
def test_a_transaction_that_is_open_for_too_long_is_explained(topics: Topics) -> None:
    topic, prefix = topics.new(), f"weir-{uuid.uuid4().hex[:6]}"
    properties = {"bootstrap.servers": topics.address, "isolation.level": "read_committed"}
    cluster = Cluster(Connection(properties))
    place = KafkaTopicPartition(topic, 0)

    class Slow(list[Any]):
        """Rows of which the second one comes when the broker has given up the transaction."""

        def __iter__(self) -> Iterator[Any]:
            first, second = super().__iter__()
            yield first
            # The row and the end of its transaction.
            until(lambda: [*range(cluster.latest([place])[place])], 2)
            yield second

    rows = Slow([(topic, None, b"1", None), (topic, None, b"2", None)])
    settings = {"bootstrap.servers": topics.address, "transaction.timeout.ms": "1000"}
    commits = Commits(KafkaTarget(Connection(settings), prefix))
    assert commits.newest("one", [topic]) is None
    with pytest.raises(StorageError, match=r"open for 1 s: raise 'transaction.timeout.ms'"):
        commits.write("one", 1, rows)
    assert commits.newest("one", [topic]) is None
    assert topics.read(topic) == []
    cluster.close()


@kafka
def test_properties_that_would_break_transactions_are_refused_at_the_start(topics: Topics) -> None:
    topic = topics.new()
    with pytest.raises(UsageError, match=r"'transactional.id'.*set_transactional_id_prefix"):
        sink(topics, topic, transactional_id="mine")
    with pytest.raises(UsageError, match="acks"):
        writer(sink(topics, topic, acks="1"))
    with pytest.raises(UsageError, match=r"enable\.idempotence"):
        writer(sink(topics, topic, enable_idempotence="false"))


def test_calls_that_do_not_come_back_are_few() -> None:
    calls, over = Calls("hanging"), threading.Event()
    before = threading.active_count()
    for _ in range(CALLS_MAX):
        with pytest.raises(TimeoutError, match="no answer for 0"):
            calls.call(lambda: over.wait() and None, 0)
    with pytest.raises(TimeoutError, match=f"{CALLS_MAX} calls before it have not come back"):
        calls.call(lambda: None, 10)
    assert threading.active_count() == before + CALLS_MAX
    over.set()
    for thread in threading.enumerate():
        if thread.name == "hanging":
            thread.join()
    calls.call(lambda: None, 10)

    def fails() -> None:
        msg = "said by the client"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="said by the client"):
        calls.call(fails, 10)
