"""A write-ahead sink: rows are staged as Arrow files, the driver hands them to a Spark writer.

The slot side only stages. At a barrier the staged file is closed and its committable
`{"path", "rows", "size", "encoding", "sha256", "identity", "checkpoint", "noted"}` goes into the
checkpoint; once that completed, the driver reads the files of the checkpoint, hands them to a
commit target, notes that and removes them. The identity is that of the job and the operator, not of
a subtask: the rows of a checkpoint are handed over together, whoever staged them. Columns follow
the declared type ("arrow"), all else is one binary column of pickled records ("pickle").

The note is the file `handed-over-<identity>` beside the staged ones, with the number of the newest
checkpoint that was handed over; the first slot that stages makes it, with 0. So a directory that is
not there, such as a mount that is gone, is never taken for rows that were handed over.

Invariant: the driver unpickles only bytes whose digest the slot put into the committable. A
committable without one is of an earlier version: its file has to belong to the driver's user. One
without `noted` is of an earlier version, too: its file is there until it was handed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, BinaryIO

import pyarrow as pa

from weir.codec import pickled
from weir.connector.file_system import FileSystem, close_quietly, resolve, storage_errors
from weir.connector.parquet_format import try_columnar
from weir.connector.sink import Sink, SinkWriter, WriterContext
from weir.errors import CorruptStateError, StorageError
from weir.ids import unique_suffix

BATCH_ROWS = 65_536
PICKLED_SCHEMA = pa.schema([("pickled", pa.binary())])


class StagedBatchSink(Sink):
    """Stages rows below a directory that every host can reach.

    Guarantees: a staged file listed by a committable is whole and durable; it stays until the
    driver removes it with `finish_staged`. `type_info` None takes the type of the stream.
    """

    def __init__(
        self, staging_dir: str, type_info: Any = None, file_system: FileSystem | None = None
    ) -> None:
        """Touch nothing yet."""
        resolved, self.staging_dir = resolve(staging_dir)
        self.type_info = type_info
        self._file_system = file_system or resolved

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the stager of one subtask; any type can be staged."""
        declared = self.type_info if self.type_info is not None else context.type_info
        return _StagingWriter(self.staging_dir, declared, self._file_system, context)

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"StagedBatchSink({self.staging_dir!r}, {self.type_info!r})"


