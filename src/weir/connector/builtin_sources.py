"""The sources that ship with Weir, as plain values of the source SPI.

The door creates them. A collection or sequence is spooled when it is opened; the others name what
the engine, or the driver, has to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.common.typeinfo import Types
from weir.connector.decoder import NumberRanges, PickledRecords, TextLines
from weir.connector.source import (
    FileRows,
    Journal,
    Opening,
    Source,
    SourceStream,
    Splits,
    TableRows,
)
from weir.connector.spool import Spool, spool_collection, spool_sequence
from weir.errors import UsageError

_KAFKA_PARTITION = ("topic", "partition")
_KAFKA_COLUMNS = {*_KAFKA_PARTITION, "offset"}


@dataclass(frozen=True)
class CollectionSource(Source):
    """The elements of a Python collection, once, in order."""

    elements: list[Any] = field(repr=False)
    type_info: Any = None

    def get_produced_type(self) -> Any:
        """Return the declared type."""
        return self.type_info

    def open(self, opening: Opening) -> Splits:
        """Spool what lies behind the records that were read."""
        path = spool_collection(
            opening.directory,
            self.elements,
            self.type_info,
            opening.records_per_split,
            skip=opening.skip,
        )
        return Spool(path, opening.skip).stream(PickledRecords())


@dataclass(frozen=True)
class SequenceSource(Source):
    """The whole numbers from `start` to `end`, both included, once."""

    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse an empty range, which is always a mistake."""
        if self.start > self.end:
            msg = (
                f"a number sequence must not start behind its end: start {self.start!r}, "
                f"end {self.end!r}"
            )
            raise UsageError(msg)

    def get_produced_type(self) -> Any:
        """Return the type of whole numbers."""
        return Types.LONG()

    def open(self, opening: Opening) -> Splits:
        """Spool what lies behind the numbers that were read, as ranges."""
        path = spool_sequence(
            opening.directory, self.start, self.end, opening.records_per_split, skip=opening.skip
        )
        return Spool(path, opening.skip).stream(NumberRanges())


@dataclass(frozen=True)
class TextFileSource(Source):
    """The lines of a file, or of the files that are in a directory when the job starts.

    With `watched` files that appear later are read, too, and the input has no end.

    They are rows of the engine, and not files that workers read by their names: it cuts large files
    into pieces for several tasks, and unpacks what Hadoop knows to pack.
    """

    path: str
    charset: str = "UTF-8"
    watched: bool = False

    @property
    def bounded(self) -> bool:
        """Tell whether only those files are read that are there."""
        return not self.watched

    def get_produced_type(self) -> Any:
        """Return the string type: records are lines."""
        return Types.STRING()

    def check(self) -> None:
        """Refuse files that are not there."""
        path = self._local()
        if not path.exists():
            msg = f"read_text_file: {str(path)!r} does not exist"
            raise UsageError(msg)

    def open(self, opening: Opening) -> FileRows | Splits:
        """Name the files; they must be there.

        What has no bytes has no rows, and so nothing that could say that it was read to its end:
        that is opened as a collection without elements.
        """
        self.check()
        path = self._local()
        names: tuple[str, ...] = ()
        files: list[Path] = []
        if path.is_file() or not self.watched:
            files = listed_files(path)
            if not self.watched and not any(file.stat().st_size for file in files):
                return CollectionSource([], Types.STRING()).open(opening)
            names = tuple(sorted({file.name for file in files}))
        options = {"encoding": self.charset}
        return FileRows(path, "text", TextLines(), options, only=names, count=len(files))

    def _local(self) -> Path:
        return Path(self.path.removeprefix("file://"))


def listed_files(path: Path, *, below: bool = False) -> list[Path]:
    """Return the files that Spark reads of a path: those of a directory, but for hidden ones.

    Of the directories below it Spark reads those that are named by a column and its value, or all
    of them if it is told to.
    """
    if path.is_file():
        return [path]
    found: list[Path] = []
    for entry in path.iterdir():
        is_column = "=" in entry.name
        if entry.name.startswith(".") or (entry.name.startswith("_") and not is_column):
            continue
        if not entry.is_dir():
            found.append(entry)
        elif is_column or below:
            found += listed_files(entry, below=below)
    return found


@dataclass(frozen=True)
class DataFrameSource(Source):
    """The rows of a Spark DataFrame: streaming ones go on, static ones are read once.

    The values of the columns in `partition_by` name the partition that a row is of. The partitions
    of a Kafka stream are known by its own columns.
    """

    dataframe: Any
    type_info: Any = None
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse columns that the DataFrame does not have."""
        missing = [name for name in self.partition_by if name not in self.dataframe.columns]
        if missing:
            msg = (
                f"from_dataframe: partition_by names {missing!r}, and the DataFrame has the "
                f"columns {list(self.dataframe.columns)!r}; name some of those"
            )
            raise UsageError(msg)

    @property
    def bounded(self) -> bool:
        """Tell whether the DataFrame is static."""
        return not self.dataframe.isStreaming

    def get_produced_type(self) -> Any:
        """Return the declared type; without one it follows from the columns."""
        return self.type_info

    def open(self, opening: Opening) -> TableRows:
        """Leave the rows to the engine, which they are already part of."""
        return TableRows(self.dataframe, opening.type_info, self._partition_columns())

    def _partition_columns(self) -> tuple[str, ...]:
        is_kafka = not self.bounded and set(self.dataframe.columns) >= _KAFKA_COLUMNS
        return self.partition_by or (_KAFKA_PARTITION if is_kafka else ())


@dataclass(frozen=True)
class FunctionSource(Source):
    """The records that a `SourceFunction` collects while it runs."""

    function: Any
    type_info: Any = None

    @property
    def bounded(self) -> bool:
        """Return False: nobody knows whether the function will ever return."""
        return False

    def get_produced_type(self) -> Any:
        """Return the declared type."""
        return self.type_info

    def open(self, opening: Opening) -> SourceStream:
        """Leave the function to the driver, which runs it."""
        return Journal(self.function, self.type_info)
