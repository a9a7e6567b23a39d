"""What remains of a job when its process is gone: a file beside its announcement.

A job writes it now and then while it runs, and when it ends. Whoever looks at it later adds what
lies in its checkpoint directory: checkpoints that were completed after the file was written, and
that others were deleted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from weir.errors import StorageError, UsageError
from weir.ids import unique_suffix
from weir.jobmanager.backlog import Backlog
from weir.jobmanager.directory import JobEntry, past_file, private_run_directory
from weir.jobmanager.history import CheckpointEntry, HistoryView
from weir.jobmanager.logs import DriverLog, LogFile, slot_logs
from weir.jobmanager.operations import ExceptionView, JobHandle, JobView, SavepointFormat
from weir.jobmanager.queries import JobQueries
from weir.jobmanager.timeline import TimelineView
from weir.slot.stacks import Stack
from weir.storage.private_files import open_private

log = logging.getLogger("weir.job")
VERSION: Final = 1
DRIVER_LOG_BYTES: Final = 64 << 10
ENDED: Final = ("FINISHED", "CANCELED", "FAILED")


@dataclass(frozen=True)
class PastRecord:
    """A job as it was when it was written down; metrics of functions and subtasks are left out.

    `driver_log` is the end of what loggers of Weir wrote in its driver.
    """

    version: int
    view: JobView
    history: HistoryView
    timeline: TimelineView
    log_dir: str | None = None
    driver_log: str = ""


_decode = msgspec.json.Decoder(PastRecord).decode


def record_of(
    job: JobHandle, log_dir: Path | None = None, driver_log: DriverLog | None = None
) -> PastRecord:
    """Return what is written down about a job."""
    view = job.view()
    vertices = tuple(replace(vertex, metrics=()) for vertex in view.vertices)
    return PastRecord(
        VERSION,
        replace(view, vertices=vertices, arrivals=()),
        job.history(),
        job.timeline(),
        log_dir=None if log_dir is None else str(log_dir),
        driver_log="" if driver_log is None else driver_log.last(DRIVER_LOG_BYTES),
    )


def write_record(record: PastRecord) -> None:
    """Write a job down, whole.

    Raises:
        StorageError: the directory of jobs cannot be used.
    """
    folder = private_run_directory()
    target = past_file(folder, record.view.job_id)
    temporary = target.with_name(f".{target.name}.{unique_suffix()}")
    try:
        with os.fdopen(open_private(temporary), "wb") as out:
            out.write(msgspec.json.encode(record))
        temporary.replace(target)
    except OSError as error:
        msg = f"the job cannot be written down in {str(folder)!r}: {error}"
        raise StorageError(msg) from error


def keep(job: JobHandle, log_dir: Path | None = None, driver_log: DriverLog | None = None) -> None:
    """Write a job down; one that cannot be runs all the same."""
    try:
        write_record(record_of(job, log_dir, driver_log))
    except StorageError as error:
        log.warning("%s", error)


def read_record(entry: JobEntry) -> PastRecord:
    """Return what a job left; a bare record if it left nothing, or nothing that can be read."""
    path = past_file(private_run_directory(), entry.job_id)
    try:
        record = _decode(path.read_bytes())
        if record.version == VERSION and record.view.job_id == entry.job_id:
            return record
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UsageError):
        pass
    view = JobView(
        entry.job_id,
        entry.name,
        entry.status,
        start_ms=entry.started_ms,
        now_ms=entry.ended_ms or entry.started_ms,
        checkpoint_dir=entry.checkpoint_dir,
    )
    return PastRecord(VERSION, view, HistoryView(), TimelineView())


def ended_view(entry: JobEntry, view: JobView) -> JobView:
    """Return how a job is that does not run any more; one that never said so has died."""
    end_ms = entry.ended_ms or view.end_ms or view.now_ms
    ended = replace(view, status=entry.status, end_ms=end_ms, now_ms=end_ms, slots=())
    if entry.status in ENDED:
        return ended
    died = ExceptionView(
        end_ms,
        "JobExecutionError",
        f"the process of the driver, {entry.pid}, is gone, and did not say why; this is what was "
        "known of the job shortly before",
        view.attempt,
    )
    return replace(ended, status="FAILED", exceptions=(*view.exceptions, died))


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that lies in a directory."""

    checkpoint_id: int
    timestamp_ms: int
    is_savepoint: bool
    path: str
    size: int
    savepoint_format: str | None = None


