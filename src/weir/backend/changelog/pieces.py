"""Shared files that a backend makes on its own, beside checkpoints, and cleans up after.

A file is made by whichever thread needs it first, and it is deleted by its maker unless a
checkpoint that used it has completed: then it belongs to the checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from weir.backend.base import SharedFiles
from weir.errors import StorageError
from weir.snapshot import FileHandle, SnapshotWriter

Fill: TypeAlias = Callable[[SnapshotWriter], dict[str, Any]]


class Piece:
    """One shared file, made at most once; all methods may be called on any thread."""

    def __init__(
        self, shared: SharedFiles, fill: Fill, *, attempts: int, once: bool = False
    ) -> None:
        """Describe a file; `attempts` is how often one call of `make` tries.

        With `once` a failure is final, because `fill` cannot be called again.
        """
        self.kept = False
        """A completed checkpoint uses the file."""
        self._shared = shared
        self._fill: Fill | None = fill
        self._attempts = attempts
        self._once = once
        self._work = threading.Lock()
        self._facts = threading.Lock()
        self._handle: FileHandle | None = None
        self._error: BaseException | None = None
        self._dropped = False
        self._deleted = False

    @property
    def made(self) -> bool:
        """Tell whether the file is durable."""
        return self._handle is not None

    @property
    def error(self) -> BaseException | None:
        """Return why the last attempt failed, None when it did not or there was none."""
        return self._error

    def make(self) -> FileHandle:
        """Return the file, which is made now if nobody has made it; waits for others who do.

        Raises:
            StorageError: the file was given up, or writing it failed for good.
        """
        with self._work:
            if self._handle is None:
                handle = self._write()
                with self._facts:
                    self._handle, self._error, self._fill = handle, None, None
            made = self._handle
        self._delete_if_dropped()
        return made

    def _write(self) -> FileHandle:
        fill = self._fill
        if self._dropped or fill is None or (self._once and self._error is not None):
            msg = f"a file of changes was given up: {self._error or 'nobody needs it'}"
            raise StorageError(msg)
        for left in reversed(range(self._attempts)):
            handle = self._try(fill, left)
            if handle is not None:
                return handle
        msg = f"a file needs at least one attempt, found {self._attempts!r}"
        raise StorageError(msg)

    def _try(self, fill: Fill, left: int) -> FileHandle | None:
        try:
            return self._shared.write(fill)
        except (OSError, StorageError) as error:
            self._error = error
            if not left:
                raise
            return None
        except BaseException as error:
            self._error = error
            raise

    def drop(self) -> None:
        """Delete the file, also when it is just being made: no checkpoint will use it."""
        with self._facts:
            self._dropped = True
        self._delete_if_dropped()

    def _delete_if_dropped(self) -> None:
        with self._facts:
            handle = self._handle
            if not self._dropped or handle is None or self._deleted:
                return
            self._deleted = True
        self._shared.delete(handle)


class Usage:
    """Which checkpoints use which pieces, so that each is deleted when it is of no use to any."""

    def __init__(self, run: Callable[[Callable[[], Any]], Any]) -> None:
        """Begin without checkpoints; deletions go through `run`."""
        self._run = run
        self._pending: dict[int, list[Piece]] = {}
        self._retired: list[Piece] = []

    def taken(self, checkpoint_id: int, pieces: list[Piece]) -> None:
        """Learn what a checkpoint on its way uses."""
        self._pending[checkpoint_id] = pieces

    def completed(self, checkpoint_id: int) -> None:
        """Leave a checkpoint's pieces to the checkpoints."""
        for piece in self._pending.pop(checkpoint_id, ()):
            piece.kept = True
        self._collect()

    def aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint does not use its pieces any more."""
        self._pending.pop(checkpoint_id, None)
        self._collect()

    def retire(self, pieces: Iterable[Piece]) -> None:
        """Learn that checkpoints to come do not use some pieces."""
        self._retired += pieces
        self._collect()

    def _collect(self) -> None:
        needed = {id(piece) for pieces in self._pending.values() for piece in pieces}
        waiting = []
        for piece in self._retired:
            if id(piece) in needed:
                waiting.append(piece)
            elif not piece.kept:
                self._run(piece.drop)
        self._retired = waiting
