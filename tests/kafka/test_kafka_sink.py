"""The Kafka sink against a real broker: the contract of commit targets, and other guarantees."""

from __future__ import annotations

import ast
import time
import uuid
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from tests.kafka.topics import Topics, until

from weir.common.serialization import SerializationSchema, SimpleStringSchema
from weir.connector.commit_target import CommitSink
from weir.connector.sink import WriterContext
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.testing.clock import ManualClock
from weir.testing.commit_target_conformance import CommitTargetConformance

pytestmark = pytest.mark.kafka
EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


class Repr(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return repr(element).encode()


def sink(
    topics: Topics,
    topic: Any,
    guarantee: DeliveryGuarantee,
    value: SerializationSchema | None = None,
    **properties: str,
) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder()
    schema.set_value_serialization_schema(value or Repr())
    schema.set_key_serialization_schema(Repr())
    chosen = schema.set_topic if isinstance(topic, str) else schema.set_topic_selector
    made = KafkaSink.builder().set_bootstrap_servers(topics.address)
    made.set_record_serializer(chosen(topic).build()).set_delivery_guarantee(guarantee)
    made.set_transactional_id_prefix(f"weir-{uuid.uuid4().hex[:6]}")
    for key, value in properties.items():
        made.set_property(key.replace("_", "."), value)
    return made.build()


def context(**more: Any) -> WriterContext:
    return WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1, **more)


@pytest.fixture(scope="module")
def topics(kafka: str) -> Topics:
    return Topics(kafka)


class TestExactlyOnce(CommitTargetConformance):
    @pytest.fixture(autouse=True)
    def _topic(self, topics: Topics) -> None:
        self.topics, self.topic = topics, topics.new(2)
        self.sink = sink(topics, self.topic, DeliveryGuarantee.EXACTLY_ONCE)

    def make_sink(self) -> CommitSink:
        return self.sink

    def visible(self) -> Iterable[Any]:
        return [ast.literal_eval(value.decode()) for _, value in self.topics.read(self.topic)]

    def expect(self, *numbers: int) -> None:
        """Transactions become visible a moment after their commit."""
        until(lambda: list(self.visible()), len(numbers))
        super().expect(*numbers)


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_records_arrive_in_order_with_keys_and_timestamps(topics: Topics, guarantee) -> None:
    topic = topics.new()
    # A queue that is full again and again is waited for.
    small = {"queue_buffering_max_messages": "700"}
    writer = sink(topics, lambda record: topic, guarantee, **small).create_writer(context())
    numbers = list(range(1, 2501))
    writer.write_batch(numbers, [1000 * n for n in numbers])
    prepared = writer.prepare(1)
    assert bool(prepared) == (guarantee is EXACTLY_ONCE)
    writer.commit(prepared)
    writer.close()
    found = until(partial(topics.messages, topic), len(numbers))
    arrived = [(m.key(), m.value(), m.timestamp()[1]) for m in found]
    assert arrived == [(b"%d" % n, b"%d" % n, 1000 * n) for n in numbers]


def java_partition(key: bytes, partitions: int) -> int:
    """Return where Java's default partitioner sends a key: murmur2, without the sign."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    found = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        found = found * factor & mask ^ word
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return ((found ^ found >> 15) & 0x7FFFFFFF) % partitions


def test_the_hash_of_this_test_is_the_published_one() -> None:
    """The numbers are those of Kafka's own test of its hash."""
    published = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, number in published.items():
        assert java_partition(key, 1 << 31) == number & 0x7FFFFFFF


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_keys_go_to_the_partitions_where_java_sends_them(topics: Topics, guarantee) -> None:
    topic = topics.new(7)
    writer = sink(topics, topic, guarantee).create_writer(context())
    writer.write_batch(list(range(300)), None)
    writer.commit(writer.prepare(1))
    writer.close()
    found = until(partial(topics.messages, topic), 300)
    assert len(found) == 300
    assert all(m.partition() == java_partition(m.key(), 7) for m in found)


