"""The source SPI: what a source says about itself, and the forms in which an engine reads it.

Life of a source: the program declares it as a plain value; the driver opens it once a job, behind
what a job before this one has read; the engine streams what it opened as; workers turn each piece
into records with its decoder::

    driver:  Source.open(opening)
             -> FileRows | TableRows | StreamRows | Splits | PlannedSplits | Journal
    worker:  Decoder.decode(batch) -> records, columns, marks, partitions, what was left out

Positions are the engine's own: it logs, before an epoch runs, which rows or splits belong to it,
and reads exactly those again after a failure. Records of `Splits` that can be counted are counted,
so that a job that resumes needs nothing but their number.

Watermarks are made for each partition on its own, and the slowest one counts. So a source whose
parts may drift apart in event time names them: its decoder says which partition records are of
(`weir.connector.decoder.Partition`), or `Splits.partitioned` says that every split is one. Without
names all rows of a source are one stream, which is as far in time as its furthest row.

Invariant: the same row or split always decodes into the same records in the same order. That is all
that replay needs. Nothing here knows Spark: `weir.spark.sources` makes a stream of each form.

A source whose input grows elsewhere (partitions of a log, say) opens as `PlannedSplits`: its
planner says how far an epoch may read, and which splits lie between two positions; what workers do
with a split stays the same. Its position is what the planner says, and needs nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from weir.connector.decoder import END, Decoder, Partition, Piece


@dataclass(frozen=True)
class Opening:
    """What the driver says when it opens a source.

    Attributes:
        name: the source operator's name, for messages.
        directory: a folder of this source alone, in the job's work directory, which the workers
            of all hosts can read.
        skip: how many records jobs before this one have read, of a source that counts them.
        records_per_split: how many records an epoch should get.
        type_info: declared type of the stream, None for any Python object.
        position: where jobs before this one have stopped, of a source that plans its splits.
        side_outputs: the names of the source's side outputs that the program reads.
    """

    name: str
    directory: Path
    skip: int = 0
    records_per_split: int = 100_000
    type_info: Any = None
    position: str | None = None
    side_outputs: frozenset[str] = frozenset()


class RecordCount(Protocol):
    """How many records of a source lie in its splits."""

    def records(self, splits: int) -> int:
        """Return how many records, of earlier jobs too, lie before the end of the n-th split."""


@dataclass(frozen=True)
class FileRows:
    """Rows that the engine's file source reads: a file, or a directory that is there already.

    A format whose columns the engine does not know by itself needs their `schema`. With `columns`
    the decoder is given those of them alone, and the engine reads no others. `only` has the names
    of the files that are read, of which there are `count`; without any all are, also those that
    appear later.
    """

    path: Path
    format: str
    decoder: Decoder
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    columns: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class TableRows:
    """The rows of a table of the engine: a Spark DataFrame.

    The values of the columns in `partition_by` name the partition that a row is of.
    """

    table: Any
    type_info: Any = None
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamRows:
    """Rows that a connector of the engine's own reads, without an end.

    `package` tells what brings the connector, by the version of the engine. `options` may hold
    passwords.
    """

    format: str
    decoder: Decoder
    options: Mapping[str, str] = field(repr=False)
    package: Callable[[str], str] = field(repr=False)


@dataclass(frozen=True)
class Splits:
    """Pieces of input that are named to the engine and read by its workers.

    The engine streams the names only; records enter it packed, which costs half as much as rows.

    Attributes:
        folder: one file a piece, each line a split, in the order of their times of change. A file
            that is there never changes; later ones may be added.
        reader: turns a split into Arrow batches, in the worker.
        decoder: turns the reader's batches into records.
        files_per_batch: how many files of the folder an epoch gets at most.
        counted: set where the position is a number of records, None where it is the engine's.
        partitioned: every split is a partition with an event time of its own; otherwise the splits
            are one after the other of one stream.
    """

    folder: Path
    reader: SplitReader
    decoder: Decoder
    files_per_batch: int = 1
    counted: RecordCount | None = None
    partitioned: bool = False


class SplitPlanner(ABC):
    """The driver's half of a source whose input grows elsewhere; picklable, one a query.

    Positions are JSON objects. The engine logs them before it runs an epoch, and asks again for the
    splits between two of them after a failure.
    """

    @abstractmethod
    def begin(self) -> dict[str, Any]:
        """Return where a job without a position begins: the same whenever it is asked."""

    @abstractmethod
    def advance(self, position: dict[str, Any] | None) -> dict[str, Any]:
        """Return how far an epoch that begins at a position may read; equal if there is nothing.

        Without a position it is how far all epochs together may read now.

        Raises:
            StorageError: where the input is, nobody answers; asking again may help.
            IncompatibleStateError: what lies behind the position is gone, or is something else.
        """

    @abstractmethod
    def plan(self, start: dict[str, Any], end: dict[str, Any], tasks: int) -> list[tuple[str, ...]]:
        """Return the splits between two positions, dealt out to at most so many tasks.

        The same positions always give the same splits, in the same order.
        """

    def bound(self) -> None:
        """Let nothing count that comes later: what `advance` returns has an end from now on."""
        raise NotImplementedError

    def is_over(self, position: dict[str, Any]) -> bool:
        """Tell whether input that has an end was read to it; asked when the engine finds no more.

        Input without an end is over wherever the engine was told to stop.
        """
        return True

    def committed(self, position: dict[str, Any]) -> None:  # noqa: B027
        """Learn, in the driver, that a checkpoint with this position is complete."""

    def close(self) -> None:  # noqa: B027
        """Free connections."""


@dataclass(frozen=True)
class PlannedSplits:
    """Pieces of input that a planner names from one position to the next."""

    planner: SplitPlanner
    reader: SplitReader
    decoder: Decoder


@dataclass(frozen=True)
class Journal:
    """What a `SourceFunction` collects: the driver runs it, and keeps a journal of it."""

    function: Any
    type_info: Any = None


SourceStream: TypeAlias = FileRows | TableRows | StreamRows | Splits | PlannedSplits | Journal


class SplitReader(ABC):
    """The worker's half of a source with splits; picklable, and the same in every process."""

    @abstractmethod
    def read(self, split: str) -> Iterator[pa.RecordBatch]:
        """Return the contents of a split, whoever asks and however often, in the same order.

        Raises:
            StorageError: it cannot be read from this host.
        """

    def is_last(self, split: str) -> bool:
        """Tell whether no split follows this one, ever; a source need not know."""
        return False

    def partition(self, split: str) -> Partition | None:
        """Return the partition that a split is of, None where the source has none."""
        return None


