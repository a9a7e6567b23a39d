"""All jobs of this user on this host: those that have ended from what they left, others by a link.

Read anew when somebody asks, from the private directory of jobs and from checkpoint directories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from weir.clock import Clock
from weir.errors import WeirError
from weir.jobmanager import directory
from weir.jobmanager.directory import JobEntry
from weir.jobmanager.operations import JobHandle
from weir.jobmanager.past import FoundCheckpoint, PastJob, PastRecord, read_record
from weir.offline.listing import list_snapshots
from weir.offline.model import Summary
from weir.rest.assets import page_link
from weir.rest.cluster import Cluster
from weir.rest.page_models import Elsewhere, Page
from weir.rest.routing import RefusedError

FRESH_MS = 1_000
Start = Callable[[JobEntry, PastRecord, str, int | None], str]


class HostCluster(Cluster):
    """The jobs of a host as a `Cluster`: running ones are served by their own processes.

    `start` starts a program again and returns the id of the new job.
    """

    def __init__(self, start: Start, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._start = start
        self._starting = ThreadPoolExecutor(2, thread_name_prefix="weir-start")
        self._read_ms: int | None = None
        self._entries: list[JobEntry] = []
        self._past: dict[str, PastJob] = {}

    def jobs(self) -> list[JobHandle]:
        """Return the jobs that have ended, the oldest first."""
        self._refresh()
        with self._lock:
            return list(self._past.values())

    def job(self, job_id: str) -> JobHandle:
        """Return a job that has ended, with the checkpoints that are there now.

        Raises:
            RefusedError: 404, there is no such job, or it still runs.
        """
        self._refresh()
        with self._lock:
            found = self._past.get(job_id)
        if found is None:
            raise _not_ended(job_id)
        listed = {place: _listed(place) for place in _directories(found.entry)}
        looked = [place.rstrip("/") for place, there in listed.items() if there is not None]
        return PastJob(found.entry, found.record, _checkpoints(found.entry, listed), looked)

    def _refresh(self) -> None:
        now = self.clock.monotonic_ms()
        if self._read_ms is not None and now - self._read_ms < FRESH_MS:
            return
        entries = directory.known()
        with self._lock:
            self._read_ms = now
            self._entries = entries
            known, self._past = self._past, {}
            for entry in reversed(entries):
                if not entry.running:
                    old = known.get(entry.job_id)
                    same = old is not None and old.entry == entry
                    self._past[entry.job_id] = (
                        old if same and old is not None else PastJob(entry, read_record(entry))
                    )

    def driver_log(self, job_id: str, start: int, size: int) -> tuple[int, bytes]:
        """Return a part of what the driver of a job left of its log, not of this process's.

        Raises:
            RefusedError: 404, there is no such job, or it still runs.
        """
        self._refresh()
        with self._lock:
            found = self._past.get(job_id)
        if found is None:
            raise _not_ended(job_id)
        data = found.record.driver_log.encode()
        begin = start if start >= 0 else max(0, len(data) + start)
        return begin, data[begin : begin + size]

    def page(self) -> Page:
        """Return the jobs of other processes, and the programs of those that have ended."""
        self._refresh()
        with self._lock:
            entries = list(self._entries)
        return Page(
            host=True,
            elsewhere=[
                Elsewhere(
                    jid=entry.job_id,
                    name=entry.name,
                    state=entry.status,
                    start_time=entry.started_ms,
                    link=page_link(entry.url, entry.token, entry.job_id),
                )
                for entry in entries
                if entry.running
            ],
            programs={e.job_id: e.program for e in entries if e.program and not e.running},
        )

    def start_again(
        self, job_id: str, savepoint: str, parallelism: int | None = None
    ) -> Future[str]:
        """Start the program of a job that has ended, from a savepoint or checkpoint of it.

        Only what is written down about the job is run; whoever asks chooses one of its
        checkpoints, and the parallelism.

        Raises:
            RefusedError: 409, its program is not known, as of a job in a notebook, or is gone.
        """
        job = self.job(job_id)
        if not isinstance(job, PastJob) or job.entry.program is None:
            raise RefusedError(409, f"The program of job {job_id} is not known: start it yourself.")
        for place in (job.entry.program, job.entry.work_dir):
            if place is not None and not os.path.exists(place):
                raise RefusedError(409, f"{place!r} is not there any more: start the job yourself.")
        entries = self.history(job_id).entries
        places = {e.path.rstrip("/") for e in entries if e.path and not e.discarded}
        if savepoint.rstrip("/") not in places:
            raise RefusedError(409, f"{savepoint!r} is no checkpoint or savepoint of this job.")
        entry, record = job.entry, job.record
        return self._starting.submit(lambda: self._start(entry, record, savepoint, parallelism))

    def close(self) -> None:
        """Wait for what runs in the background."""
        self._starting.shutdown(wait=False, cancel_futures=True)
        super().close()


def _not_ended(job_id: str) -> RefusedError:
    return RefusedError(404, f"Job {job_id} has not ended here: it is not known, or runs.")


def _directories(entry: JobEntry) -> list[str]:
    """Return where checkpoints and savepoints of a job lie."""
    own = [] if entry.checkpoint_dir is None else [f"{entry.checkpoint_dir}/{entry.job_id}"]
    return [*own, *entry.savepoint_dirs]


def _checkpoints(
    entry: JobEntry, listed: Mapping[str, list[Summary] | None]
) -> list[FoundCheckpoint]:
    """Return the checkpoints and savepoints of a job that lie in its directories."""
    found: dict[str, FoundCheckpoint] = {}
    for summary in (each for there in listed.values() for each in there or ()):
        number, taken_ms = summary.checkpoint_id, summary.timestamp_ms
        if summary.job_id != entry.job_id or number is None or taken_ms is None:
            continue
        found[summary.location] = FoundCheckpoint(
            number,
            taken_ms,
            is_savepoint=summary.kind == "savepoint",
            path=summary.location,
            size=summary.bytes or 0,
            savepoint_format=summary.savepoint_format,
        )
    return list(found.values())


def _listed(place: str) -> list[Summary] | None:
    """List a directory; None for one that is gone, or cannot be reached: nobody looked there."""
    try:
        return list_snapshots(place)
    except WeirError:
        return None
