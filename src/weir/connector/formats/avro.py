"""Avro by PyFlink's names, on fastavro (extra `avro`): schemas, rows in messages, and files.

Generic records are dicts. What a row has of an Avro schema follows Flink: a union with null is the
other type, enumerations are text, times are those of `Types`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weir.common import _check
from weir.common.serialization import DeserializationSchema, SerializationSchema
from weir.common.typeinfo import TypeInformation
from weir.connector.decoder import Piece, Records
from weir.connector.file_format import FileFormat, OpenPart, PartWriter
from weir.connector.file_reader import FormattedFiles, ReaderFormat, reading
from weir.connector.file_source import StreamFormat
from weir.connector.formats.avro_types import arrow_schema_of, from_avro, to_avro, type_of_avro
from weir.connector.parquet_format import ParquetFormat
from weir.connector.sink import blame
from weir.connector.source import Source
from weir.connector.undecoded import Faults
from weir.errors import UsageError

_ROWS_AT_ONCE = 1000
# Of compressed blocks that are damaged, too.
_RAISED_BY = ("fastavro", "zlib", "_lzma")


def import_fastavro() -> Any:
    """Return the module `fastavro`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import fastavro
        import fastavro.write
    except ImportError as error:
        msg = "Avro needs the package fastavro: pip install 'weir-spark[avro]'"
        raise UsageError(msg) from error
    return fastavro


def _wrong(error: Exception) -> bool:
    """Tell whether fastavro raises this for a schema or a value that does not fit."""
    known = (ValueError, TypeError, LookupError, AttributeError, EOFError, OverflowError)
    if isinstance(error, MemoryError):
        return True  # a length that no file has
    return isinstance(error, known) or type(error).__module__.partition(".")[0] in _RAISED_BY