class _StagingWriter(SinkWriter):
    def __init__(
        self, directory: str, declared: Any, file_system: FileSystem, context: WriterContext
    ) -> None:
        self._directory = directory
        self._fs = file_system
        self._context = context
        columns = try_columnar(declared)
        self._encoding = "pickle" if columns is None else "arrow"
        self._schema, self._to_batch = columns or (PICKLED_SCHEMA, _pickled_batch)
        self._rows: list[Any] = []
        self._count = 0
        self._number = 0
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._writer: Any = None
        self._path = ""
        self._noting = False

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        self._rows.extend(values)
        while len(self._rows) >= BATCH_ROWS:
            self._flush(BATCH_ROWS)

    def _flush(self, rows: int) -> None:
        batch = self._to_batch(self._rows[:rows])
        del self._rows[:rows]
        if self._stream is None:
            self._begin()
        with storage_errors("write", self._path):
            self._writer.write_batch(batch)
        self._count += batch.num_rows

    def _begin(self) -> None:
        me = self._context
        self._fs.make_directory(self._directory)
        owner = f"{me.operator_id[:8]}-{me.job_id}-a{me.attempt}-s{me.subtask}"
        while self._stream is None:
            self._path = os.path.join(self._directory, f"staged-{owner}-{self._number}.arrow")
            self._number += 1
            try:
                self._stream = self._fs.create(self._path)
            except FileExistsError:
                continue
        self._digest = hashlib.sha256()
        with storage_errors("write", self._path):
            out = _Digested(self._stream, self._digest)
            self._writer = pa.ipc.new_stream(pa.PythonFile(out, "w"), self._schema)

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        if self._rows:
            self._flush(len(self._rows))
        if self._stream is None:
            return []
        with storage_errors("write", self._path):
            self._writer.close()
        self._fs.sync(self._stream)
        size = self._stream.tell()
        self._stream.close()
        entry = {
            "path": self._path,
            "rows": self._count,
            "size": size,
            "encoding": self._encoding,
            "sha256": self._digest.hexdigest(),
            "identity": f"{self._context.job_id}.{self._context.operator_id[:16]}",
            "checkpoint": checkpoint_id,
            "noted": True,
        }
        self._begin_note(_note_of(entry))
        self._fs.sync_directory(self._directory)
        self._stream, self._count = None, 0
        return [json.dumps(entry).encode()]

    def _begin_note(self, path: str) -> None:
        """Note that nothing was handed over yet, where nobody has noted anything."""
        if self._noting:
            return
        try:
            with self._fs.create(path) as note:
                note.write(b"0")
                self._fs.sync(note)
        except FileExistsError:
            """Another subtask or attempt was first."""
        self._noting = True

    def share(self, committables: list[bytes], subtask: int, parallelism: int) -> list[bytes]:
        """Hand all over at once: who is idempotent by checkpoint must see all rows of it."""
        return committables if subtask == 0 else []

    def commit(self, committables: list[bytes]) -> None:
        """The driver publishes: it alone knows the user's function."""

    def discard_leftovers(self, keep: list[bytes]) -> None:
        kept = {_load(committable)["path"] for committable in keep}
        me = self._context
        pattern = re.compile(rf"staged-{me.operator_id[:8]}-(.+)-a(\d+)-s\d+-\d+\.arrow")
        for path in list(self._fs.walk(self._directory)):
            match = pattern.fullmatch(os.path.basename(path))
            if match is None or path in kept:
                continue
            earlier = match[1] == me.job_id and int(match[2]) < me.attempt
            if earlier or match[1] in me.lineage:
                self._fs.remove(path)

    def abort(self) -> None:
        self._rows.clear()
        stream, self._stream, self._count = self._stream, None, 0
        if stream is not None:
            close_quietly(stream)
            self._fs.remove(self._path)


def read_staged(committables: list[bytes]) -> pa.Table:
    """Return the rows of a checkpoint's committables; `CorruptStateError` names a damaged file.

    A table of pickled records has the one column `pickled`; no committables make an empty one.
    """
    tables = [_read(_load(committable)) for committable in committables]
    return pa.concat_tables(tables) if tables else PICKLED_SCHEMA.empty_table()


def unpickle_staged(table: pa.Table) -> list[Any]:
    """Return the records of a table of pickled ones."""
    return [pickled.loads(data) for data in table.column("pickled").to_pylist()]


def prepared_by(committable: bytes, otherwise: int) -> tuple[int, str]:
    """Return checkpoint and identity of a committable; earlier versions recorded neither."""
    entry = _load(committable)
    return int(entry.get("checkpoint", otherwise)), str(entry.get("identity", ""))


def is_staged(committable: bytes) -> bool:
    """Tell whether the rows have still to be handed over.

    Raises:
        StorageError: nobody can tell, or their file is missing.
    """
    entry = _load(committable)
    file_system, path = resolve(entry["path"])
    there = file_system.size(path) is not None
    if not entry.get("noted"):
        return there
    newest = _handed_over(entry)
    if newest is None:
        raise StorageError(missing_note(committable))
    if newest >= int(entry["checkpoint"]):
        return False
    if not there:
        message = (
            f"{entry['rows']} rows that checkpoint {entry['checkpoint']} staged in {path!r} were "
            "not handed over yet, and the file is missing: its directory has to be the same one "
            "on all hosts; bring the file back"
        )
        raise StorageError(message)
    return True


def is_noted(committable: bytes) -> bool:
    """Tell whether the directory of the rows is there, so that `is_staged` can tell more."""
    entry = _load(committable)
    return not entry.get("noted") or _handed_over(entry) is not None


