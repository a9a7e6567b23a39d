"""Columns for other tools: every declared type goes there and back, and pickles run no code."""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.codec.strategies import DECLARED_TYPES, exact, values_of

from weir.codec import codec_for
from weir.codec.plain import loads_plain
from weir.codec.portable import portable
from weir.common import Row
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, UsageError


@settings(max_examples=examples(200))
@given(DECLARED_TYPES.flatmap(lambda t: st.tuples(st.just(t), st.lists(values_of(t), max_size=5))))
def test_values_of_every_declared_type_go_into_a_column_and_back(drawn):
    type_info, values = drawn
    form = portable(type_info)
    column = form.column(values, "value")
    assert column.type == form.arrow
    assert exact(form.values(column)) == exact(values)
    stored = codec_for(type_info).encode_many(values)
    assert exact(form.codec.decode_many(stored)) == exact(values)
    assert form.codec.encode_many(values) == stored


class Person:
    def __init__(self, name):
        self.name = name


PLAIN = [
    {"a": [1, 2.5, None, True]},
    (datetime.date(2026, 1, 2), decimal.Decimal("1.50"), uuid.UUID(int=7)),
    Row(id=1, name="x"),
    {1, 2},
    b"bytes",
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_is_read_from_a_pickle_without_running_code(value):
    assert loads_plain(pickle.dumps(value, 5)) == value


@pytest.mark.parametrize("value", [Person("x"), print, pytest.raises], ids=["object", "f", "g"])
def test_what_needs_code_is_refused_by_its_name(value):
    with pytest.raises(UsageError, match="unpickle=True") as refused:
        loads_plain(pickle.dumps([value], 5))
    name = getattr(value, "__qualname__", "Person")
    assert name in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"\x80", b"no pickle", b"\x80\x05K\x01"])
def test_bytes_that_are_no_pickle_are_damage(data):
    with pytest.raises(CorruptStateError):
        loads_plain(data)


def test_undeclared_values_are_binaries_and_texts_where_loading_is_allowed():
    undeclared = Types.PICKLED_BYTE_ARRAY()
    values = [{"a": 1}, None]
    column = portable(undeclared).column(values, "value").to_pylist()
    assert [pickle.loads(column[0]), column[1]] == [{"a": 1}, None]
    allowed = portable(undeclared, True)
    assert allowed.column([Row(id=1)], "value").to_pylist() == ["Row(id=1)"]
    assert allowed.codec.safe is False


def test_pickled_parts_of_declared_types_stay_the_pickles_that_they_are():
    declared = Types.ROW_NAMED(["n", "any"], [Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
    stored = codec_for(declared).encode_many([Row(n=1, any=Person("x"))])
    form = portable(declared)
    assert form.codec.safe
    [row] = form.column(form.codec.decode_many(stored), "value").to_pylist()
    assert (row["n"], pickle.loads(row["any"]).name) == (1, "x")
    assert form.codec.encode_many(form.codec.decode_many(stored)) == stored


def test_text_that_is_no_number_is_refused():
    form = portable(Types.BIG_INT())
    column = portable(Types.STRING()).column(["12", "x"], "value")
    with pytest.raises(UsageError, match="BIG_INT"):
        form.values(column)


def test_what_was_unpickled_can_be_written_back_where_it_is_no_text():
    declared = Types.LIST(Types.PICKLED_BYTE_ARRAY())
    for type_info, value in ((Types.PICKLED_BYTE_ARRAY(), Row(id=1)), (declared, [Row(id=1)])):
        form = portable(type_info, True, False)
        assert form.values(form.column([value], "value")) == [value]
