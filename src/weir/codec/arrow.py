"""Rows as Arrow columns: how records travel between Spark, the pipes and the slots.

A type is columnar when Arrow has a type that holds exactly its values; `arrow_type` returns None
for the others, whose records travel pickled. Columns are built and read with one call each;
Python code runs per row only for nested rows and lists, and to find the value behind an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from weir.codec.arrow_read import read_column
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from weir.common.types import row_class
from weir.errors import UsageError

__all__ = [
    "arrow_schema_for",
    "arrow_type",
    "batch_to_columns",
    "batch_to_rows",
    "column_of",
    "columns_to_rows",
    "rows_to_batch",
    "type_from_arrow",
]

_NONE = type(None)
_values = attrgetter("_values")

_BASIC: dict[str, tuple[Any, type]] = {
    "BYTE": (pa.int8(), int),
    "SHORT": (pa.int16(), int),
    "INT": (pa.int32(), int),
    "LONG": (pa.int64(), int),
    "FLOAT": (pa.float32(), float),
    "DOUBLE": (pa.float64(), float),
    "STRING": (pa.string(), str),
    "CHAR": (pa.string(), str),
    "BOOLEAN": (pa.bool_(), bool),
    "SQL_DATE": (pa.date32(), datetime.date),
    "SQL_TIME": (pa.time64("us"), datetime.time),
    "SQL_TIMESTAMP": (pa.timestamp("us"), datetime.datetime),
    "TIMESTAMP_LTZ": (pa.timestamp("us", "UTC"), datetime.datetime),
}
# Arrow would take these without a word where the declared type refuses them or turns them to UTC.
_ALWAYS_CHECKED = frozenset({"CHAR", "FLOAT", "SQL_TIME", "SQL_TIMESTAMP", "TIMESTAMP_LTZ"})


@lru_cache(maxsize=1024)
def arrow_type(type_info: TypeInformation) -> Any:
    """Return the Arrow type of a declared type; None when it is not columnar."""
    kind = type_info.kind
    if kind in _BASIC:
        return _BASIC[kind][0]
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = _arrow_fields(type_info)
        return None if fields is None else pa.struct(fields)
    if isinstance(type_info, MapTypeInfo):
        key, value = arrow_type(type_info.key_type), arrow_type(type_info.value_type)
        return None if key is None or value is None else pa.map_(key, value)
    if _is_bytes(type_info):
        return pa.binary()
    element = getattr(type_info, "elem_type", None)
    inner = None if element is None else arrow_type(element)
    return None if inner is None else pa.list_(inner)


def _is_bytes(type_info: TypeInformation) -> bool:
    return type_info == Types.PRIMITIVE_ARRAY(Types.BYTE())


def _arrow_fields(type_info: RowTypeInfo | TupleTypeInfo) -> list[Any] | None:
    types = [arrow_type(t) for t in type_info.get_field_types()]
    if not types or any(t is None for t in types):
        return None  # a batch without columns would not even know its number of rows
    return [pa.field(n, t) for n, t in zip(type_info.get_field_names(), types, strict=True)]


@lru_cache(maxsize=1024)
def arrow_schema_for(type_info: TypeInformation) -> Any:
    """Return the schema of batches of such records; None when they must travel pickled.

    Rows and tuples have one column per field, anything else one column `f0`.
    """
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = _arrow_fields(type_info)
        return None if fields is None else pa.schema(fields)
    single = arrow_type(type_info)
    return None if single is None else pa.schema([pa.field("f0", single)])


def rows_to_batch(values: list[Any], type_info: TypeInformation) -> Any:
    """Return a record batch of the values.

    Raises:
        UsageError: the type is not columnar, or a value does not fit; the message names the
            field, its declared type and the first value that does not fit.
    """
    schema = arrow_schema_for(type_info)
    if schema is None:
        msg = f"{type_info!r} has no columnar form: its records travel pickled"
        raise UsageError(msg)
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return pa.RecordBatch.from_arrays([column_of(values, type_info, "f0")], schema=schema)
    types = type_info.get_field_types()
    tuples = _tuples(values, type_info)
    columns = zip(*tuples, strict=True) if tuples else [()] * len(types)
    arrays = [
        column_of(column, t, name)
        for column, t, name in zip(columns, types, schema.names, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_to_rows(batch: Any, type_info: TypeInformation) -> list[Any]:
    """Return the records of a batch: tuples for TUPLE, rows for ROW, bare values otherwise."""
    return columns_to_rows(batch_to_columns(batch, type_info), type_info)


def batch_to_columns(batch: Any, type_info: TypeInformation) -> list[list[Any]]:
    """Return the values of a batch by column: one for each field, else one of bare values."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return [read_column(batch.column(0), type_info)]
    types = type_info.get_field_types()
    if batch.num_columns != len(types):
        msg = f"a batch of {batch.num_columns} columns does not hold records of {type_info!r}"
        raise UsageError(msg)
    return [read_column(batch.column(i), t) for i, t in enumerate(types)]


