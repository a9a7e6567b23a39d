"""The directories of a job: checkpoints, query logs, spool, sockets, logs.

Checkpoints lie in `<checkpoint dir>/<job id>` of any storage. What Spark and the slots use as files
lies in `<work dir>/<job id>`, which is the same place unless the checkpoint directory is remote or
another work directory was chosen. Without either, a temporary directory goes with the job. A work
directory is kept as long as checkpoints are kept whose source positions need it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from weir.checkpoint.paths import checkpoint_id_of, metadata_path
from weir.checkpoint.retention import JobEnd
from weir.errors import StorageError, UsageError
from weir.ids import JobId
from weir.jobmanager import owner
from weir.jobmanager.foreign_state import refuse_foreign_directory
from weir.jobmanager.preparation import checkpoint_storage
from weir.jobmanager.settings import JobSettings
from weir.slot.spawn import SOCKET_DIR_MAX, default_logs
from weir.storage.local import LocalStorage
from weir.storage.private_files import private_directory, remove_directory, temporary_directory
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")
_QUERY = re.compile(r"query-(\d+)\Z")


class Workspace:
    """Paths of one job on the driver's file system, and its checkpoint storage."""

    def __init__(self, job_id: JobId, settings: JobSettings) -> None:
        """Create the job's directory.

        Raises:
            UsageError: the checkpoint directory is not in a storage that slots can share, or
                another user has a hand in it or in the work directory.
            StorageError: the work directory cannot be created.
        """
        self.job_id = job_id
        storage = checkpoint_storage(settings)
        self.temporary = storage is None and settings.work_dir is None
        self.root = self._work_root(settings.work_dir, storage)
        self.storage = storage or LocalStorage(str(self.root))
        self.job_dir = self.root / job_id
        own = settings.work_dir is None and isinstance(storage, LocalStorage)
        kind = "checkpoint" if own else "work"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.temporary:
                # Only now: in a sticky directory anybody can make what is not there yet.
                for name, place in (("checkpoint", storage), (kind, LocalStorage(str(self.root)))):
                    refuse_foreign_directory(name, place, settings)
            self.job_dir.mkdir(exist_ok=True)
        except OSError as error:
            msg = f"the {kind} directory {str(self.root)!r} cannot be used: {error}"
            raise StorageError(msg) from error
        self.log_dir = (Path(settings.log_dir) if settings.log_dir else default_logs()) / job_id
        self.socket_dir = temporary_directory("weir-slots-", longest=SOCKET_DIR_MAX)
        self._taken_in: dict[int, int] = {}

    def _work_root(self, work_dir: str | None, storage: object) -> Path:
        if work_dir is not None:
            chosen = open_storage(work_dir)
            if not isinstance(chosen, LocalStorage):
                msg = f"weir.work-dir is {work_dir!r}, expected a path that all hosts mount"
                raise UsageError(msg)
            return Path(chosen.root)
        if isinstance(storage, LocalStorage):
            return Path(storage.root)
        if storage is None:
            return temporary_directory("weir-job-")
        usual = Path(tempfile.gettempdir()) / f"weir-work-{os.getuid()}"
        return private_directory(usual, "remove it, or set weir.work-dir to another directory")

    @property
    def storage_uri(self) -> str:
        """Return the URI of the checkpoint storage."""
        return self.storage.uri

    def query_dir(self, attempt: int) -> Path:
        """Return the directory of the streaming query of an attempt."""
        return self.job_dir / f"query-{attempt}"

    def completed(self, attempt: int, checkpoints: Iterable[int]) -> None:
        """Take note of all completed checkpoints that there are, in this attempt.

        Once one of them was taken in it, the directories of earlier queries go, but for those
        that positions of other checkpoints refer to.
        """
        kept = set(checkpoints)
        new = kept - self._taken_in.keys()
        self._taken_in = {
            number: attempt if number in new else self._taken_in[number] for number in kept
        }
        if attempt in self._taken_in.values():
            self.remove_queries(attempt, self._taken_in.values())

    def remove_queries(self, before: int, needed: Iterable[int] = ()) -> None:
        """Delete the query directories of earlier attempts that nobody needs."""
        stay = set(needed)
        for path in self.job_dir.glob("query-*"):
            match = _QUERY.match(path.name)
            if match is not None and int(match[1]) < before and int(match[1]) not in stay:
                shutil.rmtree(path, ignore_errors=True)

    @property
    def spool(self) -> Path:
        """Return where Python data is spooled."""
        return self.job_dir / "spool"

    def enter(self, job_name: str) -> None:
        """Note that this process runs the job.

        Raises:
            StorageError: the job's directory cannot be written.
        """
        try:
            owner.claim(self.job_dir, job_name)
        except OSError as error:
            msg = f"the directory of the job cannot be used: {_reason(error, self.job_dir)}"
            raise StorageError(msg) from error

    def leave(self, end: JobEnd) -> None:
        """Note that the job has ended; what it does not need any more is deleted."""
        try:
            owner.release(self.job_dir)
        except OSError as error:
            # It counts no more once this process has ended.
            log.warning("the note of the job's owner stays: %s", _reason(error, self.job_dir))
        if end is not JobEnd.SUSPENDED:
            self.remove_job_dir()

    def remove_job_dir(self) -> None:
        """Delete what a job that ended well leaves: logs of the query, spool, empty directories."""
        if self.temporary:
            remove_directory(self.root)
            return
        try:
            if self._has_checkpoints():
                return
            self.storage.delete_tree(self.job_id)
        except StorageError as error:
            log.warning("the job's directories stay: %s", error)
            return
        shutil.rmtree(self.job_dir, ignore_errors=True)

    def _has_checkpoints(self) -> bool:
        return any(
            checkpoint_id_of(name) is not None
            and self.storage.exists(metadata_path(f"{self.job_id}/{name}"))
            for name in self.storage.list(self.job_id)
        )


def _reason(error: OSError, directory: Path) -> str:
    return f"{error.strerror or error} ({error.filename or directory})"
