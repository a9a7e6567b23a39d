"""A job in this process, as the program that started it sees it: the door's `JobClient`."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from weir.checkpoint.retention import JobEnd
from weir.common._html import facts
from weir.common.completable_future import CompletableFuture
from weir.common.job_execution_result import JobExecutionResult
from weir.common.job_id import JobID
from weir.errors import JobCancellationError
from weir.jobmanager.backlog import EngineWatch
from weir.jobmanager.control import JobControl
from weir.jobmanager.panel import display_panel, page_line, sparkline, time_rows
from weir.jobmanager.supervisor import Supervisor
from weir.jobmanager.timeline import STEP_MS

_CANCEL_PATIENCE_S = 60.0
_EXIT_PATIENCE_S = 10.0
_KEEP_STEPS = 30
_KEPT_PATIENCE_S = 5.0


class LocalJob:
    """Runs a supervisor in a thread of its own; every method may be called from any thread.

    `keep` is given the job now and then, and when it is over, to write it down; `link` is where its
    page is, `watch` its engine for those who watch.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        keep: Callable[[JobControl], None] | None = None,
        link: str | None = None,
        watch: EngineWatch | None = None,
    ) -> None:
        self.supervisor = supervisor
        self.link = link
        self._keep = keep
        self.job_id = supervisor.spec.job_id
        self.control = JobControl(supervisor, watch)
        self._result: Future[JobExecutionResult] = Future()
        self._thread = threading.Thread(target=supervisor.run, name="weir-job", daemon=True)
        self._over_event = threading.Event()
        self._observer = threading.Thread(target=self._observe, name="weir-timeline", daemon=True)

    def start(self) -> None:
        """Begin; the job ends with the program, if not before."""
        self.supervisor.ended.add_done_callback(self._over)
        atexit.register(self._at_exit)
        self.supervisor.start()
        self._observer.start()
        self._thread.start()

    def _observe(self) -> None:
        """Let the job's timeline grow until it is over."""
        steps = 0
        while not self._over_event.wait(STEP_MS / 1000):
            self.control.observe()
            steps += 1
            if self._keep is not None and steps % _KEEP_STEPS == 1:
                self._keep(self.control)
        self.control.observe()
        if self._keep is not None:
            self._keep(self.control)

    def _over(self, ended: Future[JobEnd]) -> None:
        atexit.unregister(self._at_exit)
        self._over_event.set()
        # The program may end as soon as it knows: what is left of the job is written down first.
        self._observer.join(_KEPT_PATIENCE_S)
        error = ended.exception()
        if error is None and ended.result() is JobEnd.CANCELED:
            error = JobCancellationError(f"job {self.job_id} was cancelled")
        if error is not None:
            self._result.set_exception(error)
            return
        job = self.supervisor
        runtime_ms = (job.ended_ms or job.started_ms) - job.started_ms
        self._result.set_result(JobExecutionResult(JobID(self.job_id), runtime_ms, {}))

    def _at_exit(self) -> None:
        """End slots when the program ends without having waited for the job."""
        self.supervisor.cancel()
        self._thread.join(_EXIT_PATIENCE_S)
        self.supervisor.end_slots("the driver program ended")

    def progress(self) -> dict[str, Any]:
        """Return figures of now for people who watch: attempt, epoch, records, state, slots.

        Records are those that operators took in during the current attempt, by operator uid or
        id. They appear once an attempt has handled its first epoch, as `epoch` does.
        """
        job = self.supervisor
        reports = job.reports.all()
        records: dict[str, int] = {}
        for report in reports:
            for index, count in report.records_in.items():
                op = job.plan.operators[index]
                records[op.uid or op.id] = records.get(op.uid or op.id, 0) + count
        past = job.checkpoints.history.view()
        last = past.latest("COMPLETED")
        return {
            "status": job.job.status.name,
            "attempt": job.network.registry.attempt,
            "epoch": max((r.epoch for r in reports), default=None),
            "restored_epoch": job.restoration.epoch,
            "records_in": records,
            "state_entries": sum(r.entries for r in reports),
            "slots": [{"subtask": s.subtask, "pid": s.pid} for s in job.network.registry.ready()],
            "checkpoints": {
                "completed": past.completed,
                "failed": past.failed,
                "last_bytes": 0 if last is None else last.size,
                "last_duration_ms": 0 if last is None else last.duration_ms,
            },
        }

    def _repr_html_(self) -> str:
        """Show a notebook how the job is, and its newest checkpoints."""
        now, job = self.progress(), self.supervisor
        rows = [
            ("id", self.job_id),
            ("status", now["status"]),
            ("attempt", now["attempt"]),
            ("epoch", now["epoch"]),
            ("state entries", now["state_entries"]),
            ("last savepoint", job.last_savepoint),
            *time_rows(job.epoch_times.view()),
        ]
        line = sparkline(self.control.timeline().recent) + page_line(self.link)
        return facts(job.plan.job_name, rows) + line + self.control.history()._repr_html_()

    def _ipython_display_(self) -> None:
        """Show a notebook a panel that changes while the job runs."""
        kernel = sys.modules.get("IPython.display")
        if kernel is not None:
            display_panel(kernel, self._repr_html_, self._over_event)

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return JobID(self.job_id)

    def get_job_status(self) -> CompletableFuture:
        """Return the status of now."""
        return _completed(self.supervisor.job.status)

    def cancel(self) -> CompletableFuture:
        """Cancel the job; completes when it has ended."""
        self.supervisor.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CANCEL_PATIENCE_S)
        return _completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Take a savepoint and finish with it; completes with the savepoint's path."""
        drain = advance_to_end_of_event_time
        return CompletableFuture(self.control.stop(savepoint_directory, drain=drain))

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Take a savepoint and go on; completes with the savepoint's path."""
        return CompletableFuture(self.control.savepoint(savepoint_directory))

    def get_accumulators(self) -> CompletableFuture:
        """Return the job's accumulators."""
        return _completed({})

    def get_job_execution_result(self) -> CompletableFuture:
        """Complete when the job ends; interrupting the wait cancels the job."""
        return CompletableFuture(self._result)

    def collect_iterator(self, transformation_id: int) -> Iterator[Any]:
        """Return the records of a collect operator."""
        job = self.supervisor
        index = next(
            op.index
            for op in job.spec.plan.operators
            if op.kind == "collect" and op.transformation_id == transformation_id
        )
        return job.results.iterator(index)


def _completed(value: Any) -> CompletableFuture:
    done: Future[Any] = Future()
    done.set_result(value)
    return CompletableFuture(done)
