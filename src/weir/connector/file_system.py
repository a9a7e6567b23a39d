"""The file-system seam of the sinks: nine calls, each one a point where a process may die.

Owns durability: `sync` makes contents survive a power failure, `sync_directory` makes names
survive it. Every failure of the environment comes out as `StorageError`, except a missing file,
which callers decide about. Local paths only; another system implements the same protocol.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from weir.errors import StorageError, UsageError


class FileSystem(Protocol):
    """What a file sink needs of a file system. Paths are strings with `/` separators."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, durably; an existing one is fine."""

    def create(self, path: str) -> BinaryIO:
        """Create a file for writing; raises `FileExistsError` rather than touch another's."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises `FileNotFoundError` if it does not exist."""

    def sync(self, stream: BinaryIO) -> None:
        """Make what was written to an open file durable."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; raises `FileNotFoundError` if there is no source."""

    def size(self, path: str) -> int | None:
        """Return the size of a file, None if it does not exist."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def walk(self, path: str) -> Iterator[str]:
        """Yield every file under a directory, hidden ones too; nothing if it does not exist."""


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Turn failures of the environment into `StorageError`, except a missing or extra file."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        message = f"cannot {action} {path!r}: {error.strerror or error}; check the disk and rights"
        raise StorageError(message) from error


def close_quietly(stream: BinaryIO) -> None:
    """Close a file that is about to be removed: on a full disk even closing fails."""
    with suppress(OSError):
        stream.close()


class LocalFileSystem:
    """The machine's own file system, with fsync where durability is promised."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, and sync the parents that gained an entry."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent and parent != path:
            self.make_directory(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if os.path.isdir(path):
                return
            message = f"cannot write into {path!r}: it is a file, not a directory; use another path"
            raise UsageError(message) from None
        except OSError as error:
            message = f"cannot create directory {path!r}: {error.strerror}; check the rights"
            raise StorageError(message) from error
        self.sync_directory(parent or ".")

    def create(self, path: str) -> BinaryIO:
        """Create a file exclusively."""
        with storage_errors("create", path):
            return open(path, "xb")

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        with storage_errors("read", path):
            return open(path, "rb")

    def sync(self, stream: BinaryIO) -> None:
        """Flush Python's buffer, then the kernel's."""
        with storage_errors("sync", str(getattr(stream, "name", stream))):
            stream.flush()
            os.fsync(stream.fileno())

    def sync_directory(self, path: str) -> None:
        """Sync a directory's entries."""
        with storage_errors("sync", path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename within one file system."""
        with storage_errors("rename", source):
            os.replace(source, target)

    def size(self, path: str) -> int | None:
        """Return the size, None if there is no such file."""
        with storage_errors("look at", path):
            try:
                return os.stat(path).st_size
            except FileNotFoundError:
                return None

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with storage_errors("remove", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return

    def walk(self, path: str) -> Iterator[str]:
        """Yield all files below, in a stable order."""
        for directory, children, files in os.walk(path):
            children.sort()
            for name in sorted(files):
                yield os.path.join(directory, name)


def resolve(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a path or `file:` URI, and the absolute path inside it."""
    if not path:
        message = "a sink needs a directory, got an empty path"
        raise UsageError(message)
    parts = urlsplit(path)
    # One letter is a Windows drive, not a scheme.
    if len(parts.scheme) <= 1 or ("://" not in path and parts.scheme != "file"):
        return LocalFileSystem(), os.path.abspath(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalFileSystem(), os.path.abspath(unquote(parts.path))
    message = f"no file system for {path!r}: expected a local path or file:///..."
    raise UsageError(message)
