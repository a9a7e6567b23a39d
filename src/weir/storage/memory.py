"""Storage in the memory of this process, shared by everyone who opens the same URI.

For tests, and for checkpoints that live with the JobManager and die with it. Unpickled in the
same process it is the same storage; in another process it is an empty one of the same name.
"""

from __future__ import annotations

import contextlib
import io
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.storage.base import (
    AlreadyExistsError,
    MissingFileError,
    Names,
    check_path,
    check_range,
)

_SCHEME: Final = "memory://"
_ANONYMOUS: Final = "~"


class _Files:
    """The contents of one named store."""

    def __init__(self) -> None:
        self.by_path: dict[str, bytes] = {}
        self.lock = threading.Lock()


_NAMED: dict[str, _Files] = {}
_ALIVE: weakref.WeakValueDictionary[str, _Files] = weakref.WeakValueDictionary()
_REGISTRY_LOCK = threading.Lock()


class MemoryStorage:
    """Files in a dictionary; a name that is given keeps its files until the process ends."""

    def __init__(self, name: str | None = None) -> None:
        """Open the store of this name; without a name, a new one that dies with its users."""
        self.name = _ANONYMOUS + unique_suffix() if name is None else name
        with _REGISTRY_LOCK:
            self._files = _ALIVE.get(self.name) or _Files()
            _ALIVE[self.name] = self._files
            if not self.name.startswith(_ANONYMOUS):
                _NAMED[self.name] = self._files

    @property
    def uri(self) -> str:
        """Where the root is, as a `memory://` URI."""
        return _SCHEME + self.name

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return self._get(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer only where the file ends."""
        check_range(path, offset, length)
        return self._get(path)[offset : offset + length]

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        return len(self._get(path))

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is visible."""
        return check_path(path) in self._files.by_path

    def create(self, path: str, data: bytes) -> None:
        """Make a file, complete on return; an existing name is refused."""
        check_path(path)
        with self._files.lock:
            self._refuse_taken(path)
            self._files.by_path[path] = bytes(data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it becomes visible when the block ends normally."""
        check_path(path)
        with self._files.lock:
            self._refuse_taken(path)
        with io.BytesIO() as buffer:
            yield buffer
            self.create(path, buffer.getvalue())

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        check_path(path)
        with self._files.lock:
            self._files.by_path.pop(path, None)

    def delete_tree(self, path: str) -> None:
        """Remove a directory with everything below it."""
        below = check_path(path) + "/"
        with self._files.lock:
            for name in [name for name in self._files.by_path if name.startswith(below)]:
                del self._files.by_path[name]

    def list(self, directory: str = "") -> Names:
        """Return the sorted names of the files and directories directly inside a directory."""
        below = check_path(directory) + "/" if directory else ""
        with self._files.lock:
            names = [n[len(below) :] for n in self._files.by_path if n.startswith(below)]
        return sorted({name.split("/", 1)[0] for name in names})

    def __eq__(self, other: object) -> bool:
        """Two storages are equal when they share their files."""
        return isinstance(other, MemoryStorage) and other._files is self._files

    def __hash__(self) -> int:
        """Follow equality."""
        return id(self._files)

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"MemoryStorage({self.name!r})"

    def __reduce__(self) -> tuple[Callable[[str], MemoryStorage], tuple[str]]:
        """Pickle the name alone."""
        return MemoryStorage, (self.name,)

    def _get(self, path: str) -> bytes:
        try:
            return self._files.by_path[check_path(path)]
        except KeyError:
            msg = f"cannot read {self.uri}/{path}: there is no such file"
            raise MissingFileError(msg) from None

    def _refuse_taken(self, path: str) -> None:
        files = self._files.by_path
        if path in files or any(name.startswith(path + "/") for name in files):
            msg = f"cannot write {self.uri}/{path}: it already exists and is never overwritten"
            raise AlreadyExistsError(msg)
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in files:
                msg = f"cannot write {self.uri}/{path}: a file stands where a directory is needed"
                raise StorageError(msg)
