"""What a job may do with the checkpoint that it starts from: Flink's claim modes.

NO_CLAIM: it stays untouched, and the job's own checkpoints never refer to its files. CLAIM: it
becomes the job's own and is deleted like any other that newer ones replace. LEGACY: the job's
checkpoints may refer to its files, which are never deleted.

Invariant: a file that a checkpoint outside of the job's care uses is never deleted, also when a
claimed checkpoint uses it too.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from urllib.parse import unquote

from weir.checkpoint.paths import checkpoint_id_of
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.shared import shared_files
from weir.checkpoint.store import list_completed
from weir.connector.sink import NewerOutput
from weir.errors import WeirError
from weir.jobmanager.recovery import RestorePoint
from weir.storage.base import Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

log = logging.getLogger("weir.recovery")


class ClaimMode(enum.Enum):
    """Who owns the checkpoint that a job starts from."""

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"
    LEGACY = "LEGACY"


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A claimed checkpoint on another storage than the job's: paths are of that storage."""

    storage: Storage
    ref: CheckpointRef
    files: frozenset[str]


@dataclass(frozen=True)
class Claim:
    """What follows from a claim mode; paths are of the job's own storage.

    `point` is what to restore from. `owned` takes its place among the job's own checkpoints and
    uses `files`. With `reusable`, checkpoints may refer to the shared files of `point`.
    `newer_output` is what becomes of what the job before committed after `point`.
    """

    point: RestorePoint | None = None
    owned: CheckpointRef | None = None
    files: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    foreign: ForeignCheckpoint | None = None
    reusable: bool = False
    newer_output: NewerOutput = NewerOutput.NONE

    def may_refer_to(self, point: RestorePoint) -> bool:
        """Tell whether new checkpoints may refer to the shared files of a restored one."""
        started_from = self.point is not None and point.directory == self.point.directory
        return self.reusable if started_from else True


def decide_claim(
    mode: ClaimMode,
    point: RestorePoint | None,
    storage: Storage,
    options: StorageOptions | None = None,
) -> Claim:
    """Return what the job may do with what it starts from; reads metadata, deletes nothing."""
    if point is None or mode is ClaimMode.NO_CLAIM:
        return Claim(point)
    there = open_storage(point.storage_uri, options)
    others = _files_of_others(there, point)
    inside = _inside(storage, there, point.directory)
    number = point.metadata.checkpoint_id
    if inside is None:
        if mode is ClaimMode.LEGACY:
            return Claim(point)
        files = shared_files(point.directory, point.metadata) - others
        ref = CheckpointRef(number, point.directory)
        return Claim(point, foreign=ForeignCheckpoint(there, ref, files))
    moved = RestorePoint(storage.uri, inside, point.metadata)
    files = shared_files(inside, point.metadata)
    reusable = inside.count("/") == 1 and point.metadata.kind == "checkpoint"
    if mode is ClaimMode.LEGACY:
        return Claim(moved, protected=files, reusable=reusable)
    prefix = inside.removesuffix(point.directory)
    return Claim(
        moved,
        CheckpointRef(number, inside),
        files,
        frozenset(prefix + file for file in others),
        reusable=reusable,
    )


def _inside(storage: Storage, there: Storage, directory: str) -> str | None:
    """Return the path of a checkpoint on the job's own storage, None when it lies elsewhere."""
    own, other = unquote(storage.uri).rstrip("/"), unquote(there.uri).rstrip("/")
    if other == own:
        return directory
    if not other.startswith(own + "/"):
        return None
    return f"{other[len(own) + 1 :]}/{directory}"


def _files_of_others(storage: Storage, point: RestorePoint) -> frozenset[str]:
    """Return the shared files that other checkpoints use.

    These are checkpoints of the same job, and of jobs before it whose files it still refers to.
    """
    folder, _, name = point.directory.rpartition("/")
    if checkpoint_id_of(name) is None:
        return frozenset()
    used = shared_files(point.directory, point.metadata)
    # A shared file is <job>/shared/<name>.
    folders = {folder, *(file.rsplit("/", 2)[0] for file in used)}
    files: set[str] = set()
    try:
        for stored in (s for job in sorted(folders) for s in list_completed(storage, job)):
            if stored.directory != point.directory:
                files |= shared_files(stored.directory, stored.metadata)
    except WeirError as error:
        log.warning("checkpoints beside %r are not known: %s", point.directory, error)
        return used
    return frozenset(files)
