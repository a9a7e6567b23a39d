"""Storage in a directory of a mounted file system.

Invariant: a name shows up only after its bytes are on disk. A file is written under a hidden
temporary name, synced, linked to its final name (which fails when that name is taken), and the
directory is synced. A crash can leave a hidden file, never a torn visible one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.storage.base import (
    AlreadyExistsError,
    MissingFileError,
    Names,
    check_path,
    check_range,
)

_TEMPORARY_SUFFIX = ".tmp"
_OPEN_ATTEMPTS = 3
_ABSENT = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class LocalStorage:
    """Files below an absolute root directory, which is made when the first file is."""

    root: str

    def __post_init__(self) -> None:
        """Make the root absolute, so that a change of the working directory moves nothing."""
        object.__setattr__(self, "root", os.path.abspath(os.path.expanduser(self.root)))

    @property
    def uri(self) -> str:
        """Where the root is, as a `file://` URI."""
        return "file://" + quote(self.root)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with _explained("read", self._full(path)), open(self._full(path), "rb") as file:
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer only where the file ends."""
        check_range(path, offset, length)
        with _explained("read", self._full(path)), open(self._full(path), "rb") as file:
            file.seek(offset)
            return file.read(length)

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        with _explained("read", self._full(path)):
            return os.stat(self._full(path)).st_size

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is visible."""
        return os.path.isfile(self._full(path))

    def create(self, path: str, data: bytes) -> None:
        """Make a file, complete and durable on return; an existing name is refused."""
        with self.open_write(path) as file:
            file.write(data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it becomes visible when the block ends normally."""
        final = self._full(path)
        directory, name = os.path.split(final)
        temporary = os.path.join(directory, f".{name}.{unique_suffix()}{_TEMPORARY_SUFFIX}")
        made: list[str] = []
        try:
            with _explained("write", final):
                if os.path.exists(final):  # spare the caller the writing; the link below decides
                    raise FileExistsError
                file = _open_new(temporary, final, made)
            try:
                yield cast(BinaryIO, file)
                with _explained("write", final):
                    file.flush()
                    os.fsync(file.fileno())
                    file.close()
                    os.link(temporary, final)
            finally:
                with contextlib.suppress(OSError, StorageError):
                    file.close()
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        except BaseException:
            _remove_empty(made)
            raise
        with _explained("write", final):
            _sync_directory(directory)

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with _explained("delete", self._full(path)), contextlib.suppress(*_ABSENT):
            os.unlink(self._full(path))

    def delete_tree(self, path: str) -> None:
        """Remove a directory with everything below it, also remains of aborted writes."""
        with _explained("delete", self._full(path)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._full(path))

    def list(self, directory: str = "") -> Names:
        """Return the sorted names of the files and directories directly inside a directory."""
        full = self._full(directory) if directory else self.root
        with _explained("list", full):
            try:
                names = os.listdir(full)
            except _ABSENT:
                return []
        return sorted(name for name in names if not name.startswith("."))

    def _full(self, path: str) -> str:
        return os.path.join(self.root, *check_path(path).split("/"))


class _ExplainedFile(io.FileIO):
    """The raw temporary file; a refused write names the file that was meant."""

    def __init__(self, temporary: str, final: str) -> None:
        super().__init__(temporary, "xb")
        self._final = final

    def write(self, data: Any) -> int:
        with _explained("write", self._final):
            return super().write(data)


@contextlib.contextmanager
def _explained(verb: str, path: str) -> Iterator[None]:
    """Turn what the operating system says into a `StorageError` that names the path."""
    try:
        yield
    except FileExistsError as error:
        msg = f"cannot {verb} {path!r}: the file already exists and is never overwritten"
        raise AlreadyExistsError(msg) from error
    except FileNotFoundError as error:
        msg = f"cannot {verb} {path!r}: there is no such file"
        raise MissingFileError(msg) from error
    except NotADirectoryError as error:
        # Below a file there is nothing; only who wants to write there has a problem.
        kind = StorageError if verb == "write" else MissingFileError
        msg = f"cannot {verb} {path!r}: {error.strerror}"
        raise kind(msg) from error
    except OSError as error:
        # No file can have a name that is too long; only who wants to make one has a problem.
        absent = error.errno == errno.ENAMETOOLONG and verb != "write"
        msg = f"cannot {verb} {path!r}: {error.strerror or error}"
        raise (MissingFileError if absent else StorageError)(msg) from error


def _open_new(temporary: str, final: str, made: list[str]) -> io.BufferedWriter:
    """Open a temporary file and make the directories above it, which are added to `made`."""
    for _ in range(_OPEN_ATTEMPTS - 1):
        _make_directories(os.path.dirname(temporary), made)
        # Another writer that failed may have removed a directory that it made and found empty.
        with contextlib.suppress(FileNotFoundError):
            return io.BufferedWriter(_ExplainedFile(temporary, final))
    _make_directories(os.path.dirname(temporary), made)
    return io.BufferedWriter(_ExplainedFile(temporary, final))


def _make_directories(directory: str, made: list[str]) -> None:
    """Make a directory and those above it; each new entry is durable before the next is made.

    Appends to `made` what it made, also when it fails half-way.
    """
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    _make_directories(parent, made)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
        made.append(directory)
    if not os.path.isdir(directory):
        raise NotADirectoryError(None, "a file stands where a directory is needed")
    _sync_directory(parent)


def _remove_empty(directories: list[str]) -> None:
    """Remove directories that a failed write made, unless somebody uses them by now."""
    with contextlib.suppress(OSError):
        for directory in reversed(directories):
            os.rmdir(directory)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