def columns_to_rows(columns: list[list[Any]], type_info: TypeInformation) -> list[Any]:
    """Return the records whose fields are the columns."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return columns[0]
    tuples = list(zip(*columns, strict=True))
    if isinstance(type_info, TupleTypeInfo):
        return tuples
    rows: list[Any] = row_class(type_info.row_names)._of_many(tuples)
    return rows


def _tuples(values: Sequence[Any], type_info: RowTypeInfo | TupleTypeInfo) -> Sequence[Any]:
    """Return the fields of every record, all of the right number."""
    arity = len(type_info.get_field_types())
    is_tuple = isinstance(type_info, TupleTypeInfo)
    wanted: type = tuple if is_tuple else row_class(type_info.row_names)  # type: ignore[union-attr]
    kinds = set(map(type, values))
    if not (kinds <= {wanted} or kinds == {tuple}):
        if None in values:
            msg = f"a record of {type_info!r} must not be None"
            raise UsageError(msg)
        values, kinds = [type_info.check(value) for value in values], {wanted}
    # A plain tuple is a row, field by field.
    tuples = values if kinds <= {tuple} else list(map(_values, values))
    if not set(map(len, tuples)) <= {arity}:
        for value in values:
            type_info.check(value)
    return tuples


def column_of(values: Sequence[Any], type_info: TypeInformation, name: str) -> Any:
    """Build the array of one field of a columnar type.

    Raises:
        UsageError: a value does not fit; the message names the field.
    """
    kind = type_info.kind
    try:
        if kind in _BASIC:
            return _basic_column(values, type_info)
        if _is_bytes(type_info):
            return pa.array(_exact(values, bytes, type_info), pa.binary())
        if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
            return _struct_column(values, type_info)
        if isinstance(type_info, MapTypeInfo):
            return _map_column(values, type_info)
        return _list_column(values, type_info)
    except UsageError as error:
        msg = f"field {name!r}: {error}"
        raise UsageError(msg) from error


def _exact(values: Sequence[Any], wanted: type, type_info: TypeInformation) -> Sequence[Any]:
    """Return values that all have exactly the wanted class or are None."""
    if set(map(type, values)) <= {wanted, _NONE}:
        return values
    return [type_info.check(value) for value in values]


def _basic_column(values: Sequence[Any], type_info: TypeInformation) -> Any:
    target, wanted = _BASIC[type_info.kind]
    if type_info.kind in _ALWAYS_CHECKED:
        values = [type_info.check(value) for value in values]
    else:
        values = _exact(values, wanted, type_info)
    try:
        return pa.array(values, target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return _blame(values, type_info, error)


def _blame(values: Sequence[Any], type_info: TypeInformation, error: Exception) -> Any:
    """Raise UsageError for the first value that Arrow does not take."""
    target = arrow_type(type_info)
    for value in values:
        type_info.check(value)
        try:
            pa.array([value], target)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            msg = f"{type_info!r} cannot hold {value!r}: {cause}"
            raise UsageError(msg) from cause
    msg = f"{type_info!r}: {error}"
    raise UsageError(msg) from error


def _mask(values: Sequence[Any]) -> Any:
    """Return where values are None, or None when they never are."""
    return pa.array([v is None for v in values]) if None in values else None


def _struct_column(values: Sequence[Any], type_info: RowTypeInfo | TupleTypeInfo) -> Any:
    mask = _mask(values)
    checked = [type_info.check(value) for value in values]
    types = type_info.get_field_types()
    empty = (None,) * len(types)
    tuples = [empty if value is None else tuple(value) for value in checked]
    columns = zip(*tuples, strict=True) if tuples else [()] * len(types)
    names = type_info.get_field_names()
    arrays = [column_of(c, t, n) for c, t, n in zip(columns, types, names, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=_arrow_fields(type_info), mask=mask)


def _offsets(values: Sequence[Any]) -> Any:
    """Return list offsets: a null offset marks a null list."""
    total, offsets = 0, []
    for value in values:
        offsets.append(None if value is None else total)
        total += 0 if value is None else len(value)
    offsets.append(total)
    return pa.array(offsets, pa.int32())


def _list_column(values: Sequence[Any], type_info: TypeInformation) -> Any:
    element: TypeInformation = type_info.elem_type  # type: ignore[attr-defined]
    values = _exact(values, list, type_info)
    items = [item for value in values if value is not None for item in value]
    array = column_of(items, element, "element")
    return pa.ListArray.from_arrays(_offsets(values), array, type=arrow_type(type_info))


def _map_column(values: Sequence[Any], type_info: MapTypeInfo) -> Any:
    values = _exact(values, dict, type_info)
    present = [value for value in values if value is not None]
    if any(None in value for value in present):
        msg = f"{type_info!r} cannot travel with None as a key: {present!r:.120}"
        raise UsageError(msg)
    keys = column_of([k for value in present for k in value], type_info.key_type, "key")
    items = column_of([v for d in present for v in d.values()], type_info.value_type, "value")
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=arrow_type(type_info))


_FROM_ARROW: list[tuple[Callable[[Any], bool], TypeInformation]] = [
    (pa.types.is_int8, Types.BYTE()),
    (pa.types.is_int16, Types.SHORT()),
    (pa.types.is_int32, Types.INT()),
    (pa.types.is_int64, Types.LONG()),
    (pa.types.is_float32, Types.FLOAT()),
    (pa.types.is_float64, Types.DOUBLE()),
    (pa.types.is_string, Types.STRING()),
    (pa.types.is_large_string, Types.STRING()),
    (pa.types.is_boolean, Types.BOOLEAN()),
    (pa.types.is_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (pa.types.is_large_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (pa.types.is_date32, Types.SQL_DATE()),
    (pa.types.is_time64, Types.SQL_TIME()),
    (pa.types.is_decimal128, Types.BIG_DEC()),
]


def type_from_arrow(schema: Any) -> RowTypeInfo:
    """Return the row type of a DataFrame's Arrow schema; unknown columns become pickled."""
    return RowTypeInfo([_field_type(f.type) for f in schema], [f.name for f in schema])


def _field_type(arrow: Any) -> TypeInformation:
    for matches, type_info in _FROM_ARROW:
        if matches(arrow):
            return type_info
    if pa.types.is_timestamp(arrow):
        return Types.SQL_TIMESTAMP() if arrow.tz is None else Types.TIMESTAMP_LTZ()
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return Types.LIST(_field_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return Types.MAP(_field_type(arrow.key_type), _field_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return RowTypeInfo([_field_type(f.type) for f in fields], [f.name for f in fields])
    return Types.PICKLED_BYTE_ARRAY()
