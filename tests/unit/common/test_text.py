"""Records of declared types look as PyFlink shows them."""

from __future__ import annotations

import datetime
import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common import Instant, Row, RowKind, Types
from weir.common._text import printed, written
from weir.errors import UsageError

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        (PAIR, ("a", 1), "(a,1)"),
        (PAIR, (None, 1), "(null,1)"),
        (PAIR, None, "null"),
        (Types.TUPLE([PAIR, Types.BOOLEAN()]), (("a", 1), True), "((a,1),true)"),
        (Types.STRING(), "a", "a"),
        (Types.BOOLEAN(), False, "false"),
        (Types.LONG(), 7, "7"),
        (Types.BIG_DEC(), decimal.Decimal("1.50"), "1.50"),
        (Types.FLOAT(), 1.1, "1.1"),
        (Types.FLOAT(), 1e10, "1.0E10"),
        (Types.DOUBLE(), 100.0, "100.0"),
        (Types.DOUBLE(), 12345678.9, "1.23456789E7"),
        (Types.DOUBLE(), 0.0005, "5.0E-4"),
        (Types.DOUBLE(), 0.001, "0.001"),
        (Types.DOUBLE(), float("-inf"), "-Infinity"),
        (Types.DOUBLE(), float("nan"), "NaN"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": None}, "{a=1, b=null}"),
        (Types.LIST(Types.STRING()), ["a", None], "[a, null]"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"fl", "[102, 108]"),
        (Types.SQL_DATE(), datetime.date(2021, 1, 9), "2021-01-09"),
        (Types.SQL_TIME(), datetime.time(12, 0), "12:00:00"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2021, 1, 9, 12), "2021-01-09 12:00:00.0"),
        (Types.INSTANT(), Instant(0, 5_000_000), "1970-01-01T00:00:00.005Z"),
        (Types.PICKLED_BYTE_ARRAY(), ("a", None), "('a', None)"),
        (None, ("a", None), "('a', None)"),
    ],
)
def test_what_is_written(declared, value, shown):
    assert written(declared)(value) == shown


def test_the_row_of_pyflinks_own_test():
    declared = Types.ROW(
        [
            Types.INT(),
            Types.PRIMITIVE_ARRAY(Types.FLOAT()),
            Types.BASIC_ARRAY(Types.STRING()),
            Types.SQL_DATE(),
            Types.SQL_TIME(),
            Types.SQL_TIMESTAMP(),
            Types.LIST(Types.INT()),
        ]
    )
    moment = datetime.datetime(2021, 1, 9, 12, 0, 0, 11000)
    values = (1, [1.1, 1.2, 1.3], [None, "hi"], moment.date(), moment.time(), moment, [1, 2])
    assert written(declared)(values) == (
        "+I[1, [1.1, 1.2, 1.3], [null, hi], 2021-01-09, 12:00:00, 2021-01-09 12:00:00.011, [1, 2]]"
    )


def test_print_shows_rows_in_a_way_of_its_own():
    declared = Types.ROW([Types.STRING(), Types.STRING(), Types.BOOLEAN()])
    assert printed(declared)(("a", None, True)) == "+I[a,None,True]"
    assert written(declared)(Row("a", None, True)) == "+I[a, null, true]"
    assert printed(PAIR)(("a", 1)) == "(a,1)"
    assert printed(None)(Row("a", 1)) == "<Row('a', 1)>"
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_what_is_not_of_its_type_is_refused():
    with pytest.raises(UsageError, match="cannot hold"):
        written(PAIR)(("a", 1, 2))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_read_back_from_its_text(value):
    assert float(written(Types.DOUBLE())(value)) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_read_back_from_its_text(value):
    assert Types.FLOAT().check(float(written(Types.FLOAT())(value))) == value


def test_types_show_themselves_as_pyflinks():
    assert str(PAIR) == "TupleTypeInfo(String, Integer)"
    named = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.STRING()])
    assert str(named) == "RowTypeInfo(a: String, b: String)"
    assert str(Types.ROW([Types.LONG()])) == "RowTypeInfo(Long)"
    assert str(Types.LIST(Types.DOUBLE())) == "ListTypeInfo<Double>"
    assert str(Types.MAP(Types.STRING(), Types.INT())) == "MapTypeInfo<String, Integer>"
    assert str(Types.PICKLED_BYTE_ARRAY()) == "PickledByteArrayTypeInfo"
    assert str(Types.SQL_DATE()) == "DateTypeInfo"


def test_rows_without_names_have_those_of_flink():
    row = Types.ROW([Types.INT(), Types.STRING()]).check((1, "a"))
    assert row.as_dict() == {"f0": 1, "f1": "a"}
    assert row == Row(f0=1, f1="a")
    assert str(row) == "Row(f0=1, f1='a')"


def test_many_fields_without_names_are_one_key_with_the_row_of_the_same_values():
    row = Types.ROW([Types.INT()] * 12).check(tuple(range(12)))
    assert row.__weir_key__() == tuple(range(12)) == Row(*range(12)).__weir_key__()
    turned = Row(**{f"f{i}": i for i in reversed(range(12))})
    assert row == turned
    assert row.__hash__() == turned.__hash__()


def test_float_has_32_bits():
    assert Types.FLOAT().check(110.1) == 110.0999984741211
    exact = 0.5
    assert Types.FLOAT().check(exact) is exact