def missing_note(committable: bytes) -> str:
    """Say that nobody can tell whether rows were handed over."""
    entry = _load(committable)
    note = _note_of(entry)
    return (
        f"nobody can tell whether {entry['rows']} rows that checkpoint {entry['checkpoint']} "
        f"staged in {entry['path']!r} were handed over: the file {note!r} is missing. Mount its "
        "directory, or bring it back. If it is lost for good, so are rows that were not handed "
        f"over; to go on without them, write {entry['checkpoint']} into {note!r}"
    )


def _note_of(entry: dict[str, Any]) -> str:
    return os.path.join(os.path.dirname(entry["path"]), f"handed-over-{entry['identity']}")


def _handed_over(entry: dict[str, Any]) -> int | None:
    """Return the newest checkpoint that was handed over, None where nobody has noted anything."""
    file_system, path = resolve(_note_of(entry))
    try:
        with file_system.open(path) as note, storage_errors("read", path):
            text = note.read().strip()
        return int(text or b"0")
    except FileNotFoundError:
        return None
    except ValueError as error:
        message = f"{path!r} holds {text[:50]!r}, expected the number of a checkpoint"
        raise CorruptStateError(message) from error


def finish_staged(committables: list[bytes]) -> None:
    """Note that rows were handed over, and remove their files; missing ones are fine."""
    for committable in committables:
        entry = _load(committable)
        file_system, path = resolve(entry["path"])
        if entry.get("noted"):
            _note(file_system, entry)
        file_system.remove(path)


def _note(file_system: FileSystem, entry: dict[str, Any]) -> None:
    newest = _handed_over(entry)
    if newest is None or newest >= int(entry["checkpoint"]):
        return
    note = _note_of(entry)
    fresh = f"{note}.{unique_suffix(8)}"
    with file_system.create(fresh) as stream:
        stream.write(str(entry["checkpoint"]).encode())
        file_system.sync(stream)
    file_system.rename(fresh, note)
    file_system.sync_directory(os.path.dirname(note))


def _read(entry: dict[str, Any]) -> pa.Table:
    path = entry["path"]
    try:
        with open(path, "rb") as file:
            owner, data = os.fstat(file.fileno()).st_uid, file.read()
        _refuse_exchanged(entry, data, owner)
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            table = reader.read_all()
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"staged file {path!r} cannot be read: {error}; restore another checkpoint"
        raise CorruptStateError(message) from error
    if table.num_rows != entry["rows"]:
        message = f"staged file {path!r} has {table.num_rows} rows, expected {entry['rows']}"
        raise CorruptStateError(message)
    return table


def _refuse_exchanged(entry: dict[str, Any], data: bytes, owner: int) -> None:
    """Refuse bytes that are not those that the slot staged: they may be unpickled."""
    path, expected = entry["path"], entry.get("sha256")
    if expected is not None:
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            message = (
                f"staged file {path!r} was changed: it has the digest {found}, the checkpoint "
                f"recorded {expected}; restore another checkpoint"
            )
            raise CorruptStateError(message)
    elif owner != os.geteuid():
        message = (
            f"staged file {path!r} belongs to user {owner}, expected {os.geteuid()}, and its "
            "checkpoint recorded no digest: it is not read; restore another checkpoint"
        )
        raise CorruptStateError(message)


class _Digested:
    """A stream that knows the digest of what went through it."""

    def __init__(self, stream: BinaryIO, digest: Any) -> None:
        self._stream = stream
        self._digest = digest
        self.closed = False

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Whoever opened the stream closes it."""


def _load(committable: bytes) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(committable)
        _ = entry["path"], entry["rows"], entry["encoding"]
        if type(entry["path"]) is not str or type(entry["rows"]) is not int:
            msg = "expected a text as path and a number as rows"
            raise TypeError(msg)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"staged committable {committable!r} is damaged: {error!r}"
        raise CorruptStateError(message) from error
    return entry


def _pickled_batch(values: list[Any]) -> pa.RecordBatch:
    column = pa.array([pickled.dumps(value) for value in values], pa.binary())
    return pa.RecordBatch.from_arrays([column], schema=PICKLED_SCHEMA)
