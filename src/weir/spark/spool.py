"""The spool: Python data as files that Spark's file source streams.

Collections, sequences and source functions become small Parquet files, so that their positions are
Spark's own and a replay reads exactly the same records. A spool directory is named by its
contents; writing it twice is harmless. Between jobs the position of such a source is the number of
records that were read: the next job spools what comes behind them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.common.types import row_class
from weir.errors import CorruptStateError, UsageError
from weir.runtime.frame import dumps

CHUNK_RECORDS = 1000
_PICKLED = pa.schema([pa.field("p", pa.binary())])
_RANGES = pa.schema([pa.field("start", pa.int64()), pa.field("stop", pa.int64())])
_RECORDS = b"weir.records"


class Spool:
    """The files of one source, one a batch, and how many records they hold.

    `skipped` records were read by jobs before this one and are not in the files.
    """

    def __init__(self, directory: Path, skipped: int) -> None:
        """Count nothing yet."""
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
        return self.records(len(list(self.directory.glob("*.parquet"))))


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
        directory.mkdir(parents=True, exist_ok=True)
        self._next = len(list(directory.glob("*.parquet")))

    def append(self, table: pa.Table) -> None:
        """Write one file. Times are set one second apart: Spark reads files in that order."""
        path = self.directory / f"{self._next:08d}.parquet"
        temporary = self.directory / f".{path.name}"
        pq.write_table(table, temporary)
        stamp = 1_000_000_000 + self._next
        os.utime(temporary, (stamp, stamp))
        temporary.replace(path)
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


def pickled_table(values: Sequence[Any]) -> pa.Table:
    """Pack records, many in one row."""
    rows = [
        dumps(list(values[i : i + CHUNK_RECORDS])) for i in range(0, len(values), CHUNK_RECORDS)
    ]
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
    directory = root / f"{kind}-{name}"
    present = len(list(directory.glob("*.parquet"))) if directory.is_dir() else 0
    if present < len(tables) or not directory.is_dir():
        writer = SpoolWriter(directory)
        for table in tables[present:]:
            writer.append(table)
    return directory


def expand_ranges(batch: pa.RecordBatch) -> Iterator[list[int]]:
    """Turn ranges back into numbers, in pieces."""
    for start, stop in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
        for low in range(start, stop, 65536):
            yield list(range(low, min(low + 65536, stop)))
