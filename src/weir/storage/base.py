"""The storage protocol: whole files that appear atomically, once, and never change.

Owns the contract that every storage keeps and the rules for paths. A file becomes visible under
its name complete and durable, or not at all, and is never overwritten: everything that checkpoints
promise rests on this. `weir.testing.storage_conformance` states the contract as tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol, TypeAlias

from weir.errors import StorageError, UsageError

Names: TypeAlias = list[str]


class AlreadyExistsError(StorageError):
    """A file of this name exists; it was left as it is."""


class MissingFileError(StorageError):
    """There is no file of this name."""


class Storage(Protocol):
    """Durable bytes below one root, addressed by relative paths with `/` between the parts.

    Implementations can be pickled and used from several threads. Every refusal by the
    environment is a `StorageError` that names the path and the reason.
    """

    @property
    def uri(self) -> str:
        """Where the root is; `open_storage(uri)` gives an equal storage."""

    def read(self, path: str) -> bytes:
        """Return a whole file; a missing one raises `MissingFileError`."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer only where the file ends."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes; a missing one raises `MissingFileError`."""

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is visible; a directory is not a file."""

    def create(self, path: str, data: bytes) -> None:
        """Make a file, complete and durable on return, with the directories above it.

        Raises:
            AlreadyExistsError: a file of this name exists. Of several concurrent creators of one
                name, exactly one succeeds.
        """

    def open_write(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file for writing; it becomes visible when the block ends normally.

        A block that ends with an exception leaves nothing. The name is exclusive as in `create`.
        """

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def delete_tree(self, path: str) -> None:
        """Remove a directory with everything below it, also remains of aborted writes."""

    def list(self, directory: str = "") -> Names:
        """Return the sorted names of the files and directories directly inside a directory.

        A missing directory is an empty one; files that are still being written are not named.
        """


def check_path(path: str) -> str:
    """Return a path that is relative, `/`-separated and stays below the root.

    Parts that start with a dot are refused: they hold `..` and the names of unfinished files.

    Raises:
        UsageError: the path breaks one of these rules.
    """
    parts = path.split("/")
    if not is_text(path) or any(not part or part.startswith(".") for part in parts):
        msg = (
            f"storage path {path!r} is not allowed: expected a relative path such as 'a/b/c' "
            "without '..', empty parts, parts that start with a dot, NUL, or bytes that are no text"
        )
        raise UsageError(msg)
    return path


def is_text(path: str) -> bool:
    """Tell whether file systems and checkpoints take a name: it is UTF-8, without NUL."""
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:  # bytes of a command line that are no text
            return False
    return "\0" not in path


def check_range(path: str, offset: int, length: int) -> None:
    """Refuse a negative offset or length.

    Raises:
        UsageError: one of them is negative.
    """
    if offset < 0 or length < 0:
        msg = f"cannot read {length!r} bytes at offset {offset!r} of {path!r}: both must be >= 0"
        raise UsageError(msg)
