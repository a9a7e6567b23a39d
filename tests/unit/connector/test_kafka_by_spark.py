"""What Spark's Kafka connector is told, what becomes of its rows, and what it cannot do."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weir.common.serialization import SimpleStringSchema
from weir.connector.decoder import Partition, Records
from weir.connector.kafka.decoder import KafkaRecords
from weir.connector.source import Opening, StreamRows
from weir.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)
from weir.errors import IncompatibleStateError, UsageError


def builder(**properties: str) -> Any:
    made = KafkaSource.builder().set_bootstrap_servers("host:9092")
    made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_properties({"reader": "spark", **properties})


def opened(made: Any, position: str | None = None) -> StreamRows:
    found = made.build().open(Opening("in", Path("nowhere"), position=position))
    assert isinstance(found, StreamRows)
    return found


def test_properties_of_the_java_client_go_to_spark_but_for_what_it_decides() -> None:
    made = builder(**{"sasl.jaas.config": "x", "auto.offset.reset": "latest", "group.id": "g"})
    assert opened(made.set_topics("a", "b")).options == {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.sasl.jaas.config": "x",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
        "failOnDataLoss": "true",
    }


def test_passwords_are_not_shown() -> None:
    shown = repr(opened(builder(**{"sasl.jaas.config": "secret"}).set_topics("a")))
    assert "secret" not in shown


PLACES = {KafkaTopicPartition("a", 0): 5, KafkaTopicPartition("a", 1): 7}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda b: b.set_topic_pattern("x.*"), {"subscribePattern": "x.*"}),
        (lambda b: b.set_partitions(set(PLACES)), {"assign": '{"a": [0, 1]}'}),
        (
            lambda b: b.set_partitions(set(PLACES)).set_starting_offsets(
                KafkaOffsetsInitializer.offsets(PLACES)
            ),
            {"startingOffsets": '{"a": {"0": 5, "1": 7}}'},
        ),
        (
            lambda b: b.set_topics("a").set_starting_offsets(KafkaOffsetsInitializer.timestamp(9)),
            {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"},
        ),
        (
            lambda b: b.set_topics("a").set_property("max.records.per.epoch", "10"),
            {"maxOffsetsPerTrigger": "10"},
        ),
        (
            lambda b: b.set_topics("a").set_deserializer(KafkaRecordDeserializationSchema()),
            {"includeHeaders": "true"},
        ),
    ],
)
def test_what_is_read_and_from_where(change: Any, expected: dict[str, str]) -> None:
    assert expected.items() <= opened(change(builder())).options.items()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.set_property("reader", "java"), "expected own or spark"),
        (lambda b: b.set_bounded(KafkaOffsetsInitializer.latest()), "has no set_bounded"),
        (lambda b: b.set_property("max.records.per.second", "5"), "has no max.records.per.second"),
        (
            lambda b: b.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()),
            "cannot begin at committed offsets",
        ),
        (
            lambda b: b.set_starting_offsets(KafkaOffsetsInitializer.offsets(PLACES)),
            "cannot begin at offsets offsets",
        ),
    ],
)
def test_what_spark_cannot_do_is_refused_before_anything_runs(change: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        change(builder().set_topics("a").set_group_id("g")).build()


def test_positions_of_the_own_reader_are_refused_and_sparks_are_taken() -> None:
    made = builder().set_topics("a")
    opened(made, '{"a": {"0": 3}}')
    own = json.dumps({"offsets": {"a": {"0": 3}}, "topics": {"a": "id"}})
    with pytest.raises(IncompatibleStateError, match="leave the property 'reader'"):
        opened(made, own)


def test_rows_are_decoded_partition_by_partition_with_kafkas_timestamps() -> None:
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    batch = pa.record_batch(
        {
            "key": pa.array([None] * 3, pa.binary()),
            "value": pa.array([b"x", b"y", b"z"], pa.binary()),
            "topic": ["t", "t", "t"],
            "partition": pa.array([1, 0, 1], pa.int32()),
            "offset": pa.array([4, 9, 5], pa.int64()),
            "timestamp": pa.array([moment] * 3, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * 3, pa.int32()),
        }
    )
    decoder = opened(builder().set_topics("t")).decoder
    # Records instead of columns, to look at them.
    pieces = list(type(decoder)(KafkaRecords(SimpleStringSchema())).decode(batch))
    stamp = int(moment.timestamp() * 1000)
    assert pieces == [
        Partition("t-1"),
        Records(["x", "z"], [stamp, stamp]),
        Partition("t-0"),
        Records(["y"], [stamp]),
    ]


def test_a_row_that_cannot_be_decoded_is_named_by_its_place() -> None:
    class Picky(SimpleStringSchema):
        def deserialize(self, message: bytes) -> str:
            raise ValueError(message)

    batch = pa.record_batch(
        {
            "key": pa.array([None], pa.binary()),
            "value": pa.array([b"x"], pa.binary()),
            "topic": ["t"],
            "partition": pa.array([1], pa.int32()),
            "offset": pa.array([4], pa.int64()),
            "timestamp": pa.array([None], pa.timestamp("us", "UTC")),
        }
    )
    made = builder().set_topics("t").set_value_only_deserializer(Picky())
    with pytest.raises(UsageError, match="offset 4 of 't', partition 1"):
        list(opened(made).decoder.decode(batch))
