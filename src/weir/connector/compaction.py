"""Joining small files before they become visible, by PyFlink's names: when, and how.

Files that a checkpoint closed wait, hidden, as part of the checkpoints that follow, until there are
enough of them in a bucket or they have waited long enough; then one file is made of them, and that
becomes visible instead. What is decided here is pure; `weir.connector.compacting_writer` acts.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

from weir.connector.file_format import FileFormat
from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.sink")
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class FileCompactStrategy:
    """When the files of a bucket are joined: at so many bytes, or so many checkpoints; -1 is never.

    Example:
        FileCompactStrategy.builder().set_size_threshold(64 << 20).build()
    """

    Builder: ClassVar[type[FileCompactStrategyBuilder]]
    size_threshold: int = -1
    num_checkpoints_before_compaction: int = -1

    @staticmethod
    def builder() -> FileCompactStrategyBuilder:
        """Begin with neither."""
        return FileCompactStrategyBuilder()


class FileCompactStrategyBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).build()
    """

    def __init__(self) -> None:
        """Begin with neither."""
        self._size = -1
        self._checkpoints = -1

    def set_size_threshold(self, size_threshold: int) -> FileCompactStrategyBuilder:
        """Join files that have so many bytes together."""
        self._size = _positive(size_threshold, "set_size_threshold")
        return self

    def enable_compaction_on_checkpoint(
        self, num_checkpoints_before_compaction: int
    ) -> FileCompactStrategyBuilder:
        """Join what there is after so many checkpoints, however small."""
        name = "enable_compaction_on_checkpoint"
        self._checkpoints = _positive(num_checkpoints_before_compaction, name)
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategyBuilder:
        """Change nothing: every subtask joins its own files, at a checkpoint."""
        if _positive(num_compact_threads, "set_num_compact_threads") > 1:
            warn_once(log, "set_num_compact_threads() has no effect: each subtask joins its files")
        return self

    def build(self) -> FileCompactStrategy:
        """Return the strategy.

        Raises:
            UsageError: nothing says when to join.
        """
        if self._size < 0 and self._checkpoints < 0:
            msg = (
                "FileCompactStrategy needs set_size_threshold(bytes), "
                "enable_compaction_on_checkpoint(number) or both"
            )
            raise UsageError(msg)
        return FileCompactStrategy(self._size, self._checkpoints)


FileCompactStrategy.Builder = FileCompactStrategyBuilder


def _positive(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        msg = f"{name}: found {value!r}, expected a positive number"
        raise UsageError(msg)
    return value


@dataclass(frozen=True)
class FileCompactor:
    """How files become one.

    Example:
        FileCompactor.concat_file_compactor(b";")
    """

    kind: str = "concat"
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Put files one behind the other, with the delimiter behind each."""
        return FileCompactor("concat", bytes(file_delimiter or b""))

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Leave files as they are: they only wait."""
        return FileCompactor("identical")

    @staticmethod
    def record_wise_file_compactor() -> FileCompactor:
        """Read the records of files and write them into one: for Parquet, ORC and Avro."""
        return FileCompactor("record-wise")


@dataclass(frozen=True)
class Waiting:
    """A hidden file that is whole, and how many checkpoints it has been part of."""

    temp: str
    final: str
    size: int
    waits: int = 0

    @property
    def bucket(self) -> str:
        """The directory that it is in."""
        return os.path.dirname(self.temp)


@dataclass(frozen=True)
class Compaction:
    """A strategy, a compactor, and the format of the files."""

    strategy: FileCompactStrategy
    compactor: FileCompactor
    file_format: FileFormat

    @staticmethod
    def of(strategy: Any, compactor: Any, file_format: FileFormat) -> Compaction:
        """Check what a program asks for.

        Raises:
            UsageError: it is something else, or does not fit the format.
        """
        if not isinstance(strategy, FileCompactStrategy) or not isinstance(
            compactor, FileCompactor
        ):
            msg = (
                f"enable_compact: found {strategy!r} and {compactor!r}, expected a "
                "FileCompactStrategy and a FileCompactor"
            )
            raise UsageError(msg)
        if compactor.kind == "concat" and not file_format.can_be_concatenated:
            msg = (
                f"enable_compact: files of {type(file_format).__name__} are no file when they are "
                "put one behind the other; use FileCompactor.record_wise_file_compactor()"
            )
            raise UsageError(msg)
        rewrites = type(file_format).rewrite is not FileFormat.rewrite
        if compactor.kind == "record-wise" and not rewrites:
            msg = (
                f"enable_compact: files of {type(file_format).__name__} are not read record by "
                "record; use FileCompactor.concat_file_compactor()"
            )
            raise UsageError(msg)
        return Compaction(strategy, compactor, file_format)

    def groups(self, waiting: Iterable[Waiting], *, last: bool) -> list[list[Waiting]]:
        """Return the files that become one file each, in the order of their records.

        At the `last` checkpoint nothing waits any longer. Files of different buckets never meet.
        """
        buckets: dict[str, list[Waiting]] = {}
        for each in waiting:
            buckets.setdefault(each.bucket, []).append(each)
        found = [group for files in buckets.values() for group in self._due(files, last=last)]
        if self.compactor.kind == "identical":
            return [[each] for group in found for each in group]
        return found

    def _due(self, files: list[Waiting], *, last: bool) -> list[list[Waiting]]:
        size, checkpoints = self.strategy.size_threshold, self._checkpoints
        found: list[list[Waiting]] = []
        rest: list[Waiting] = []
        for each in files:
            rest.append(each)
            if 0 < size <= sum(part.size for part in rest):
                found.append(rest)
                rest = []
        if rest and (last or 0 < checkpoints <= max(part.waits for part in rest) + 1):
            found.append(rest)
        return found

    @property
    def _checkpoints(self) -> int:
        return self.strategy.num_checkpoints_before_compaction

    def join(self, parts: list[BinaryIO], stream: BinaryIO) -> None:
        """Write what files hold into one."""
        if self.compactor.kind == "record-wise":
            self.file_format.rewrite(parts, stream)
            return
        for part in parts:
            shutil.copyfileobj(part, stream, _CHUNK_BYTES)
            if self.compactor.delimiter:
                stream.write(self.compactor.delimiter)
