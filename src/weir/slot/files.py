"""State files of a slot: written whole under names of their own, small ones kept as bytes."""

from __future__ import annotations

import io
import logging
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from weir.backend.base import SharedFiles
from weir.checkpoint.paths import (
    SHARED_NAME,
    is_uri,
    new_data_file,
    rebase,
    resolve,
    shared_dir,
    split_location,
)
from weir.errors import CorruptStateError, StorageError
from weir.ids import JobId
from weir.slot.copies import CopyStream, RestoreCopies, SlotCopies, copy_name
from weir.slot.known_files import KnownFiles
from weir.snapshot import FileFacts, FileHandle, SnapshotReader, SnapshotWriter
from weir.storage.base import MissingFileError, Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

log = logging.getLogger("weir.slot")
_CHUNK = 4 << 20
_SAVEPOINT_INLINE = 20 << 10


class _Out(Protocol):
    def write(self, data: Any, /) -> int:
        """Take bytes."""


@dataclass(frozen=True)
class _Both:
    """A file and its copy: bytes go to the file first."""

    file: _Out
    copy: CopyStream

    def write(self, data: Any, /) -> int:
        written = self.file.write(data)
        self.copy.write(data)
        return written


class _Growing(io.RawIOBase):
    """A stream that stays in memory until it is too big for that, then becomes a file.

    Without a limit it stays in memory.
    """

    def __init__(self, open_file: Callable[[], _Out], limit: int | None) -> None:
        super().__init__()
        self._open_file = open_file
        self._limit = limit
        self._memory = io.BytesIO()
        self._file: _Out | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = self._memory.tell() + len(data)
        if self._file is None and self._limit is not None and size > self._limit:
            self._file = self._open_file()
            self._file.write(self._memory.getvalue())
            self._memory = io.BytesIO()
        (self._memory if self._file is None else self._file).write(data)
        return len(data)

    def contents(self) -> bytes | None:
        """Return all bytes, None when they went to a file."""
        return self._memory.getvalue() if self._file is None else None


@dataclass(frozen=True)
class SlotFiles:
    """Makes files for one slot of one attempt.

    Files of up to `inline_bytes` are not written to the storage: their bytes travel in the handle.
    With `in_memory` there is no storage, and state of an operator beyond that size is refused. With
    `own_directory` all files go there, none is shared. With `copies` every file that is written to
    the storage has a copy on this host, made of the same bytes. `known` is told of shared files.
    """

    storage: Storage
    job_id: JobId
    subtask: int
    attempt: int
    inline_bytes: int = 0
    compress: bool = False
    in_memory: bool = False
    options: StorageOptions | None = None
    own_directory: str | None = None
    copies: SlotCopies | None = None
    known: KnownFiles = field(default_factory=KnownFiles, compare=False)

    def at(self, directory: str) -> tuple[SlotFiles, str]:
        """Return who makes the files of a checkpoint directory, and its path on the storage.

        A savepoint's directory is a URI: whatever storage the job has, all its files go there.
        """
        if not is_uri(directory):
            return self, directory
        uri, name = split_location(directory)
        files = replace(
            self,
            storage=open_storage(uri, self.options),
            inline_bytes=min(self.inline_bytes, _SAVEPOINT_INLINE),
            in_memory=False,
            own_directory=name,
            copies=None,
        )
        return files, name

    def refuse_too_large(self, size: int) -> None:
        """Refuse state of an operator that checkpoints in memory have no room for.

        Raises:
            StorageError: there is a limit, and the size is beyond it.
        """
        if self.in_memory and size > self.inline_bytes:
            msg = (
                f"the state has {size} bytes, and checkpoints in the JobManager's memory hold at "
                f"most {self.inline_bytes} for each operator and subtask: set "
                "execution.checkpointing.dir to a directory that all hosts share"
            )
            raise StorageError(msg)

    def write(
        self, directory: str, prefix: str, fill: Callable[[SnapshotWriter], Any]
    ) -> FileHandle:
        """Make one snapshot file in a directory; `fill` writes it and returns the footer.

        Either the whole file is durable when this returns, or nothing is visible.
        """
        limit = None if self.in_memory else self.inline_bytes
        name = new_data_file(self.subtask, self.attempt)
        with ExitStack() as stack:
            path = resolve(directory, name)
            out = _Growing(lambda: self.create(stack, path), limit)
            writer = SnapshotWriter(out, compress=self.compress)  # type: ignore[arg-type]
            facts: FileFacts = writer.finish(fill(writer))
        return FileHandle(prefix + name, facts.size, facts.crc32, out.contents())

    def create(self, stack: ExitStack, path: str, local: Path | None = None) -> _Out:
        """Open a new file; it is durable when the stack ends normally, else nothing is there.

        What is written are the bytes of the `local` file, where one is given.
        """
        if self.copies is None:
            return stack.enter_context(self.storage.open_write(path))
        # Ends last, so that there is no copy of a file that could not be made durable.
        copy = stack.enter_context(self.copies.beside(copy_name(path), local))
        return _Both(stack.enter_context(self.storage.open_write(path)), copy)

    def shared(self, operator: str) -> OperatorFiles:
        """Return where an operator's shared files go."""
        return OperatorFiles(self, operator)


