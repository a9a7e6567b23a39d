"""The directories of a job: checkpoints, query logs, spool, sockets, logs.

With a checkpoint directory everything durable lies below `<dir>/<job id>`; without one a temporary
directory takes its place and goes with the job.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from weir.errors import StorageError, UsageError
from weir.ids import JobId


class Workspace:
    """Paths of one job on the driver's file system."""

    def __init__(self, job_id: JobId, checkpoint_dir: str | None, log_dir: str | None) -> None:
        """Create the job's directory.

        Raises:
            UsageError: the checkpoint directory is not on a file system that Weir can use.
            StorageError: it cannot be created.
        """
        self.job_id = job_id
        self.temporary = checkpoint_dir is None
        if checkpoint_dir is None:
            self.root = Path(tempfile.mkdtemp(prefix="weir-"))
        else:
            self.root = local_path(checkpoint_dir)
        self.job_dir = self.root / job_id
        try:
            self.job_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"the checkpoint directory {str(self.root)!r} cannot be used: {error}"
            raise StorageError(msg) from error
        base = (
            Path(log_dir) if log_dir else Path(tempfile.gettempdir()) / f"weir-logs-{os.getuid()}"
        )
        self.log_dir = base / job_id
        self.socket_dir = Path(tempfile.gettempdir()) / f"weir-{os.getuid()}-{job_id[:12]}"

    @property
    def storage_uri(self) -> str:
        """Return the URI of the checkpoint storage."""
        return f"file://{self.root.absolute()}"

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
        if not any(self.job_dir.glob("chk-*/_metadata")):
            shutil.rmtree(self.job_dir, ignore_errors=True)

    def remove_sockets(self) -> None:
        """Delete the socket directory."""
        shutil.rmtree(self.socket_dir, ignore_errors=True)


def local_path(uri: str) -> Path:
    """Return the path of a local URI."""
    if "://" in uri and not uri.startswith("file://"):
        scheme = uri.split("://", 1)[0]
        msg = (
            f"checkpoint directory {uri!r}: file systems of kind {scheme!r} are not available in "
            "this release; use a path or file:// URI that all hosts share"
        )
        raise UsageError(msg)
    return Path(uri.removeprefix("file://").removeprefix("file:")).absolute()
