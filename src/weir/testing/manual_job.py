"""A job that a test steers, and its REST: for commands and clients, without an engine.

`serve` announces the job as a real driver would, so that commands in other processes find it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weir.errors import UsageError
from weir.ids import new_job_id, unique_suffix
from weir.jobmanager.backlog import Backlog
from weir.jobmanager.directory import JobEntry, publish
from weir.jobmanager.history import HistoryView
from weir.jobmanager.logs import LogFile
from weir.jobmanager.operations import JobView, SavepointFormat
from weir.jobmanager.queries import JobQueries
from weir.jobmanager.timeline import TimelineView
from weir.rest import RestServer
from weir.slot.stacks import Stack, stacks
from weir.storage.processes import process_started

_START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Call:
    """One thing that was asked of the job, with the future that answers it."""

    name: str
    arguments: dict[str, Any]
    future: Future[Any]


class ManualJob:
    """A `JobHandle` whose view and history are plain attributes and whose futures a test completes.

    With `autocomplete` every operation succeeds at once: savepoints get a made-up path below their
    directory, and stop, cancel and rescale change the view as a real job would. `refuse` makes the
    operations of a name raise at once, `fail` lets their futures fail.
    """

    def __init__(
        self,
        name: str = "manual",
        *,
        job_id: str | None = None,
        autocomplete: bool = True,
        view: JobView | None = None,
    ) -> None:
        self.job_id = job_id or (view.job_id if view else str(new_job_id()))
        self.current = view or JobView(
            job_id=self.job_id,
            name=name,
            status="RUNNING",
            start_ms=_START_MS,
            now_ms=_START_MS + 1000,
        )
        self.checkpoints = HistoryView()
        self.times = TimelineView()
        self.log_files: list[LogFile] = []
        self.backlog = Backlog()
        self.queries: JobQueries | None = None
        self.autocomplete = autocomplete
        self.calls: list[Call] = []
        self.refusals: dict[str, Exception] = {}
        self.failures: dict[str, Exception] = {}

    def change(self, **changes: Any) -> None:
        """Replace fields of the view."""
        self.current = replace(self.current, **changes)

    def refuse(self, name: str, error: Exception) -> None:
        """Let an operation raise when it is asked for."""
        self.refusals[name] = error

    def fail(self, name: str, error: Exception) -> None:
        """Let the future of an operation fail."""
        self.failures[name] = error

    @property
    def last(self) -> Call:
        """Return what was asked last.

        Raises:
            UsageError: nothing was asked yet.
        """
        if not self.calls:
            msg = f"nothing was asked of job {self.job_id!r} yet"
            raise UsageError(msg)
        return self.calls[-1]

    def view(self) -> JobView:
        """Return what the test has set."""
        return self.current

    def history(self) -> HistoryView:
        """Return what the test has set."""
        return self.checkpoints

    def timeline(self) -> TimelineView:
        """Return what the test has set."""
        return self.times

    def logs(self) -> list[LogFile]:
        """Return what the test has set."""
        return self.log_files

    def sources(self) -> Backlog:
        """Return what the test has set."""
        return self.backlog

    def stacks(self, subtask: int, duration_ms: int = 0) -> list[Stack]:
        """Return where the threads of this process are."""
        return stacks(duration_ms)

    def savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Take a savepoint, or wait for the test to do so."""
        return self._called("savepoint", self._path(directory), directory=directory, form=form)

    def stop(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        form: SavepointFormat = "CANONICAL",
    ) -> Future[str]:
        """Stop with a savepoint, or wait for the test to do so."""
        path = self._path(directory)
        return self._called("stop", path, directory=directory, drain=drain, form=form)

    def cancel_with_savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Cancel with a savepoint, or wait for the test to do so."""
        path = self._path(directory)
        return self._called("cancel_with_savepoint", path, directory=directory, form=form)

    def checkpoint(self, *, full: bool = False) -> Future[int]:
        """Take a checkpoint, or wait for the test to do so."""
        return self._called("checkpoint", len(self.calls) + 1, full=full)

    def cancel(self) -> Future[None]:
        """Cancel, or wait for the test to do so."""
        return self._called("cancel", None)

    def rescale(self, parallelism: int) -> Future[int]:
        """Rescale, or wait for the test to do so."""
        return self._called("rescale", parallelism, parallelism=parallelism)

    def _path(self, directory: str | None) -> str:
        base = directory or self.current.savepoint_dir or "savepoints"
        return f"{base.rstrip('/')}/savepoint-{self.job_id[:6]}-{unique_suffix(12)}"

    def _called(self, name: str, result: Any, **arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append(Call(name, arguments, future))
        if name in self.refusals:
            raise self.refusals[name]
        if name in self.failures:
            future.set_exception(self.failures[name])
        elif self.autocomplete:
            self._effect(name, result)
            future.set_result(result)
        return future

    def _effect(self, name: str, result: Any) -> None:
        ends = {"stop": "FINISHED", "cancel": "CANCELED", "cancel_with_savepoint": "CANCELED"}
        if name in ends:
            self.change(status=ends[name], end_ms=self.current.now_ms)
        if name == "rescale":
            self.change(parallelism=result)


@contextlib.contextmanager
def serve(
    job: ManualJob, run_dir: str | os.PathLike[str], *, token: str | None = None
) -> Iterator[RestServer]:
    """Serve a job on a free port of loopback and announce it below `run_dir` for this process.

    WEIR_RUN_DIR names `run_dir` meanwhile; the announcement and the server are gone afterwards.
    """
    server = RestServer(ports=(0,), token=token)
    server.register(job)
    server.start()
    before = os.environ.get("WEIR_RUN_DIR")
    os.environ["WEIR_RUN_DIR"] = str(run_dir)
    try:
        publish(_entry(job, server))
        yield server
    finally:
        (Path(run_dir) / f"{job.job_id}.json").unlink(missing_ok=True)
        if before is None:
            del os.environ["WEIR_RUN_DIR"]
        else:
            os.environ["WEIR_RUN_DIR"] = before
        server.close()


def _entry(job: ManualJob, server: RestServer) -> JobEntry:
    view, pid = job.view(), os.getpid()
    return JobEntry(
        job_id=job.job_id,
        name=view.name,
        pid=pid,
        process=process_started(pid),
        url=server.url,
        started_ms=view.start_ms,
        token=server.token or "",
        status=view.status,
        checkpoint_dir=view.checkpoint_dir,
    )
