"""The local file system of a process that dies at a chosen call, with or without a power loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

from weir.connector.file_system import LocalFileSystem
from weir.testing.faulty_storage import CrashMoment, SimulatedCrash

_T = TypeVar("_T")


class CrashingFileSystem:
    """The local file system until call number `crash_at`, a dead process from then on.

    Every call, also of an open file, is a numbered crash point, counted from 1. With `power_loss`
    everything that was not synced is undone at the crash: contents, new names and renames.
    """

    def __init__(
        self,
        crash_at: int | None = None,
        moment: CrashMoment = CrashMoment.BEFORE,
        power_loss: bool = False,
    ) -> None:
        """Start alive, with nothing unsynced."""
        self.calls = 0
        self._crash_at = crash_at
        self._moment = moment
        self._power_loss = power_loss
        self._inner = LocalFileSystem()
        self._dead = False
        self._streams: list[_Stream] = []
        self._read: list[BinaryIO] = []
        self._durable_size: dict[str, int] = {}
        self._undo: dict[str, list[Callable[[], None]]] = {}

    def point(self, action: Callable[[], _T], torn: Callable[[], Any] | None = None) -> _T:
        """Run one call, or die at it."""
        if self._dead:
            raise SimulatedCrash
        self.calls += 1
        if self.calls != self._crash_at:
            return action()
        if self._moment is CrashMoment.AFTER:
            action()
        elif self._moment is CrashMoment.MIDDLE and torn is not None:
            torn()
        self.die()
        raise SimulatedCrash

    def die(self) -> None:
        """Drop the process: close its files, and with `power_loss` undo what was not synced."""
        if self._dead:
            return
        self._dead = True
        for stream in self._streams:
            stream.inner.close()
        for read in self._read:
            read.close()
        if not self._power_loss:
            return
        for path, size in self._durable_size.items():
            if os.path.exists(path):
                os.truncate(path, size)
        for steps in self._undo.values():
            for step in reversed(steps):
                step()

    @property
    def dead(self) -> bool:
        """Tell whether the process is gone."""
        return self._dead

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        self.point(lambda: self._inner.make_directory(path))

    def create(self, path: str) -> BinaryIO:
        """Create a file whose calls are crash points too."""

        def action() -> _Stream:
            stream = _Stream(self, self._inner.create(path), path)
            self._streams.append(stream)
            self._durable_size[path] = 0
            self._undo.setdefault(os.path.dirname(path), []).append(
                lambda: self._inner.remove(path)
            )
            return stream

        return cast(BinaryIO, self.point(action))

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; what is read of it is no crash point."""

        def action() -> BinaryIO:
            self._read.append(self._inner.open(path))
            return self._read[-1]

        return self.point(action)

    def sync(self, stream: BinaryIO) -> None:
        """Make contents durable."""
        wrapper = cast(_Stream, stream)

        def action() -> None:
            self._inner.sync(wrapper.inner)
            self._durable_size[wrapper.path] = wrapper.inner.tell()

        self.point(action)

    def sync_directory(self, path: str) -> None:
        """Make names durable."""

        def action() -> None:
            self._inner.sync_directory(path)
            self._undo.pop(path, None)

        self.point(action)

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""

        def action() -> None:
            self._inner.rename(source, target)
            if source in self._durable_size:
                self._durable_size[target] = self._durable_size.pop(source)
            self._undo.setdefault(os.path.dirname(target), []).append(
                lambda: os.replace(target, source)
            )

        self.point(action)

    def size(self, path: str) -> int | None:
        """Look at a file."""
        return self.point(lambda: self._inner.size(path))

    def remove(self, path: str) -> None:
        """Remove a file."""

        def action() -> None:
            before = self._contents(path)
            self._inner.remove(path)
            self._durable_size.pop(path, None)
            if before is not None:
                self._undo.setdefault(os.path.dirname(path), []).append(
                    lambda: _write(path, before)
                )

        self.point(action)

    def _contents(self, path: str) -> bytes | None:
        """Return what comes back when a removal is undone; of no interest without `power_loss`."""
        if not self._power_loss or not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return file.read()

    def walk(self, path: str) -> Iterator[str]:
        """List files."""
        return iter(self.point(lambda: list(self._inner.walk(path))))


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


class _Stream:
    """An open file of a process that may die; afterwards destructors find it silent."""

    def __init__(self, owner: CrashingFileSystem, inner: BinaryIO, path: str) -> None:
        self._owner = owner
        self.inner = inner
        self.path = path

    def write(self, data: Any) -> int:
        if self._owner.dead:
            return len(data)
        view = memoryview(data)
        half = view[: len(view) // 2]
        return self._owner.point(lambda: self.inner.write(view), lambda: self.inner.write(half))

    def tell(self) -> int:
        return 0 if self._owner.dead else self.inner.tell()

    def flush(self) -> None:
        if not self._owner.dead:
            self.inner.flush()

    def close(self) -> None:
        if not self._owner.dead:
            self._owner.point(self.inner.close)

    @property
    def closed(self) -> bool:
        return self.inner.closed and not self._owner.dead

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
