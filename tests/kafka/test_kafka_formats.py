"""Rows of all formats to a real broker and back, and what becomes of records that are none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.harness.programs import environment, run, started
from tests.kafka.test_kafka_source import Job, records_of
from tests.kafka.topics import Topics

from weir.common import ByteArraySchema, Row, Types, WatermarkStrategy
from weir.common.serialization import DeserializationSchema
from weir.connector.decoder import Columns, Records, Undecoded
from weir.connector.source import Opening
from weir.datastream.connectors.base import DEAD_LETTERS
from weir.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from weir.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from weir.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from weir.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from weir.errors import UsageError
from weir.testing.harness import collect

pytestmark = pytest.mark.kafka
PAIR = Types.ROW([Types.INT(), Types.STRING()])
ROWS = [(1, "hi"), (2, "hello"), (3, "hi"), (6, "hello"), (6, "hello")]
AVRO = """{"type": "record", "name": "Greeting",
  "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}"""


@pytest.fixture(scope="module")
def topics(kafka: str) -> Topics:
    return Topics(kafka)


def json() -> tuple[Any, Any]:
    return (
        JsonRowSerializationSchema.Builder().with_type_info(PAIR).build(),
        JsonRowDeserializationSchema.Builder().type_info(PAIR).build(),
    )


def csv() -> tuple[Any, Any]:
    return (
        CsvRowSerializationSchema.Builder(PAIR).build(),
        CsvRowDeserializationSchema.Builder(PAIR).build(),
    )


def avro() -> tuple[Any, Any]:
    return (
        AvroRowSerializationSchema(avro_schema_string=AVRO),
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
    )


def sink(topics: Topics, topic: str, schema: Any) -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    serializer = serializer.set_value_serialization_schema(schema).build()
    made = KafkaSink.builder().set_record_serializer(serializer)
    return made.set_bootstrap_servers(topics.address).set_property("group.id", "write").build()


def source(topics: Topics, topic: str, schema: Any, **properties: str) -> KafkaSource:
    made = KafkaSource.builder().set_topics(topic).set_value_only_deserializer(schema)
    made.set_properties({"bootstrap.servers": topics.address, "group.id": "read", **properties})
    made.set_bounded(KafkaOffsetsInitializer.latest())
    return made.set_starting_offsets(KafkaOffsetsInitializer.earliest()).build()


@pytest.mark.parametrize("form", [json, csv, avro])
def test_rows_are_written_and_read_by_programs_like_pyflinks_examples(
    topics: Topics, form: Any
) -> None:
    topic = topics.new()
    writing, reading = form()
    env = environment()
    stream = env.from_collection(ROWS, type_info=PAIR)
    stream.sink_to(sink(topics, topic, writing))
    harness = run(env, 1)
    harness.finish()
    env = environment()
    no_marks = WatermarkStrategy.no_watermarks()
    stream = env.from_source(
        source(topics, topic, reading), watermark_strategy=no_marks, source_name="kafka source"
    )
    stream.print()
    assert sorted(run(env, 1).printed) == sorted(f"+I[{n},{text}]" for n, text in ROWS)


def test_the_older_names_take_the_formats(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    writing, reading = csv()
    env = environment()
    properties = {"bootstrap.servers": topics.address, "group.id": "g"}
    made = FlinkKafkaProducer(topic=topic, serialization_schema=writing, producer_config=properties)
    env.from_collection(ROWS, type_info=PAIR).add_sink(made)
    run(env, 1).finish()
    assert [value for _, value in topics.read(topic)] == [f"{n},{t}\n".encode() for n, t in ROWS]
    consumer = FlinkKafkaConsumer(
        topics=topic, deserialization_schema=reading, properties=properties
    )
    consumer.set_start_from_earliest()
    opening = Opening("kafka", tmp_path, type_info=PAIR)
    assert [tuple(row) for row in Job(consumer.open(opening)).values()] == ROWS


def test_bytes_are_written_and_read(topics: Topics) -> None:
    topic = topics.new()
    bytes_type = Types.PRIMITIVE_ARRAY(Types.BYTE())
    env = environment()
    stream = env.from_collection([(b"one",), (b"\xff",)], type_info=Types.ROW([bytes_type]))
    plain = stream.map(lambda x: x[0], output_type=bytes_type)
    plain.sink_to(sink(topics, topic, ByteArraySchema()))
    run(env, 1).finish()
    env = environment()
    no_marks = WatermarkStrategy.no_watermarks()
    stream = env.from_source(source(topics, topic, ByteArraySchema()), no_marks, "kafka source")
    collect(stream.map(lambda data: data.decode("latin-1")))
    assert sorted(run(env, 1).collected()) == ["one", "ÿ"]


def pieces(topics: Topics, topic: str, schema: Any, tmp_path: Any, **more: str) -> list[Any]:
    made = source(topics, topic, schema, **more)
    read = more.get("on.deserialization.error") == "dead-letter"
    tags = frozenset({DEAD_LETTERS.tag_id} if read else ())
    return Job(made.open(Opening("kafka", tmp_path, side_outputs=tags))).pieces()


def test_flat_rows_come_as_columns_with_kafkas_timestamps(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, [b'{"f0": 1, "f1": "a"}', None], timestamp=1000)
    topics.send(topic, [b'{"f0": 2}'], timestamp=2000)
    [columns] = [p for p in pieces(topics, topic, json()[1], tmp_path) if isinstance(p, Columns)]
    assert records_of(columns) == [Row(f0=1, f1="a"), Row(f0=2, f1=None)]
    assert columns.timestamps.to_pylist() == [1000, 2000]
    topics.send(topic, [b'{"f0": "3"}'], timestamp=3000)
    [records] = [p for p in pieces(topics, topic, json()[1], tmp_path) if isinstance(p, Records)]
    assert [row.f0 for row in records.values] == [1, 2, 3]
    assert records.timestamps == [1000, 2000, 3000]


def test_another_declared_type_gets_records(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, [b'{"f0": 1, "f1": "a"}'])
    made = source(topics, topic, json()[1])
    other = Types.PICKLED_BYTE_ARRAY()
    job = Job(made.open(Opening("kafka", tmp_path, type_info=other)))
    assert [type(p) for p in job.pieces() if isinstance(p, (Columns, Records))] == [Records]


def test_what_is_no_row_fails_is_left_out_or_becomes_a_letter(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, [b'{"f0": 1}'])
    topics.send(topic, [b"oops"], key=b"k")
    topics.send(topic, [b'{"f0": 3}'])
    schema = json()[1]
    with pytest.raises(UsageError, match=rf"offset 1 of '{topic}', partition 0.*JsonRow.*b'oops'"):
        pieces(topics, topic, schema, tmp_path)
    how = "on.deserialization.error"
    found = pieces(topics, topic, schema, tmp_path, **{how: "skip"})
    assert [row.f0 for piece in found for row in records_of(piece)] == [1, 3]
    assert [piece for piece in found if isinstance(piece, Undecoded)] == [Undecoded(1, [])]
    found = pieces(topics, topic, schema, tmp_path, **{how: "dead-letter"})
    [[letter]] = [piece.letters for piece in found if isinstance(piece, Undecoded)]
    assert tuple(letter)[:5] == (topic, 0, 1, b"k", b"oops")
    assert "malformed" in letter.reason
    lenient = JsonRowDeserializationSchema.builder().type_info(PAIR).ignore_parse_errors().build()
    found = pieces(topics, topic, lenient, tmp_path)
    assert [piece.count for piece in found if isinstance(piece, Undecoded)] == [1]
    with pytest.raises(UsageError, match="expected one of 'fail', 'skip', 'dead-letter'"):
        source(topics, topic, schema, **{how: "ignore"})


class Even(KafkaRecordDeserializationSchema):
    def deserialize(self, record: Any) -> Any:
        number = int(record.value)
        return number if number % 2 == 0 else None

    def get_produced_type(self) -> Any:
        return Types.INT()


def test_whole_records_that_cannot_be_deserialised_are_left_out_too(
    topics: Topics, tmp_path
) -> None:
    topic = topics.new()
    topics.send(topic, ["1", "2", "x", "4"])
    made = KafkaSource.builder().set_topics(topic).set_bootstrap_servers(topics.address)
    made.set_deserializer(Even())
    with pytest.raises(UsageError, match=r"offset 2 of .*cannot be deserialised by Even"):
        Job(made.build().open(Opening("kafka", tmp_path))).pieces()
    made.set_property("on.deserialization.error", "skip")
    found = Job(made.build().open(Opening("kafka", tmp_path))).pieces()
    assert [value for piece in found for value in records_of(piece)] == [2, 4]
    assert [piece.count for piece in found if isinstance(piece, Undecoded)] == [1]


def test_dead_letters_of_a_topic_are_a_stream_of_the_program(topics: Topics) -> None:
    topic = topics.new(2)
    topics.send(topic, ["1,a", "bad"], partition=0)
    topics.send(topic, ["2,b", "x,c"], partition=1)
    env = environment()
    no_marks = WatermarkStrategy.no_watermarks()
    stream = env.from_source(source(topics, topic, csv()[1]), no_marks, "kafka")
    good = collect(stream.map(lambda row: row.f0))
    letters = stream.get_side_output(DEAD_LETTERS)
    bad = collect(letters.map(lambda letter: (letter.partition, letter.offset, letter.value)))
    harness = started(env, 2)
    harness.run_epoch()
    assert sorted(harness.collected(good)) == [1, 2]
    assert sorted(harness.collected(bad)) == [(0, 1, b"bad"), (1, 1, b"x,c")]
    assert harness.metrics("Source: kafka") == {"numRecordsInErrors": [2]}


class Broken(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        raise KeyError(message)


def test_a_schema_of_the_user_is_treated_alike(topics: Topics, tmp_path) -> None:
    topic = topics.new()
    topics.send(topic, ["a"])
    with pytest.raises(UsageError, match="deserialised by Broken: KeyError"):
        pieces(topics, topic, Broken(), tmp_path)
    found = pieces(topics, topic, Broken(), tmp_path, **{"on.deserialization.error": "skip"})
    assert [piece.count for piece in found if isinstance(piece, Undecoded)] == [1]
