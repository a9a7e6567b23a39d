"""The spool: Python data as files, and splits that name them to the engine.

Collections, sequences and source functions become small Parquet files, so that their positions are
the engine's own and a replay reads exactly the same records. Beside the data lies the folder
`splits` with one small file for each, of the same name, which appears after the data it names. The
engine streams the names; workers read the data. A spool directory is named by its contents; writing
it twice is harmless. Between jobs the position of such a source is the number of records that were
read: the next job spools what comes behind them.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weir.codec.pickled import dumps, first_unpicklable
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.common.types import row_class
from weir.connector.decoder import Decoder, Mark
from weir.connector.source import SplitReader, Splits
from weir.errors import CorruptStateError, StorageError, UsageError

CHUNK_RECORDS = 1000
SPLITS = "splits"
_BATCH_ROWS = 1 << 16
_PICKLED = pa.schema([pa.field("p", pa.binary())])
_RANGES = pa.schema([pa.field("start", pa.int64()), pa.field("stop", pa.int64())])
_RECORDS = b"weir.records"


class FileSplit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A split that is a whole Parquet file of a folder; none comes after the `last` one."""

    file: str
    last: bool = False


_decode_split = msgspec.json.Decoder(FileSplit).decode


@dataclass(frozen=True)
class ParquetFiles(SplitReader):
    """Reads Parquet files of a folder that all hosts share, as columns of `schema` if it is given.

    Columns are found by their names. Timestamps of the older kind have no time zone: they are UTC.
    """

    directory: str
    schema: pa.Schema | None = None

    def read(self, split: str) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file in order."""
        path = os.path.join(self.directory, _decode_split(split).file)
        try:
            with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                # One thread: the task has one core, and its neighbours have theirs.
                for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                    yield batch if self.schema is None else _shaped(batch, self.schema)
        except OSError as error:
            msg = (
                f"{path!r}, a part of a source, cannot be read on host {socket.gethostname()!r} "
                f"({error}): set weir.work-dir to a directory that all hosts share"
            )
            raise StorageError(msg) from error

    def is_last(self, split: str) -> bool:
        """Tell what the split says."""
        return _decode_split(split).last


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_split(directory: Path, name: str, number: int, *, last: bool = False) -> None:
    """Name a data file of a directory to the engine, as the n-th one, and perhaps the last.

    Times are set one second apart: Spark reads files in that order.
    """
    folder = directory / SPLITS
    temporary = folder / f".{name}"
    temporary.write_bytes(msgspec.json.encode(FileSplit(name, last)) + b"\n")
    stamp = 1_000_000_000 + number
    os.utime(temporary, (stamp, stamp))
    temporary.replace(folder / name)


def split_folder(directory: Path) -> Path:
    """Return the folder of a directory's splits; it is made if it is missing."""
    folder = directory / SPLITS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Spool:
    """The files of one source, one a batch, and how many records they hold.

    `skipped` records were read by jobs before this one and are not in the files.
    """

    def __init__(self, directory: Path, skipped: int) -> None:
        self.directory = directory
        self.skipped = skipped
        self._sums = [skipped]

    def records(self, files: int) -> int:
        """Return how many records of the source lie before the end of the n-th file."""
        while len(self._sums) <= files:
            path = self.directory / f"{len(self._sums) - 1:08d}.parquet"
            self._sums.append(self._sums[-1] + _count(path))
        return self._sums[files]

    def journaled(self) -> int:
        """Return how many records of the source are in the files or before them."""
        return self.records(len(list((self.directory / SPLITS).glob("*.parquet"))))

    def stream(self, decoder: Decoder) -> Splits:
        """Return the files as a stream whose records are counted."""
        reader = ParquetFiles(str(self.directory))
        return Splits(split_folder(self.directory), reader, decoder, 1, counted=self)


def _count(path: Path) -> int:
    found = (pq.read_schema(path).metadata or {}).get(_RECORDS)
    if found is None:
        msg = f"the spool file {str(path)!r} does not say how many records it holds"
        raise CorruptStateError(msg)
    return int(found)


def _counted(table: pa.Table, records: int) -> pa.Table:
    return table.replace_schema_metadata({_RECORDS: str(records).encode()})


