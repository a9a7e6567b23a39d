"""A storage that crashes or fails where a test says, and remembers every call.

Every call is a numbered crash point, counted from 1. After a crash the storage is dead: each
further call crashes too, because a dead process cleans nothing up. The next life of the program
under test opens the inner storage, or a new `FaultyStorage` around it.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from weir.errors import StorageError
from weir.failpoint import ProcessDeath
from weir.storage.base import Names, Storage


class SimulatedCrash(ProcessDeath):
    """The process died here; nothing but a test may catch this."""


class CrashMoment(enum.Enum):
    """When the process dies, relative to the storage call at the crash point."""

    BEFORE = "before"
    MIDDLE = "middle"
    AFTER = "after"


@dataclass(frozen=True)
class FaultPlan:
    """What goes wrong: at most one crash, and calls that are refused.

    `crash_at` and `fail_at` are numbers of calls; `fail_from` refuses that call and all later
    ones. `only` restricts refusals to one operation, by method name.
    """

    crash_at: int | None = None
    moment: CrashMoment = CrashMoment.BEFORE
    fail_at: frozenset[int] = frozenset()
    fail_from: int | None = None
    only: str | None = None

    @classmethod
    def from_seed(cls, seed: int, points: int) -> FaultPlan:
        """Choose one crash among the first `points` calls; the same seed chooses the same."""
        chosen = zlib.crc32(f"weir crash {seed}".encode())
        point, moment = divmod(chosen, len(CrashMoment))
        return cls(crash_at=point % points + 1, moment=list(CrashMoment)[moment])

    def refuses(self, point: int, operation: str) -> bool:
        """Tell whether this call raises `StorageError`."""
        if self.only is not None and operation != self.only:
            return False
        return point in self.fail_at or (self.fail_from is not None and point >= self.fail_from)


@dataclass(frozen=True)
class StorageCall:
    """One call that the storage has seen."""

    point: int
    operation: str
    path: str


class FaultyStorage:
    """Pass calls to `inner` until the plan says otherwise.

    A crash in the middle of `create` or `open_write` has written half of the bytes under a
    temporary name, so nothing is visible; in the middle of `delete_tree` half of the entries are
    gone. For all other calls the middle is the same as before.
    """

    def __init__(self, inner: Storage, plan: FaultPlan | None = None) -> None:
        """Wrap a storage; without a plan it only counts and records."""
        self.inner = inner
        self.plan = plan or FaultPlan()
        self.trace: list[StorageCall] = []
        self.crashed = False
        self._refusals: dict[str, int] = {}
        self._torn: list[AbstractContextManager[BinaryIO]] = []
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """Where the inner storage is."""
        return self.inner.uri

    def fail_next(self, operation: str, times: int = 1) -> None:
        """Refuse the next `times` calls of one operation."""
        self._refusals[operation] = times

    def read(self, path: str) -> bytes:
        """Read through the plan."""
        with self._point("read", path):
            return self.inner.read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Read through the plan."""
        with self._point("read_range", path):
            return self.inner.read_range(path, offset, length)

    def size(self, path: str) -> int:
        """Measure through the plan."""
        with self._point("size", path):
            return self.inner.size(path)

    def exists(self, path: str) -> bool:
        """Look through the plan."""
        with self._point("exists", path):
            return self.inner.exists(path)

    def list(self, directory: str = "") -> Names:
        """List through the plan."""
        with self._point("list", directory):
            return self.inner.list(directory)

    def delete(self, path: str) -> None:
        """Delete through the plan."""
        with self._point("delete", path):
            self.inner.delete(path)

    def delete_tree(self, path: str) -> None:
        """Delete through the plan; a crash in the middle leaves the second half of the entries."""
        with self._point("delete_tree", path) as torn:
            if torn:
                names = self.inner.list(path)
                for name in names[: (len(names) + 1) // 2]:
                    self._remove(f"{path}/{name}")
                self._die("delete_tree", path)
            self.inner.delete_tree(path)

    def create(self, path: str, data: bytes) -> None:
        """Create through the plan; a crash in the middle leaves half a temporary file."""
        with self._point("create", path) as torn:
            if torn:
                self._tear(self.inner.open_write(path), data[: len(data) // 2])
                self._die("create", path)
            self.inner.create(path, data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        """Write through the plan; a crash in the middle comes just before the file is visible."""
        with self._point("open_write", path) as torn:
            writing = self.inner.open_write(path)
            if torn:
                yield self._tear(writing, b"")
                self._die("open_write", path)
            with writing as file:
                yield file
                if self.crashed:
                    # Another thread crashed the process: this file must not become visible.
                    self._die("open_write", path)

    @contextlib.contextmanager
    def _point(self, operation: str, path: str) -> Iterator[bool]:
        """Number the call and let the plan act; gives True when it must die in the middle."""
        point = self._count(operation, path)
        here = point == self.plan.crash_at
        tearable = operation in ("create", "open_write", "delete_tree")
        middle = here and self.plan.moment is CrashMoment.MIDDLE
        if here and (self.plan.moment is CrashMoment.BEFORE or (middle and not tearable)):
            self._die(operation, path)
        if self._refused(point, operation):
            msg = f"{operation} of {path!r} was refused on purpose (call {point})"
            raise StorageError(msg)
        yield middle
        if here:
            self._die(operation, path)

    def _count(self, operation: str, path: str) -> int:
        with self._lock:
            if self.crashed:
                self._die(operation, path)
            self.trace.append(StorageCall(len(self.trace) + 1, operation, path))
            return len(self.trace)

    def _refused(self, point: int, operation: str) -> bool:
        left = self._refusals.get(operation, 0)
        if left:
            self._refusals[operation] = left - 1
        return left > 0 or self.plan.refuses(point, operation)

    def _die(self, operation: str, path: str) -> Any:
        self.crashed = True
        msg = f"crash at {operation} of {path!r}, call {len(self.trace)}"
        raise SimulatedCrash(msg)

    def _tear(self, writing: AbstractContextManager[BinaryIO], data: bytes) -> BinaryIO:
        # Kept unfinished: leaving the block would let the inner storage clean up.
        self._torn.append(writing)
        file = writing.__enter__()
        file.write(data)
        return file

    def _remove(self, path: str) -> None:
        if self.inner.exists(path):
            self.inner.delete(path)
        else:
            self.inner.delete_tree(path)
