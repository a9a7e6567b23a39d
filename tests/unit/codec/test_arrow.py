"""Arrow batches: exact round trips, refusals that name the field, types of foreign schemas."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.codec.strategies import DECLARED_TYPES, exact, values_of

from weir.codec.arrow import (
    arrow_schema_for,
    arrow_type,
    batch_to_rows,
    rows_to_batch,
    type_from_arrow,
)
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from weir.common.types import Row
from weir.errors import UsageError

FAST = settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
UTC = datetime.timezone.utc


@st.composite
def columnar_lists(draw: st.DrawFn) -> tuple[TypeInformation, list[Any]]:
    type_info = draw(DECLARED_TYPES)
    assume(arrow_schema_for(type_info) is not None)
    record = isinstance(type_info, (RowTypeInfo, TupleTypeInfo))
    return type_info, draw(st.lists(values_of(type_info, null=not record), max_size=6))


@pytest.mark.slow
@FAST
@given(columnar_lists())
def test_records_come_back_from_a_batch_with_the_same_classes(case: Any) -> None:
    type_info, values = case
    batch = rows_to_batch(values, type_info)
    assert batch.num_rows == len(values)
    assert batch.schema.equals(arrow_schema_for(type_info))
    assert exact(batch_to_rows(batch, type_info)) == exact(values)


@FAST
@given(columnar_lists(), st.integers(0, 3))
def test_a_slice_of_a_batch_gives_that_slice_of_the_records(case: Any, start: int) -> None:
    type_info, values = case
    batch = rows_to_batch(values, type_info).slice(start, 2)
    assert exact(batch_to_rows(batch, type_info)) == exact(values[start : start + 2])


@FAST
@given(columnar_lists())
def test_a_batch_survives_the_wire(case: Any) -> None:
    type_info, values = case
    batch = rows_to_batch(values, type_info)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    received = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    assert exact(batch_to_rows(received, type_info)) == exact(values)


def test_types_without_an_exact_arrow_type_are_not_columnar() -> None:
    for type_info in (
        Types.PICKLED_BYTE_ARRAY(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.INSTANT(),
        Types.LIST(Types.BIG_INT()),
        Types.ROW([]),
        Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()]),
    ):
        assert arrow_type(type_info) is None
        assert arrow_schema_for(type_info) is None
        with pytest.raises(UsageError, match="pickled"):
            rows_to_batch([], type_info)


def test_columns_are_named_after_fields_or_positions() -> None:
    types = [Types.LONG(), Types.STRING()]
    assert arrow_schema_for(Types.ROW_NAMED(["id", "name"], types)).names == ["id", "name"]
    assert arrow_schema_for(Types.TUPLE(types)).names == ["f0", "f1"]
    assert arrow_schema_for(Types.ROW(types)).names == ["f0", "f1"]
    assert arrow_schema_for(Types.STRING()).names == ["f0"]


PERSON = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Row(id=1 << 40, name="x"), r"'id'.*Types\.INT\(\).*1099511627776"),
        (Row(id="one", name="x"), r"'id'.*Types\.INT\(\).*'one'"),
        (Row(id=True, name="x"), r"'id'.*Types\.INT\(\).*True"),
        (Row(id=1, name=b"x"), r"'name'.*Types\.STRING\(\).*b'x'"),
        (Row(id=1, name="\ud800"), r"'name'.*Types\.STRING\(\)"),
        (Row(1), r"ROW_NAMED.*<Row\(1\)>"),
        (Row(a=1, b="x"), "ROW_NAMED"),
        (None, "must not be None"),
        (5, "ROW_NAMED"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_by_field_type_and_value(
    value: Any, message: str
) -> None:
    good = Row(id=1, name="a")
    with pytest.raises(UsageError, match=message):
        rows_to_batch([good, value], PERSON)


def test_a_tuple_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\(1, 2\)"):
        rows_to_batch([(1,), (1, 2)], Types.TUPLE([Types.LONG()]))


def test_tuples_and_dicts_are_taken_for_rows() -> None:
    batch = rows_to_batch([(1, "a"), {"name": "b", "id": 2}, Row(name="c", id=3)], PERSON)
    assert batch_to_rows(batch, PERSON) == [
        Row(id=1, name="a"),
        Row(id=2, name="b"),
        Row(id=3, name="c"),
    ]


def test_plain_tuples_make_the_batch_that_rows_make() -> None:
    made = [(1, "a"), (2, None)]
    rows = [Row(id=number, name=name) for number, name in made]
    assert rows_to_batch(made, PERSON).equals(rows_to_batch(rows, PERSON))
    assert rows_to_batch([made[0], rows[1]], PERSON).equals(rows_to_batch(rows, PERSON))


@pytest.mark.parametrize(
    ("value", "message"),
    [((1,), "ROW_NAMED"), ((1, "a", 2), "ROW_NAMED"), (("x", "a"), "field 'id'"), ((), "ROW")],
)
def test_a_plain_tuple_that_is_no_such_row_is_refused(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows_to_batch([(1, "a"), value], PERSON)


def test_a_null_key_of_a_map_is_refused() -> None:
    with pytest.raises(UsageError, match="None as a key"):
        rows_to_batch([{None: 1}], Types.MAP(Types.STRING(), Types.LONG()))


def test_a_datetime_with_a_zone_travels_as_utc() -> None:
    berlin = datetime.timezone(datetime.timedelta(hours=2))
    value = datetime.datetime(2024, 5, 1, 12, tzinfo=berlin)
    plain = batch_to_rows(rows_to_batch([value], Types.SQL_TIMESTAMP()), Types.SQL_TIMESTAMP())
    assert plain == [datetime.datetime(2024, 5, 1, 10)]
    zoned = batch_to_rows(rows_to_batch([value], Types.TIMESTAMP_LTZ()), Types.TIMESTAMP_LTZ())
    assert zoned == [value]
    assert zoned[0].tzinfo is UTC


FOREIGN = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("s", pa.string()),
        ("ls", pa.large_string()),
        ("b", pa.bool_()),
        ("bin", pa.binary()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "Europe/Berlin")),
        ("ntz", pa.timestamp("ns")),
        ("dec", pa.decimal128(10, 2)),
        ("l", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("dur", pa.duration("us")),
    ]
)


def test_a_foreign_schema_gives_a_named_row_type() -> None:
    found = type_from_arrow(FOREIGN)
    assert found.get_field_names() == FOREIGN.names
    assert found.get_field_types() == [
        Types.BYTE(),
        Types.SHORT(),
        Types.INT(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_DATE(),
        Types.TIMESTAMP_LTZ(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.LIST(Types.INT()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.LIST(Types.STRING())]),
        Types.PICKLED_BYTE_ARRAY(),
    ]


def test_a_foreign_batch_gives_rows_of_plain_python_values() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    source = {
        "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f32": 0.5, "f64": 0.25, "s": "a", "ls": "b",
        "b": True, "bin": b"x", "d": datetime.date(2024, 1, 2), "ts": moment,
        "ntz": moment.replace(tzinfo=None), "dec": Decimal("1.50"), "l": [1, None],
        "m": [("k", 1)], "st": {"x": 1, "y": ["z"]}, "dur": datetime.timedelta(seconds=1),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([source, dict.fromkeys(source)], schema=FOREIGN)
    row, nulls = batch_to_rows(batch, type_from_arrow(FOREIGN))
    wanted = {**source, "m": {"k": 1}, "st": Row(x=1, y=["z"])}
    assert exact(row.as_dict()) == exact(wanted)
    assert list(nulls) == [None] * len(source)


@pytest.mark.parametrize(
    "type_info", [Types.LIST(Types.LONG()), Types.MAP(Types.LONG(), Types.LONG())]
)
def test_an_empty_column_of_collections_may_have_no_offsets(type_info):
    pairs = pa.struct([pa.field("key", pa.int64(), nullable=False), pa.field("value", pa.int64())])
    if type_info.kind == "MAP":
        whole, child = pa.map_(pa.int64(), pa.int64()), pa.array([], pairs)
    else:
        whole, child = pa.list_(pa.int64()), pa.array([], pa.int64())
    column = pa.Array.from_buffers(whole, 0, [None, pa.py_buffer(b"")], children=[child])
    assert batch_to_rows(pa.record_batch([column], ["f0"]), type_info) == []
