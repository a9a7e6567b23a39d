"""Disposal of savepoints, and of retained checkpoints of jobs that have ended: Flink's `-d`.

Order: a note of what is to go, `_metadata`, own files, shared files that no other checkpoint uses,
the note. From `_metadata` on there is no savepoint any more, and the note lets an interrupted
disposal be repeated.

Invariants: nothing is deleted that somebody else owns or a running job needs. Whoever cannot be
asked counts as a user. Metadata may be a stranger's: names in it that no checkpoint of Weir has
refuse the whole, and in a file system no link is followed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from weir.checkpoint.metadata import CheckpointMetadata, decode_metadata, encode_metadata
from weir.checkpoint.paths import (
    METADATA_NAME,
    checkpoint_id_of,
    data_file_attempt,
    metadata_path,
    split_location,
)
from weir.checkpoint.shared import shared_files
from weir.checkpoint.store import load_checkpoint
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    StorageError,
    UsageError,
    WeirError,
)
from weir.jobmanager.directory import JobEntry, running
from weir.jobmanager.owner import has_ended
from weir.storage.base import MissingFileError, Storage
from weir.storage.local import LocalStorage
from weir.storage.options import StorageOptions
from weir.storage.own_files import OwnFiles
from weir.storage.processes import OWNER_NAME
from weir.storage.uri import open_storage

log = logging.getLogger("weir.disposal")
NOTE_NAME: Final = "_disposing"
_LOOKS: Final = 5
_JOB = re.compile(r"[0-9a-f]{32}\Z")
_SHARED = re.compile(r"\.\./(?:\.\./[0-9a-f]{32}/)?shared/([^/]+)\Z")
_SPOOL = re.compile(r"spool-[0-9]+\Z")


@dataclass(frozen=True)
class _Target:
    """A savepoint or checkpoint that was found; `directory` is a path on `storage`."""

    storage: Storage
    directory: str
    metadata: CheckpointMetadata

    @property
    def name(self) -> str:
        return f"{self.storage.uri}/{self.directory}"

    @property
    def is_checkpoint(self) -> bool:
        """Tell whether it is a checkpoint in its place, so that files beside it are its job's."""
        named = checkpoint_id_of(self.directory.rpartition("/")[2]) is not None
        return named and self.metadata.kind == "checkpoint"


def dispose_savepoint(
    path: str, options: StorageOptions | None = None, within: Collection[str] | None = None
) -> None:
    """Delete a savepoint, or a retained checkpoint of an ended job, given as path or URI.

    Files that do not belong to it stay, with a warning that names them. May be repeated after an
    interruption at any point. With `within` it has to be one of these places, or below one.

    Raises:
        UsageError: there is nothing to dispose of, a running job needs it, or it lies elsewhere.
        IncompatibleStateError: a newer version of Weir wrote it.
        CorruptStateError: its metadata is damaged, so nobody knows what belongs to it.
        StorageError: it is another user's, or behind a link; or deleting failed: repeat it.
    """
    if within is not None:
        _refuse_elsewhere(path, options, within)
    target = _find(_absolute(path), options)
    _refuse_strange_names(target)
    _refuse_in_use(target, location_of(path, options))
    apply_disposal(target.storage, target.directory, target.metadata)


def apply_disposal(storage: Storage, directory: str, metadata: CheckpointMetadata) -> None:
    """Delete what nobody uses any more; repeat it with the same metadata after an interruption."""
    target = _Target(storage, directory, metadata)
    free = _free_shared_files(target)
    # Without a note too, as on a full disk: then only an interruption leaves something behind.
    with contextlib.suppress(StorageError):
        storage.create(_note(directory), encode_metadata(metadata))
    storage.delete(metadata_path(directory))
    left = _delete_own_files(target)
    for file in sorted(free):
        storage.delete(file)
    if left:
        storage.delete(_note(directory))
        log.warning("%r is disposed of; %s in it did not belong to it and stay", target.name, left)
    else:
        storage.delete_tree(directory)


def _refuse_elsewhere(path: str, options: StorageOptions | None, within: Collection[str]) -> None:
    here = location_of(path, options)
    places = {location_of(place, options) for place in within}
    inside = any(here == place or here.startswith(f"{place}/") for place in places)
    if inside and ".." not in here.split("/"):
        return
    msg = (
        f"{path!r} is no savepoint of a job of this process and does not lie in a directory that "
        f"is configured for them ({', '.join(sorted(places)) or 'there is none'}): on its host, "
        f"use 'weir savepoint -d' without an address"
    )
    raise UsageError(msg)


def _refuse_strange_names(target: _Target) -> None:
    for file in target.metadata.files:
        shared = _SHARED.match(file.path)
        if data_file_attempt(shared[1] if shared else file.path) is None:
            msg = (
                f"the metadata of {target.name!r} names the file {file.path!r}, which is none of a "
                "checkpoint; nothing was deleted: look at the directory, and delete it by hand"
            )
            raise CorruptStateError(msg)


def location_of(path: str, options: StorageOptions | None = None) -> str:
    """Return one text for all ways of naming a checkpoint: plain path, URI, its `_metadata`."""
    try:
        uri, directory = split_location(path)
        storage = open_storage(uri, options)
    except WeirError:
        return path.rstrip("/")
    if isinstance(storage, LocalStorage):
        return os.path.realpath(os.path.join(storage.root, unquote(directory)))
    return f"{unquote(storage.uri).rstrip('/')}/{unquote(directory)}"


