"""What the line-based formats write for each kind of record."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import date
from decimal import Decimal
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common.serialization import Encoder
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.connector.file_format import (
    CsvFormat,
    EncoderFormat,
    FileFormat,
    JsonLinesFormat,
    TextFormat,
    row_format,
)
from weir.connector.sink import blamed
from weir.errors import UsageError

PERSON = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def written(file_format: FileFormat, values: list[Any], type_info: Any = None) -> str:
    stream = io.BytesIO()
    part = file_format.bind(type_info)(stream)
    part.write(values)
    part.finish()
    assert part.size_bytes() == len(stream.getvalue())
    return stream.getvalue().decode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, "1"),
        ("é\n", '"é\\n"'),
        (None, "null"),
        (1.5, "1.5"),
        (2**70, str(2**70)),
        ((1, "a"), '[1,"a"]'),
        ({"a": [True]}, '{"a":[true]}'),
        (Row(1, "a"), '[1,"a"]'),
        (Row(id=1, name="a"), '{"id":1,"name":"a"}'),
        ({"inner": Row(x=Row(1))}, '{"inner":{"x":[1]}}'),
        (date(2024, 2, 29), '"2024-02-29"'),
        (Decimal("1.50"), '"1.50"'),
        (b"\x00", '"AA=="'),
        (numpy.int64(7), "7"),
    ],
)
def test_json_form_of_each_kind_of_value(value, expected):
    assert written(JsonLinesFormat(), [value]) == expected + "\n"


def test_a_named_row_type_names_plain_tuples_and_respects_a_rows_own_names():
    values = [(1, "a"), Row(2, "b"), Row(name="c", id=3), [4, None]]
    lines = [json.loads(line) for line in written(JsonLinesFormat(), values, PERSON).splitlines()]
    assert lines == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
        {"id": 3, "name": "c"},
        {"id": 4, "name": None},
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, numpy.float64("nan")])
@pytest.mark.parametrize(
    "shape", [lambda n: n, lambda n: (1, [n]), lambda n: {"a": {"b": n}}, lambda n: Row(x=Row(n))]
)
def test_json_refuses_numbers_that_it_does_not_have_and_says_what_to_do(shape, number):
    with pytest.raises(
        UsageError, match=r"JSON has no -?(nan|inf); choose .*non_finite='null'"
    ) as e:
        written(JsonLinesFormat(), [(1, None), shape(number)])
    assert repr(blamed(e.value, None)) == repr(shape(number))


def test_json_writes_numbers_that_it_does_not_have_as_the_user_chooses():
    values = [Row(x=math.nan, y=None, z=1.5), [math.inf, (-math.inf,)], None, "null"]
    null = '{"x":null,"y":null,"z":1.5}\n[null,[null]]\nnull\n"null"\n'
    text = '{"x":"NaN","y":null,"z":1.5}\n["Infinity",["-Infinity"]]\nnull\n"null"\n'
    assert written(JsonLinesFormat("null"), values) == null
    assert written(JsonLinesFormat("text"), values) == text
    with pytest.raises(UsageError, match="non_finite is 'zero', expected one of"):
        JsonLinesFormat("zero")


class Silent:
    """Its text cannot be had."""

    def __str__(self):
        return next(iter(()))

    def encode(self):
        return str(self)


def silent_bytes(value):
    return value.encode()


@pytest.mark.parametrize("file_format", [TextFormat(), CsvFormat(), EncoderFormat(silent_bytes)])
def test_a_stop_iteration_ends_no_file_early(file_format):
    bad = Silent()
    with pytest.raises(StopIteration) as caught:
        written(file_format, ["a", bad, "c"])
    assert blamed(caught.value, None) is bad


def test_an_encoder_has_to_return_bytes():
    with pytest.raises(UsageError, match=r"returned 'A' of type str for 'a', expected bytes") as e:
        written(EncoderFormat(str.upper), ["a"])
    assert blamed(e.value, None) == "a"


def test_csv_names_the_value_that_no_file_can_hold():
    with pytest.raises(UsageError, match=r"cannot write '\\ud800' as CSV") as caught:
        written(CsvFormat(), ["a", "\ud800"])
    assert blamed(caught.value, None) == "\ud800"


def test_json_names_the_value_that_has_no_json_form():
    with pytest.raises(UsageError, match=r"cannot write \(2, <object"):
        written(JsonLinesFormat(), [(1, 2), (2, object())])


def test_csv_quotes_what_needs_it():
    values = [("a,b", 'say "x"', "two\nlines", None, 1.5), ("plain", "", "é", 2, True)]
    text = written(CsvFormat(), values)
    assert text == '"a,b","say ""x""","two\nlines",,1.5\nplain,,é,2,True\n'


@given(st.lists(st.lists(st.text(), min_size=2, max_size=4), max_size=5))
def test_csv_reads_back_as_it_was_written(rows):
    text = written(CsvFormat(), rows)
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows


def test_csv_header_starts_every_part_and_orders_the_fields():
    values = [(1, "a"), Row(name="b", id=2), {"name": "c"}]
    assert written(CsvFormat(PERSON, header=True), values) == "id,name\n1,a\n2,b\n,c\n"
    assert written(CsvFormat(header=True), values, PERSON) == "id,name\n1,a\n2,b\n,c\n"


def test_csv_without_a_type_takes_records_as_they_come():
    assert written(CsvFormat(), [1, "a", (1, 2), Row(3, 4), {"x": 5, "y": 6}]) == (
        "1\na\n1,2\n3,4\n5,6\n"
    )


def test_csv_refuses_a_header_without_names_and_records_of_another_shape():
    with pytest.raises(UsageError, match="field names are unknown"):
        CsvFormat(header=True).bind(Types.STRING())
    with pytest.raises(UsageError, match="3 fields"):
        written(CsvFormat(PERSON), [(1, 2, 3)])
    with pytest.raises(UsageError, match="'z'"):
        written(CsvFormat(PERSON), [{"id": 1, "z": 2}])


def test_text_is_str_and_a_newline():
    assert written(TextFormat(), ["a", 1, (2, 3)]) == "a\n1\n(2, 3)\n"
    assert written(TextFormat(), []) == ""


def test_text_names_the_value_that_its_character_set_lacks():
    with pytest.raises(UsageError, match=r"'é' as ascii"):
        written(TextFormat("ascii"), ["a", "é"])
    with pytest.raises(UsageError, match="klingon"):
        TextFormat("klingon")


def test_row_formats_take_pyflinks_encoder_a_subclass_or_a_function():
    class Loud(Encoder):
        def encode(self, element):
            return super().encode(str(element).upper())

    assert written(row_format(Encoder.simple_string_encoder()), ["a", 1]) == "a\n1\n"
    assert written(row_format(Loud()), ["a"]) == "A\n"
    assert written(row_format(str.encode), ["a", "b"]) == "ab"
    with pytest.raises(UsageError, match="expected an encoder"):
        row_format(7)
