"""Kafka and PostgreSQL in whole jobs on Spark, with real servers that are killed on the way."""

from __future__ import annotations

import os
import signal
from collections import Counter

import psycopg
import pytest
from tests import brokers
from tests.kafka.topics import Topics
from tests.spark.scenario import slot_processes, wait_until

from weir.common import Configuration, Types, WatermarkStrategy
from weir.common.serialization import SimpleStringSchema
from weir.datastream.connectors.base import DeliveryGuarantee
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from weir.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.datastream.functions import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
KEYS, ROUND = 7, 50


def source(topics, topic, **properties):
    made = KafkaSource.builder().set_bootstrap_servers(topics.address).set_topics(topic)
    made.set_value_only_deserializer(SimpleStringSchema()).set_group_id(topic)
    return made.set_properties({"isolation.level": "read_committed", **properties})


class Count(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield value, n


def test_a_bounded_topic_is_read_once(env, kafka):
    topics = Topics(kafka)
    topic = topics.new(3)
    for p in range(3):
        topics.send(topic, [f"{p}-{i % 5}" for i in range(100)], partition=p)
    made = source(topics, topic, **{"max.records.per.epoch": "120"})
    made.set_bounded(KafkaOffsetsInitializer.latest())
    env.enable_checkpointing(200)
    stream = env.from_source(made.build(), WatermarkStrategy.no_watermarks(), "kafka")
    counted = stream.key_by(lambda v: v).process(Count())
    got = Counter(counted.execute_and_collect())
    assert got == Counter((f"{p}-{k}", n) for p in range(3) for k in range(5) for n in range(1, 21))
    wait_until(
        lambda: sum(topics.committed(topic, topic, p) for p in range(3)) == 300, 20, "commit"
    )


class World:
    """A broker and a database of this test alone, and what a reader finds in them."""

    def __init__(self, broker, database):
        self.broker, self.database = broker, database
        self.topics = Topics(broker.address)
        self.input, self.output = self.topics.new(2), self.topics.new(2)
        self.sent = 0
        with self.connection() as connection:
            connection.execute("create table counted (key text, n int)")

    def connection(self):
        return psycopg.connect(f"postgresql://test@{self.database.address}", autocommit=True)

    def send(self):
        """Append a round of records to both partitions."""
        values = [f"k{(self.sent + i) % KEYS}" for i in range(ROUND)]
        # A key is always in the same partition, so its records have one order.
        for p in range(2):
            mine = [v for v in values if int(v[1:]) % 2 == p]
            self.topics.send(self.input, mine, partition=p)
        self.sent += ROUND

    def expected(self):
        sums = Counter(i % KEYS for i in range(self.sent))
        return Counter(f"k{k} {n}" for k, count in sums.items() for n in range(1, count + 1))

    def in_kafka(self):
        return Counter(value.decode() for _, value in self.topics.read(self.output))

    def in_database(self):
        with self.connection() as connection:
            return Counter(f"{k} {n}" for k, n in connection.execute("select * from counted"))

    def caught_up(self):
        wanted = self.expected().total()
        return self.in_kafka().total() >= wanted and self.in_database().total() >= wanted


@pytest.fixture
def world(tmp_path):
    (tmp_path / "kafka").mkdir()
    (tmp_path / "postgres").mkdir()
    with (
        brokers.own("kafka", tmp_path / "kafka") as broker,
        brokers.own("postgres", tmp_path / "postgres") as database,
    ):
        yield World(broker, database)


def declare(env, world):
    made = source(world.topics, world.input).build()
    stream = env.from_source(made, WatermarkStrategy.no_watermarks(), "kafka").uid("source")
    counted = stream.key_by(lambda v: v).process(Count()).uid("count")
    schema = KafkaRecordSerializationSchema.builder().set_topic(world.output)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(world.broker.address)
    sink.set_record_serializer(schema.build()).set_transactional_id_prefix("e2e")
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    text = counted.map(lambda r: f"{r[0]} {r[1]}", output_type=Types.STRING())
    text.sink_to(sink.build()).uid("kafka-sink")
    row = Types.ROW([Types.STRING(), Types.INT()])
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    options.with_url(f"jdbc:postgresql://{world.database.address}").with_user_name("test")
    insert = "insert into counted values (?, ?)"
    rows = counted.map(lambda r: (r[0], r[1]), output_type=row)
    rows.add_sink(JdbcSink.exactly_once_sink(insert, row, options.build())).uid("database-sink")


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_duplicated_when_slots_and_servers_die(env, world, tmp_path):
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "200 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "300 ms",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    declare(env, world)
    world.send()
    job = env.execute_async("end to end")
    logs = str(tmp_path / "logs")

    def slot():
        wait_until(lambda: slot_processes(logs), 60, "a slot")
        os.kill(slot_processes(logs)[0], signal.SIGKILL)

    def broker():
        world.broker.kill()
        world.broker.start()

    def database():
        world.database.kill()
        world.database.start()

    wait_until(world.caught_up, 90, "the first round")
    for fault in (slot, broker, database, slot, slot, database, broker, slot):
        world.send()
        fault()
        world.send()
    wait_until(world.caught_up, 120, "catching up")
    job.cancel().result()
    assert world.in_kafka() == world.expected()
    assert world.in_database() == world.expected()
