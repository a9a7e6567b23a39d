"""CSV rows: lines as Flink writes them, what comes out of them, and what is refused."""

from __future__ import annotations

import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.common import Row, Types
from weir.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from weir.errors import UsageError

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
PAIR = Types.ROW([Types.INT(), Types.STRING()])


def reader(type_info: Any = PAIR, **settings: Any) -> CsvRowDeserializationSchema:
    builder = CsvRowDeserializationSchema.Builder(type_info)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return pickle.loads(pickle.dumps(builder.build()))


def writer(type_info: Any = PAIR, **settings: Any) -> CsvRowSerializationSchema:
    builder = CsvRowSerializationSchema.Builder(type_info)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return pickle.loads(pickle.dumps(builder.build()))


ODD = {"escape_character": "*", "quote_character": "'", "array_element_delimiter": ":"}
ODD["field_delimiter"] = ";"


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.STRING(), "'123''4**'", "123'4*"),
        (Types.STRING(), "'a;b''c'", "a;b'c"),
        (Types.INT(), "12", 12),
        (Types.ROW([Types.STRING(), Types.STRING()]), "'1:hello'", Row(f0="1", f1="hello")),
        (Types.STRING(), "null", "null"),
        (Types.LIST(Types.INT()), "'1:2'", [1, 2]),
    ],
)
def test_a_line_is_the_one_of_flink(type_info: Any, text: str, value: Any) -> None:
    row_type = Types.ROW([Types.STRING(), type_info, Types.STRING()])
    line = f"BEGIN;{text};END\n".encode()
    assert writer(row_type, **ODD).serialize(("BEGIN", value, "END")) == line
    assert reader(row_type, **ODD).deserialize(line) == Row(f0="BEGIN", f1=value, f2="END")


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (Types.DOUBLE(), 3e38, "3.0E38"),
        (Types.FLOAT(), 0.5, "0.5"),
        (Types.BOOLEAN(), True, "true"),
        (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
        (Types.SQL_DATE(), date(2024, 1, 31), "2024-01-31"),
        (Types.SQL_TIME(), time(1, 2, 3), "01:02:03"),
        (Types.SQL_TIMESTAMP(), datetime(2024, 1, 31, 1, 2, 3), "2024-01-31 01:02:03.0"),
        (BYTES, b"ab", "YWI="),
        (Types.STRING(), "plain", "plain"),
        (Types.STRING(), "two words", '"two words"'),
        (Types.STRING(), "x" * 25, f'"{"x" * 25}"'),
        (Types.STRING(), 'say "no"', '"say ""no"""'),
    ],
)
def test_a_value_is_written_as_java_writes_it(type_info: Any, value: Any, text: str) -> None:
    row_type = Types.ROW([type_info])
    made = writer(row_type, line_delimiter="").serialize((value,))
    assert made.decode() == text
    assert reader(row_type).deserialize(made) == Row(f0=value)


@pytest.mark.parametrize(
    ("message", "says"),
    [(b"x,a", "is no INT"), (b"1", "expected 2 fields"), (b"1,a,b", "found 3"), (b"1,\xff", "utf")],
)
def test_a_line_that_does_not_fit_is_refused_or_left_out(message: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        reader().deserialize(message)


def test_errors_are_ignored_as_flink_ignores_them() -> None:
    lenient = reader(ignore_parse_errors=True)
    assert lenient.deserialize(b"x,a") == Row(f0=None, f1="a")
    assert lenient.deserialize(b"1") == Row(f0=1, f1=None)
    assert lenient.deserialize(b"1,a,b") == Row(f0=1, f1="a")
    assert lenient.deserialize(b"1,\xff") is None


def test_null_comments_and_nothing() -> None:
    assert reader(null_literal="n/a").deserialize(b"n/a,n/a") == Row(f0=None, f1=None)
    assert reader(null_literal="").deserialize(b",") == Row(f0=None, f1=None)
    assert reader(Types.ROW([Types.STRING()] * 2)).deserialize(b",") == Row(f0="", f1="")
    assert writer().serialize((None, None)) == b",\n"
    assert writer(null_literal="n/a").serialize((None, "a")) == b"n/a,a\n"
    assert reader(allow_comments=True).deserialize(b"# 1,a") is None
    assert reader().deserialize(b"") is None


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="single character"):
        CsvRowDeserializationSchema.Builder(PAIR).set_field_delimiter("||")
    with pytest.raises(ValueError, match="line delimiter"):
        CsvRowSerializationSchema.Builder(PAIR).set_line_delimiter("!")
    with pytest.raises(UsageError, match="type of rows"):
        CsvRowDeserializationSchema.Builder(Types.INT())
    with pytest.raises(UsageError, match="no text"):
        reader(Types.ROW([Types.MAP(Types.INT(), Types.INT())]))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.text(st.characters(codec="utf-8"))),
    st.sampled_from([",", ";", "|", "\t"]),
    st.sampled_from([None, "\\", "*"]),
)
def test_what_was_written_is_read(row: Any, delimiter: str, escape: str | None) -> None:
    more = {} if escape is None else {"escape_character": escape}
    line = writer(field_delimiter=delimiter, **more).serialize(row)
    assert tuple(reader(field_delimiter=delimiter, **more).deserialize(line)) == row