def with_found(
    history: HistoryView, found: Sequence[FoundCheckpoint], looked: Collection[str] = ()
) -> HistoryView:
    """Add checkpoints that lie in directories, and mark those that are gone from there.

    `looked` are directories of savepoints that could be read.
    """
    places = {each.path.rstrip("/"): each for each in found}
    kept = [_seen(entry, places, looked) for entry in history.entries]
    known = {entry.path.rstrip("/") for entry in kept if entry.path is not None}
    more = [_entry(each) for path, each in places.items() if path not in known]
    entries = sorted([*kept, *more], key=lambda entry: entry.checkpoint_id, reverse=True)
    return replace(
        history,
        entries=tuple(entries),
        completed=history.completed + len(more),
        triggered=history.triggered + len(more),
    )


def _seen(
    entry: CheckpointEntry, places: Collection[str], looked: Collection[str]
) -> CheckpointEntry:
    if entry.status == "IN_PROGRESS":
        return replace(entry, status="FAILED", failure="the job ended before it was complete")
    path = (entry.path or "").rstrip("/")
    # Only what lay in the directory that was looked at can be missed there.
    missed = path.rpartition("/")[0] in looked if entry.is_savepoint else len(places) > 0
    return replace(entry, discarded=True) if path and path not in places and missed else entry


def _entry(found: FoundCheckpoint) -> CheckpointEntry:
    return CheckpointEntry(
        found.checkpoint_id,
        found.timestamp_ms,
        0,
        is_savepoint=found.is_savepoint,
        savepoint_format=found.savepoint_format,
        status="COMPLETED",
        path=found.path,
    )


class PastJob:
    """A job that does not run any more: everything can be seen, nothing can be asked of it."""

    def __init__(
        self,
        entry: JobEntry,
        record: PastRecord,
        found: Sequence[FoundCheckpoint] = (),
        looked: Collection[str] = (),
    ) -> None:
        self.job_id = entry.job_id
        self.entry = entry
        self.record = record
        self.found = tuple(found)
        self.looked = frozenset(looked)
        self.queries: JobQueries | None = None

    def view(self) -> JobView:
        """Return how the job ended."""
        return ended_view(self.entry, self.record.view)

    def history(self) -> HistoryView:
        """Return its checkpoints, as far as they are known or still there."""
        return with_found(self.record.history, self.found, self.looked)

    def timeline(self) -> TimelineView:
        """Return how the job was over time."""
        return self.record.timeline

    def logs(self) -> list[LogFile]:
        """Return the logs that its slots left on this host."""
        return slot_logs(None if self.record.log_dir is None else Path(self.record.log_dir))

    def sources(self) -> Backlog:
        """Nothing reads any more: positions are in the checkpoints."""
        return Backlog()

    def stacks(self, subtask: int, duration_ms: int = 0) -> list[Stack]:
        """Refuse: nothing of the job runs.

        Raises:
            UsageError: always.
        """
        msg = f"job {self.job_id} has ended: no slot of it runs"
        raise UsageError(msg)

    def savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Refuse: the job has ended."""
        return self._refused()

    def stop(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        form: SavepointFormat = "CANONICAL",
    ) -> Future[str]:
        """Refuse: the job has ended."""
        return self._refused()

    def cancel_with_savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Refuse: the job has ended."""
        return self._refused()

    def checkpoint(self, *, full: bool = False) -> Future[int]:
        """Refuse: the job has ended."""
        return self._refused()

    def cancel(self) -> Future[None]:
        """Refuse: the job has ended."""
        return self._refused()

    def rescale(self, parallelism: int) -> Future[int]:
        """Refuse: the job has ended."""
        return self._refused()

    def _refused(self) -> Future[Any]:
        refused: Future[Any] = Future()
        refused.set_exception(UsageError(f"job {self.job_id} has ended ({self.view().status})"))
        return refused
