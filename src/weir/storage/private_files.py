"""Directories and files that nobody else can have made, read or exchanged.

The temporary directory of a host is shared: whoever knows a name can be there first. So a directory
is new and of a name that nobody could guess, or it is used again only after a look at it: it is
this user's, nobody else can write into it, and it is no link. Directories of processes that were
killed are removed by the next process of the same user that makes one of their kind.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weir.errors import StorageError
from weir.storage.processes import OWNER_NAME, note_process, noted_process_ended

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_made: dict[Path, int] = {}


def private_directory(path: Path, instead: str, *, narrow: bool = True) -> Path:
    """Make a directory that is this user's alone, or use the one that is there if it is.

    The directory above it is made too if it is missing. `narrow` also takes the right to read from
    others; without it a directory that others can read stays as it is.

    Raises:
        StorageError: it cannot be made, or somebody else has a hand in it; ends with `instead`.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        msg = f"{str(path)!r} cannot be used ({error.strerror}{_described(path)}): {instead}"
        raise StorageError(msg) from error
    try:
        found = os.fstat(opened)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            msg = (
                f"{str(path)!r} is not safe to use: found {_look(found)}, expected a directory of "
                f"{_user(os.geteuid())} that nobody else can write to; {instead}"
            )
            raise StorageError(msg)
        if narrow and found.st_mode & _OTHERS:
            os.fchmod(opened, 0o700)
    finally:
        os.close(opened)
    return path


def temporary_directory(prefix: str, *, longest: int | None = None) -> Path:
    """Make a new private directory of this process, which goes when the process ends.

    With `longest` its path has at most so many bytes, as those of sockets need it.

    Raises:
        StorageError: it cannot be made.
    """
    made = new_directory(prefix, longest=longest)
    if not _made:
        atexit.register(_remove_made)
    _made[made] = os.getpid()
    return made


@contextlib.contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """Make a new private directory for a while; if the process is killed, the next one removes it.

    Raises:
        StorageError: it cannot be made.
    """
    made = temporary_directory(prefix)
    try:
        yield made
    finally:
        remove_directory(made)


def keep_directory(path: Path) -> None:
    """Let a directory stay when its process ends: nobody's it is from now on."""
    _made.pop(path, None)
    (path / OWNER_NAME).unlink(missing_ok=True)


def new_directory(prefix: str, *, longest: int | None = None) -> Path:
    """Make a new private directory that is to outlive this process.

    Until `note_process` names another one, it is noted as this process's.

    Raises:
        StorageError: it cannot be made.
    """
    base = Path(tempfile.gettempdir())
    random = 8  # of mkdtemp
    if longest is not None and len(os.fsencode(base)) + 1 + len(prefix) + random > longest:
        base = Path("/tmp")
    remove_leftovers(base, prefix)
    try:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        note_process(made)
    except OSError as error:
        msg = f"no directory can be made in {str(base)!r} ({error}): set TMPDIR to another one"
        raise StorageError(msg) from error
    return made


def remove_directory(path: Path) -> None:
    """Remove a directory with all that is in it, if it is there."""
    _made.pop(path, None)
    shutil.rmtree(path, ignore_errors=True)


def remove_leftovers(base: Path, prefix: str) -> list[str]:
    """Remove private directories of this user whose processes are gone; return their names."""
    removed = []
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if _is_private(found) and noted_process_ended(Path(entry.path)):
                    shutil.rmtree(entry.path)
                    removed.append(entry.name)
    return removed


def open_private(path: Path) -> int:
    """Open a file that only this user can read, to add to its end; makes it if it is missing.

    Raises:
        StorageError: it is a link, or not a file of this user.
    """
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        opened = os.open(path, flags, 0o600)
    except OSError as error:
        msg = f"{str(path)!r} cannot be written ({error.strerror}{_described(path)}): remove it"
        raise StorageError(msg) from error
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(opened)
        msg = (
            f"{str(path)!r} is not safe to write: found {_look(found)} and {found.st_nlink} names, "
            f"expected a file of {_user(os.geteuid())} with one name; remove it"
        )
        raise StorageError(msg)
    os.fchmod(opened, 0o600)
    os.set_blocking(opened, True)
    return opened


def _is_private(found: os.stat_result) -> bool:
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return mine and not found.st_mode & _OTHERS


def _remove_made() -> None:
    # A forked child has the table of its parent, but owns nothing that is in it.
    for path, pid in list(_made.items()):
        if pid == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


def _described(path: Path) -> str:
    try:
        return f"; it is {_look(path.lstat())}"
    except OSError:
        return ""


def _look(found: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFREG: "a file"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "something special")
    return f"{kind} of {_user(found.st_uid)} with mode {stat.S_IMODE(found.st_mode):04o}"


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user {uid}"
