"""Avro rows in messages, and what a schema is as a type of rows and as columns."""

from __future__ import annotations

import io
import json
import pickle
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from weir.common import Row, Types
from weir.common.time import Instant
from weir.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from weir.datastream.formats.parquet import AvroParquetWriters
from weir.errors import UsageError


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Test", "fields": listed})


SUIT = {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


FIELDS: list[tuple[str, Any, Any, Any]] = [
    ("id", "int", Types.INT(), 1),
    ("big", "long", Types.LONG(), 2**40),
    ("ratio", "float", Types.FLOAT(), 0.5),
    ("name", ["null", "string"], Types.STRING(), "ann"),
    ("none", ["string", "null"], Types.STRING(), None),
    ("ok", "boolean", Types.BOOLEAN(), True),
    ("data", "bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"ab"),
    ("suit", SUIT, Types.STRING(), "HEARTS"),
    ("again", ["null", "Suit"], Types.STRING(), "SPADES"),
    ("place", PLACE, Types.ROW_NAMED(["x"], [Types.DOUBLE()]), Row(x=1.5)),
    (
        "way",
        {"type": "array", "items": "Place"},
        Types.OBJECT_ARRAY(Types.ROW_NAMED(["x"], [Types.DOUBLE()])),
        [Row(x=1.0), Row(x=2.0)],
    ),
    ("sums", {"type": "map", "values": "long"}, Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}),
    ("price", logical("bytes", "decimal", precision=9, scale=2), Types.BIG_DEC(), Decimal("1.50")),
    ("day", logical("int", "date"), Types.SQL_DATE(), date(2024, 1, 31)),
    ("clock", logical("int", "time-millis"), Types.SQL_TIME(), time(1, 2, 3)),
    (
        "at",
        logical("long", "timestamp-millis"),
        Types.SQL_TIMESTAMP(),
        datetime(2024, 1, 31, 1, 2, 3),
    ),
]
SCHEMA = record(*[(name, kind) for name, kind, _, _ in FIELDS])


def test_a_row_is_written_and_read_back() -> None:
    writer = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=SCHEMA)))
    reader = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=SCHEMA)))
    names = [name for name, _, _, _ in FIELDS]
    assert reader.get_produced_type() == Types.ROW_NAMED(names, [t for _, _, t, _ in FIELDS])
    row = Row(**{name: value for name, _, _, value in FIELDS})
    assert reader.deserialize(writer.serialize(row)) == row
    assert reader.deserialize(writer.serialize(tuple(row))) == row
    reader.get_produced_type().check(row)


def test_the_bytes_are_those_of_avro() -> None:
    text = record(("id", "int"), ("name", "string"))
    made = AvroRowSerializationSchema(avro_schema_string=text).serialize((7, "hi"))
    assert made == b"\x0e\x04hi"
    found = fastavro.schemaless_reader(io.BytesIO(made), json.loads(text), None)
    assert found == {"id": 7, "name": "hi"}


def test_times_without_a_zone_are_utc_wherever_the_host_is() -> None:
    text = record(("at", logical("long", "timestamp-micros")))
    made = AvroRowSerializationSchema(avro_schema_string=text)
    wanted = made.serialize((datetime(1970, 1, 1, 0, 0, 1),))
    assert wanted == made.serialize((Instant(1, 0),))
    assert wanted == made.serialize((datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),))
    assert wanted == fastavro_long(1_000_000)


def fastavro_long(value: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", value)
    return stream.getvalue()


@pytest.mark.parametrize("message", [b"", b"\x0e", b"\x0e\x04h", b"\x0e\x04hix"])
def test_a_message_that_is_no_record_is_refused(message: bytes) -> None:
    text = record(("id", "int"), ("name", "string"))
    with pytest.raises(ValueError, match="the Avro schema"):
        AvroRowDeserializationSchema(avro_schema_string=text).deserialize(message)


@pytest.mark.parametrize("row", [("a", "b"), (1,), (1, None), (1, "a", 2)])
def test_a_row_that_does_not_fit_is_refused(row: Any) -> None:
    text = record(("id", "int"), ("name", "string"))
    with pytest.raises(UsageError, match="does not fit the Avro schema"):
        AvroRowSerializationSchema(avro_schema_string=text).serialize(row)


def test_schemas_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this is none"):
        AvroSchema.parse_string("{")
    with pytest.raises(UsageError, match="no Avro schema"):
        AvroSchema.parse_string('{"type": "recrod"}')
    with pytest.raises(UsageError, match="cannot be read"):
        AvroSchema.parse_file(str(tmp_path / "none.avsc"))
    with pytest.raises(UsageError, match="class of Java"):
        AvroRowSerializationSchema(record_class="org.example.Order")
    with pytest.raises(UsageError, match="needs avro_schema_string"):
        AvroRowDeserializationSchema()
    with pytest.raises(UsageError, match="schema of a record"):
        AvroRowDeserializationSchema(avro_schema_string='"int"')
    with pytest.raises(UsageError, match="union of several types"):
        AvroRowDeserializationSchema(avro_schema_string=record(("u", ["int", "string"])))
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "left", "type": ["null", "Tree"]}],
    }
    with pytest.raises(UsageError, match="holds itself"):
        AvroRowDeserializationSchema(avro_schema_string=json.dumps(tree))


def test_a_schema_is_a_value(tmp_path: Path) -> None:
    file = tmp_path / "test.avsc"
    file.write_text(SCHEMA)
    schema = AvroSchema.parse_file(str(file))
    assert schema == AvroSchema.parse_string(SCHEMA) == pickle.loads(pickle.dumps(schema))
    assert json.loads(str(schema)) == json.loads(SCHEMA)
    declared = GenericRecordAvroTypeInfo(schema)
    assert declared == pickle.loads(pickle.dumps(declared))
    assert declared.check({"any": 1}) == {"any": 1}
    assert declared != GenericRecordAvroTypeInfo(AvroSchema.parse_string(record(("id", "int"))))


def test_columns_of_parquet_follow_the_schema() -> None:
    form = AvroParquetWriters.for_generic_record(AvroSchema.parse_string(SCHEMA))
    columns = form.column_schema(None)
    assert columns.field("id") == pa.field("id", pa.int32(), nullable=False)
    assert columns.field("name") == pa.field("name", pa.string())
    assert columns.field("price").type == pa.decimal128(9, 2)
    assert columns.field("sums").type == pa.map_(pa.string(), pa.int64())
    union = AvroSchema.parse_string(record(("u", ["int", "double", "null"])))
    with pytest.raises(UsageError, match="union of several types"):
        AvroParquetWriters.for_generic_record(union)
