"""How a running job is made known on its host, and how a second one like it is refused."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from weir.errors import StorageError, UsageError
from weir.graph.transformation import DEFAULT_JOB_NAME
from weir.jobmanager import directory
from weir.jobmanager.directory import JobEntry
from weir.jobmanager.owner import process_started
from weir.jobmanager.settings import JobSettings
from weir.storage.uri import open_storage

if TYPE_CHECKING:
    from weir.spark.job import SparkJob

log = logging.getLogger("weir.job")


class Announcement:
    """The file that commands in other processes find a job by."""

    def __init__(self, job: SparkJob) -> None:
        """Announce nothing yet."""
        self._job = job
        self._address: tuple[str, str] | None = None

    def publish(self, url: str, token: str) -> None:
        """Say where the job can be reached."""
        self._address = (url, token)
        self.update()

    def update(self) -> None:
        """Say how the job is now; a job that cannot be announced runs all the same."""
        if self._address is None:
            return
        job = self._job
        url, token = self._address
        initial = job.master.initial
        entry = JobEntry(
            job_id=job.job_id,
            name=job.plan.job_name,
            pid=os.getpid(),
            process=process_started(os.getpid()),
            url=url,
            token=token,
            started_ms=job.started_ms,
            status=job.status.name,
            ended_ms=job.ended_ms,
            checkpoint_dir=place(job.settings),
            uses=(f"{initial.storage_uri}/{initial.directory}",)
            if initial is not None and job.master.needs_initial() and job.ended_ms is None
            else (),
            savepoint=job.last_savepoint,
        )
        try:
            directory.publish(entry)
        except StorageError as error:
            log.warning("%s", error)


def place(settings: JobSettings) -> str | None:
    """Return the checkpoint directory of a job in one spelling."""
    if settings.checkpoint_dir is None:
        return None
    return unquote(open_storage(settings.checkpoint_dir, settings.storage).uri).rstrip("/")


def refuse_twin(name: str, settings: JobSettings) -> None:
    """Refuse a job while another one of its name has its checkpoints in the same directory.

    Nearly always that is one program started twice, whose outputs would mix. Programs that have no
    name of their own cannot be told apart.

    Raises:
        UsageError: there is such a job.
    """
    own = place(settings)
    if own is None or name == DEFAULT_JOB_NAME:
        return
    for entry in directory.running():
        if (entry.name, entry.checkpoint_dir) == (name, own):
            msg = (
                f"job {name!r} is running already with checkpoints in {own!r} (job {entry.job_id}, "
                f"process {entry.pid}): stop it first ('weir stop {entry.job_id}'), or give this "
                "one another name or checkpoint directory"
            )
            raise UsageError(msg)
