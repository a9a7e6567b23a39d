"""Every path that checkpoints use, in one place: Flink's directory layout.

::

    <checkpoint dir>/<job id>/chk-<n>/_metadata       the checkpoint exists iff this is valid
    <checkpoint dir>/<job id>/chk-<n>/state-s…        files of this checkpoint alone
    <checkpoint dir>/<job id>/shared/                 files that several checkpoints use
    <checkpoint dir>/<job id>/taskowned/              reserved: Flink's tasks own files there
    <savepoint dir>/savepoint-<6 hex>-<12 hex>/       self-contained, can be moved

All functions return storage paths: relative, with `/` between the parts.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from weir.errors import UsageError
from weir.ids import JobId, unique_suffix

METADATA_NAME: Final = "_metadata"
SHARED_NAME: Final = "shared"
TASKOWNED_NAME: Final = "taskowned"
_DATA_FILE = re.compile(r"state-s[0-9]+-a([0-9]+)-[0-9a-f]+\Z")
_CHECKPOINT = re.compile(r"chk-(0|[1-9][0-9]*)\Z")


def checkpoint_dir(job_id: JobId, checkpoint_id: int) -> str:
    """Return the directory of a checkpoint below the checkpoint root."""
    return f"{job_id}/chk-{checkpoint_id}"


def checkpoint_id_of(name: str) -> int | None:
    """Return the checkpoint that a directory name stands for, None for any other name."""
    match = _CHECKPOINT.match(name)
    return int(match.group(1)) if match else None


def shared_dir(job_id: JobId) -> str:
    """Return the directory of files that several checkpoints of a job refer to."""
    return f"{job_id}/{SHARED_NAME}"


def new_savepoint_dir(job_id: JobId) -> str:
    """Return a new directory name for a savepoint of a job; two calls never give the same."""
    return f"savepoint-{job_id[:6]}-{unique_suffix(12)}"


def new_data_file(subtask: int, attempt: int) -> str:
    """Return a new file name that no other subtask, attempt or call can produce."""
    return f"state-s{subtask}-a{attempt}-{unique_suffix(12)}"


def data_file_attempt(name: str) -> int | None:
    """Return the execution attempt that made a data file, None for any other name."""
    match = _DATA_FILE.match(name)
    return int(match.group(1)) if match else None


def metadata_path(directory: str) -> str:
    """Return the path of the `_metadata` file of a checkpoint directory; "" is the root."""
    return posixpath.join(directory, METADATA_NAME)


def directory_of(path: str) -> str:
    """Return the checkpoint directory, given it or its `_metadata` file."""
    trimmed = path.rstrip("/")
    head, tail = posixpath.split(trimmed)
    return head if tail == METADATA_NAME else trimmed


def is_uri(directory: str) -> bool:
    """Tell whether a checkpoint directory is a URI instead of a path on the job's storage."""
    return "://" in directory


def resolve(directory: str, file: str) -> str:
    """Return the storage path of a file that a checkpoint names relative to its directory.

    Shared files are named `../shared/…`. In a directory that is a URI all files lie inside.

    Raises:
        UsageError: the name leads out of the storage.
    """
    if is_uri(directory):
        if "/" in file:
            msg = f"file {file!r} lies outside of {directory!r}"
            raise UsageError(msg)
        return f"{directory.rstrip('/')}/{file}"
    path = posixpath.normpath(posixpath.join(directory, file))
    if path.startswith(("../", "/")) or path in ("..", "."):
        msg = f"file {file!r} of checkpoint directory {directory!r} lies outside of the storage"
        raise UsageError(msg)
    return path


def rebase(directory: str, file: str, job_id: str) -> str:
    """Name a shared file of a checkpoint so that checkpoints of another job may refer to it.

    The name holds in every `<job>/chk-<n>` directory of the storage, the given one included. Files
    that are the job's own, or lie elsewhere, keep their name.
    """
    folder, _, name = directory.rpartition("/")
    own = f"../{SHARED_NAME}/"
    if not folder or "/" in folder or folder == job_id or checkpoint_id_of(name) is None:
        return file
    if not file.startswith(own):
        return file
    return f"../../{folder}/{SHARED_NAME}/{file.removeprefix(own)}"


def split_location(uri: str) -> tuple[str, str]:
    """Split what a user gives as a checkpoint or savepoint into (storage URI, directory in it).

    Accepts the directory or its `_metadata` file, as a plain path or a URI.

    Raises:
        UsageError: nothing is left to name a directory.
    """
    scheme, separator, rest = uri.partition("://") if "://" in uri else ("", "", uri)
    root, slash, name = directory_of(rest).rpartition("/")
    if not name or name == ".":
        msg = f"{uri!r} names no checkpoint: expected the path of a chk-<n> or savepoint directory"
        raise UsageError(msg)
    if not root and scheme in ("", "file"):
        root = "/" if slash else "."
    return scheme + separator + root, name
