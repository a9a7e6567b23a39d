"""Deletes what checkpoints leave behind: directories, shared files that became free, remains.

Order of a deletion: metadata, own files, then shared files that nobody uses any more. Deleting may
fail; what stays is logged and goes with the job's last sweep, which tries a second time. What
somebody reads (`held`) stays until a later deletion finds that nobody does, or until that sweep.
Not thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from weir.checkpoint.held import HeldCheckpoints
from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.paths import (
    checkpoint_id_of,
    data_file_attempt,
    is_uri,
    metadata_path,
    shared_dir,
    split_location,
)
from weir.checkpoint.retention import CheckpointRef, JobEnd, is_discarded
from weir.checkpoint.settings import Retention
from weir.checkpoint.shared import SharedRegistry, shared_files
from weir.errors import StorageError
from weir.ids import JobId
from weir.jobmanager.claims import Claim
from weir.storage.base import Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

log = logging.getLogger("weir.checkpoint")


class CheckpointFiles:
    """The files of one job's checkpoints, as far as somebody has to delete them."""

    def __init__(
        self,
        storage: Storage,
        job_id: JobId,
        claim: Claim | None = None,
        options: StorageOptions | None = None,
        completed: Callable[[CheckpointRef, CheckpointMetadata], None] = lambda ref, metadata: None,
        held: HeldCheckpoints | None = None,
    ) -> None:
        """Take over what the job claimed; `options` are for the storages of savepoints.

        `completed` is told what there is from now on, and `held` knows who reads it.
        """
        claim = claim or Claim()
        self.storage = storage
        self._options = options
        self._completed = completed
        self._elsewhere: dict[str, Storage] = {}
        self._job_id = job_id
        self._foreign = claim.foreign
        self._held = held or HeldCheckpoints()
        self._held_back: list[CheckpointRef] = []
        self._undeleted: list[CheckpointRef] = []
        self._failures = 0
        self._registry = SharedRegistry(claim.protected)
        if claim.owned is not None:
            self._registry.complete(claim.owned.checkpoint_id, claim.files)
            self._held.add(claim.owned.checkpoint_id)

    def place(self, directory: str) -> tuple[Storage, str]:
        """Return the storage of a checkpoint directory and the path on it.

        The directory is a path on the job's own storage, or the URI of a savepoint anywhere.
        """
        if not is_uri(directory):
            return self.storage, directory
        uri, name = split_location(directory)
        found = self._elsewhere.get(uri)
        if found is None:
            found = self._elsewhere[uri] = open_storage(uri, self._options)
        return found, name

    def location(self, directory: str) -> str:
        """Return where a checkpoint directory is, for people and other jobs."""
        return directory if is_uri(directory) else f"{self.storage.uri}/{directory}"

    def begin(self, checkpoint_id: int) -> None:
        """A checkpoint is under way and may refer to every shared file."""
        self._registry.begin(checkpoint_id)

    def check(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        """Refuse a checkpoint that refers to deleted files.

        Raises:
            StorageError: it does; completing it would make a checkpoint that cannot be restored.
        """
        if is_uri(ref.directory):
            return
        lost = self._registry.lost(shared_files(ref.directory, metadata))
        if lost:
            msg = f"checkpoint {ref.checkpoint_id} refers to files that were deleted: {lost!r}"
            raise StorageError(msg)

    def complete(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        """A checkpoint exists: its shared files stay as long as it does."""
        self._completed(ref, metadata)
        self._held.add(ref.checkpoint_id)
        # A savepoint is self-contained, and its own files are not for this job to delete.
        files = frozenset() if is_uri(ref.directory) else shared_files(ref.directory, metadata)
        self._delete(self._registry.complete(ref.checkpoint_id, files))

    def abort(self, ref: CheckpointRef, files: Iterable[str]) -> None:
        """Delete an aborted checkpoint: its directory and the files that it created."""
        self.delete_tree(ref.directory)
        inside = f"{ref.directory}/"
        created = [file for file in files if not file.startswith(inside)]
        self._delete(self._registry.abort(ref.checkpoint_id, created))

    def discard(self, files: Iterable[str]) -> None:
        """Delete files of an acknowledgement that came too late, unless they are in use."""
        self._delete(self._registry.discard(files))

    def delete(self, ref: CheckpointRef) -> None:
        """Delete a completed checkpoint and the shared files that it was the last to use.

        One that somebody reads is deleted together with a later one.
        """
        waiting, self._held_back = [*self._held_back, ref], []
        for found in waiting:
            if self._held.let_go(found.checkpoint_id):
                self._delete_now(found)
            else:
                self._held_back.append(found)

    def _delete_now(self, ref: CheckpointRef) -> None:
        # Metadata first: a half-deleted checkpoint must never be taken for a valid one.
        if self._quietly(partial(self.storage.delete, metadata_path(ref.directory))):
            self.delete_tree(ref.directory)
            self._delete(self._registry.release(ref.checkpoint_id))
        else:
            self._undeleted.append(ref)

    def delete_tree(self, directory: str) -> None:
        """Delete a directory with everything below it."""
        storage, path = self.place(directory)
        self._quietly(partial(storage.delete_tree, path))

    def subsume_foreign(self) -> None:
        """Delete the claimed checkpoint on another storage; it was replaced."""
        claimed, self._foreign = self._foreign, None
        if claimed is None:
            return
        storage, directory = claimed.storage, claimed.ref.directory
        if self._quietly(partial(storage.delete, metadata_path(directory))):
            self._quietly(partial(storage.delete_tree, directory))
            for file in sorted(claimed.files):
                self._quietly(partial(storage.delete, file))

    def end_foreign(self, retention: Retention, end: JobEnd) -> None:
        """Treat the claimed checkpoint on another storage as the job's own at its end."""
        if is_discarded("checkpoint", retention, end):
            self.subsume_foreign()

    def sweep_attempts(self, before: int) -> None:
        """Delete shared files of attempts that are over and that no checkpoint uses.

        Safe while slots of those attempts still live: nothing that they say counts any more, and
        what they write from here on goes with the next sweep.
        """
        self._quietly(partial(self._sweep_shared, before))

    def sweep_job(self, kept: Iterable[CheckpointRef], first_id: int | None) -> None:
        """Delete what is left of the job but the checkpoints to keep and their files."""
        failures = self._failures
        self._sweep(kept, first_id)
        if self._failures > failures:
            # Nobody comes after this one, and most storages refuse for a moment only.
            self._sweep(kept, first_id)

    def _sweep(self, kept: Iterable[CheckpointRef], first_id: int | None) -> None:
        left = [*self._undeleted, *self._held_back]
        self._undeleted, self._held_back = [], []
        for ref in left:
            self._delete_now(ref)
        self._quietly(partial(self._sweep_directories, {ref.directory for ref in kept}, first_id))
        self._quietly(partial(self._sweep_shared, None))

    def _sweep_directories(self, kept: set[str], first_id: int | None) -> None:
        job = self._job_id
        for name in self.storage.list(job):
            number = checkpoint_id_of(name)
            ours = number is not None and first_id is not None and number >= first_id
            if ours and f"{job}/{name}" not in kept:
                self.delete_tree(f"{job}/{name}")

    def _sweep_shared(self, before: int | None) -> None:
        folder = shared_dir(self._job_id)
        remains = []
        for name in self.storage.list(folder):
            attempt = data_file_attempt(name)
            if attempt is not None and (before is None or attempt < before):
                remains.append(f"{folder}/{name}")
        self._delete(self._registry.discard(remains))

    def _delete(self, files: Iterable[str]) -> None:
        for file in files:
            storage, path = self._file(file)
            self._quietly(partial(storage.delete, path))

    def _file(self, file: str) -> tuple[Storage, str]:
        if not is_uri(file):
            return self.storage, file
        folder, _, name = file.rpartition("/")
        storage, path = self.place(folder)
        return storage, f"{path}/{name}"

    def _quietly(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except StorageError as error:
            self._failures += 1
            log.warning("clean-up failed: %s", error)
            return False
        return True
