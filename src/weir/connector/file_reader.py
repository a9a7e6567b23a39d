"""Files read whole by workers: formats say how one becomes records, the engine names the files.

The engine lists the files, keeps which were read, and hands their names out; of their contents it
sees nothing. A file is read by one task, in one epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from weir.common.typeinfo import TypeInformation
from weir.connector.builtin_sources import CollectionSource, listed_files
from weir.connector.decoder import Decoder, Piece
from weir.connector.source import FileRows, Opening, Source, Splits
from weir.connector.undecoded import DEAD_LETTERS, Faults, OnError
from weir.errors import StorageError, UsageError

_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"
SETTING = "FileSource's set_on_deserialization_error"


class ReaderFormat(ABC):
    """How a file becomes records; picklable, and the same in every process."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""

    @abstractmethod
    def read(self, path: str, faults: Faults) -> Iterator[Piece]:
        """Return the records of a file, in order.

        What cannot be decoded goes to `faults`, unless they say that it fails the job.

        Raises:
            UsageError: the file is not of this format; it is named.
        """


@contextmanager
def reading(path: str, form: str) -> Iterator[None]:
    """Turn what libraries raise into errors that name the file and what it should have been."""
    try:
        yield
    except FileNotFoundError as error:
        msg = f"{path!r} is not there any more: a file must stay until it was read"
        raise StorageError(msg) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        msg = f"{path!r} cannot be read as {form}: {error}"
        raise UsageError(msg) from error
    except OSError as error:
        # Arrow says so of damaged files, too.
        if error.errno is None:
            msg = f"{path!r} cannot be read as {form}: {error}"
            raise UsageError(msg) from error
        msg = f"{path!r} cannot be read on this host: {error.strerror or error}"
        raise StorageError(msg) from error


@dataclass(frozen=True)
class WholeFiles(Decoder):
    """Rows that are names of files: what the format reads of each, in turn."""

    form: ReaderFormat
    on_error: OnError = OnError.FAIL

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Read one file after the other; what was left out of one comes behind its records."""
        for name in batch.column(0).to_pylist():
            faults = Faults(self.on_error)
            yield from self.form.read(local_path(name), faults)
            left_out = faults.take()
            if left_out is not None:
                yield left_out


def local_path(name: str) -> str:
    """Return the path that the engine's name of a file stands for."""
    if not name.startswith("file:"):
        return name
    return "/" + name.removeprefix("file:").lstrip("/")


@dataclass(frozen=True)
class FormattedFiles(Source):
    """The records of a file, or of the files of a directory and those below it when the job starts.

    With `watched` files that appear later are read, too, and the input has no end.
    """

    path: str
    form: ReaderFormat
    watched: bool = False
    on_error: str | None = None

    @property
    def bounded(self) -> bool:
        """Tell whether only those files are read that are there."""
        return not self.watched

    def get_produced_type(self) -> Any:
        """Return the type of the format."""
        return self.form.get_produced_type()

    def check(self) -> None:
        """Refuse files that are not there."""
        path = self._local()
        if not path.exists():
            msg = f"FileSource: {str(path)!r} does not exist"
            raise UsageError(msg)

    def open(self, opening: Opening) -> FileRows | Splits:
        """Name the files; they must be there. Without any, this is a collection of nothing."""
        self.check()
        names: tuple[str, ...] = ()
        files: list[Path] = []
        if not self.watched:
            files = listed_files(self._local(), below=True)
            names = tuple(sorted({file.name for file in files}))
            if not names:
                return CollectionSource([], self.get_produced_type()).open(opening)
        read = DEAD_LETTERS.tag_id in opening.side_outputs
        on_error = OnError.chosen(self.on_error, SETTING, read=read)
        path = self._local()
        # A single file is found by its name in its directory, where others may be further below.
        below = {} if path.is_file() else {"recursiveFileLookup": "true"}
        return FileRows(
            path,
            "binaryFile",
            WholeFiles(self.form, on_error),
            below,
            schema=_BINARY_FILE,
            columns=("path",),
            only=names,
            count=len(files),
        )

    def _local(self) -> Path:
        return Path(local_path(self.path))
