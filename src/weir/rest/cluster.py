"""The jobs of this process as REST sees them.

Jobs that have ended are kept until newer ones push them out, so that their end can be read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from weir.clock import Clock, SystemClock
from weir.jobmanager.history import HistoryView
from weir.jobmanager.logs import DriverLog
from weir.jobmanager.operations import JobHandle, JobView
from weir.rest.operations import Operations
from weir.rest.page_models import Page
from weir.rest.routing import RefusedError
from weir.storage import StorageOptions

ENDED: Final = ("FINISHED", "CANCELED", "FAILED")
ENDED_KEPT: Final = 20


class Cluster:
    """All jobs, and the operations under way; thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.started_ms = self.clock.now_ms()
        self.operations = Operations(self.clock)
        self.storage_options: StorageOptions | None = None
        self.log = DriverLog()
        self._lock = threading.Lock()
        self._jobs: dict[str, JobHandle] = {}
        self._background: ThreadPoolExecutor | None = None
        self._disposed: set[str] = set()

    def register(self, job: JobHandle) -> None:
        """Serve a job from now on, in place of one with the same id."""
        with self._lock:
            self._jobs[job.job_id] = job
            ended = [i for i, j in self._jobs.items() if j is not job and is_over(j.view())]
            for job_id in ended[: max(0, len(ended) - ENDED_KEPT)]:
                del self._jobs[job_id]

    def jobs(self) -> list[JobHandle]:
        """Return all jobs, the oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def views(self) -> list[JobView]:
        """Return how all jobs are now."""
        return [job.view() for job in self.jobs()]

    def job(self, job_id: str) -> JobHandle:
        """Return a job.

        Raises:
            RefusedError: 404, there is no such job.
        """
        with self._lock:
            found = self._jobs.get(job_id)
        if found is None:
            raise RefusedError(404, f"Job {job_id} not found.")
        return found

    def history(self, job_id: str) -> HistoryView:
        """Return the checkpoints of a job; savepoints that were deleted here are marked so.

        Raises:
            RefusedError: 404, there is no such job.
        """
        found = self.job(job_id).history()
        with self._lock:
            gone = frozenset(self._disposed)
        if not gone:
            return found
        entries = (
            replace(entry, discarded=True) if (entry.path or "").rstrip("/") in gone else entry
            for entry in found.entries
        )
        return replace(found, entries=tuple(entries))

    def driver_log(self, job_id: str, start: int, size: int) -> tuple[int, bytes]:
        """Return where a part of the log of a job's driver begins, and the part.

        Raises:
            RefusedError: 404, there is no such job.
        """
        self.job(job_id)
        return self.log.part(start, size)

    def page(self) -> Page:
        """Return what the page has to know of this server."""
        return Page(host=False, elsewhere=[], programs={})

    def start_again(
        self, job_id: str, savepoint: str, parallelism: int | None = None
    ) -> Future[str]:
        """Start the program of a job that has ended again, from state that it left.

        Raises:
            RefusedError: 409, this server starts nothing: it ends with its own jobs.
        """
        raise RefusedError(
            409, f"Job {job_id} is started again by the page of the host: run 'weir page'."
        )

    def dispose(self, path: str) -> Future[Any]:
        """Delete a savepoint in the background: one of these jobs, or where they have theirs."""
        # Few servers ever delete one, and the module brings all storages along.
        from weir.jobmanager.disposal import dispose_savepoint

        places = {place for job in self.jobs() for place in _places(job)}
        with self._lock:
            if self._background is None:
                self._background = ThreadPoolExecutor(1, thread_name_prefix="weir-rest-disposal")
            disposal = self._background.submit(
                dispose_savepoint, path, self.storage_options, within=places
            )
        disposal.add_done_callback(lambda done: self._note_disposal(path, done))
        return disposal

    def _note_disposal(self, path: str, done: Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            with self._lock:
                self._disposed.add(path.rstrip("/"))

    def listen(self) -> None:
        """Keep what loggers of Weir write from now on."""
        logging.getLogger("weir").addHandler(self.log)

    def close(self) -> None:
        """Wait for what runs in the background."""
        logging.getLogger("weir").removeHandler(self.log)
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.shutdown()


def _places(job: JobHandle) -> Iterator[str]:
    """Give where a job's savepoints and checkpoints are, and where new ones go."""
    view, history = job.view(), job.history()
    configured = (view.checkpoint_dir, view.savepoint_dir)
    yield from (place for place in configured if place is not None)
    yield from (entry.path for entry in history.entries if entry.path is not None)
    if history.latest_restored is not None:
        yield history.latest_restored.path


def is_over(view: JobView) -> bool:
    """Tell whether a job has ended for good."""
    return view.status in ENDED
