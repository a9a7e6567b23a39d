"""Which checkpoints and savepoints lie in a directory: a root, a job's directory, or one of them.

Nothing is hidden: what looks like one and cannot be read is listed with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from weir.checkpoint.metadata import decode_metadata
from weir.checkpoint.paths import (
    METADATA_NAME,
    SHARED_NAME,
    TASKOWNED_NAME,
    checkpoint_id_of,
    directory_of,
    metadata_path,
)
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.jobmanager.disposal import NOTE_NAME
from weir.offline.describe import unique_files
from weir.offline.model import Summary
from weir.storage.base import MissingFileError, Storage
from weir.storage.local import LocalStorage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

_DEPTH: Final = 2
_OTHER = re.compile(rf"(query-\d+|spool|staging|{SHARED_NAME}|{TASKOWNED_NAME})\Z")
_SAVEPOINT = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}\Z")


def list_snapshots(directory: str, options: StorageOptions | None = None) -> list[Summary]:
    """Return what lies in a directory, newest first, then what cannot be read.

    Looks into the directory, the directories in it and those in them, so that a root of
    checkpoints, a job's directory, a root of savepoints and a single savepoint will all do.

    Raises:
        UsageError: there is no such directory, as far as the storage can tell.
        StorageError: the directory itself cannot be read.
    """
    storage = open_storage(directory_of(directory) or "/", options)
    if isinstance(storage, LocalStorage) and not os.path.isdir(storage.root):
        what = "a file" if os.path.exists(storage.root) else "nothing"
        msg = f"there is no directory {storage.root!r}: found {what}; name one with checkpoints"
        raise UsageError(msg)
    return list_in(storage)


def list_in(storage: Storage) -> list[Summary]:
    """Return what lies on a storage, as `list_snapshots` does.

    Raises:
        StorageError: its root cannot be read.
    """
    return newest_first(_walk(storage, "", _DEPTH))


def newest_first(found: Iterable[Summary]) -> list[Summary]:
    """Return summaries by time, newest first; those without a time come last."""
    listed = sorted(found, key=lambda summary: summary.location)
    known = [summary for summary in listed if summary.timestamp_ms is not None]
    known.sort(key=_newest, reverse=True)
    return known + [summary for summary in listed if summary.timestamp_ms is None]


def _newest(summary: Summary) -> tuple[int, int]:
    return summary.timestamp_ms or 0, summary.checkpoint_id or 0


def _walk(storage: Storage, directory: str, depth: int) -> Iterator[Summary]:
    try:
        names = storage.list(directory)
    except StorageError as error:
        if not directory:
            raise
        yield _unreadable(storage, directory, str(error))
        return
    name = _name(storage, directory)
    if METADATA_NAME in names:
        yield _summary(storage, directory)
    elif NOTE_NAME in names:
        yield _unreadable(storage, directory, "its disposal was interrupted: repeat it")
    elif checkpoint_id_of(name) is not None or _SAVEPOINT.match(name):
        reason = f"it has no {METADATA_NAME}: it is being written, or was given up"
        yield _unreadable(storage, directory, reason)
    elif depth > 0:
        for below in names:
            if not _OTHER.match(below) and not below.startswith("_"):
                yield from _walk(storage, f"{directory}/{below}".lstrip("/"), depth - 1)


def _summary(storage: Storage, directory: str) -> Summary:
    file = metadata_path(directory)
    location = _location(storage, directory)
    try:
        metadata = decode_metadata(storage.read(file), f"{storage.uri}/{file}")
    except MissingFileError:
        return _unreadable(storage, directory, "it was deleted just now")
    except (CorruptStateError, IncompatibleStateError, StorageError) as error:
        return _unreadable(storage, directory, str(error))
    files = unique_files(metadata)
    return Summary(
        location=location,
        kind=metadata.kind,
        checkpoint_id=metadata.checkpoint_id,
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        timestamp_ms=metadata.timestamp_ms,
        bytes=sum(file.size for file in files),
        savepoint_format=metadata.savepoint_format,
        files=sum(file.data is None for file in files),
    )


def _unreadable(storage: Storage, directory: str, problem: str) -> Summary:
    name = _name(storage, directory)
    number = checkpoint_id_of(name)
    kind = "savepoint" if _SAVEPOINT.match(name) else None
    kind = "checkpoint" if number is not None else kind
    return Summary(_location(storage, directory), kind, number, problem=problem)


def _name(storage: Storage, directory: str) -> str:
    return (directory or storage.uri.rstrip("/")).rpartition("/")[2]


def _location(storage: Storage, directory: str) -> str:
    return f"{storage.uri.rstrip('/')}/{directory}".rstrip("/")
