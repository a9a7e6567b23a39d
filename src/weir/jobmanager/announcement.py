"""How a running job is made known on its host, and how a second one like it is refused."""

from __future__ import annotations

import logging
import os
import sys
from urllib.parse import unquote

from weir.errors import StorageError, UsageError
from weir.graph.transformation import DEFAULT_BATCH_JOB_NAME, DEFAULT_JOB_NAME
from weir.jobmanager import directory
from weir.jobmanager.directory import JobEntry
from weir.jobmanager.settings import JobSettings
from weir.jobmanager.supervisor import Supervisor
from weir.storage.processes import process_started
from weir.storage.uri import open_storage
from weir.tls import TlsFiles

log = logging.getLogger("weir.job")


class Announcement:
    """The file that commands in other processes find a job by, at this address.

    With TLS it names the files that they speak it with; it holds nothing of them. Where queries of
    state are taken, `query_url` and `query_token` are set. `master` is where Spark runs the job.
    """

    def __init__(
        self, url: str, token: str, tls: TlsFiles | None = None, master: str | None = None
    ) -> None:
        self._url = url
        self._token = token
        self._tls = tls
        self._master = master
        self._program = program_file()
        self._arguments = tuple(sys.argv[1:])
        self._work_dir = os.getcwd()
        self.query_url = ""
        self.query_token = ""
        self._savepoint_dirs: dict[str, None] = {}

    def update(self, job: Supervisor) -> None:
        """Say how the job is now; a job that cannot be announced runs all the same."""
        completed = job.checkpoints.coordinator.completed
        uses = () if job.ended_ms is not None else job.restoration.still_needed(completed)
        if job.last_savepoint is not None:
            self._savepoint_dirs[job.last_savepoint.rstrip("/").rpartition("/")[0]] = None
        entry = JobEntry(
            job_id=job.spec.job_id,
            name=job.plan.job_name,
            pid=os.getpid(),
            process=process_started(os.getpid()),
            url=self._url,
            token=self._token,
            tls=self._tls,
            started_ms=job.started_ms,
            status=job.job.status.name,
            ended_ms=job.ended_ms,
            checkpoint_dir=place(job.settings),
            uses=uses,
            savepoint=job.last_savepoint,
            program=self._program,
            savepoint_dirs=tuple(self._savepoint_dirs),
            arguments=self._arguments,
            work_dir=self._work_dir,
            master=self._master,
            query_url=self.query_url,
            query_token=self.query_token,
        )
        try:
            directory.publish(entry)
        except StorageError as error:
            log.warning("%s", error)


def program_file() -> str | None:
    """Return the file that this process runs as its program, None in a notebook or a REPL."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return None if file is None else os.path.abspath(file)


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
    if own is None or name in (DEFAULT_JOB_NAME, DEFAULT_BATCH_JOB_NAME):
        return
    try:
        known = directory.running()
    except StorageError as error:
        # Whoever is in the way there must not keep this job from running.
        log.warning("whether the job runs already is not known: %s", error)
        return
    for entry in known:
        if (entry.name, entry.checkpoint_dir) == (name, own):
            msg = (
                f"job {name!r} is running already with checkpoints in {own!r} (job {entry.job_id}, "
                f"process {entry.pid}): stop it first ('weir stop {entry.job_id}'), or give this "
                "one another name or checkpoint directory"
            )
            raise UsageError(msg)
