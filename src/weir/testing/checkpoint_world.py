"""Checkpoints of one operator in memory, with the rules about who deletes which file.

`CheckpointWorld` stands for the storage and the coordinator of a job. It deletes every file as
soon as the contract allows it, so a backend that refers to a file it must not refer to fails at
the restore; and it refuses deletions that would take a file away from a checkpoint.
"""

from __future__ import annotations

import io
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.backend.base import (
    KeyedBackend,
    KeyedPart,
    KeyedSnapshot,
    RestoreSource,
    SharedFiles,
    SnapshotKind,
    SnapshotOutput,
    StateLayer,
)
from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle, SnapshotReader, SnapshotWriter


class MemoryFiles:
    """Shared files in a dict; see `weir.backend.base.SharedFiles`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.made = 0
        self.bytes_written = 0
        self.failures = 0
        """How many of the next writes fail."""
        self.in_use: Callable[[str], bool] = lambda path: False

    def write(self, fill: Callable[[SnapshotWriter], dict[str, Any]]) -> FileHandle:
        """Make a snapshot file."""
        self._maybe_fail()
        out = io.BytesIO()
        writer = SnapshotWriter(out)
        writer.finish({"operators": {"op": {"keyed": fill(writer), "operator": {}}}})
        return self._add(out.getvalue())

    def upload(self, local: Path) -> FileHandle:
        """Copy a local file."""
        self._maybe_fail()
        return self._add(local.read_bytes())

    def delete(self, handle: FileHandle) -> None:
        """Delete a file.

        Raises:
            UsageError: it is not there, or a checkpoint uses it.
        """
        if handle.path not in self.files or self.in_use(handle.path):
            msg = f"{handle.path!r} is deleted by its maker, but it is in use or not there"
            raise UsageError(msg)
        del self.files[handle.path]

    def _maybe_fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            msg = "the storage is out of order"
            raise OSError(msg)

    def _add(self, data: bytes) -> FileHandle:
        with self._lock:
            self.made += 1
            self.bytes_written += len(data)
            path = f"../shared/{self.made}"
            self.files[path] = data
        return FileHandle(path, len(data), zlib.crc32(data))


class _Recording:
    """Shared files that remember what one checkpoint made."""

    def __init__(self, inner: SharedFiles, created: list[FileHandle]) -> None:
        self._inner = inner
        self._created = created

    def write(self, fill: Callable[[SnapshotWriter], dict[str, Any]]) -> FileHandle:
        self._created.append(self._inner.write(fill))
        return self._created[-1]

    def upload(self, local: Path) -> FileHandle:
        self._created.append(self._inner.upload(local))
        return self._created[-1]

    def delete(self, handle: FileHandle) -> None:
        self._inner.delete(handle)


@dataclass
class WorldCheckpoint:
    """One checkpoint of one subtask; `own` are the bytes of its own file."""

    checkpoint_id: int
    snapshot: KeyedSnapshot
    key_groups: KeyGroupRange
    created: list[FileHandle] = field(default_factory=list)
    part: KeyedPart | None = None
    own: bytes = b""

    @property
    def uses(self) -> set[str]:
        """Return the shared files that the checkpoint refers to."""
        part = self.part
        return set() if part is None else {h.path for h in (*part.layers, *part.attachments)}


class CheckpointWorld:
    """Storage and coordinator of one job with one subtask."""

    def __init__(self, retained: int = 1) -> None:
        """Begin without checkpoints; keep the newest `retained` ones."""
        self.shared = MemoryFiles()
        self.shared.in_use = self._in_use
        self.pending: dict[int, WorldCheckpoint] = {}
        self.completed: dict[int, WorldCheckpoint] = {}
        self._retained = retained
        self._registered: set[str] = set()

    def take(
        self,
        backend: KeyedBackend,
        checkpoint_id: int,
        kind: SnapshotKind = SnapshotKind.INCREMENTAL,
    ) -> WorldCheckpoint:
        """Run the sync phase of a checkpoint."""
        snapshot = backend.snapshot(checkpoint_id, kind)
        taken = WorldCheckpoint(checkpoint_id, snapshot, backend.key_groups)
        self.pending[checkpoint_id] = taken
        return taken

    def write(self, checkpoint: WorldCheckpoint) -> WorldCheckpoint:
        """Run the async phase; what a failed one made is deleted."""
        out = io.BytesIO()
        writer = SnapshotWriter(out)
        shared = _Recording(self.shared, checkpoint.created)
        try:
            checkpoint.part = checkpoint.snapshot.write(SnapshotOutput(writer, shared))
        except BaseException:
            self._delete_created(checkpoint)
            raise
        finally:
            checkpoint.snapshot.release()
        writer.finish({"operators": {"op": {"keyed": checkpoint.part.states, "operator": {}}}})
        checkpoint.own = out.getvalue()
        return checkpoint

    def complete(self, backend: KeyedBackend, checkpoint: WorldCheckpoint) -> None:
        """Let a checkpoint exist, tell the backend, and delete what older ones needed alone."""
        del self.pending[checkpoint.checkpoint_id]
        self.completed[checkpoint.checkpoint_id] = checkpoint
        self._registered |= checkpoint.uses
        backend.notify_complete(checkpoint.checkpoint_id)
        self._clean()

    def abort(self, backend: KeyedBackend, checkpoint: WorldCheckpoint) -> None:
        """Give a checkpoint up: what it made is gone before the backend hears of it."""
        del self.pending[checkpoint.checkpoint_id]
        self._delete_created(checkpoint)
        backend.notify_aborted(checkpoint.checkpoint_id)
        self._clean()

    def run(self, backend: KeyedBackend, checkpoint_id: int) -> WorldCheckpoint:
        """Take, write and complete an incremental checkpoint."""
        checkpoint = self.write(self.take(backend, checkpoint_id))
        self.complete(backend, checkpoint)
        return checkpoint

    def fail_over(self) -> None:
        """Forget what is pending, as when all slots are lost; its files are deleted."""
        for checkpoint in self.pending.values():
            self._delete_created(checkpoint)
        self.pending.clear()
        self._clean()

    def source(
        self,
        checkpoint: WorldCheckpoint,
        key_groups: KeyGroupRange | None = None,
        *,
        reusable: bool = False,
    ) -> RestoreSource:
        """Offer a checkpoint for restoring; every file is read from what is still there.

        Raises:
            CorruptStateError: a file that the checkpoint needs is gone.
        """
        part = checkpoint.part or KeyedPart({})
        layers = [
            StateLayer(reader, reader.operator("op")["keyed"], handle)
            for handle in part.layers
            for reader in [_reader(self._contents(handle), handle.path)]
        ]
        for handle in part.attachments:
            self._contents(handle)
        own = _reader(checkpoint.own, f"checkpoint {checkpoint.checkpoint_id}")
        layers.append(StateLayer(own, own.operator("op")["keyed"]))
        wanted = checkpoint.key_groups if key_groups is None else key_groups
        return RestoreSource(
            tuple(layers),
            key_groups=wanted,
            stored=checkpoint.key_groups,
            files=self,
            reusable=reusable,
        )

    def download(self, handle: FileHandle, target: Path) -> None:
        """Copy a file to a local path."""
        target.write_bytes(self._contents(handle))

    def lasting(self, handle: FileHandle) -> FileHandle:
        """Return the handle: there is one job."""
        return handle

    def _contents(self, handle: FileHandle) -> bytes:
        data = self.shared.files.get(handle.path)
        if data is None:
            msg = f"file {handle.path!r} of a checkpoint is gone"
            raise CorruptStateError(msg)
        return data

    def _in_use(self, path: str) -> bool:
        checkpoints = [*self.pending.values(), *self.completed.values()]
        return any(path in checkpoint.uses for checkpoint in checkpoints)

    def _delete_created(self, checkpoint: WorldCheckpoint) -> None:
        for handle in checkpoint.created:
            if handle.path not in self._registered:
                self.shared.files.pop(handle.path, None)

    def _clean(self) -> None:
        """Delete what only subsumed checkpoints used, once nothing pending can refer to it."""
        for old in sorted(self.completed)[: -self._retained]:
            del self.completed[old]
        if not self.pending:
            for path in list(self._registered):
                if not self._in_use(path):
                    self._registered.discard(path)
                    self.shared.files.pop(path, None)


def _reader(data: bytes, name: str) -> SnapshotReader:
    return SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), name)
