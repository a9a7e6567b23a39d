"""Parquet part files: records are gathered into row groups and typed by a declared row type.

The schema comes from the format's `row_type` (a row type, of `Types` or of `DataTypes`, or a
`pyarrow.Schema`), else from the type of the stream. A value that does not fit its field raises
`UsageError` before its row group is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weir.codec.arrow import arrow_schema_for, rows_to_batch
from weir.common.typeinfo import RowTypeInfo
from weir.common.types import Row, row_class
from weir.connector.file_format import FileFormat, OpenPart, PartWriter
from weir.connector.formats.row_types import arrow_schema, batches_of
from weir.errors import UsageError
from weir.table.types import RowType

ROW_GROUP_ROWS = 65_536

ToBatch = Callable[[list[Any]], pa.RecordBatch]


class ParquetFormat(FileFormat):
    """Parquet with row groups of about 64 thousand rows."""

    suffix = ".parquet"

    def __init__(self, row_type: Any = None, compression: str = "snappy") -> None:
        self.row_type = row_type
        self.compression = compression

    def bind(self, type_info: Any) -> OpenPart:
        """Find the schema; `UsageError` if neither type is columnar."""
        schema, to_batch = columnar(self._declared(type_info), "the Parquet sink")
        compression = self.compression
        return lambda stream: _ParquetPart(stream, schema, to_batch, compression)

    def column_schema(self, type_info: Any) -> Any:
        """Return the columns that files have."""
        return columnar(self._declared(type_info), "the Parquet sink")[0]

    def rewrite(self, parts: list[BinaryIO], stream: BinaryIO) -> None:
        """Copy the row groups of all parts."""
        first = pq.ParquetFile(parts[0])
        with pq.ParquetWriter(stream, first.schema_arrow, compression=self.compression) as writer:
            for part in parts:
                file = pq.ParquetFile(part)
                for index in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(index))

    def _declared(self, type_info: Any) -> Any:
        return self.row_type if self.row_type is not None else type_info


def columnar(declared: Any, owner: str) -> tuple[pa.Schema, ToBatch]:
    """Return the Arrow schema of a declared type and the conversion of records into batches."""
    found = try_columnar(declared)
    if found is None:
        message = (
            f"{owner} needs columns, but the declared type is {declared!r}; give row_type="
            "Types.ROW_NAMED([...], [...]) or declare the output_type of the stream before it"
        )
        raise UsageError(message)
    return found


def try_columnar(declared: Any) -> tuple[pa.Schema, ToBatch] | None:
    """Do as `columnar`, but return None for a type that has no columns."""
    if isinstance(declared, RowType):
        return arrow_schema(declared), batches_of(declared)
    if isinstance(declared, pa.Schema):
        return declared, lambda values: _schema_batch(values, declared)
    if declared is None:
        return None
    schema = arrow_schema_for(declared)
    if schema is None:
        return None
    names = schema.names

    def to_batch(values: list[Any]) -> pa.RecordBatch:
        values = _without_dicts(values, names)
        if isinstance(declared, RowTypeInfo):
            values = _as_rows(values, declared)
        batch: pa.RecordBatch = rows_to_batch(values, declared)
        return batch

    return schema, to_batch


class RowsPart(PartWriter):
    """Gathers records, or columns, and writes so many rows at once."""

    def __init__(
        self, stream: BinaryIO, schema: pa.Schema, to_batch: ToBatch, rows_at_once: int
    ) -> None:
        self._stream = stream
        self._schema = schema
        self._to_batch = to_batch
        self._at_once = rows_at_once
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._gathered = 0

    def write(self, values: list[Any]) -> None:
        """Take records."""
        self._flush_columns()
        self._rows.extend(values)
        while len(self._rows) >= self._at_once:
            self._flush_rows(self._at_once)

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Take rows that are columns already."""
        self._flush_rows(len(self._rows))
        self._batches.append(batch)
        self._gathered += batch.num_rows
        if self._gathered >= self._at_once:
            self._flush_columns()

    def size_bytes(self) -> int:
        """Return the bytes that have left the encoder."""
        return self._stream.tell()

    def finish(self) -> None:
        """Write the rest, and what the format has at its end."""
        self._flush_rows(len(self._rows))
        self._flush_columns()
        self._close()

    def abandon(self) -> None:
        """Forget what was not written."""
        self._rows.clear()
        self._batches.clear()

    def _flush_rows(self, count: int) -> None:
        if count:
            batch = self._to_batch(self._rows[:count])
            del self._rows[:count]
            self._write_table(pa.Table.from_batches([batch]))

    def _flush_columns(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._batches, self._gathered = [], 0
            self._write_table(table)

    def _write_table(self, table: pa.Table) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class _ParquetPart(RowsPart):
    def __init__(
        self, stream: BinaryIO, schema: pa.Schema, to_batch: ToBatch, compression: str
    ) -> None:
        super().__init__(stream, schema, to_batch, ROW_GROUP_ROWS)
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)

    def _write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def _close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        # Its destructor would try to write the footer into a closed file, and complain.
        super().abandon()
        self._writer.is_open = False


def _as_rows(values: list[Any], declared: RowTypeInfo) -> list[Any]:
    """Wrap plain tuples, so that they take the fast way and errors name the field."""
    width = len(declared.get_field_types())
    if set(map(type, values)) != {tuple} or set(map(len, values)) != {width}:
        return values
    rows: list[Any] = list(row_class(declared.row_names)._of_many(values))
    return rows


def _without_dicts(values: list[Any], names: list[str]) -> list[Any]:
    if not any(isinstance(value, dict) for value in values):
        return values
    return [_dict_fields(v, names) if isinstance(v, dict) else v for v in values]


def _dict_fields(value: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    if any(key not in names for key in value):
        message = f"record {value!r} does not fit the fields {names!r}"
        raise UsageError(message)
    return tuple(value.get(name) for name in names)


def _schema_batch(values: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    values = _without_dicts(values, schema.names)
    if len(schema) == 1 and not isinstance(values[0], (tuple, list, Row)):
        values = [(value,) for value in values]
    for value in values:
        if not isinstance(value, (tuple, list, Row)) or len(value) != len(schema):
            message = f"record {value!r} does not fit the fields {schema.names!r}"
            raise UsageError(message)
    columns = zip(*values, strict=True)
    arrays = [_column(column, field) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _column(column: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        return pa.array(column, field.type)
    except _MISFITS as error:
        value = next((value for value in column if not _fits(value, field.type)), column)
        message = f"field {field.name!r}: {value!r} does not fit {field.type}: {error}"
        raise UsageError(message) from error


def _fits(value: Any, data_type: pa.DataType) -> bool:
    try:
        pa.array([value], data_type)
    except _MISFITS:
        return False
    return True