class AvroSchema:
    """An Avro schema.

    Example:
        fields = '[{"name": "id", "type": "long"}]'
        AvroSchema.parse_string('{"type": "record", "name": "Order", "fields": %s}' % fields)
    """

    def __init__(self, schema: Any) -> None:
        """Take the schema as JSON has it; prefer `parse_string` and `parse_file`.

        Raises:
            UsageError: it is no Avro schema.
        """
        self._text = json.dumps(schema)
        try:
            self.parsed = import_fastavro().parse_schema(schema)
        except UsageError:
            raise
        except Exception as error:
            if not _wrong(error):
                raise
            msg = f"this is no Avro schema: {error}: {self._text:.200}"
            raise UsageError(msg) from error

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema in JSON."""
        try:
            return AvroSchema(json.loads(json_schema))
        except (ValueError, TypeError) as error:
            msg = f"an Avro schema is JSON, and this is none ({error}): {json_schema!r:.200}"
            raise UsageError(msg) from error

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse a schema in a file."""
        try:
            with open(file_path, encoding="utf-8") as file:
                return AvroSchema.parse_string(file.read())
        except OSError as error:
            msg = f"the Avro schema {file_path!r} cannot be read: {error.strerror}"
            raise UsageError(msg) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text alone."""
        return AvroSchema.parse_string, (self._text,)

    def __eq__(self, other: object) -> bool:
        """Compare the texts."""
        return isinstance(other, AvroSchema) and self._text == other._text

    def __hash__(self) -> int:
        """Hash the text."""
        return hash(self._text)

    def __str__(self) -> str:
        """Show the schema as JSON."""
        return self._text


class GenericRecordAvroTypeInfo(TypeInformation[Any]):
    """The type of generic records: dicts that fit an Avro schema. They travel pickled.

    Example:
        schema = AvroSchema.parse_string('{"type": "record", "name": "Nothing", "fields": []}')
        stream.map(lambda value: {}, output_type=GenericRecordAvroTypeInfo(schema))
    """

    __slots__ = ()

    def __init__(self, schema: AvroSchema) -> None:
        """Take the schema of the records."""
        self._init("PICKLED_BYTE_ARRAY", (schema,), _check.check_anything)

    def __repr__(self) -> str:
        """Name the schema."""
        return f"GenericRecordAvroTypeInfo({self._args[0]})"


class _OfAvroRows:
    """What is made for an Avro schema of records, and pickled as that alone."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        """Take the schema as JSON; there are no classes of Java here.

        Raises:
            UsageError: it is missing, or no Avro schema of records.
        """
        self._schema = _required(record_class, avro_schema_string, type(self).__name__)
        self._prepare()

    def _prepare(self) -> None:
        """Make what depends on the schema."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Keep the schema alone."""
        return {"_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the conversions again."""
        self._schema = state["_schema"]
        self._prepare()


class AvroRowDeserializationSchema(_OfAvroRows, DeserializationSchema):
    """Makes rows of messages in Avro's binary form, without a schema in front.

    Example:
        record = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
        schema = AvroRowDeserializationSchema(avro_schema_string=record)
        schema.get_produced_type()
    """

    def _prepare(self) -> None:
        self._type = type_of_avro(self._schema.parsed)
        self._convert = from_avro(self._schema.parsed)
        self._read: Callable[..., Any] = import_fastavro().schemaless_reader

    def deserialize(self, message: bytes) -> Any:
        """Return the row of a message.

        Raises:
            ValueError: it is none of the schema.
        """
        stream = io.BytesIO(message)
        try:
            found = self._read(stream, self._schema.parsed, None)
        except Exception as error:
            if not _wrong(error):
                raise
            msg = f"it is no record of the Avro schema: {type(error).__name__}: {error}"
            raise ValueError(msg) from error
        if stream.tell() != len(message):
            msg = f"it is longer than a record of the Avro schema: {len(message)} bytes"
            raise ValueError(msg)
        return self._convert(found)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the rows."""
        return self._type


def _required(record_class: Any, text: str | None, owner: str) -> AvroSchema:
    if record_class is not None:
        msg = f"{owner}: record_class is a class of Java, give avro_schema_string instead"
        raise UsageError(msg)
    if text is None:
        msg = f"{owner} needs avro_schema_string"
        raise UsageError(msg)
    return AvroSchema.parse_string(text)


class AvroRowSerializationSchema(_OfAvroRows, SerializationSchema):
    """Makes messages in Avro's binary form of rows; fields are found by their place.

    Example:
        record = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
        AvroRowSerializationSchema(avro_schema_string=record).serialize((1,))
    """

    def _prepare(self) -> None:
        type_of_avro(self._schema.parsed)
        self._convert = to_avro(self._schema.parsed)
        self._write: Callable[..., None] = import_fastavro().schemaless_writer

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of a row, or of a tuple with its fields.

        Raises:
            UsageError: it does not fit the schema.
        """
        stream = io.BytesIO()
        try:
            self._write(stream, self._schema.parsed, self._convert(element))
        except Exception as error:
            if not _wrong(error):
                raise
            msg = f"{element!r} does not fit the Avro schema {self._schema}: {error}"
            raise UsageError(msg) from error
        return stream.getvalue()


@dataclass(frozen=True)
class _AvroFiles(ReaderFormat):
    """Avro's container files, each with the schema that it was written by."""

    schema: AvroSchema

    def get_produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)

    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        with reading(path, "Avro"), open(path, "rb") as stream:
            try:
                found = import_fastavro().reader(stream, reader_schema=self.schema.parsed)
                while chunk := list(islice(found, _ROWS_AT_ONCE)):
                    yield Records(chunk)
            except Exception as error:
                if not _wrong(error) or isinstance(error, UsageError):
                    raise
                msg = f"{path!r} cannot be read as Avro: {type(error).__name__}: {error}"
                raise UsageError(msg) from error


