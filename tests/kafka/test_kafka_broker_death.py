"""Clients that have lived through the death of their only broker, which is back with its data."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests import brokers
from tests.kafka.topics import Topics

from weir.clock import SystemClock
from weir.common.serialization import SimpleStringSchema
from weir.connector.commit_target import Commits
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Cluster
from weir.connector.kafka.offsets import KafkaTopicPartition
from weir.connector.kafka.sink import KafkaRecordSerializationSchema, KafkaSink
from weir.connector.kafka.target import TIMEOUT, KafkaTarget, Row
from weir.connector.sink import WriterContext
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.errors import StorageError

pytestmark = pytest.mark.kafka
# Longer than a broker takes to start on a busy machine: a transaction outlives its death.
_OPEN_S = 30


def rows(topic: str, checkpoint: int) -> list[Row]:
    return [(topic, None, f"{checkpoint}-{n}".encode(), None) for n in range(50)]


def test_a_commit_during_which_the_broker_dies_and_is_back_ends_with_its_transaction(
    tmp_path: Path,
) -> None:
    with brokers.own("kafka", tmp_path) as broker:
        topics, clock = Topics(broker.address), SystemClock()
        topic = topics.new(1)
        settings = {"bootstrap.servers": broker.address, TIMEOUT: str(_OPEN_S * 1000)}
        commits = Commits(KafkaTarget(Connection(settings), "weir"))
        assert commits.newest("one") is None
        commits.write("one", 1, rows(topic, 1))
        ended, raised = threading.Event(), list[StorageError]()

        def write() -> None:
            try:
                commits.write("one", 2, rows(topic, 2))
            except StorageError as error:
                raised.append(error)
            ended.set()

        broker.kill()
        began = clock.monotonic_ms()
        threading.Thread(target=write, daemon=True).start()
        broker.start()
        assert ended.wait(_OPEN_S + 10 - (clock.monotonic_ms() - began) / 1000)
        if commits.newest("one") == 1:
            assert raised
            commits.write("one", 2, rows(topic, 2))
        # The broker tells of a commit before readers see it.
        while len(found := [value for _, value in topics.read(topic)]) < 100:
            assert commits.newest("one") == 2
        assert sorted(found) == sorted(row[2] for n in (1, 2) for row in rows(topic, n))


def test_at_least_once_nothing_is_lost_or_out_of_order_though_the_broker_dies(
    tmp_path: Path,
) -> None:
    with brokers.own("kafka", tmp_path) as broker:
        topics = Topics(broker.address)
        topic = topics.new(1)
        schema = KafkaRecordSerializationSchema(topic, SimpleStringSchema())
        made = KafkaSink.builder().set_bootstrap_servers(broker.address)
        made.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        sink = made.set_record_serializer(schema).build()
        writer = sink.create_writer(
            WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1)
        )
        sent = [str(n) for n in range(30_000)]
        writer.write_batch(sent[:10_000], None)
        # What the client has not sent yet, and what nobody has acknowledged, is under way.
        broker.kill()
        writer.write_batch(sent[10_000:20_000], None)
        broker.start()
        writer.write_batch(sent[20_000:], None)
        writer.prepare(1)
        assert [value.decode() for _, value in topics.read(topic)] == sent
        writer.close()


def test_offsets_are_found_where_the_leader_is_now(tmp_path: Path) -> None:
    with brokers.own("kafka", tmp_path) as broker:
        topics = Topics(broker.address)
        place = KafkaTopicPartition(topics.new(1), 0)
        topics.send(place.topic, ["a", "b"])
        cluster = Cluster(Connection({"bootstrap.servers": broker.address}))
        assert cluster.latest([place]) == {place: 2}
        broker.kill()
        broker.start()
        assert cluster.latest([place]) == {place: 2}
