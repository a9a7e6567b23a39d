"""Row types of the Table API as Arrow columns: what Parquet and ORC files hold of them.

Decimals have the digits that their type says and are rounded half up, as Flink does; moments are
`Instant` in records and UTC in files.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from weir.codec.arrow import arrow_schema_for
from weir.codec.arrow_read import read_column
from weir.common.time import Instant
from weir.common.typeinfo import RowTypeInfo, TypeInformation
from weir.common.types import row_class
from weir.connector.decoder import Columns, Piece, Records
from weir.connector.formats.texts import instant_of, moment_of
from weir.errors import UsageError
from weir.table.types import ArrayType, DataType, MapType, RowType

# A decimal has 38 digits at most, and as many behind the point.
_DIGITS = Context(prec=100)
_UNITS = (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
_PLAIN: dict[str, Any] = {
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
}


def scale_of(data_type: DataType) -> int | None:
    """Return how many digits of a decimal are behind the point; None for other types."""
    return data_type.arguments[1] if data_type.name == "DECIMAL" else None


def rounded(value: Any, scale: int | None) -> Any:
    """Return a decimal with so many digits behind the point; anything else as it is.

    Raises:
        ValueError: it is infinite, or has more digits than any type.
    """
    if scale is None or value is None:
        return value
    try:
        return Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DIGITS)
    except InvalidOperation:
        msg = f"{value!r:.100} is no decimal with {scale} digits behind the point"
        raise ValueError(msg) from None


def require_row_type(row_type: Any, owner: str) -> RowType:
    """Return a row type of the Table API as it is.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(row_type, RowType) or not len(row_type):
        wanted = "a row type such as DataTypes.ROW([DataTypes.FIELD(…)])"
        msg = f"{owner} needs {wanted}, not {row_type!r}"
        raise UsageError(msg)
    return row_type


def arrow_schema(row_type: RowType) -> pa.Schema:
    """Return the columns of files."""
    fields = [pa.field(f.name, _arrow(f.data_type), f.data_type.is_nullable) for f in row_type]
    return pa.schema(fields)


def _arrow(data_type: DataType) -> Any:
    if isinstance(data_type, RowType):
        return pa.struct(list(arrow_schema(data_type)))
    if isinstance(data_type, ArrayType):
        return pa.list_(_arrow(data_type.element_type))
    if isinstance(data_type, MapType):
        return pa.map_(_arrow(data_type.key_type), _arrow(data_type.value_type))
    if data_type.name == "DECIMAL":
        return pa.decimal128(*data_type.arguments)
    if data_type.name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return _timed(data_type.name, data_type.arguments[0])
    return _PLAIN[data_type.name]


def _timed(name: str, precision: int) -> Any:
    unit = next(unit for unit, digits in _UNITS if precision <= digits)
    if name == "TIME":
        return pa.time32("ms") if precision <= 3 else pa.time64("us")
    # Files of Parquet and ORC know no whole seconds.
    shown = "ms" if unit == "s" else unit
    return pa.timestamp(shown, "UTC" if name == "TIMESTAMP_LTZ" else None)


Convert = Callable[[Any], Any]


def _to_file(data_type: DataType) -> Convert | None:
    """Return what makes of a value one that Arrow takes; None where it takes it as it is."""
    if data_type.name == "DECIMAL":
        scale = data_type.arguments[1]
        return lambda value: rounded(value, scale)
    if data_type.name == "TIMESTAMP_LTZ":
        return lambda value: moment_of(value) if isinstance(value, Instant) else value
    if isinstance(data_type, ArrayType):
        one = _to_file(data_type.element_type)
        return None if one is None else lambda value: [_given(one, item) for item in value]
    if isinstance(data_type, MapType):
        key = _to_file(data_type.key_type) or _same
        item = _to_file(data_type.value_type) or _same
        return lambda value: [(key(k), _given(item, v)) for k, v in value.items()]
    if isinstance(data_type, RowType):
        names = data_type.names
        fields = [_to_file(t) or _same for t in data_type.field_types()]
        return lambda value: {
            n: _given(f, v) for n, f, v in zip(names, fields, tuple(value), strict=True)
        }
    return None


def _same(value: Any) -> Any:
    return value


def _given(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def batches_of(row_type: RowType) -> Callable[[list[Any]], pa.RecordBatch]:
    """Return what makes batches of records: rows, tuples or dicts with the fields of the type."""
    schema, check = arrow_schema(row_type), row_type.type_info().check
    converts = [_to_file(t) for t in row_type.field_types()]

    def to_batch(values: list[Any]) -> pa.RecordBatch:
        rows = [check(value) for value in values]
        if None in rows:
            msg = "a record of a file must not be None"
            raise UsageError(msg)
        columns = zip(*[row._values for row in rows], strict=True)
        arrays = [
            _column(column, field, convert)
            for column, field, convert in zip(columns, schema, converts, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return to_batch


def _column(column: Sequence[Any], field: pa.Field, convert: Convert | None) -> pa.Array:
    values = column if convert is None else [_given(convert, value) for value in column]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        msg = f"field {field.name!r} of type {field.type} cannot hold one of its values: {error}"
        raise UsageError(msg) from error


def piece_of(columns: Sequence[pa.Array], row_type: RowType) -> Piece:
    """Return the records of columns of a file, still as columns where streams have them, too."""
    type_info = row_type.type_info()
    form = arrow_schema_for(type_info)
    if form is not None:
        cast = [
            c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, form, strict=True)
        ]
        return Columns(pa.RecordBatch.from_arrays(cast, schema=form), type_info)
    values = [
        _values(column, t, f.data_type)
        for column, t, f in zip(columns, type_info.get_field_types(), row_type, strict=True)
    ]
    rows = list(zip(*values, strict=True))
    return Records(list(row_class(type_info.row_names)._of_many(rows)))


def _values(column: pa.Array, type_info: TypeInformation, data_type: DataType) -> list[Any]:
    if data_type.name == "TIMESTAMP_LTZ":
        moments = column.cast(pa.timestamp("us", "UTC"), safe=False).to_pylist()
        return [_given(_instant, moment) for moment in moments]
    if data_type.name == "DECIMAL":
        decimals: list[Any] = column.to_pylist()
        return decimals
    if isinstance(data_type, (ArrayType, MapType, RowType)):
        back = _from_file(data_type)
        return [_given(back, value) for value in column.to_pylist()]
    wanted = arrow_schema_for(RowTypeInfo([type_info])).field(0).type
    return read_column(column if column.type == wanted else column.cast(wanted), type_info)


def _instant(moment: datetime.datetime) -> Instant:
    return instant_of(moment.astimezone(datetime.timezone.utc))


def _from_file(data_type: DataType) -> Convert:
    """Return what makes of a value that Arrow gave one of the type of records."""
    if data_type.name == "TIMESTAMP_LTZ":
        return _instant
    if isinstance(data_type, ArrayType):
        one = _from_file(data_type.element_type)
        return lambda value: [_given(one, item) for item in value]
    if isinstance(data_type, MapType):
        key, item = _from_file(data_type.key_type), _from_file(data_type.value_type)
        return lambda value: {key(k): _given(item, v) for k, v in value}
    if isinstance(data_type, RowType):
        make = row_class(tuple(data_type.names))._of
        fields = [_from_file(t) for t in data_type.field_types()]
        return lambda value: make(
            tuple(_given(f, v) for f, v in zip(fields, value.values(), strict=True))
        )
    return _same
