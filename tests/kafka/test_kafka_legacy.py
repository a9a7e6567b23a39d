"""The older names of Kafka's source and sink, against a real broker."""

from __future__ import annotations

import pickle

import pytest
from tests.kafka.test_kafka_source import Job
from tests.kafka.topics import Topics

from weir.common.serialization import SimpleStringSchema
from weir.connector.sink import WriterContext
from weir.connector.source import Opening
from weir.datastream import StreamExecutionEnvironment
from weir.datastream.connectors.kafka import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from weir.errors import UsageError

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def topics(kafka: str) -> Topics:
    return Topics(kafka)


def consumer(topics: Topics, topic: str, **more: str) -> FlinkKafkaConsumer:
    properties = {"bootstrap.servers": topics.address, "group.id": topic}
    given = {key.replace("_", "."): value for key, value in more.items()}
    return FlinkKafkaConsumer(topic, SimpleStringSchema(), {**properties, **given})


def test_a_consumer_begins_where_it_is_told(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, ["a"], timestamp=1000)
    topics.send(topic, ["b"], timestamp=2000)
    opening = Opening("kafka", tmp_path)
    start = consumer(topics, topic)
    assert Job(start.open(opening)).values() == []
    assert Job(start.set_start_from_earliest().open(opening)).values() == ["a", "b"]
    assert Job(start.set_start_from_timestamp(1500).open(opening)).values() == ["b"]
    assert Job(start.set_start_from_latest().open(opening)).values() == []
    earliest = consumer(topics, topic, auto_offset_reset="earliest")
    assert Job(earliest.open(opening)).values() == ["a", "b"]
    with pytest.raises(UsageError, match="has committed no offset"):
        consumer(topics, topic, auto_offset_reset="none").open(opening)


@pytest.mark.parametrize("semantic", list(Semantic))
def test_a_producer_writes_with_its_semantic(topics: Topics, semantic: Semantic) -> None:
    topic = topics.new()
    config = {"bootstrap.servers": topics.address}
    made = FlinkKafkaProducer(topic, SimpleStringSchema(), config, semantic=semantic)
    context = WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1)
    writer = pickle.loads(pickle.dumps(made)).create_writer(context)
    writer.write_batch(["x", "y"], [1000, 2000])
    writer.commit(writer.prepare(1))
    writer.close()
    assert topics.awaited(topic, 2) == [(None, b"x"), (None, b"y")]


def test_a_program_in_the_older_spelling_is_taken(topics: Topics) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.add_source(consumer(topics, "in"), "kafka")
    config = {"bootstrap.servers": topics.address}
    stream.add_sink(FlinkKafkaProducer("out", SimpleStringSchema(), config))
    assert "kafka" in env.get_execution_plan()
