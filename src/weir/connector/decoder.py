"""How rows of a source become records, in the worker that reads them.

A decoder travels with the task, so it is picklable and small. Level 0 asks it for one piece at a
time and sends on what became of that piece before it asks for the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weir.codec import pickled

_NUMBERS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Records:
    """Some records in order; `timestamps` is None when the source gave none of them one."""

    values: list[Any]
    timestamps: list[int | None] | None = None


@dataclass(frozen=True)
class Columns:
    """Some records that are still columns; Python records are made where somebody needs them."""

    batch: pa.RecordBatch
    type_info: Any


@dataclass(frozen=True)
class Mark:
    """What a source says about its event time, behind the records that came before.

    `watermark` is None as long as the source has emitted none. An `idle` source holds nobody's
    watermark back until it says something else.
    """

    watermark: int | None = None
    idle: bool = False


class Decoder(ABC):
    """Turns rows of one source into records: the same rows always into the same records."""

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
        """Return what the rows hold, in order, in pieces of a bearable size."""


@dataclass(frozen=True)
class TypedColumns(Decoder):
    """Rows whose columns are the fields of the records."""

    type_info: Any

    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
        """Hand the columns on as they are."""
        yield Columns(batch, self.type_info)


@dataclass(frozen=True)
class PickledRecords(Decoder):
    """Rows that are pickled lists of records."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
        """Unpickle row by row."""
        for value in batch.column(0):
            yield Records(pickled.loads(memoryview(value.as_buffer())))


@dataclass(frozen=True)
class JournalEntries(Decoder):
    """Rows of a source function's journal: pickled (records, timestamps or None, mark or None)."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
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

    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
        """Count."""
        starts, stops = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for start, stop in zip(starts, stops, strict=True):
            for low in range(start, stop, _NUMBERS_AT_ONCE):
                yield Records(list(range(low, min(low + _NUMBERS_AT_ONCE, stop))))


@dataclass(frozen=True)
class TextLines(Decoder):
    """Rows that are lines of text."""

    def decode(self, batch: pa.RecordBatch) -> Iterator[Records | Columns | Mark]:
        """Return the lines."""
        yield Records(batch.column(0).to_pylist())
