"""Files of columns by PyFlink's names: Parquet and ORC, read and written."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from weir.common.configuration import Configuration
from weir.common.typeinfo import RowTypeInfo
from weir.connector.decoder import Piece
from weir.connector.file_format import FileFormat, OpenPart
from weir.connector.file_reader import ReaderFormat, reading
from weir.connector.formats.orc_footer import check_types
from weir.connector.formats.row_types import arrow_schema, piece_of, require_row_type
from weir.connector.parquet_format import ParquetFormat, RowsPart, columnar
from weir.connector.undecoded import Faults
from weir.errors import UsageError
from weir.notices import warn_once
from weir.table.types import RowType

log = logging.getLogger("weir.formats")
_BATCH_ROWS = 1 << 16
_STRIPE_ROWS = 1 << 16
_ORC_CODECS = {
    "NONE": "uncompressed",
    "ZLIB": "zlib",
    "SNAPPY": "snappy",
    "LZ4": "lz4",
    "ZSTD": "zstd",
}


class BulkFormat(ReaderFormat):
    """A format whose files are read many records at once.

    Example:
        row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT())])
        parquet: BulkFormat = ParquetColumnarRowInputFormat(row)
        FileSource.for_bulk_file_format(parquet, "/in").build()
    """


def _warn_of_zone(row_type: RowType, *, utc: bool) -> None:
    """Say so where Flink would have shifted times by the zone of the host."""
    local = any(t.name == "TIMESTAMP" for t in row_type.field_types())
    if local and not utc and (time.timezone or time.daylight):
        warn_once(
            log,
            "timestamps without a zone are as they stand in Parquet files, as with Flink's UTC "
            "timestamps: Flink would shift them by the time zone of this host",
        )


def _settings(given: Any, known: set[str], owner: str) -> dict[str, str]:
    """Return the settings that mean something here; of others it is said that they do not."""
    if given is None:
        return {}
    pairs: Mapping[str, Any] = given.to_dict() if isinstance(given, Configuration) else dict(given)
    for key in pairs:
        if key not in known:
            warn_once(log, f"{owner}: the setting {key!r} has no effect")
    return {key: str(value) for key, value in pairs.items() if key in known}


@dataclass(frozen=True)
class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads the columns of a row type from Parquet files; one that a file has not is None.

    Example:
        row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT())])
        FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row), "/in").build()
    """

    row_type: RowType
    hadoop_config: Any = None
    batch_size: int = 2048
    is_utc_timestamp: bool = False
    is_case_sensitive: bool = True

    def __post_init__(self) -> None:
        """Check the type, and say which settings have no effect; rows are batched as suits us."""
        require_row_type(self.row_type, "ParquetColumnarRowInputFormat")
        _settings(self.hadoop_config, set(), "ParquetColumnarRowInputFormat")
        _warn_of_zone(self.row_type, utc=self.is_utc_timestamp)
        object.__setattr__(self, "hadoop_config", None)

    def get_produced_type(self) -> RowTypeInfo:
        """Return the type of the rows."""
        return self.row_type.type_info()

    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        """Return the rows of a file, as columns where streams have them, too."""
        schema = arrow_schema(self.row_type)
        with (
            reading(path, "Parquet"),
            pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file,
        ):
            names = file.schema_arrow.names
            there = _places(path, names, self.row_type, exact=self.is_case_sensitive)
            wanted = [name for name in there.values() if name is not None]
            # One thread: the task has one core, and its neighbours have theirs.
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
                columns = [_column(path, batch, there[f.name], f) for f in schema]
                yield piece_of(columns, self.row_type)


@dataclass(frozen=True)
class OrcColumnarRowInputFormat(BulkFormat):
    """Reads the columns of a row type from ORC files; one that a file has not is None.

    Example:
        row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT())])
        FileSource.for_bulk_file_format(OrcColumnarRowInputFormat(row), "/in").build()
    """

    row_type: RowType
    is_case_sensitive: bool = True

    def __post_init__(self) -> None:
        """Check the type."""
        require_row_type(self.row_type, "OrcColumnarRowInputFormat")

    def get_produced_type(self) -> RowTypeInfo:
        """Return the type of the rows."""
        return self.row_type.type_info()

    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        """Return the rows of a file, stripe by stripe."""
        schema = arrow_schema(self.row_type)
        # By a handle of ours: Arrow's errors do not say whether a file is missing or damaged.
        with reading(path, "ORC"), open(path, "rb") as stream:
            file = _orc_file(stream)
            there = _places(path, file.schema.names, self.row_type, exact=self.is_case_sensitive)
            # Without a column Arrow would not know how many rows there are.
            wanted = [n for n in there.values() if n is not None] or file.schema.names[:1]
            for stripe in range(file.nstripes):
                whole = file.read_stripe(stripe, columns=wanted)
                for start in range(0, whole.num_rows, _BATCH_ROWS):
                    batch = whole.slice(start, _BATCH_ROWS)
                    columns = [_column(path, batch, there[f.name], f) for f in schema]
                    yield piece_of(columns, self.row_type)


def _orc_file(stream: BinaryIO) -> orc.ORCFile:
    """Return Arrow's reader of a file whose types it can take without ending the process."""
    check_types(stream)
    return orc.ORCFile(stream)