class OperatorFiles:
    """The shared files of one operator; see `weir.backend.base.SharedFiles`."""

    def __init__(self, files: SlotFiles, operator: str) -> None:
        self._files = files
        self._operator = operator
        own = files.own_directory
        self._directory = shared_dir(files.job_id) if own is None else own
        self._prefix = f"../{SHARED_NAME}/" if own is None else ""

    def write(self, fill: Callable[[SnapshotWriter], dict[str, Any]]) -> FileHandle:
        """Make a snapshot file, durable on return; `fill` returns the "keyed" footer part."""
        keyed: dict[str, Any] = {}

        def whole(writer: SnapshotWriter) -> dict[str, Any]:
            keyed.update(fill(writer))
            return {"operators": {self._operator: {"keyed": keyed, "operator": {}}}}

        handle = self._files.write(self._directory, self._prefix, whole)
        self._files.refuse_too_large(handle.size)
        self._files.known.made(handle.path, keyed)
        return handle

    def upload(self, local: Path) -> FileHandle:
        """Copy a local file to the storage, durable on return; a small one is only read."""
        handle = self._upload(local)
        self._files.known.made(handle.path)
        return handle

    def _upload(self, local: Path) -> FileHandle:
        files = self._files
        name = new_data_file(files.subtask, files.attempt)
        length = local.stat().st_size
        files.refuse_too_large(length)
        if length <= files.inline_bytes:
            data = local.read_bytes()
            return FileHandle(self._prefix + name, len(data), zlib.crc32(data), data)
        size = checksum = 0
        with local.open("rb") as source, ExitStack() as stack:
            out = files.create(stack, f"{self._directory}/{name}", local)
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                size += len(chunk)
                checksum = zlib.crc32(chunk, checksum)
        return FileHandle(self._prefix + name, size, checksum)

    def delete(self, handle: FileHandle) -> None:
        """Delete a file that no checkpoint refers to; failures are logged."""
        if handle.data is not None:
            return
        name = copy_name(handle.path)
        if self._files.copies is not None:
            self._files.copies.drop(name)
        try:
            self._files.storage.delete(f"{self._directory}/{name}")
        except StorageError as error:
            log.warning("clean-up failed: %s", error)


class Recording:
    """Shared files that remember what one checkpoint made."""

    def __init__(self, inner: SharedFiles) -> None:
        self._inner = inner
        self.created: list[FileHandle] = []

    def write(self, fill: Callable[[SnapshotWriter], dict[str, Any]]) -> FileHandle:
        """Make a snapshot file."""
        self.created.append(self._inner.write(fill))
        return self.created[-1]

    def upload(self, local: Path) -> FileHandle:
        """Copy a local file."""
        self.created.append(self._inner.upload(local))
        return self.created[-1]

    def delete(self, handle: FileHandle) -> None:
        """Delete a file."""
        self._inner.delete(handle)


@dataclass(frozen=True)
class StoredFiles:
    """The files of a checkpoint, relative to its directory; `job_id` is the job that reads them.

    Where there are `copies`, those that are whole are read instead.
    """

    storage: Storage
    directory: str
    job_id: str = ""
    copies: RestoreCopies | None = None

    def reader(self, handle: FileHandle) -> SnapshotReader:
        """Open a snapshot file for reading by ranges."""
        data = handle.data
        if data is not None:
            return SnapshotReader(lambda o, n: data[o : o + n], len(data), handle.path)
        path = resolve(self.directory, handle.path)
        copy = self._copy(handle, path)
        if copy is not None:
            return SnapshotReader(lambda o, n: _read(copy, o, n), handle.size, str(copy))
        return SnapshotReader(lambda o, n: self.storage.read_range(path, o, n), handle.size, path)

    def _copy(self, handle: FileHandle, path: str) -> Path | None:
        if self.copies is None or handle.data is not None:
            return None
        return self.copies.of(handle, f"{self.storage.uri}/{path}")

    def lasting(self, handle: FileHandle) -> FileHandle:
        """Return the handle by which new checkpoints refer to a file, where they may."""
        path = rebase(self.directory, handle.path, self.job_id)
        return FileHandle(path, handle.size, handle.crc32, handle.data)

    def download(self, handle: FileHandle, target: Path) -> None:
        """Copy a file to a local path.

        Raises:
            CorruptStateError: size or checksum is wrong.
            StorageError: it cannot be read, or not be found; trying again may help.
        """
        path = resolve(self.directory, handle.path)
        copy = self._copy(handle, path)
        size = checksum = 0
        try:
            with target.open("wb") as out:
                while chunk := self._chunk(handle, path, size, copy):
                    out.write(chunk)
                    size += len(chunk)
                    checksum = zlib.crc32(chunk, checksum)
        except MissingFileError as error:
            # The driver has just read it: this host sees the storage late, or not at all.
            msg = f"state file {path!r} is missing on this host; is the storage mounted here?"
            raise StorageError(msg) from error
        if copy is not None and (size, checksum) != (handle.size, handle.crc32):
            msg = f"the copy {str(copy)!r} changed while it was read; the next restart looks again"
            raise StorageError(msg)
        if (size, checksum) != (handle.size, handle.crc32):
            msg = (
                f"state file {path!r} is corrupt: {size} bytes with checksum {checksum:08x}, "
                f"expected {handle.size} with {handle.crc32:08x}; restore another checkpoint"
            )
            raise CorruptStateError(msg)

    def _chunk(self, handle: FileHandle, path: str, offset: int, copy: Path | None) -> bytes:
        if handle.data is not None:
            return handle.data[offset : offset + _CHUNK]
        if copy is not None:
            return _read(copy, offset, _CHUNK)
        return self.storage.read_range(path, offset, _CHUNK)


def _read(copy: Path, offset: int, length: int) -> bytes:
    """Return a part of a copy; whoever asks checks it once more.

    Raises:
        StorageError: it cannot be read; the next attempt looks again.
    """
    try:
        with copy.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        msg = f"the copy {str(copy)!r} cannot be read: {error.strerror or error}"
        raise StorageError(msg) from error
