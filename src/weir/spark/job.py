"""A job on Spark: attempts, epochs, failover, end. The driver's side of everything.

One supervisor thread owns the life of the job; Spark calls back into `_on_batch` for every batch.
Epochs are serialised by one lock, whoever starts them.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import cloudpickle
from pyspark.sql import SparkSession

from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.clock import Clock, SystemClock
from weir.common.completable_future import CompletableFuture
from weir.common.job_execution_result import JobExecutionResult
from weir.common.job_id import JobID
from weir.common.job_status import JobStatus
from weir.errors import JobExecutionError, UsageError, WeirError
from weir.graph.plan import compile_plan
from weir.graph.transformation import StreamGraph
from weir.ids import new_job_id
from weir.jobmanager.failures import is_recoverable, to_error
from weir.jobmanager.master import JobMaster
from weir.jobmanager.results import Results
from weir.jobmanager.settings import JobSettings
from weir.spark.attempt import Attempt
from weir.spark.code import ship_code
from weir.spark.driver_sinks import DriverSinks
from weir.spark.resume import Resume
from weir.spark.session import is_local, spark_stopped
from weir.spark.sources import SourceOpener, declare_types, detach_sources
from weir.spark.workspace import Workspace
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")


class SparkJob:
    """One job; fulfils the door's `JobClient`."""

    def __init__(self, graph: StreamGraph, settings: JobSettings, spark: SparkSession) -> None:
        """Compile the program; everything that can be refused is refused here."""
        self.spark = spark
        self.settings = settings
        self.job_id = new_job_id()
        self.clock: Clock = SystemClock()
        declare_types(graph)
        default = settings.parallelism or spark.sparkContext.defaultParallelism
        self.plan = compile_plan(graph, default)
        self._sources = detach_sources(self.plan)
        self.workspace = Workspace(self.job_id, settings)
        self.driver_sinks = DriverSinks(self.plan, spark, self.workspace.job_dir / "staging")
        self.results = Results(settings.checkpoint.interval_ms is not None)
        self.master = JobMaster(self.job_id, self.plan, settings, self.workspace, self.clock)
        # After the master: a restore may have changed max parallelisms.
        try:
            self.plan_bytes = cloudpickle.dumps(self.plan)
        except Exception as error:
            raise UsageError(_unpicklable(self.plan, error)) from error
        self.master.on_completed = self._checkpoint_completed
        self.master.on_staged = self.driver_sinks.commit
        self._collect = {
            op.transformation_id: op.index for op in self.plan.operators if op.kind == "collect"
        }
        self._status = JobStatus.CREATED
        self._stop = threading.Event()
        self._done: Future[JobExecutionResult] = Future()
        self._thread = threading.Thread(target=self._supervise, name="weir-job", daemon=True)

    def start(self) -> None:
        """Open the sources and begin."""
        ship_code(self.spark, self.settings.python_files)
        opener = SourceOpener(
            self.spark, self.workspace.spool, self.settings.batch_rows, self._resume()
        )
        self.input = opener.open(self.plan, self._sources, self._stop)
        self.master.open(local=is_local(self.spark), uids=self.input.uids)
        atexit.register(self._at_exit)
        self._thread.start()

    def _resume(self) -> Resume:
        """Return where the sources begin: behind what the job before this one has read."""
        point = self.master.initial
        if point is None:
            return Resume()
        storage = open_storage(point.storage_uri, self.settings.storage)
        return Resume(point.metadata.sources, storage, point.directory)

    def _supervise(self) -> None:
        started = self.clock.monotonic_ms()
        error: BaseException | None = None
        end = JobEnd.FINISHED
        try:
            self._status = JobStatus.RUNNING
            self._run_attempts()
            if self._stop.is_set():
                end = JobEnd.CANCELED
        except BaseException as raised:
            error, end = raised, JobEnd.FAILED
        try:
            for runner in self.input.runners:
                runner.cancel()
            self.master.close(end)
        except Exception:
            log.exception("closing the job failed")
        self._finish(end, error, self.clock.monotonic_ms() - started)

    def _finish(self, end: JobEnd, error: BaseException | None, runtime_ms: int) -> None:
        self._status = JobStatus[end.name]
        atexit.unregister(self._at_exit)
        self.results.end(error)
        if error is None:
            self._done.set_result(JobExecutionResult(JobID(self.job_id), runtime_ms, {}))
        else:
            self._done.set_exception(error)

    def _run_attempts(self) -> None:
        number = 0
        while not self._stop.is_set():
            error = self._run_attempt(number)
            if error is None or self._stop.is_set():
                return
            if spark_stopped(self.spark):
                msg = "the SparkContext was stopped while the job was running"
                raise JobExecutionError(msg) from error
            delay_ms = self.master.restart_delay(error) if is_recoverable(error) else None
            if delay_ms is None:
                raise error
            log.warning(
                "attempt %s failed, restarting in %s ms: %s", number, delay_ms, _brief(error)
            )
            self._status = JobStatus.RESTARTING
            self._stop.wait(delay_ms / 1000)
            number += 1

    def _run_attempt(self, number: int) -> WeirError | None:
        self.results.drop_unreleased()
        try:
            restored = self.master.begin_attempt(number, self.plan_bytes)
            attempt = Attempt(self, number, restored)
        except WeirError as error:
            return error
        self._status = JobStatus.RUNNING
        try:
            attempt.run(self._stop)
        except WeirError as error:
            return self.master.failure() or error
        except Exception as error:
            return self.master.failure() or to_error(error)
        finally:
            attempt.close()
        return None

    def take_reports(self, epoch: int, reports: list[dict[str, Any]]) -> None:
        """Take what the subtasks reported for an epoch."""
        self.master.take_reports(reports)
        for report in reports:
            for index, kind, values in report["rows"]:
                to_stderr = bool(self.plan.operators[index].options.get("stderr"))
                self.results.take(epoch, index, kind, values, to_stderr)

    def progress(self) -> dict[str, Any]:
        """Return figures of now for people who watch: attempt, epoch, records, state, slots.

        Records are those that operators took in during the current attempt, by operator uid or
        id. They appear once an attempt has handled its first epoch, as `epoch` does.
        """
        return {"status": self._status.name, **self.master.progress()}

    def _checkpoint_completed(self, ref: CheckpointRef, epoch: int) -> None:
        self.results.release_up_to(epoch)

    def _at_exit(self) -> None:
        """End slots when the program ends without having waited for the job."""
        self._stop.set()
        self._thread.join(10.0)
        self.master.end_slots("the driver program ended")

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return JobID(self.job_id)

    def get_job_status(self) -> CompletableFuture:
        """Return the status of now."""
        return _completed(self._status)

    def cancel(self) -> CompletableFuture:
        """Cancel the job; completes when it has ended."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(60.0)
        return _completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Savepoints are not available in this release."""
        raise UsageError(_NO_SAVEPOINTS)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Savepoints are not available in this release."""
        raise UsageError(_NO_SAVEPOINTS)

    def get_accumulators(self) -> CompletableFuture:
        """Return the job's accumulators."""
        return _completed({})

    def get_job_execution_result(self) -> CompletableFuture:
        """Complete when the job ends; interrupting the wait cancels the job."""
        return CompletableFuture(self._done)

    def collect_iterator(self, transformation_id: int) -> Iterator[Any]:
        """Return the records of a collect operator."""
        return self.results.iterator(self._collect[transformation_id])


_NO_SAVEPOINTS = (
    "savepoints are not available in this release; retained checkpoints are: set "
    "execution.checkpointing.externalized-checkpoint-retention and restore one with "
    "execution.state-recovery.path"
)


def _completed(value: Any) -> CompletableFuture:
    done: Future[Any] = Future()
    done.set_result(value)
    return CompletableFuture(done)


def _brief(error: BaseException) -> str:
    text = str(error)
    return text if len(text) < 2000 else text[:2000] + "..."


def _unpicklable(plan: Any, error: Exception) -> str:
    for op in plan.operators:
        cause = _pickling_error((op.function, op.options))
        if cause is not None:
            return (
                f"operator '{op.name}' cannot be sent to the slots: {cause}; do not hold "
                "connections, locks or sessions in the function, create them in open()"
            )
    return f"the program cannot be sent to the slots: {error}"


def _pickling_error(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None
