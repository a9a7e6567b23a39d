"""Checkpoints on a storage: write, load, verify, list.

Invariant: a checkpoint exists if and only if its `_metadata` is valid. Status is derived from the
files each time and never stored.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from weir.checkpoint import paths
from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    decode_metadata,
    encode_metadata,
)
from weir.errors import CorruptStateError, UsageError
from weir.storage.base import MissingFileError, Storage

_CHUNK_BYTES = 4 << 20
_LOOKED_AT = 20


@dataclass(frozen=True)
class StoredCheckpoint:
    """A complete checkpoint and its directory on the storage."""

    directory: str
    metadata: CheckpointMetadata


@dataclass(frozen=True)
class FileProblem:
    """What is wrong with a file; one that is only `missing` may be there a moment later.

    `file` is the file's record, unless what is wrong is in the metadata itself.
    """

    text: str
    missing: bool = False
    file: FileRecord | None = None


def write_metadata(storage: Storage, directory: str, metadata: CheckpointMetadata) -> None:
    """Complete a checkpoint: from here on it exists.

    Raises:
        AlreadyExistsError: someone else completed it.
    """
    storage.create(paths.metadata_path(directory), encode_metadata(metadata))


def load_checkpoint(storage: Storage, path: str) -> CheckpointMetadata:
    """Return the metadata of a checkpoint, given its directory or its `_metadata` file.

    Raises:
        UsageError: there is no checkpoint at this path.
        CorruptStateError: there was one, and its metadata is damaged.
        IncompatibleStateError: a newer version of Weir wrote it.
    """
    directory = paths.directory_of(path)
    file = paths.metadata_path(directory)
    try:
        data = storage.read(file)
    except MissingFileError as error:
        raise UsageError(_no_checkpoint(storage, directory)) from error
    return decode_metadata(data, _name(storage, file))


def verify_files(storage: Storage, directory: str, metadata: CheckpointMetadata) -> list[str]:
    """Return what is wrong with the files of a checkpoint, one sentence each; empty when sound.

    Reads every file from beginning to end, once, however many subtasks use it.
    """
    return [problem.text for problem in look_at_files(storage, directory, metadata)]


def look_at_files(
    storage: Storage, directory: str, metadata: CheckpointMetadata
) -> list[FileProblem]:
    """Do what `verify_files` does, and tell files that are damaged from those that are missing."""
    problems = []
    seen: set[tuple[str, int, int, bool]] = set()
    for record in metadata.files:
        facts = (record.path, record.size, record.crc32, record.data is None)
        if record.data is None and facts in seen:
            continue
        seen.add(facts)
        problem = _problem(storage, directory, record)
        if problem is not None:
            problems.append(problem)
    return problems


def list_completed(storage: Storage, job_dir: str) -> list[StoredCheckpoint]:
    """Return the complete checkpoints of a job, newest first.

    Directories without metadata, or with damaged metadata, are no checkpoints and are left out.

    Raises:
        IncompatibleStateError: a newer version of Weir wrote one of them; leaving it out would
            silently restore older state.
    """
    ids = sorted(
        (i for i in map(paths.checkpoint_id_of, storage.list(job_dir)) if i is not None),
        reverse=True,
    )
    found = []
    for checkpoint_id in ids:
        directory = f"{job_dir}/chk-{checkpoint_id}" if job_dir else f"chk-{checkpoint_id}"
        metadata = _load_valid(storage, directory)
        if metadata is not None:
            found.append(StoredCheckpoint(directory, metadata))
    return found


def _load_valid(storage: Storage, directory: str) -> CheckpointMetadata | None:
    file = paths.metadata_path(directory)
    try:
        return decode_metadata(storage.read(file), _name(storage, file))
    except (MissingFileError, CorruptStateError):
        return None


def _problem(storage: Storage, directory: str, record: FileRecord) -> FileProblem | None:
    if record.data is not None:
        sound = (len(record.data), zlib.crc32(record.data)) == (record.size, record.crc32)
        inside = _name(storage, paths.metadata_path(directory))
        text = f"{record.path!r}, kept in {inside!r}, is not what was written"
        return None if sound else FileProblem(text, file=record)
    path = paths.resolve(directory, record.path)
    name = _name(storage, path)
    try:
        size = storage.size(path)
        if size != record.size:
            text = f"{name!r} has {size} bytes, expected {record.size}"
            return FileProblem(text, file=record)
        checksum = 0
        for offset in range(0, size, _CHUNK_BYTES):
            checksum = zlib.crc32(storage.read_range(path, offset, _CHUNK_BYTES), checksum)
    except MissingFileError:
        return FileProblem(f"{name!r} is missing", missing=True, file=record)
    if checksum == record.crc32:
        return None
    text = f"{name!r} has the checksum {checksum:08x}, expected {record.crc32:08x}"
    return FileProblem(text, file=record)


def _no_checkpoint(storage: Storage, directory: str) -> str:
    names = storage.list(directory)
    inside = sorted((i for i in map(paths.checkpoint_id_of, names) if i is not None), reverse=True)
    if inside:
        hint = f"it holds checkpoints: name one of them, such as chk-{inside[0]}"
    elif complete := _complete_inside(storage, directory, names):
        hint = f"it holds savepoints: name one of them, such as {complete}"
    elif names:
        hint = f"expected a {paths.METADATA_NAME} file, found {names[:5]!r}"
    elif storage.exists(directory):
        hint = f"expected a directory with a {paths.METADATA_NAME} file, found a file"
    else:
        hint = f"expected a directory with a {paths.METADATA_NAME} file, found nothing"
    return f"there is no checkpoint or savepoint at {_name(storage, directory)!r}: {hint}"


def _complete_inside(storage: Storage, directory: str, names: list[str]) -> str | None:
    """Return the name of a checkpoint or savepoint directly inside a directory, if any."""
    for name in names[:_LOOKED_AT]:
        if storage.exists(paths.metadata_path(f"{directory}/{name}")):
            return name
    return None


def _name(storage: Storage, path: str) -> str:
    return f"{storage.uri.removesuffix('/')}/{path}" if path else storage.uri