def _absolute(path: str) -> str:
    """Name all directories above a local path: files beside a checkpoint lie in them."""
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def _find(path: str, options: StorageOptions | None) -> _Target:
    """Load what a path names; also a disposal that was interrupted."""
    uri, directory = split_location(path)
    storage = _open(uri, options)
    try:
        metadata = _load(storage, directory)
    except CorruptStateError as error:
        reason = str(error).removesuffix("; restore another checkpoint")
        msg = (
            f"{reason}, so nobody knows what belongs to it: delete the directory "
            f"{storage.uri + '/' + directory!r} by hand"
        )
        raise CorruptStateError(msg) from error
    if checkpoint_id_of(directory) is None or metadata.kind != "checkpoint":
        return _Target(storage, directory, metadata)
    # Checkpoints of other jobs, which lie beside the job's directory, may share its files.
    with contextlib.suppress(UsageError):
        above, job = split_location(storage.uri)
        wider, inside = _open(above, options), f"{unquote(job)}/{directory}"
        if wider.list(inside) == storage.list(directory):
            return _Target(wider, inside, metadata)
    return _Target(storage, directory, metadata)


def _open(uri: str, options: StorageOptions | None) -> Storage:
    storage = open_storage(uri, options)
    return OwnFiles(storage.root) if isinstance(storage, LocalStorage) else storage


def _load(storage: Storage, directory: str) -> CheckpointMetadata:
    try:
        return load_checkpoint(storage, directory)
    except UsageError:
        try:
            note = storage.read(_note(directory))
        except MissingFileError:
            pass
        else:
            return decode_metadata(note, f"{storage.uri}/{_note(directory)}")
        raise


def _note(directory: str) -> str:
    return f"{directory}/{NOTE_NAME}"


def _refuse_in_use(target: _Target, here: str) -> None:
    for entry in running():
        if here in {location_of(used) for used in entry.uses}:
            msg = (
                f"{target.name!r} is in use: {_named(entry)} was started from it and still needs "
                f"it; wait for the job's next checkpoint, or stop the job first"
            )
            raise UsageError(msg)
        if target.is_checkpoint and target.metadata.job_id == entry.job_id:
            msg = (
                f"{target.name!r} is a checkpoint of {_named(entry)}, which deletes its "
                f"checkpoints itself: stop the job first, or dispose of its savepoints"
            )
            raise UsageError(msg)
    if not target.is_checkpoint or not isinstance(target.storage, LocalStorage):
        return
    owner = Path(target.storage.root) / target.directory.rpartition("/")[0] / OWNER_NAME
    if owner.exists() and not has_ended(owner.parent):
        msg = (
            f"{target.name!r} is a checkpoint of job {target.metadata.job_id!r}, which may still "
            f"run: stop the job first; if it has ended for certain, delete {str(owner)!r}"
        )
        raise UsageError(msg)


def _named(entry: JobEntry) -> str:
    return f"the running job {entry.name!r} ({entry.job_id})"


def _free_shared_files(target: _Target) -> frozenset[str]:
    """Return the files outside of the directory that nobody else uses."""
    files = shared_files(target.directory, target.metadata)
    if not files:
        return files
    if not target.is_checkpoint:
        return frozenset()
    for folder in sorted({file.rpartition("/")[0] for file in files}):
        # Before anything is deleted: a link, or a directory of somebody else, refuses the whole.
        target.storage.list(folder)
    try:
        return files - _files_of_others(target)
    except WeirError as error:
        log.warning("shared files of %r stay: %s", target.name, error)
        return frozenset()


def _files_of_others(target: _Target) -> frozenset[str]:
    """Return what all other checkpoints of this and neighbouring jobs use.

    Raises:
        WeirError: one of them cannot be read, or they change faster than they can be looked at.
    """
    before: dict[str, CheckpointMetadata] | None = None
    for _ in range(_LOOKS):
        found = _checkpoints_beside(target)
        # A job that runs replaces checkpoints by new ones: only a look that sees what the look
        # before has seen is sure to have missed none.
        if before is not None and before.keys() == found.keys():
            files = (shared_files(directory, metadata) for directory, metadata in found.items())
            return frozenset().union(*files)
        before = found
    msg = f"checkpoints beside {target.name!r} come and go; repeat the disposal"
    raise UsageError(msg)


def _checkpoints_beside(target: _Target) -> dict[str, CheckpointMetadata]:
    storage, own = target.storage, target.directory.rpartition("/")[0]
    jobs = sorted({own, *filter(_JOB.match, storage.list())}) if own else [""]
    found = {}
    for job in jobs:
        for name in storage.list(job):
            directory = f"{job}/{name}".lstrip("/")
            if checkpoint_id_of(name) is None or directory == target.directory:
                continue
            try:
                file = metadata_path(directory)
                found[directory] = decode_metadata(storage.read(file), f"{storage.uri}/{file}")
            except (MissingFileError, CorruptStateError):
                continue
            except IncompatibleStateError as error:
                msg = f"{error}; only then it is known which files it uses"
                raise IncompatibleStateError(msg) from error
    return found


def _delete_own_files(target: _Target) -> list[str]:
    """Delete what belongs to the savepoint; return the names of everything else."""
    storage, directory = target.storage, target.directory
    spools = _spools(target)
    left = []
    for name in storage.list(directory):
        path = f"{directory}/{name}"
        if name in spools:
            storage.delete_tree(path)
        elif name == METADATA_NAME or data_file_attempt(name) is not None:
            storage.delete(path)
        elif name != NOTE_NAME:
            left.append(name)
    if isinstance(storage, OwnFiles):
        left += [name for name in storage.hidden(directory) if not name.endswith(".tmp")]
    return left


def _spools(target: _Target) -> set[str]:
    """Return the directories inside that hold records of sources."""
    layout = target.metadata.sources.layout
    return {e.spool for e in layout if e.spool is not None and _SPOOL.match(e.spool)}
