"""JSON rows: which value comes out of which text, and what is refused or left out."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from weir.common import Row, Types
from weir.common.time import Instant
from weir.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from weir.errors import UsageError

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def schema(*types: Any, **choices: bool) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW(list(types)))
    for name in choices:
        getattr(builder, name)()
    return pickle.loads(pickle.dumps(builder.build()))


def read(type_info: Any, text: str) -> Any:
    return schema(type_info).deserialize(b'{"f0": %s}' % text.encode())[0]


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.INT(), "12", 12),
        (Types.INT(), '" 12 "', 12),
        (Types.INT(), "1.9", 1),
        (Types.LONG(), "-9223372036854775808", -(2**63)),
        (Types.BYTE(), '"-128"', -128),
        (Types.SHORT(), "7", 7),
        (Types.DOUBLE(), "1", 1.0),
        (Types.DOUBLE(), '"Infinity"', float("inf")),
        (Types.FLOAT(), "0.1", 0.10000000149011612),
        (Types.FLOAT(), "1e39", float("inf")),
        (Types.BOOLEAN(), "true", True),
        (Types.BOOLEAN(), '"TRUE"', True),
        (Types.BOOLEAN(), "1", False),
        (Types.STRING(), '"ä"', "ä"),
        (Types.STRING(), "12", "12"),
        (Types.STRING(), "1.5", "1.5"),
        (Types.STRING(), "false", "false"),
        (Types.STRING(), '{"a": [1, null]}', '{"a":[1,null]}'),
        (Types.BIG_INT(), "123456789012345678901234567890", 123456789012345678901234567890),
        (Types.BIG_DEC(), "0.1234567890123456789", Decimal("0.1234567890123456789")),
        (Types.SQL_DATE(), '"2024-1-31"', date(2024, 1, 31)),
        (Types.SQL_TIME(), '"12:34:56Z"', time(12, 34, 56)),
        (
            Types.SQL_TIMESTAMP(),
            '"2024-01-31T12:34:56.5Z"',
            datetime(2024, 1, 31, 12, 34, 56, 500000),
        ),
        (Types.INSTANT(), '"1970-01-01T01:00:00+01:00"', Instant(0, 0)),
        (BYTES, '"YWI="', b"ab"),
        (Types.LIST(Types.INT()), "[1, null, 3]", [1, None, 3]),
        (Types.MAP(Types.INT(), Types.STRING()), '{"1": "a"}', {1: "a"}),
        (Types.ROW_NAMED(["x"], [Types.INT()]), '{"x": 1, "y": 2}', Row(x=1)),
        (Types.PICKLED_BYTE_ARRAY(), '{"any": [1]}', {"any": [1]}),
        (Types.INT(), "null", None),
    ],
)
def test_a_value_is_read_as_flink_reads_it(type_info: Any, text: str, value: Any) -> None:
    found = read(type_info, text)
    assert found == value
    assert type(found) is type(value) or isinstance(value, Row)


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "2147483648"),
        (Types.INT(), "true"),
        (Types.INT(), '"1_000"'),
        (Types.INT(), "[1]"),
        (Types.SHORT(), "1.0"),
        (Types.DOUBLE(), '"nan"'),
        (Types.DOUBLE(), '"0x10"'),
        (Types.BIG_DEC(), "true"),
        (Types.SQL_DATE(), '"31.1.2024"'),
        (Types.SQL_DATE(), '"2024-02-30"'),
        (Types.SQL_TIMESTAMP(), '"2024-01-31"'),
        (Types.INSTANT(), '"2024-01-31T00:00:00"'),
        (BYTES, '"%"'),
        (BYTES, "1"),
        (Types.LIST(Types.INT()), '"1"'),
        (Types.MAP(Types.STRING(), Types.INT()), "[]"),
        (Types.ROW([Types.INT()]), "1"),
        (Types.CHAR(), '"ab"'),
    ],
)
def test_a_value_that_does_not_fit_is_refused_or_none(type_info: Any, text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read(type_info, text)
    lenient = schema(type_info, ignore_parse_errors=True)
    assert lenient.deserialize(b'{"f0": %s}' % text.encode()) == Row(f0=None)


@pytest.mark.parametrize("message", [b"", b"{", b'{"f0": 1} x', b"1", b"\xff", b"[1, 2]", b"NaN"])
def test_a_message_that_is_no_object_is_refused_or_left_out(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several libraries
        schema(Types.INT()).deserialize(message)
    with pytest.raises(ValueError):  # noqa: PT011
        schema(Types.BIG_DEC()).deserialize(message)
    assert schema(Types.INT(), ignore_parse_errors=True).deserialize(message) is None


def test_a_missing_field_is_none_unless_that_is_forbidden() -> None:
    assert schema(Types.INT(), Types.INT()).deserialize(b'{"f1": 2}') == Row(f0=None, f1=2)
    strict = schema(Types.INT(), Types.INT(), fail_on_missing_field=True)
    assert strict.deserialize(b'{"f0": null, "f1": 2}') == Row(f0=None, f1=2)
    with pytest.raises(ValueError, match="no field 'f0'"):
        strict.deserialize(b'{"f1": 2}')


def test_what_contradicts_itself_or_is_missing_is_refused() -> None:
    builder = JsonRowDeserializationSchema.Builder().type_info(Types.ROW([Types.INT()]))
    with pytest.raises(UsageError, match="contradict"):
        builder.fail_on_missing_field().ignore_parse_errors().build()
    with pytest.raises(UsageError, match=r"type_info\(\) or json_schema"):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(UsageError, match="type of rows"):
        JsonRowDeserializationSchema.builder().type_info(Types.INT())
    with pytest.raises(UsageError, match="with_type_info"):
        JsonRowSerializationSchema.builder().build()


NAMED = {
    "id": (Types.LONG(), 1, 1),
    "ratio": (Types.DOUBLE(), float("nan"), "NaN"),
    "price": (Types.BIG_DEC(), Decimal("1.50"), 1.5),
    "day": (Types.SQL_DATE(), date(2024, 1, 31), "2024-01-31"),
    "at": (Types.SQL_TIMESTAMP(), datetime(2024, 1, 31, 1, 2, 3), "2024-01-31T01:02:03Z"),
    "clock": (Types.SQL_TIME(), time(1, 2, 3), "01:02:03Z"),
    "moment": (Types.INSTANT(), Instant(0, 0), "1970-01-01T00:00:00Z"),
    "data": (BYTES, b"ab", "YWI="),
    "tags": (Types.LIST(Types.STRING()), ["a", None], ["a", None]),
    "sums": (Types.MAP(Types.STRING(), Types.INT()), {"x": 1}, {"x": 1}),
    "inner": (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1), {"a": 1}),
    "none": (Types.STRING(), None, None),
}


def test_a_row_is_written_as_flink_writes_it_and_read_back() -> None:
    row_type = Types.ROW_NAMED(list(NAMED), [t for t, _, _ in NAMED.values()])
    made = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    row = Row(**{name: value for name, (_, value, _) in NAMED.items()})
    message = pickle.loads(pickle.dumps(made)).serialize(row)
    assert json.loads(message) == {name: text for name, (_, _, text) in NAMED.items()}
    back = JsonRowDeserializationSchema.builder().type_info(row_type).build().deserialize(message)
    assert back.ratio != back.ratio
    back.ratio = row.ratio = 0.0
    assert back == row


def test_a_tuple_is_written_and_a_misfit_refused() -> None:
    made = JsonRowSerializationSchema.Builder().with_type_info(Types.ROW([Types.INT()])).build()
    assert made.serialize((1,)) == b'{"f0":1}'
    with pytest.raises(UsageError, match=r"Types\.INT\(\) cannot hold 'a'"):
        made.serialize(("a",))


JSON_SCHEMA = """{
  "definitions": {"where": {"type": "object", "properties": {"x": {"type": "number"}}}},
  "type": "object",
  "properties": {
    "name": {"type": ["string", "null"]},
    "size": {"type": "integer"},
    "ok": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
    "day": {"type": "string", "format": "date"},
    "raw": {"type": "string", "contentEncoding": "base64"},
    "places": {"type": "array", "items": {"$ref": "#/definitions/where"}},
    "pair": {"type": "array", "items": [{"type": "string"}, {"type": "boolean"}]}
  }}"""


def test_a_json_schema_describes_rows() -> None:
    made = JsonRowDeserializationSchema.builder().json_schema(JSON_SCHEMA).build()
    where = Types.ROW_NAMED(["x"], [Types.BIG_DEC()])
    names = ["name", "size", "ok", "day", "raw", "places", "pair"]
    assert made.get_produced_type() == Types.ROW_NAMED(
        names,
        [
            Types.STRING(),
            Types.BIG_DEC(),
            Types.BOOLEAN(),
            Types.SQL_DATE(),
            BYTES,
            Types.OBJECT_ARRAY(where),
            Types.ROW([Types.STRING(), Types.BOOLEAN()]),
        ],
    )
    row = made.deserialize(b'{"size": 3, "places": [{"x": 0.5}], "pair": ["a", true]}')
    assert row.size == Decimal(3)
    assert row.places == [Row(x=Decimal("0.5"))]
    assert row.pair == Row(f0="a", f1=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[]", "expected an object"),
        ('{"type": "tuple"}', "unknown type 'tuple'"),
        ('{"type": "object", "properties": {"a": {}}}', "at <root>/a: it names no type"),
        ('{"type": "object", "properties": {"a": {"type": ["string", "number"]}}}', "several"),
        ('{"type": "object", "properties": {"a": {"anyOf": []}}}', "'anyOf' is not supported"),
        ('{"type": "object", "additionalProperties": true}', "additional"),
        ('{"type": "object", "properties": {"a": {"type": "array"}}}', "needs 'items'"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/b"}}}', "leads nowhere"),
        ('{"type": "object", "properties": {"a": {"$ref": "http://x"}}}', "out of the document"),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', "circle"),
        ('{"type": "string"}', "type of rows"),
    ],
)
def test_a_json_schema_of_something_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        JsonRowDeserializationSchema.builder().json_schema(text)
