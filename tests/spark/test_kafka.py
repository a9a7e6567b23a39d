"""Kafka sources and sinks in whole jobs on Spark, against a real broker."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.kafka.topics import Topics
from tests.spark.scenario import wait_until

from weir.common import Types, WatermarkStrategy
from weir.common.serialization import SimpleStringSchema
from weir.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from weir.datastream.functions import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def topics(kafka):
    return Topics(kafka)


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


def test_a_bounded_topic_is_read_once_and_then_resumed(env, topics, tmp_path):
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
