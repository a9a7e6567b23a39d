"""How rows of a source become records, in the worker that reads them.

A decoder travels with the task, so it is picklable and small. Level 0 asks it for one piece at a
time and sends on what became of that piece before it asks for the next.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from weir.codec import pickled

_NUMBERS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Records:
    """Some records in order; `timestamps` is None when the source gave none of them one."""

    values: list[Any]
    timestamps: list[int | None] | None = None


@dataclass(frozen=True)
class Columns:
    """Some records that are still columns; Python records are made where somebody needs them.

    `timestamps` are milliseconds, as many as there are rows; None if the source gave none.
    """

    batch: pa.RecordBatch
    type_info: Any
    timestamps: pa.Array | None = None


@dataclass(frozen=True)
class Mark:
    """What a source says about its event time, behind the records that came before.

    `watermark` is None as long as the source has emitted none. An `idle` source holds nobody's
    watermark back until it says something else. After the `last` one nothing follows.
    """

    watermark: int | None = None
    idle: bool = False
    last: bool = False


END = Mark((1 << 63) - 1, last=True)
"""Bounded input is read to its end, and holds nobody back any more."""


@dataclass(frozen=True)
class Partition:
    """Says that what follows is of one partition of the source, which has a time of its own.

    `name` is the same in every epoch. A partition that `ends` is read in one epoch, all of it: a
    file, say. One that is `awaited` counts although nothing of it was read yet: it holds event time
    back until its first record, or until it has been silent for too long. One that is `over` has
    nothing behind what is read of it now, if that is anything: it counts no longer. What comes
    before the first of these is of a partition without a name.
    """

    name: str
    ends: bool = False
    awaited: bool = False
    over: bool = False


@dataclass(frozen=True)
class Undecoded:
    """Records that could not be decoded and were left out: their number.

    `letters` are rows for the side output of them, none if the program does not want them.
    """

    count: int
    letters: list[Any] = field(default_factory=list)


Piece: TypeAlias = Records | Columns | Mark | Partition | Undecoded
"""What a decoder returns."""


class Decoder(ABC):
    """Turns rows of one source into records: the same rows always into the same records."""

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Return what the rows hold, in order, in pieces of a bearable size."""


@dataclass(frozen=True)
class TypedColumns(Decoder):
    """Rows whose columns are the fields of the records.

    The values of the columns in `partition_by` name the partition that a row is of.
    """

    type_info: Any
    partition_by: tuple[str, ...] = ()

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Hand the columns on as they are, one partition after the other."""
        for name, rows in _partitions(batch, self.partition_by):
            yield Partition(name)
            yield Columns(rows, self.type_info)
        if not self.partition_by:
            yield Columns(batch, self.type_info)


@dataclass(frozen=True)
class ByFile(Decoder):
    """Rows with one column more than the decoder behind it knows: the file that a row is of.

    Each file is a partition, and read in one epoch.
    """

    decoder: Decoder
    column: str

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Decode one file after the other."""
        for name, rows in _partitions(batch, (self.column,)):
            yield Partition(name, ends=True)
            yield from self.decoder.decode(rows.drop_columns([self.column]))


def _partitions(
    batch: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by the values of columns; mostly there is one partition in it."""
    if not columns or not batch.num_rows:
        return
    keys = pa.Table.from_batches([batch]).select(columns)
    names = keys.group_by(columns, use_threads=False).aggregate([]).to_pylist()
    for values in names:
        name = json.dumps(values, sort_keys=True, default=str)
        if len(names) == 1:
            yield name, batch
            return
        same = [
            pc.is_null(batch.column(c)) if v is None else pc.equal(batch.column(c), v)
            for c, v in values.items()
        ]
        yield name, batch.filter(pc.fill_null(reduce(pc.and_, same), False))


@dataclass(frozen=True)
class PickledRecords(Decoder):
    """Rows that are pickled lists of records."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Unpickle row by row."""
        for value in batch.column(0):
            yield Records(pickled.loads(memoryview(value.as_buffer())))


@dataclass(frozen=True)
class JournalEntries(Decoder):
    """Rows of a source function's journal: pickled (records, timestamps or None, mark or None)."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Unpickle row by row."""
        for value in batch.column(0):
            values, timestamps, mark = pickled.loads(memoryview(value.as_buffer()))
            if values:
                yield Records(values, timestamps)
            if mark is not None:
                yield Mark(*mark)


@dataclass(frozen=True)
class NumberRanges(Decoder):
    """Rows that are ranges of whole numbers: start, and stop, which is excluded."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Count."""
        starts, stops = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for start, stop in zip(starts, stops, strict=True):
            for low in range(start, stop, _NUMBERS_AT_ONCE):
                yield Records(list(range(low, min(low + _NUMBERS_AT_ONCE, stop))))


@dataclass(frozen=True)
class TextLines(Decoder):
    """Rows that are lines of text."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Return the lines."""
        yield Records(batch.column(0).to_pylist())
