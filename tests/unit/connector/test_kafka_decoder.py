"""What becomes of batches that were read of Kafka; no broker is needed for that."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from weir.codec.arrow import batch_to_rows
from weir.common import Row, Types
from weir.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SimpleStringSchema,
)
from weir.connector.decoder import Columns, Records, Undecoded
from weir.connector.kafka.decoder import KafkaRecords
from weir.connector.kafka.reader import PARTITION, SCHEMA, TOPIC
from weir.connector.kafka.record import KafkaRecordDeserializationSchema
from weir.connector.undecoded import DEAD_LETTERS, OnError
from weir.datastream.formats.json import JsonRowDeserializationSchema
from weir.errors import UsageError

PAIR = Types.ROW([Types.INT(), Types.STRING()])
JSON = JsonRowDeserializationSchema.builder().type_info(PAIR).build()


def batch(*values: bytes | None, stamps: bool = True) -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.array([f"k{i}".encode() for i in range(count)], pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(range(10, 10 + count), pa.int64()),
        pa.array([1000 * i if stamps else None for i in range(count)], pa.int64()),
        pa.nulls(count, SCHEMA.field("headers").type),
    ]
    where = {TOPIC: b"clicks", PARTITION: b"3"}
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.with_metadata(where))


def decoded(schema: Any, given: pa.RecordBatch, **choices: Any) -> list[Any]:
    decoder = KafkaRecords(schema, **{"columnar": True, **choices})
    return list(pickle.loads(pickle.dumps(decoder)).decode(given))


def values(pieces: list[Any]) -> list[Any]:
    found: list[Any] = []
    for piece in pieces:
        if isinstance(piece, Columns):
            found += batch_to_rows(piece.batch, piece.type_info)
        elif isinstance(piece, Records):
            found += piece.values
    return found


@pytest.mark.parametrize(
    ("schema", "given", "made"),
    [
        (SimpleStringSchema(), [b"a", "ä".encode()], ["a", "ä"]),
        (ByteArraySchema(), [b"a", b"\xff"], [b"a", b"\xff"]),
        (JSON, [b'{"f0": 1}', b'{"f1": "a"}'], [Row(f0=1, f1=None), Row(f0=None, f1="a")]),
    ],
)
def test_plain_values_become_columns(schema: Any, given: list[bytes], made: list[Any]) -> None:
    [columns] = decoded(schema, batch(*given, None))
    assert isinstance(columns, Columns)
    assert columns.type_info == schema.get_produced_type()
    assert columns.timestamps.to_pylist() == [0, 1000]
    assert values([columns]) == made
    [records] = decoded(schema, batch(*given, None), columnar=False)
    assert isinstance(records, Records)
    assert (records.values, records.timestamps) == (made, [0, 1000])
    [unstamped] = decoded(schema, batch(*given, stamps=False))
    assert unstamped.timestamps is None


def test_tombstones_alone_give_nothing() -> None:
    assert decoded(SimpleStringSchema(), batch(None, None)) == []
    assert decoded(SimpleStringSchema(), batch()) == []


class Louder(SimpleStringSchema):
    def deserialize(self, message: bytes) -> str:
        return super().deserialize(message) + "!"


def test_who_overrides_a_schema_is_asked() -> None:
    assert values(decoded(Louder(), batch(b"a"))) == ["a!"]
    assert values(decoded(SimpleStringSchema("latin-1"), batch(b"\xff"))) == ["ÿ"]


def test_a_bad_record_fails_and_is_named() -> None:
    says = r"offset 11 of 'clicks', partition 3, .*JsonRowDeserializationSchema.*b'oops'"
    with pytest.raises(UsageError, match=says):
        decoded(JSON, batch(b"{}", b"oops"))


def test_a_bad_record_is_left_out_and_counted() -> None:
    found = decoded(JSON, batch(b"{}", b"oops", b'{"f0": 2}'), on_error=OnError.SKIP)
    assert [row.f0 for row in values(found)] == [None, 2]
    assert found[0].timestamps == [0, 2000]
    assert found[1] == Undecoded(1, [])


def test_a_bad_record_becomes_a_dead_letter() -> None:
    found = decoded(JSON, batch(b"oops"), on_error=OnError.DEAD_LETTER)
    [undecoded] = found
    [letter] = undecoded.letters
    assert tuple(letter)[:5] == ("clicks", 3, 10, b"k0", b"oops")
    assert letter.reason.startswith("DecodeError: ")
    assert DEAD_LETTERS.type_info.check(letter) is letter


def test_what_a_schema_ignores_is_counted() -> None:
    lenient = JsonRowDeserializationSchema.builder().type_info(PAIR).ignore_parse_errors().build()
    found = decoded(lenient, batch(b"oops", b'{"f0": "x"}'))
    assert values(found) == [Row(f0=None, f1=None)]
    assert found[-1] == Undecoded(1, [])


class Odd(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        return message if len(message) % 2 else None


def test_what_a_schema_of_the_user_leaves_out_is_no_error() -> None:
    found = decoded(Odd(), batch(b"a", b"bb", b"ccc"))
    assert found == [Records([b"a", b"ccc"], [0, 2000])]


class Keyed(KafkaRecordDeserializationSchema):
    def deserialize(self, record: Any) -> Any:
        return record.key.decode(), int(record.value)


def test_whole_records_follow_the_same_rules() -> None:
    given = batch(b"1", b"x", b"3")
    with pytest.raises(UsageError, match=r"offset 11 .*deserialised by Keyed: ValueError"):
        decoded(Keyed(), given)
    found = decoded(Keyed(), given, on_error=OnError.SKIP)
    assert values(found) == [("k0", 1), ("k2", 3)]
    assert found[-1] == Undecoded(1, [])