def test_a_partitioner_of_ones_own_counts_more(topics: Topics) -> None:
    topic = topics.new(7)
    own = sink(topics, topic, DeliveryGuarantee.AT_LEAST_ONCE, partitioner="consistent")
    writer = own.create_writer(context())
    writer.write_batch(list(range(100)), None)
    writer.close()
    found = topics.messages(topic)
    assert all(m.partition() == zlib.crc32(m.key()) % 7 for m in found)
    assert len(found) == 100


class Value(SerializationSchema):
    def serialize(self, element: Any) -> Any:
        return element[1]


@pytest.mark.parametrize("guarantee", list(DeliveryGuarantee))
def test_records_without_a_value_and_with_the_first_event_time_are_written(
    topics: Topics, guarantee
) -> None:
    topic = topics.new()
    made = sink(topics, topic, guarantee, Value())
    writer = made.create_writer(context())
    writer.write_batch([("a", b"1"), ("a", None)], [0, 2])
    # Who restores the checkpoint has the rows from there.
    prepared = writer.prepare(1)
    heir = made.create_writer(context())
    heir.restore(prepared)
    heir.close()
    writer.close()
    found = until(partial(topics.messages, topic), 2)
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in found] == [
        (b"('a', b'1')", b"1", 1),
        (b"('a', None)", None, 2),
    ]


def test_a_record_without_a_timestamp_gets_that_of_its_sending(topics: Topics) -> None:
    topic, begun = topics.new(), time.time() * 1000
    writer = sink(topics, topic, DeliveryGuarantee.AT_LEAST_ONCE).create_writer(context())
    writer.write_batch([1], None)
    writer.close()
    [message] = topics.messages(topic)
    assert begun - 1000 < message.timestamp()[1] < time.time() * 1000 + 1000


def test_at_least_once_records_are_there_at_the_barrier(topics: Topics) -> None:
    topic = topics.new()
    writer = sink(topics, topic, DeliveryGuarantee.AT_LEAST_ONCE).create_writer(context())
    writer.write_batch(list(range(500)), None)
    writer.prepare(1)
    assert len(topics.read(topic)) == 500
    writer.close()


def test_a_missing_topic_is_refused_before_anything_is_written(topics: Topics) -> None:
    with pytest.raises(UsageError, match="has no topic 'nowhere' to write to"):
        sink(topics, "nowhere", DeliveryGuarantee.EXACTLY_ONCE).create_writer(context())


def test_a_record_that_no_broker_takes_is_refused_before_it_is_prepared(topics: Topics) -> None:
    writer = sink(topics, topics.new(), DeliveryGuarantee.EXACTLY_ONCE).create_writer(context())
    with pytest.raises(UsageError, match="can be written: raise"):
        writer.write_batch(["x" * 1_100_000], None)


def test_a_record_that_the_topic_does_not_take_is_refused_before_it_is_prepared(
    topics: Topics,
) -> None:
    topic = topics.new(config={"max.message.bytes": "2000"})
    writer = sink(topics, topic, DeliveryGuarantee.EXACTLY_ONCE).create_writer(context())
    writer.write_batch(["x" * 900], None)
    with pytest.raises(UsageError, match="at most 2000 can be written: raise"):
        writer.write_batch(["x" * 2000], None)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_what_a_topic_that_was_chosen_refuses_is_named_and_nothing_is_half_written(
    topics: Topics, guarantee: DeliveryGuarantee
) -> None:
    small, open_to_all = topics.new(config={"max.message.bytes": "2000"}), topics.new()

    def chosen(record: str) -> str:
        return small if record.startswith("x") else open_to_all

    made = sink(topics, chosen, guarantee)
    writer = made.create_writer(context())
    with pytest.raises(UsageError, match="at most 2000 can be written: raise"):
        writer.write_batch(["fits", "x" * 5000], None)
    writer.close()
    writer = sink(topics, lambda record: "nowhere", guarantee).create_writer(context())
    with pytest.raises(UsageError, match="has no topic 'nowhere' to write to"):
        writer.write_batch(["lost"], None)
    writer.close()
    if guarantee is EXACTLY_ONCE:
        assert topics.read(open_to_all) == []