def _places(
    path: str, names: list[str], row_type: RowType, *, exact: bool
) -> dict[str, str | None]:
    """Return under which name a file has each field; not `exact` ones are equal but for case."""
    if exact:
        return {name: name if name in names else None for name in row_type.names}
    folded: dict[str, str] = {}
    for name in names:
        if folded.setdefault(name.lower(), name) != name:
            msg = f"{path!r} has columns that differ in case alone: {name!r} and another"
            raise UsageError(msg)
    return {name: folded.get(name.lower()) for name in row_type.names}


def _column(path: str, batch: pa.RecordBatch, name: str | None, field: pa.Field) -> pa.Array:
    """Return a column as it was declared; one that the file has not is empty."""
    if name is None:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(name)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = (
            f"{path!r}: column {name!r} is of type {column.type} and does not fit the declared "
            f"{field.type}: {error}"
        )
        raise UsageError(msg) from error


class ParquetBulkWriters:
    """PyFlink's name for the Parquet writer factory.

    Example:
        row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT())])
        FileSink.for_bulk_format("/out", ParquetBulkWriters.for_row_type(row)).build()
    """

    @staticmethod
    def for_row_type(
        row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False
    ) -> FileFormat:
        """Return the format of a row type, of `DataTypes` or of `Types`.

        Of the settings of Hadoop, `parquet.compression` counts.
        """
        given = _settings(hadoop_config, {"parquet.compression"}, "ParquetBulkWriters")
        codec = given.get("parquet.compression", "snappy").lower()
        compression = "none" if codec == "uncompressed" else codec
        if isinstance(row_type, RowType):
            require_row_type(row_type, "ParquetBulkWriters")
            _warn_of_zone(row_type, utc=utc_timestamp)
        return ParquetFormat(row_type, compression)


class OrcBulkWriters:
    """PyFlink's name for the ORC writer factory.

    Example:
        row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT())])
        FileSink.for_bulk_format("/out", OrcBulkWriters.for_row_type(row)).build()
    """

    @staticmethod
    def for_row_type(
        row_type: Any, writer_properties: Any = None, hadoop_config: Any = None
    ) -> FileFormat:
        """Return the format of a row type, of `DataTypes` or of `Types`.

        Of the properties, `orc.compress` and `orc.stripe.size` count.
        """
        known = {"orc.compress", "orc.stripe.size"}
        given = _settings(writer_properties, known, "OrcBulkWriters")
        _settings(hadoop_config, set(), "OrcBulkWriters")
        codec = given.get("orc.compress", "ZLIB").upper()
        if codec not in _ORC_CODECS:
            msg = f"orc.compress is {codec!r}, expected one of {', '.join(_ORC_CODECS)}"
            raise UsageError(msg)
        stripe = int(given.get("orc.stripe.size", 64 << 20))
        return OrcFormat(row_type, _ORC_CODECS[codec], stripe)


class OrcFormat(FileFormat):
    """ORC; the columns come from the row type, or from that of the stream."""

    suffix = ".orc"

    def __init__(
        self, row_type: Any = None, compression: str = "zlib", stripe_bytes: int = 64 << 20
    ) -> None:
        self.row_type = row_type
        self.compression = compression
        self.stripe_bytes = stripe_bytes

    def bind(self, type_info: Any) -> OpenPart:
        """Find the schema; `UsageError` if neither type is columnar."""
        schema, to_batch = columnar(self._declared(type_info), "the ORC sink")
        return lambda stream: _OrcPart(_Orc(self, stream), schema, to_batch, stream)

    def column_schema(self, type_info: Any) -> Any:
        """Return the columns that files have."""
        return columnar(self._declared(type_info), "the ORC sink")[0]

    def rewrite(self, parts: list[BinaryIO], stream: BinaryIO) -> None:
        """Copy the stripes of all parts."""
        writer = _Orc(self, stream)
        for part in parts:
            file = _orc_file(part)
            for index in range(file.nstripes):
                writer.write(pa.Table.from_batches([file.read_stripe(index)]))
        writer.close()

    def _declared(self, type_info: Any) -> Any:
        return self.row_type if self.row_type is not None else type_info


class _Orc:
    """Arrow's writer, which raises what the file raised."""

    def __init__(self, form: OrcFormat, stream: BinaryIO) -> None:
        self._file = _StaysOpen(stream)
        self._writer = orc.ORCWriter(
            self._file, compression=form.compression, stripe_size=form.stripe_bytes
        )
        self._check()

    def write(self, table: pa.Table) -> None:
        self._writer.write(table)
        self._check()

    def close(self) -> None:
        self._writer.close()
        self._check()

    def _check(self) -> None:
        if self._file.raised is not None:
            raise self._file.raised


class _StaysOpen(io.RawIOBase):
    """Passes writes on, but not the end: who opened the file syncs and closes it.

    It raises nothing: the destructor of Arrow's writer would end the process. What a write raised
    is kept, and nothing is written any more.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self.raised: BaseException | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.raised is None:
            try:
                self._stream.write(data)
            except BaseException as error:
                self.raised = error
        return len(data)

    def tell(self) -> int:
        return 0 if self.raised is not None else self._stream.tell()


class _OrcPart(RowsPart):
    def __init__(
        self,
        writer: _Orc,
        schema: pa.Schema,
        to_batch: Callable[[list[Any]], pa.RecordBatch],
        stream: BinaryIO,
    ) -> None:
        super().__init__(stream, schema, to_batch, _STRIPE_ROWS)
        self._writer = writer

    def _write_table(self, table: pa.Table) -> None:
        self._writer.write(table)

    def _close(self) -> None:
        self._writer.close()
