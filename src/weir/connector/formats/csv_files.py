"""Files of CSV by PyFlink's names: a schema of columns, its reader and its writer."""

from __future__ import annotations

import csv
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from weir.codec.arrow import arrow_schema_for
from weir.common.typeinfo import RowTypeInfo
from weir.connector.decoder import Columns, Piece, Records
from weir.connector.file_format import CsvFormat, FileFormat, LinePart, OpenPart
from weir.connector.file_reader import ReaderFormat, reading
from weir.connector.file_source import StreamFormat
from weir.connector.formats.columns import csv_conversion, has_integers, is_finite, is_flat
from weir.connector.formats.csv import (
    CsvDialect,
    field_reader,
    field_writer,
    row_reader,
    single_character,
)
from weir.connector.formats.row_types import rounded, scale_of
from weir.connector.sink import blame
from weir.connector.undecoded import Faults
from weir.errors import UsageError
from weir.table.types import DataType, DataTypes, NumericType, RowField, RowType

_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class CsvSchema:
    """The columns of CSV files, and how their lines are written.

    Example:
        schema = CsvSchema.builder().add_number_column("id").add_string_column("name").build()
        schema.get_type_info()
    """

    row_type: RowType
    dialect: CsvDialect = field(default_factory=CsvDialect)
    separators: tuple[str | None, ...] = ()
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Begin a schema."""
        return CsvSchemaBuilder()

    def get_type_info(self) -> RowTypeInfo:
        """Return the type of the records of such files."""
        return self.row_type.type_info()

    def size(self) -> int:
        """Count the columns."""
        return len(self.row_type)

    def __len__(self) -> int:
        """Count the columns."""
        return len(self.row_type)


class CsvSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = CsvSchema.builder().add_number_column("id", DataTypes.INT())
        builder.set_column_separator("|").set_use_header().build()
    """

    def __init__(self) -> None:
        """Begin with no columns, commas and double quotes."""
        self._fields: list[RowField] = []
        self._separators: list[str | None] = []
        self._dialect = CsvDialect()
        self._flags: dict[str, bool] = {}

    def _add(
        self, name: str, data_type: DataType, separator: str | None = None
    ) -> CsvSchemaBuilder:
        self._fields.append(DataTypes.FIELD(name, data_type))
        self._separators.append(separator)
        return self

    def _with(self, **changes: Any) -> CsvSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self

    def add_array_column(
        self, name: str, separator: str = ";", element_type: DataType | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of lists, of text unless told otherwise."""
        return self._add(name, DataTypes.ARRAY(element_type or DataTypes.STRING()), separator)

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of True and False."""
        return self._add(name, DataTypes.BOOLEAN())

    def add_number_column(
        self, name: str, number_type: NumericType | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of numbers, BIGINT unless told otherwise."""
        return self._add(name, number_type or DataTypes.BIGINT())

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, DataTypes.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema."""
        for each, separator in zip(schema.row_type, schema.separators, strict=True):
            self._add(each.name, each.data_type, separator)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._fields.clear()
        self._separators.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Leave out lines that begin with `#`."""
        return self._with(comments=allow)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Refuse: a row has no place for columns that nobody declared.

        Raises:
            UsageError: always.
        """
        msg = f"set_any_property_name({name!r}): a row holds declared columns only; declare them"
        raise UsageError(msg)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Take lists for one element."""
        self._separators = ["" if s is not None else None for s in self._separators]
        return self._with(array_delimiter="")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Take the lists of one column for one element."""
        self._separators[index] = ""
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set what is between elements, where a column names nothing else."""
        return self._with(array_delimiter=separator)

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set what is between columns."""
        return self._with(delimiter=single_character(char, "column separator"))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Let no character take its meaning from another, as by default."""
        return self._with(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set what takes its meaning from the character that follows."""
        return self._with(escape=single_character(char, "escape char"))

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set what is written behind a line; readers know all of them."""
        return self._with(line_delimiter=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text of None."""
        return self._with(null_literal=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Read and write no quotes."""
        return self._with(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the quotes."""
        return self._with(quote=single_character(char, "quote char"))

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Leave out the first line behind the header."""
        self._flags["skip_first_data_row"] = skip
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Refuse files whose header names other columns."""
        self._flags["strict_headers"] = strict
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Take the first line of a file for its header, and write one."""
        self._flags["use_header"] = use
        return self

    def size(self) -> int:
        """Count the columns."""
        return len(self._fields)

    def __len__(self) -> int:
        """Count the columns."""
        return len(self._fields)

    def build(self) -> CsvSchema:
        """Return the schema.

        Raises:
            UsageError: it has no columns, or two of one name.
        """
        if not self._fields:
            msg = "CsvSchema needs columns: add_string_column(name) and its like"
            raise UsageError(msg)
        row_type = DataTypes.ROW(self._fields)
        return CsvSchema(row_type, self._dialect, tuple(self._separators), **self._flags)


def _column_readers(schema: CsvSchema) -> list[Any]:
    made = []
    for each, separator in zip(schema.row_type, schema.separators, strict=True):
        read = field_reader(each.data_type.type_info(), schema.dialect, separator=separator)
        scale = scale_of(each.data_type)
        made.append(read if scale is None else _rounding(read, scale))
    return made


def _rounding(read: Any, scale: int) -> Any:
    return lambda text: rounded(read(text), scale)


@dataclass(frozen=True)
class CsvReaderFormat(StreamFormat, ReaderFormat):
    """Reads CSV files.

    Example:
        schema = CsvSchema.builder().add_number_column("id").add_string_column("name").build()
        FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "/in").build()
    """

    schema: CsvSchema = field(kw_only=True)

    @staticmethod
    def for_schema(schema: Any) -> CsvReaderFormat:
        """Return the reader of a schema."""
        if not isinstance(schema, CsvSchema):
            msg = f"CsvReaderFormat.for_schema: found {schema!r}, expected a CsvSchema"
            raise UsageError(msg)
        return CsvReaderFormat(schema=schema)

    def get_produced_type(self) -> RowTypeInfo:
        """Return the type of the schema's rows."""
        return self.schema.get_type_info()

    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        """Return the rows as columns, and from the first that is not plain on one by one."""
        done = 0
        with reading(path, "CSV"):
            self._check_header(path)
            if self._is_plain(path):
                for piece in self._columns(path):
                    if piece is None:
                        break
                    done += piece.batch.num_rows
                    yield piece
                else:
                    return
            yield from self._rows(path, done, faults)

    def _check_header(self, path: str) -> None:
        schema = self.schema
        if not (schema.use_header and schema.strict_headers):
            return
        with open(path, newline="", encoding="utf-8-sig", errors="replace") as lines:
            found = next(schema.dialect.records(lines), [])
        if found != schema.row_type.names:
            names = schema.row_type.names
            msg = f"{path!r}: its header names {found!r}, and the schema names {names!r}"
            raise UsageError(msg)

    def _is_plain(self, path: str) -> bool:
        """Tell whether Arrow reads the file as we do, or stops where it does not."""
        type_info = self.get_produced_type()
        if self.schema.dialect.comments or not is_flat(type_info):
            return False
        if not has_integers(type_info) or not os.path.getsize(path):
            return True
        # Arrow reads hexadecimal digits, which Java does not.
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents,
        ):
            return re.search(rb"0[xX]", contents) is None

    @property
    def _skipped(self) -> int:
        return int(self.schema.use_header) + int(self.schema.skip_first_data_row)

    def _columns(self, path: str) -> Iterator[Columns | None]:
        """Return batches until the end, or None in place of one that has to be read with care."""
        type_info = self.get_produced_type()
        form = arrow_schema_for(type_info)
        read = pa_csv.ReadOptions(
            column_names=form.names, skip_rows=self._skipped, use_threads=False
        )
        dialect = self.schema.dialect
        convert = csv_conversion(form, dialect.null_literal)
        try:
            with pa_csv.open_csv(path, read, dialect.parse_options(), convert) as batches:
                for batch in batches:
                    if not is_finite(batch):
                        yield None
                    columns = pa.RecordBatch.from_arrays(batch.columns, schema=form)
                    yield Columns(columns, type_info)
        except pa.ArrowInvalid:
            yield None

    def _rows(self, path: str, done: int, faults: Faults) -> Iterator[Piece]:
        """Return the rows behind the first `done`."""
        escaping = "surrogateescape"  # bytes that are no text come back as they were
        with open(path, encoding="utf-8-sig", errors=escaping, newline="") as text:
            found = self._one_by_one(path, _Lines(text, self.schema.dialect), done, faults)
            while chunk := list(islice(found, _ROWS_AT_ONCE)):
                yield Records(chunk)

    def _one_by_one(self, path: str, lines: _Lines, done: int, faults: Faults) -> Iterator[Any]:
        make = row_reader(_column_readers(self.schema), tuple(self.schema.row_type.names))
        left = self._skipped + done
        for texts in lines.records():
            number, raw = lines.take()
            if isinstance(texts, list) and not texts:
                continue  # an empty line
            if left:
                left -= 1
                continue
            try:
                raw.decode("utf-8")
                yield make(_whole(texts))
            except ValueError as error:
                if faults.fails:
                    msg = (
                        f"line {number} of {path!r} is no row of the schema: {error}; it begins "
                        f"with {raw[:100]!r}. FileSource's builder has "
                        "set_on_deserialization_error('skip') and 'dead-letter' for such"
                    )
                    raise UsageError(msg) from error
                faults.add(path, None, number, value=raw.rstrip(b"\r\n"), error=error)


def _whole(texts: list[str] | csv.Error) -> list[str]:
    if isinstance(texts, csv.Error):
        msg = str(texts)
        raise ValueError(msg) from texts
    return texts


class _Lines:
    """The lines of a file, which remembers those of the record that is being read."""

    def __init__(self, text: Iterable[str], dialect: CsvDialect) -> None:
        self._text = iter(text)
        self._dialect = dialect
        self._number = 0
        self._kept: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while True:
            line = next(self._text)
            self._number += 1
            if self._kept or not (self._dialect.comments and line.lstrip().startswith("#")):
                self._kept.append(line)
                return line

    def records(self) -> Iterator[list[str] | csv.Error]:
        """Return the fields of each record, or what is wrong with it."""
        found = self._dialect.records(self)
        while True:
            try:
                yield next(found)
            except StopIteration:  # noqa: PERF203 - each record may be the bad one
                return
            except csv.Error as error:
                yield error

    def take(self) -> tuple[int, bytes]:
        """Return the number of the record's first line, and its bytes."""
        kept, self._kept = self._kept, []
        raw = "".join(kept).encode("utf-8", "surrogateescape")
        return self._number - max(len(kept), 1) + 1, raw


class CsvSchemaFormat(FileFormat):
    """Writes the columns of a schema as it says."""

    suffix = ".csv"

    def __init__(self, schema: CsvSchema) -> None:
        self.schema = schema
        self.can_be_concatenated = not schema.use_header

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type: records are checked against the schema."""
        schema, dialect = self.schema, self.schema.dialect
        check = schema.get_type_info().check
        columns = list(zip(schema.row_type, schema.separators, strict=True))
        writers = [
            field_writer(each.data_type.type_info(), dialect, separator=separator)
            for each, separator in columns
        ]
        scales = [scale_of(each.data_type) for each, _ in columns]
        header = b""
        if schema.use_header:
            names = dialect.line([(name, True) for name in schema.row_type.names])
            header = f"{names}{dialect.line_delimiter}".encode()

        def line(value: Any) -> str:
            row = check(value)
            if row is None:
                msg = "CSV has no line for a record that is None"
                raise UsageError(msg)
            values = [rounded(v, s) for v, s in zip(row._values, scales, strict=True)]
            texts = [write(v) for write, v in zip(writers, values, strict=True)]
            return dialect.line(texts) + dialect.line_delimiter

        def encode(values: list[Any]) -> bytes:
            value, made = None, []
            try:
                for value in values:
                    made.append(line(value))
                return "".join(made).encode()
            except BaseException as error:
                blame(error, value)
                raise

        return lambda stream: LinePart(stream, encode, header)


class CsvBulkWriters:
    """PyFlink's name for the CSV writer factory.

    Example:
        schema = CsvSchema.builder().add_number_column("id").build()
        FileSink.for_bulk_format("/out", CsvBulkWriters.for_schema(schema)).build()
    """

    @staticmethod
    def for_schema(schema: Any) -> FileFormat:
        """Return the format of a `CsvSchema`, or of a row type, with commas."""
        return CsvSchemaFormat(schema) if isinstance(schema, CsvSchema) else CsvFormat(schema)
