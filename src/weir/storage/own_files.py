"""A directory of a mounted file system for those who delete by names that they were given.

Invariant: below the root no link is followed and no directory of another user is looked into. Every
step goes by the descriptor of the step before, so nothing can be exchanged on the way.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from weir.errors import StorageError
from weir.storage.base import MissingFileError, Names, check_path
from weir.storage.local import LocalStorage

_ABSENT = (FileNotFoundError, NotADirectoryError)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class OwnFiles(LocalStorage):
    """Reads and deletes files in this user's own directories below a root; see `LocalStorage`."""

    def __post_init__(self) -> None:
        """Take the root for what it is now: whoever named it meant that directory."""
        super().__post_init__()
        object.__setattr__(self, "root", os.path.realpath(self.root))

    def read(self, path: str) -> bytes:
        """Return a whole file; a missing one raises `MissingFileError`."""
        with self._above("read", path) as (folder, name):
            opened = os.open(name, _FILE, dir_fd=folder)
            with open(opened, "rb") as file:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise NotADirectoryError
                return file.read()

    def exists(self, path: str) -> bool:
        """Tell whether a file of this name is there; a link is none."""
        try:
            with self._above("read", path) as (folder, name):
                return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except MissingFileError:
            return False

    def delete(self, path: str) -> None:
        """Remove a file, or a link but not what it names; a missing one is fine."""
        with (
            contextlib.suppress(MissingFileError),
            self._above("delete", path) as (folder, name),
        ):
            os.unlink(name, dir_fd=folder)

    def delete_tree(self, path: str) -> None:
        """Remove a directory with everything below it."""
        with (
            contextlib.suppress(MissingFileError),
            self._above("delete", path) as (folder, name),
        ):
            self._remove(folder, name, path)

    def list(self, directory: str = "") -> Names:
        """Return the sorted names in a directory; a missing one is empty."""
        return [name for name in self._names(directory) if not name.startswith(".")]

    def hidden(self, directory: str) -> Names:
        """Return the sorted names in a directory that `list` leaves out."""
        return [name for name in self._names(directory) if name.startswith(".")]

    def _names(self, directory: str) -> Names:
        try:
            with self._above("list", f"{directory}/any" if directory else "any") as (folder, _):
                return sorted(os.listdir(folder))
        except MissingFileError:
            return []

    @contextlib.contextmanager
    def _above(self, verb: str, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a file; give its descriptor and the name in it."""
        *folders, name = check_path(path).split("/")
        full = os.path.join(self.root, *folders, name)
        with contextlib.ExitStack() as opened:
            try:
                here = os.open(self.root, _DIRECTORY)
                opened.callback(os.close, here)
                for number, folder in enumerate(folders):
                    here = self._enter(here, folder, "/".join(folders[: number + 1]))
                    opened.callback(os.close, here)
                yield here, name
            except _ABSENT as error:
                msg = f"cannot {verb} {full!r}: there is no such file"
                raise MissingFileError(msg) from error
            except OSError as error:
                msg = f"cannot {verb} {full!r}: {error.strerror or error}"
                raise StorageError(msg) from error

    def _enter(self, above: int, name: str, path: str) -> int:
        """Open a directory.

        Raises:
            StorageError: it is a link, or belongs to somebody else.
        """
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        shown = os.path.join(self.root, path)
        if stat.S_ISLNK(found.st_mode):
            msg = f"{shown!r} is a link, which is not followed: name the directory itself"
            raise StorageError(msg)
        opened = os.open(name, _DIRECTORY, dir_fd=above)
        found = os.fstat(opened)
        if found.st_uid != os.geteuid():
            os.close(opened)
            msg = (
                f"{shown!r} belongs to user {found.st_uid}, expected {os.geteuid()}: "
                "let its owner do it"
            )
            raise StorageError(msg)
        return opened

    def _remove(self, above: int, name: str, path: str) -> None:
        if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=above)
            return
        opened = self._enter(above, name, path)
        try:
            for inside in os.listdir(opened):
                self._remove(opened, inside, f"{path}/{inside}")
        finally:
            os.close(opened)
        os.rmdir(name, dir_fd=above)
