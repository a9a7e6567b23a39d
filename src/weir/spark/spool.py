"""The spool: Python data as files that Spark's file source streams.

Collections, sequences and source functions become small Parquet files, so that their positions are
Spark's own and a replay reads exactly the same records. A spool directory is named by its
contents; writing it twice is harmless.
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
from weir.errors import UsageError
from weir.runtime.frame import dumps

CHUNK_RECORDS = 1000
_PICKLED = pa.schema([pa.field("p", pa.binary())])
_RANGES = pa.schema([pa.field("start", pa.int64()), pa.field("stop", pa.int64())])


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
    return pa.table([pa.array(rows, pa.binary())], schema=_PICKLED)


def spool_collection(
    root: Path, elements: Sequence[Any], type_info: Any, records_per_file: int
) -> Path:
    """Write a collection once; returns the directory, which depends on the contents only."""
    typed = [_element(i, e, type_info) for i, e in enumerate(elements)]
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


def spool_sequence(root: Path, start: int, end: int, records_per_file: int) -> Path:
    """Write a number sequence as ranges; both ends are included."""
    step = max(records_per_file, (end - start + 1) // 1000)
    tables = [
        pa.table([[low], [min(low + step, end + 1)]], schema=_RANGES)
        for low in range(start, end + 1, step)
    ]
    return _spool(root, "sequence", f"{start}-{end}-{step}", tables)


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
