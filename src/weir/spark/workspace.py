"""The directories of a job: checkpoints, query logs, spool, sockets, logs.

Checkpoints lie in `<checkpoint dir>/<job id>` of any storage. What Spark and the slots use as files
lies in `<work dir>/<job id>`, which is the same place unless the checkpoint directory is remote or
another work directory was chosen. Without either, a temporary directory goes with the job. A work
directory is kept as long as checkpoints are kept whose source positions need it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

from weir.checkpoint.paths import checkpoint_id_of, metadata_path
from weir.errors import StorageError, UsageError
from weir.ids import JobId
from weir.jobmanager.settings import JobSettings
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")


class Workspace:
    """Paths of one job on the driver's file system, and its checkpoint storage."""

    def __init__(self, job_id: JobId, settings: JobSettings) -> None:
        """Create the job's directory.

        Raises:
            UsageError: the checkpoint directory is not in a storage that slots can share.
            StorageError: the work directory cannot be created.
        """
        self.job_id = job_id
        given = settings.checkpoint_dir
        storage = None if given is None else open_storage(given, settings.storage)
        if isinstance(storage, MemoryStorage):
            msg = (
                f"checkpoint directory {given!r} is the memory of one process, which slots do not "
                "share: use a path, s3://, gs://, abfss:// or hdfs://"
            )
            raise UsageError(msg)
        self.temporary = given is None and settings.work_dir is None
        self.root = self._work_root(settings.work_dir, storage)
        self.storage = storage or LocalStorage(str(self.root))
        self.job_dir = self.root / job_id
        try:
            self.job_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            kind = "work" if settings.work_dir else "checkpoint"
            msg = f"the {kind} directory {str(self.root)!r} cannot be used: {error}"
            raise StorageError(msg) from error
        logs = Path(tempfile.gettempdir()) / f"weir-logs-{os.getuid()}"
        self.log_dir = (Path(settings.log_dir) if settings.log_dir else logs) / job_id
        self.socket_dir = Path(tempfile.gettempdir()) / f"weir-{os.getuid()}-{job_id[:12]}"

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
            return Path(tempfile.mkdtemp(prefix="weir-"))
        return Path(tempfile.gettempdir()) / f"weir-work-{os.getuid()}"

    @property
    def storage_uri(self) -> str:
        """Return the URI of the checkpoint storage."""
        return self.storage.uri

    def query_dir(self, attempt: int) -> Path:
        """Return the directory of the streaming query of an attempt."""
        return self.job_dir / f"query-{attempt}"

    @property
    def spool(self) -> Path:
        """Return where Python data is spooled."""
        return self.job_dir / "spool"

    def remove_job_dir(self) -> None:
        """Delete what a job that ended well leaves: logs of the query, spool, empty directories."""
        if self.temporary:
            shutil.rmtree(self.root, ignore_errors=True)
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

    def remove_sockets(self) -> None:
        """Delete the socket directory."""
        shutil.rmtree(self.socket_dir, ignore_errors=True)