class Source(ABC):
    """A source as a plain value: complete when it is created, holds no connection.

    Example:
        env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")
    """

    @property
    def bounded(self) -> bool:
        """Tell whether the input has an end that is known when the job starts."""
        return True

    def get_produced_type(self) -> Any:
        """Return the type of the records that the source itself knows, None when it knows none."""
        return None

    def parts(self) -> tuple[Source, ...]:
        """Return the sources that are opened for this one; mostly itself."""
        return (self,)

    def check(self) -> None:
        """Refuse what can never be opened; called before the engine starts, and must be quick.

        Raises:
            UsageError: there is nothing to read.
        """
        return

    @abstractmethod
    def open(self, opening: Opening) -> SourceStream:
        """Say how the source is read from `opening.skip` on; called once a job, in the driver.

        Raises:
            UsageError: there is nothing to read, or it does not fit the declared type.
        """


@dataclass(frozen=True)
class SplitRows(Decoder):
    """Decodes rows that are splits: what the reader reads of each, decoded in turn.

    With `partitioned` every split is a partition, which ends.
    """

    reader: SplitReader
    decoder: Decoder
    partitioned: bool = False

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Read every split of the batch; what was read is dropped before the next is read."""
        for split in batch.column(0).to_pylist():
            if self.partitioned:
                yield Partition(split, ends=True)
            elif (named := self.reader.partition(split)) is not None:
                yield named
            for read in self.reader.read(split):
                yield from self.decoder.decode(read)
            if self.reader.is_last(split):
                yield END