class SpoolWriter:
    """Appends files to a spool directory; each becomes visible whole, in order."""

    def __init__(self, directory: Path) -> None:
        """Continue after the files that are there."""
        self.directory = directory
        self._next = len(list(split_folder(directory).glob("*.parquet")))

    @property
    def files(self) -> int:
        """Count the files that are there."""
        return self._next

    def append(self, table: pa.Table, *, last: bool = False) -> None:
        """Write one file and name it to the engine; nothing may follow the last one."""
        path = self.directory / f"{self._next:08d}.parquet"
        temporary = self.directory / f".{path.name}"
        pq.write_table(table, temporary)
        temporary.replace(path)
        write_split(self.directory, path.name, self._next, last=last)
        self._next += 1


def coerce(value: Any, type_info: Any) -> Any:
    """Give an element of a collection the shape that its declared type promises."""
    if type_info is None:
        return value
    if isinstance(type_info, RowTypeInfo) and isinstance(value, (tuple, list)):
        value = row_class(tuple(type_info.get_field_names()))._of(tuple(value))
    elif isinstance(type_info, TupleTypeInfo) and isinstance(value, list):
        value = tuple(value)
    return type_info.check(value)


def _dumps(row: Any, records: list[Any]) -> bytes:
    """Pickle a row of records; `UsageError` names the record that cannot be pickled."""
    try:
        return dumps(row)
    except UsageError as error:
        found = first_unpicklable(records)
        if found is None:
            raise
        msg = f"record {found[0]!r:.200}: {found[1]}"
        raise UsageError(msg) from error


def pickled_table(values: Sequence[Any]) -> pa.Table:
    """Pack records, many in one row."""
    starts = range(0, len(values), CHUNK_RECORDS)
    rows = [_dumps(chunk, chunk) for chunk in (list(values[i : i + CHUNK_RECORDS]) for i in starts)]
    return _counted(pa.table([pa.array(rows, pa.binary())], schema=_PICKLED), len(values))


def journal_table(
    values: Sequence[Any], timestamps: Sequence[int | None] | None, mark: Mark | None
) -> pa.Table:
    """Pack records with their timestamps, many in one row, and what was said behind them."""
    rows = []
    for i in range(0, len(values), CHUNK_RECORDS):
        stamps = None if timestamps is None else list(timestamps[i : i + CHUNK_RECORDS])
        chunk = list(values[i : i + CHUNK_RECORDS])
        rows.append(_dumps((chunk, stamps, None), chunk))
    if mark is not None:
        rows.append(dumps(([], None, (mark.watermark, mark.idle))))
    return _counted(pa.table([pa.array(rows, pa.binary())], schema=_PICKLED), len(values))


def spool_collection(
    root: Path,
    elements: Sequence[Any],
    type_info: Any,
    records_per_file: int,
    skip: int = 0,
) -> Path:
    """Write a collection once; returns the directory, which depends on the contents only."""
    typed = [_element(i, e, type_info) for i, e in enumerate(elements)][skip:]
    tables = [
        pickled_table(typed[i : i + records_per_file])
        for i in range(0, len(typed), records_per_file)
    ]
    digest = hashlib.sha256()
    for table in tables:
        for row in table.column(0):
            digest.update(row.as_buffer())
    return _spool(root, "collection", digest.hexdigest()[:16], tables)


def _element(index: int, element: Any, type_info: Any) -> Any:
    try:
        return coerce(element, type_info)
    except UsageError as error:
        msg = f"from_collection: element {index}: {error}"
        raise UsageError(msg) from error


def spool_sequence(root: Path, start: int, end: int, records_per_file: int, skip: int = 0) -> Path:
    """Write a number sequence as ranges; both ends are included."""
    step = max(records_per_file, (end - start + 1) // 1000)
    tables = []
    for low in range(start + skip, end + 1, step):
        stop = min(low + step, end + 1)
        tables.append(_counted(pa.table([[low], [stop]], schema=_RANGES), stop - low))
    return _spool(root, "sequence", f"{start + skip}-{end}-{step}", tables)


def _spool(root: Path, kind: str, name: str, tables: list[pa.Table]) -> Path:
    """Write tables as splits; where there are none, one without records says that this is all."""
    directory = root / f"{kind}-{name}"
    writer = SpoolWriter(directory)
    tables = tables or [pickled_table([])]
    for number in range(writer.files, len(tables)):
        writer.append(tables[number], last=number == len(tables) - 1)
    return directory
