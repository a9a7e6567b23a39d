"""Columns hold exactly what reading message by message gives, or there are none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.codec.arrow import batch_to_rows
from weir.common import Types
from weir.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from weir.datastream.formats.json import JsonRowDeserializationSchema

NAMES = ["b", "s", "i", "l", "f", "d", "t", "z"]
FLAT = Types.ROW_NAMED(
    NAMES,
    [
        Types.BYTE(),
        Types.SHORT(),
        Types.INT(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.BOOLEAN(),
    ],
)
SMALL = Types.ROW_NAMED(["i", "t"], [Types.INT(), Types.STRING()])


def one_by_one(schema: Any, messages: list[bytes]) -> list[Any] | None:
    try:
        return [schema.deserialize(message) for message in messages]
    except ValueError:
        return None


def same(schema: Any, messages: list[bytes]) -> bool:
    """Tell whether there are columns; if there are, compare them with the rows."""
    batch = schema.deserialize_columns(pa.array(messages, pa.binary()))
    if batch is None:
        return False
    expected = one_by_one(schema, messages)
    assert expected is not None
    assert repr(batch_to_rows(batch, schema.get_produced_type())) == repr(expected)
    return True


def json_schema(type_info: Any = SMALL, **choices: bool) -> Any:
    builder = JsonRowDeserializationSchema.builder().type_info(type_info)
    for name in choices:
        getattr(builder, name)()
    return builder.build()


def test_plain_objects_become_columns() -> None:
    full = {"b": 1, "s": -2, "i": 3, "l": 2**40, "f": 0.1, "d": 1e300, "t": 'ä\n"', "z": True}
    messages = [json.dumps(full).encode(), b'{"i": 7, "more": [1, {"a": 2}], "t": null}', b"{}"]
    assert same(json_schema(FLAT), messages)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[1]",
        b'{"i": 1} {"i": 2}',
        b'{"i": 1}\n',
        b'{"i": "12"}',
        b'{"i": 1.9}',
        b'{"i": 1e3}',
        b'{"i": 2147483648}',
        b'{"i": true}',
        b'{"t": 12}',
        b'{"t": {"a": 1}}',
        b'{"i": 1, "i": 2}',
        b'{"t": "\xff"}',
        b'{"t": "a}',
        b'{"i": 1',
        b"i: 1}",
        b'\xef\xbb\xbf{"i": 1}',
    ],
)
def test_what_is_not_plain_is_read_one_by_one(bad: bytes) -> None:
    good = b'{"i": 1, "t": "a"}'
    for messages in ([bad], [good, bad], [bad, good], [good, bad, good, bad]):
        assert not same(json_schema(), messages)


def test_two_objects_and_none_are_not_taken_for_one_each() -> None:
    assert not same(json_schema(), [b'{"i": 1} {"i": 2}', b" "])
    assert not same(json_schema(), [b'{"i": 1}{"i": 2}', b""])


def test_missing_fields_are_looked_for_where_they_are_forbidden() -> None:
    strict = json_schema(fail_on_missing_field=True)
    assert same(strict, [b'{"i": 1, "t": "a"}'])
    assert not same(strict, [b'{"i": 1}'])
    assert not same(strict, [b'{"i": 1, "t": null}'])


def test_other_types_have_no_columns_here() -> None:
    assert not same(json_schema(Types.ROW_NAMED(["d"], [Types.SQL_DATE()])), [b'{"d": null}'])
    assert not same(json_schema(), [])


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["true", "12", " 7 ", "NaN", "1.5", "1e2"]),
    st.lists(st.integers(0, 3), max_size=2),
)
MESSAGES = st.one_of(
    st.dictionaries(st.sampled_from([*NAMES, "x"]), VALUES, max_size=4).map(
        lambda value: json.dumps(value).encode()
    ),
    st.sampled_from([b"", b"{", b"}", b"{}", b"{}{}", b" {}", b"1", b'{"i": 1,}', b"{}\n"]),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=6))
@example([b'{"d": 1e400}'])
@example([b'{"d": -0.0}', b'{"f": 1e39}'])
def test_columns_of_json_are_what_reading_one_by_one_gives(messages: list[bytes]) -> None:
    same(json_schema(FLAT), messages)
    same(json_schema(FLAT, ignore_parse_errors=True), messages)


def csv_schema(type_info: Any = SMALL, **choices: Any) -> Any:
    builder = CsvRowDeserializationSchema.Builder(type_info)
    for name, value in choices.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


def test_plain_lines_become_columns() -> None:
    lines = [b"1,2,3,4,0.5,1e300,text,true\n", b'-1,-2,-3,-4,1,2,"a ""b"", c",FALSE\r\n']
    assert same(csv_schema(FLAT), lines)
    nulls = csv_schema(FLAT, null_literal="", field_delimiter="|", quote_character="'")
    assert same(nulls, [b"|||||||", b"1||||||'a|b'|true"])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\n",
        b"1",
        b"1,a,b",
        b"x,a",
        b",a",
        b"1,\xff",
        b'1,"a\nb"',
        b"1,a\n2,b",
        b'"1,a',
        b"1_0,a",
        b"0x1,a",
    ],
)
def test_lines_that_are_not_plain_are_read_one_by_one(bad: bytes) -> None:
    for messages in ([bad], [b"1,a", bad], [bad, b"1,a"], [bad, bad]):
        assert not same(csv_schema(), messages)


TEXTS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(str),
    st.sampled_from(["", " ", "true", "TRUE", "yes", "1", "+1", " 1 ", "nan", "NaN", "inf", "0x1"]),
    st.text(st.sampled_from('ab,"\\ \n\r;#'), max_size=4),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2).map(",".join), min_size=1, max_size=5))
@pytest.mark.parametrize("kinds", [("INT", "STRING"), ("DOUBLE", "BOOLEAN"), ("STRING", "LONG")])
def test_columns_of_csv_are_what_reading_one_by_one_gives(kinds: Any, lines: list[str]) -> None:
    row_type = Types.ROW([getattr(Types, kind)() for kind in kinds])
    messages = [line.encode() for line in lines]
    same(csv_schema(row_type), messages)
    same(csv_schema(row_type, ignore_parse_errors=True, null_literal=""), messages)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n")),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_flink_writes_becomes_columns(rows: list[Any]) -> None:
    schema = CsvRowSerializationSchema.Builder(SMALL).build()
    messages = [schema.serialize(row) for row in rows]
    assert same(csv_schema(), messages) or b"0x" in b"".join(messages).lower()
