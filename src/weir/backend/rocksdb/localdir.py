"""Local directories of databases: where they go, and how those of dead processes are removed.

A directory `weir-rocksdb-<pid>-<name>-<random>` belongs to the process that holds the lock on the
file beside it with `.lock` appended. The system drops the lock however the process ends, so a
directory whose lock can be taken is nobody's; the next process of the same user removes it. The
lock is taken before the directory is made and given up after it is removed. What belongs to other
users is not touched.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weir.config.backend import ROCKSDB_LOCALDIR, ROCKSDB_PLACEMENT
from weir.config.directories import local_directories
from weir.errors import StorageError
from weir.ids import murmur3_128, unique_suffix

log = logging.getLogger("weir.backend")
_PREFIX = "weir-rocksdb-"
_LOCK = ".lock"
_TRIES = 5
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_turns = itertools.count()


class LocalDirectory:
    """A directory of this process alone; `remove` removes it, once however often it is called."""

    def __init__(self, base: Path, name: str) -> None:
        """Make the directory, and remove what dead processes left beside it.

        Raises:
            StorageError: it cannot be made.
        """
        safe = re.sub(r"[^A-Za-z0-9_.]", "_", name)[:60]
        try:
            base.mkdir(parents=True, exist_ok=True)
            remove_leftovers(base)
            self.path = base / f"{_PREFIX}{os.getpid()}-{safe}-{unique_suffix()}"
            lock = _locked(self.path)
            self.path.mkdir(mode=0o700)
        except OSError as e:
            msg = f"no directory for a database can be made in {str(base)!r}: {e}"
            raise StorageError(msg) from e
        # Also when nobody calls it: at the end of the process, if there is one in order.
        self.remove = weakref.finalize(self, _remove, self.path, lock)


def _remove(directory: Path, lock: int) -> None:
    for _ in range(_TRIES):  # a database that nobody closed may be writing a file
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            _lock_file(directory).unlink(missing_ok=True)
            break
    os.close(lock)  # what could not be removed is a leftover now


def _lock_file(directory: Path) -> Path:
    return directory.with_name(directory.name + _LOCK)


def _locked(directory: Path) -> int:
    """Take the lock of a directory that does not exist yet."""
    while True:
        descriptor = os.open(_lock_file(directory), _FLAGS | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _lock_file(directory).exists():
            return descriptor
        os.close(descriptor)  # somebody took it for a leftover before it was locked


def remove_leftovers(base: Path) -> list[str]:
    """Remove directories of dead processes; return their names."""
    removed = []
    for lock in _locks(base):
        try:
            descriptor = os.open(lock, _FLAGS)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            directory = lock.with_name(lock.name.removesuffix(_LOCK))
            if os.path.lexists(directory) and directory.lstat().st_uid != os.geteuid():
                continue
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                lock.unlink(missing_ok=True)
                removed.append(directory.name)
        except OSError:
            continue  # its process is alive
        finally:
            os.close(descriptor)
    if removed:
        log.info("removed %d databases of processes that ended", len(removed))
    return removed


def _locks(base: Path) -> Iterator[Path]:
    try:
        yield from sorted(base.glob(f"{_PREFIX}*{_LOCK}"))
    except OSError:
        return


def choose_base(
    values: Any, default: Path | None, operator: str, subtask: int, turn: int | None = None
) -> Path:
    """Return the directory for the database of a subtask.

    With several directories in the configuration: `random` depends on operator and subtask alone,
    `round-robin` takes them in turn (`turn` stands for the process's own count), `least-loaded`
    takes the one with the fewest databases, then with the most free space.
    """
    key = ROCKSDB_LOCALDIR.key
    paths = [Path(path) for path in local_directories(values.get(key) or "", key)]
    if not paths:
        return default or Path(tempfile.gettempdir())
    placement = values.get(ROCKSDB_PLACEMENT.key, ROCKSDB_PLACEMENT.default)
    if placement == "round-robin":
        return paths[(next(_turns) if turn is None else turn) % len(paths)]
    if placement == "least-loaded":
        return min(paths, key=_load)
    chance = int.from_bytes(murmur3_128(f"{operator}/{subtask}".encode())[:4], "little")
    return paths[chance % len(paths)]


def _load(path: Path) -> tuple[int, int]:
    path.mkdir(parents=True, exist_ok=True)
    return sum(1 for _ in _locks(path)), -shutil.disk_usage(path).free