def test_a_topic_that_takes_less_than_before_ends_the_job_and_nothing_is_half_written(
    topics: Topics,
) -> None:
    topic = topics.new()
    made = sink(topics, topic, EXACTLY_ONCE)
    writer = made.create_writer(context())
    writer.write_batch(["fits", "x" * 5000], None)
    topics.configure(topic, {"max.message.bytes": "2000"})
    prepared = writer.prepare(1)
    with pytest.raises(UsageError, match="resume from the checkpoint, which holds the records"):
        writer.commit(prepared)
    assert topics.read(topic) == []
    topics.configure(topic, {"max.message.bytes": "20000"})
    made.create_writer(context()).restore(prepared)
    topics.awaited(topic, 2)


def test_at_least_once_what_a_topic_does_not_take_any_more_fails_the_checkpoint(
    topics: Topics,
) -> None:
    topic = topics.new()
    # The client keeps the records until the barrier.
    slow = {"linger_ms": "60000"}
    writer = sink(topics, topic, DeliveryGuarantee.AT_LEAST_ONCE, **slow).create_writer(context())
    writer.write_batch(["fits", "x" * 5000], None)
    topics.configure(topic, {"max.message.bytes": "2000"})
    with pytest.raises(UsageError, match=r"refuses a record while writing.*others may have been"):
        writer.prepare(1)
    writer.close()


def test_a_transaction_timeout_is_held_against_the_brokers_and_not_against_the_interval(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.new()
    long = sink(topics, topic, EXACTLY_ONCE, transaction_timeout_ms="900001")
    with pytest.raises(UsageError, match=r"is 900001, and the brokers at .* allow at most 900000"):
        long.create_writer(context())
    short = sink(topics, topic, EXACTLY_ONCE, transaction_timeout_ms="30000")
    short.check(20_000)
    assert caplog.text == ""
    short.check(60_000)
    assert "checkpoints come every 60000 ms. In Flink records would be lost." in caplog.text
    caplog.clear()
    sink(topics, topic, EXACTLY_ONCE).check(None)
    assert "shows rows when a checkpoint is complete, and there are none" in caplog.text
    sink(topics, topic, DeliveryGuarantee.AT_LEAST_ONCE).check(None)
    writer = short.create_writer(context())
    writer.write_batch(["in time"], None)
    writer.commit(writer.prepare(1))
    writer.close()


def test_rows_whose_marker_may_have_expired_are_nobodys_guess(topics: Topics) -> None:
    topic, clock = topics.new(), ManualClock()
    made = sink(topics, topic, DeliveryGuarantee.EXACTLY_ONCE)
    writer = made.create_writer(context(clock=clock))
    writer.write_batch(["old"], None)
    prepared = writer.prepare(1)
    clock.advance(8 * 86_400_000)
    with pytest.raises(CorruptStateError, match="may be visible already: markers are kept for 7"):
        made.create_writer(context(clock=clock)).restore(prepared)
    made.when_unknown = "drop"
    made.create_writer(context(clock=clock)).restore(prepared)
    assert topics.read(topic) == []
    made.when_unknown = "write"
    made.create_writer(context(clock=clock)).restore(prepared)
    topics.awaited(topic, 1)


def test_what_cannot_be_meant_is_refused(topics: Topics) -> None:
    schema = KafkaRecordSerializationSchema.builder()
    with pytest.raises(UsageError, match="needs set_topic"):
        schema.set_value_serialization_schema(SimpleStringSchema()).build()
    with pytest.raises(UsageError, match="set_record_serializer"):
        KafkaSink.builder().set_bootstrap_servers("h:1").build()
    with pytest.raises(UsageError, match="expected 'fail', 'write' or 'drop'"):
        sink(topics, "t", DeliveryGuarantee.NONE, commit_when_marker_expired="guess")


def test_a_password_is_in_no_text(topics: Topics) -> None:
    made = sink(topics, "t", DeliveryGuarantee.NONE, sasl_password="secret")
    assert "secret" not in repr(made)


def test_no_broker_is_said(topics: Topics, monkeypatch) -> None:
    monkeypatch.setattr("weir.connector.kafka.client.TIMEOUT_S", 1.0)
    made = sink(topics, "t", DeliveryGuarantee.EXACTLY_ONCE, bootstrap_servers="127.0.0.1:1")
    with pytest.raises(StorageError, match=r"'127.0.0.1:1' did not answer"):
        made.create_writer(context())
