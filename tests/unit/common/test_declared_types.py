"""Declared types: values that fit, values that do not, equality and description."""

from __future__ import annotations

import collections
import datetime
import enum
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from weir.common import Instant, Row, RowKind, TypeInformation, Types
from weir.common.typeinfo import (
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    type_from_json,
)
from weir.errors import CorruptStateError, UsageError

RANGES = [(Types.BYTE(), 8), (Types.SHORT(), 16), (Types.INT(), 32), (Types.LONG(), 64)]


@pytest.mark.parametrize(("type_info", "bits"), RANGES, ids=repr)
def test_integers_have_the_range_of_their_bits(type_info: TypeInformation, bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    assert type_info.check(low) == low
    assert type_info.check(high) == high
    for value in (low - 1, high + 1, True, 1.0, "1"):
        with pytest.raises(UsageError, match=r"Types\.") as caught:
            type_info.check(value)
        assert repr(value) in str(caught.value)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("type_info", "given", "expected"),
    [
        (Types.LONG(), np.int32(5), 5),
        (Types.LONG(), Colour.RED, 1),
        (Types.DOUBLE(), 5, 5.0),
        (Types.DOUBLE(), np.float32(0.5), 0.5),
        (Types.FLOAT(), 5, 5.0),
        (Types.STRING(), Text("x"), "x"),
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.BIG_DEC(), 5, Decimal(5)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"x"), b"x"),
        (Types.PRIMITIVE_ARRAY(Types.LONG()), np.array([1, 2]), [1, 2]),
        (Types.LIST(Types.DOUBLE()), (1, 2.0), [1.0, 2.0]),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), collections.Counter("aa"), {"a": 2.0}),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), [1, "a"], (1, "a")),
        (Types.TUPLE([Types.LONG()]), Row(1), (1,)),
        (Types.ROW([Types.LONG()]), (1,), Row(f0=1)),
        (Types.ROW([Types.LONG()]), Row(a=1), Row(f0=1)),
        (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]), [1, "x"], Row(a=1, b="x")),
        (Types.ROW_NAMED(["a"], [Types.DOUBLE()]), {"a": 1}, Row(a=1.0)),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(1), Row(a=1)),
    ],
)
def test_a_value_becomes_what_a_restore_would_give(
    type_info: TypeInformation, given: Any, expected: Any
) -> None:
    found = type_info.check(given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.LONG(), 1 << 40),
        (Types.STRING(), "text"),
        (Types.LIST(Types.LONG()), [1, None]),
        (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), {"a": [1], "b": None}),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(a=None)),
        (Types.TUPLE([Types.LONG(), Types.BOOLEAN()]), (1000, True)),
        (Types.SQL_DATE(), datetime.date(2024, 1, 1)),
        (Types.SQL_TIME(), datetime.time(1, 2)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2024, 1, 1)),
        (Types.INSTANT(), Instant(1, 2)),
        (Types.PICKLED_BYTE_ARRAY(), object()),
        (Types.LONG(), None),
    ],
)
def test_a_value_that_fits_exactly_is_returned_itself(
    type_info: TypeInformation, value: Any
) -> None:
    assert type_info.check(value) is value


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.STRING(), 1),
        (Types.BOOLEAN(), 1),
        (Types.BOOLEAN(), np.int8(1)),
        (Types.DOUBLE(), True),
        (Types.FLOAT(), 1e39),
        (Types.CHAR(), ""),
        (Types.BIG_INT(), 1.0),
        (Types.BIG_DEC(), 1.5),
        (Types.SQL_DATE(), "2024-01-01"),
        (Types.SQL_TIME(), datetime.time(1, tzinfo=datetime.timezone.utc)),
        (Types.TIMESTAMP_LTZ(), datetime.datetime(2024, 1, 1)),
        (Types.LIST(Types.LONG()), "abc"),
        (Types.LIST(Types.LONG()), ["a"]),
        (Types.MAP(Types.STRING(), Types.LONG()), [("a", 1)]),
        (Types.ROW([Types.LONG()]), Row(1, 2)),
        (Types.ROW([Types.LONG()]), {"f0": 1}),
        (Types.ROW([Types.LONG()]), Row.of_kind(RowKind.DELETE, 1)),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(b=1)),
        (Types.TUPLE([Types.LONG()]), 1),
        (Types.TUPLE([Types.LONG()]), (1, 2)),
        (Types.TUPLE([Types.LONG()]), ["a"]),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused(type_info: TypeInformation, value: Any) -> None:
    with pytest.raises(UsageError, match=r"Types\..*cannot hold"):
        type_info.check(value)


def test_a_refusal_shows_the_value_as_it_was_given() -> None:
    with pytest.raises(
        UsageError, match=r"cannot hold \[1, 2\] of type list: expected a tuple of 1"
    ):
        Types.TUPLE([Types.LONG()]).check([1, 2])


def test_types_are_values() -> None:
    one = Types.ROW_NAMED(["a"], [Types.LIST(Types.LONG())])
    same = Types.ROW_NAMED(["a"], [Types.LIST(Types.LONG())])
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Types.ROW_NAMED(["b"], [Types.LIST(Types.LONG())])
    assert one != Types.ROW([Types.LIST(Types.LONG())])
    assert Types.LONG() != Types.INT()
    assert Types.LIST(Types.LONG()) != Types.BASIC_ARRAY(Types.LONG())
    with pytest.raises(AttributeError, match="immutable"):
        one.kind = "LONG"


def test_a_type_shows_the_call_that_makes_it() -> None:
    types = [Types.LONG(), Types.MAP(Types.STRING(), Types.PICKLED_BYTE_ARRAY())]
    for made in (*types, Types.ROW(types), Types.ROW_NAMED(["a", "b"], types), Types.TUPLE(types)):
        assert eval(repr(made), {"Types": Types}) == made


def test_pyflinks_classes_and_methods_are_there() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    assert isinstance(row, RowTypeInfo)
    assert row.get_field_names() == ["a", "b"]
    assert row.get_field_types() == [Types.LONG(), Types.STRING()]
    assert (row.get_field_index("b"), row.get_field_index("x")) == (1, -1)
    assert Types.ROW([Types.LONG()]).get_field_names() == ["f0"]
    assert isinstance(Types.TUPLE([Types.LONG()]), TupleTypeInfo)
    assert isinstance(Types.LIST(Types.LONG()), ListTypeInfo)
    assert isinstance(Types.MAP(Types.LONG(), Types.LONG()), MapTypeInfo)
    assert isinstance(Types.LONG(), BasicTypeInfo)
    assert isinstance(Types.PICKLED_BYTE_ARRAY(), PickledBytesTypeInfo)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Types.LIST(Types.LONG),
        lambda: Types.LIST(int),
        lambda: Types.MAP(Types.LONG(), None),
        lambda: Types.TUPLE([Types.LONG]),
        lambda: Types.ROW_NAMED(["a"], [Types.LONG(), Types.LONG()]),
        lambda: Types.ROW_NAMED(["a", "a"], [Types.LONG(), Types.LONG()]),
        lambda: Types.PRIMITIVE_ARRAY(Types.STRING()),
        lambda: BasicTypeInfo("NUMBER"),
    ],
)
def test_a_type_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "description",
    [{}, {"type": "NOPE"}, {"type": "LIST"}, {"type": "ROW", "fields": []}, None, {"type": []}],
)
def test_a_description_that_is_not_ours_is_corrupt(description: Any) -> None:
    with pytest.raises(CorruptStateError, match="type"):
        type_from_json(description)