class AvroInputFormat:
    """Avro files as records, for `env.create_input`.

    Example:
        schema = AvroSchema.parse_string('{"type": "record", "name": "Nothing", "fields": []}')
        env.create_input(AvroInputFormat("/in/orders.avro", schema))
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        """Take a file or a directory, and the schema that records are read by."""
        self._path = path
        self._schema = schema

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""
        return GenericRecordAvroTypeInfo(self._schema)

    def source(self) -> Source:
        """Return what reads the files."""
        return FormattedFiles(self._path, _AvroFiles(self._schema))


class AvroFormat(FileFormat):
    """Avro's container files, with compressed blocks."""

    suffix = ".avro"

    def __init__(self, schema: AvroSchema, codec: str = "null") -> None:
        self.schema = schema
        self.codec = codec

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type: records are checked against the schema."""
        return lambda stream: _AvroPart(self._writer(stream), stream)

    def rewrite(self, parts: list[BinaryIO], stream: BinaryIO) -> None:
        """Copy the records of all parts."""
        writer = self._writer(stream)
        for part in parts:
            for record in import_fastavro().reader(part):
                writer.write(record)
        writer.flush()

    def _writer(self, stream: BinaryIO) -> Any:
        return import_fastavro().write.Writer(stream, self.schema.parsed, self.codec)


class _AvroPart(PartWriter):
    def __init__(self, writer: Any, stream: BinaryIO) -> None:
        self._writer = writer
        self._stream = stream

    def write(self, values: list[Any]) -> None:
        value = None
        try:
            for value in values:
                self._writer.write(value)
        except Exception as error:
            if not _wrong(error):
                raise
            msg = f"{value!r} does not fit the Avro schema: {type(error).__name__}: {error}"
            refused = UsageError(msg)
            blame(refused, value)
            raise refused from error

    def size_bytes(self) -> int:
        return self._stream.tell()

    def finish(self) -> None:
        self._writer.flush()


class AvroBulkWriters:
    """PyFlink's name for the Avro writer factory.

    Example:
        schema = AvroSchema.parse_string('{"type": "record", "name": "Nothing", "fields": []}')
        FileSink.for_bulk_format("/out", AvroBulkWriters.for_generic_record(schema)).build()
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> FileFormat:
        """Return the format of dicts that fit a schema."""
        return AvroFormat(schema)


@dataclass(frozen=True)
class _AvroParquetFiles(StreamFormat, ReaderFormat):
    schema: Any = None

    def get_produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)

    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        wanted = arrow_schema_of(self.schema.parsed)
        with reading(path, "Parquet"), pq.ParquetFile(path) as file:
            names = [name for name in wanted.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(columns=names, use_threads=False):
                columns = [
                    batch.column(f.name).cast(f.type)
                    if f.name in names
                    else pa.nulls(batch.num_rows, f.type)
                    for f in wanted
                ]
                rows = pa.RecordBatch.from_arrays(columns, schema=wanted)
                yield Records(rows.to_pylist(maps_as_pydicts="strict"))


class AvroParquetReaders:
    """PyFlink's name for Parquet files that are read as generic records.

    Example:
        schema = AvroSchema.parse_string('{"type": "record", "name": "Nothing", "fields": []}')
        AvroParquetReaders.for_generic_record(schema)
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Return the reader of the fields of a schema, as dicts."""
        arrow_schema_of(schema.parsed)
        return _AvroParquetFiles(schema=schema)


class AvroParquetWriters:
    """PyFlink's name for Parquet files of generic records.

    Example:
        fields = '[{"name": "id", "type": "long"}]'
        schema = AvroSchema.parse_string('{"type": "record", "name": "R", "fields": %s}' % fields)
        FileSink.for_bulk_format("/out", AvroParquetWriters.for_generic_record(schema)).build()
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> FileFormat:
        """Return the format of dicts that fit a schema.

        Raises:
            UsageError: it has a union of several types, for which Parquet has no column.
        """
        return ParquetFormat(arrow_schema_of(schema.parsed))
