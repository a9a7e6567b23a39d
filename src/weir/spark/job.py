"""A job on Spark: attempts, epochs, failover, end. The driver's side of everything.

One supervisor thread owns the life of the job; Spark calls back into `_on_batch` for every batch.
Epochs are serialised by one lock, whoever starts them.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
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
from weir.graph.plan import JobPlan, compile_plan
from weir.graph.transformation import StreamGraph
from weir.ids import new_job_id
from weir.jobmanager.failures import is_recoverable, to_error
from weir.jobmanager.master import JobMaster
from weir.jobmanager.operations import ExceptionView
from weir.jobmanager.results import Results
from weir.jobmanager.settings import JobSettings
from weir.spark.announcement import Announcement, refuse_twin
from weir.spark.attempt import Attempt
from weir.spark.code import ship_code
from weir.spark.control import JobControl
from weir.spark.driver_sinks import DriverSinks
from weir.spark.ending import Ending
from weir.spark.resume import Resume
from weir.spark.session import is_local, spark_stopped
from weir.spark.sources import SourceOpener, declare_types, detach_sources
from weir.spark.workspace import Workspace
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")
_EXCEPTIONS_KEPT = 20


class SparkJob:
    """One job; fulfils the door's `JobClient`."""

    def __init__(
        self,
        graph: StreamGraph,
        settings: JobSettings,
        spark: SparkSession,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """Compile the program; everything that can be refused is refused here.

        `configuration` is what people are shown.
        """
        self.spark = spark
        self.settings = settings
        self.configuration = dict(configuration or {})
        self._graph = graph
        self.job_id = new_job_id()
        self.clock: Clock = SystemClock()
        declare_types(graph)
        default = settings.parallelism or spark.sparkContext.defaultParallelism
        self.plan = compile_plan(graph, default)
        refuse_twin(self.plan.job_name, settings)
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
        self.status = JobStatus.CREATED
        self.exceptions: deque[ExceptionView] = deque(maxlen=_EXCEPTIONS_KEPT)
        self.started_ms = self.clock.now_ms()
        self.ended_ms: int | None = None
        self.ending: Ending | None = None
        self.last_savepoint: str | None = None
        self.control = JobControl(self)
        self._announced = Announcement(self)
        self._ending_lock = threading.Lock()
        self._stop = threading.Event()
        self.ended: Future[JobExecutionResult] = Future()
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

    def announce(self, url: str, token: str) -> None:
        """Let commands in other processes find the job."""
        self._announced.publish(url, token)

    def tell_to_stop(self) -> None:
        """Cancel the job; returns at once."""
        self._stop.set()

    def graph_with(self, parallelism: int) -> StreamGraph:
        """Return the program with another parallelism for operators that have none of their own."""
        return replace(self._graph, parallelism=parallelism)

    def end_with(self, ending: Ending) -> Future[Any]:
        """Let the current attempt end on purpose.

        Raises:
            UsageError: that was asked for already.
        """
        with self._ending_lock:
            if self.ending is not None:
                what = "being rescaled" if self.ending.plan else "stopping"
                msg = f"job {self.job_id} is {what} already: wait until that is done"
                raise UsageError(msg)
            self.ending = ending
        self.ended.add_done_callback(lambda _: ending.fail(_over(self)))
        return ending.result

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
            self.status = JobStatus.RUNNING
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
        self.status = JobStatus[end.name]
        self.ended_ms = self.clock.now_ms()
        self._announced.update()
        atexit.unregister(self._at_exit)
        self.results.end(error)
        ending = self.ending
        if ending is not None and ending.reached is not None and end is JobEnd.FINISHED:
            ending.succeed(ending.reached.directory)
        if error is None:
            self.ended.set_result(JobExecutionResult(JobID(self.job_id), runtime_ms, {}))
        else:
            self.ended.set_exception(error)

    def _run_attempts(self) -> None:
        number = 0
        while not self._stop.is_set():
            error = self._run_attempt(number)
            if self._stop.is_set() or (error is None and not self._is_rescaling()):
                return
            number += 1
            if error is None or self._went_back(error):
                continue
            if spark_stopped(self.spark):
                msg = "the SparkContext was stopped while the job was running"
                raise JobExecutionError(msg) from error
            delay_ms = self.master.restart_delay(error) if is_recoverable(error) else None
            if delay_ms is None:
                raise error
            log.warning(
                "attempt %s failed, restarting in %s ms: %s", number - 1, delay_ms, _brief(error)
            )
            self.status = JobStatus.RESTARTING
            self._stop.wait(delay_ms / 1000)

    def _is_rescaling(self) -> bool:
        """Put the new plan in its place when the attempt ended for it."""
        ending = self.ending
        if ending is None or ending.plan is None or ending.reached is None:
            return False
        self._plan_before = self.plan
        self._use(ending.plan)
        return True

    def _use(self, plan: JobPlan) -> None:
        self.plan = plan
        self.plan_bytes = cloudpickle.dumps(plan)
        self.master.use(plan)

    def confirm(self) -> None:
        """Learn that the job runs with its new plan."""
        ending, self.ending = self.ending, None
        if ending is not None:
            ending.succeed(ending.parallelism)

    def _went_back(self, error: WeirError) -> bool:
        """Note a failure; return to the old plan when the new one has never run."""
        attempt = self.master.registry.attempt
        name = type(error).__name__
        self.exceptions.append(ExceptionView(self.clock.now_ms(), name, str(error), attempt))
        ending, self.ending = self.ending, None
        if ending is None:
            return False
        if ending.plan is None or ending.reached is None:
            ending.fail(error)
            return False
        self._use(self._plan_before)
        msg = (
            f"the job could not go on with parallelism {ending.parallelism} and goes on as it was: "
            f"{_brief(error)}"
        )
        log.warning("%s", msg)
        ending.fail(JobExecutionError(msg))
        return True

    def _run_attempt(self, number: int) -> WeirError | None:
        self.results.drop_unreleased()
        try:
            restored = self.master.begin_attempt(number, self.plan_bytes)
            attempt = Attempt(self, number, restored)
        except WeirError as error:
            return error
        self.status = JobStatus.RUNNING
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
        return {"status": self.status.name, **self.master.progress()}

    def _checkpoint_completed(self, ref: CheckpointRef, epoch: int) -> None:
        # A failover does not go back to a savepoint, so what it covers may come again.
        if ref in self.master.checkpoints.coordinator.completed:
            self.results.release_up_to(epoch)
        if ref.kind == "savepoint":
            self.last_savepoint = ref.directory
        self._announced.update()

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
        return _completed(self.status)

    def cancel(self) -> CompletableFuture:
        """Cancel the job; completes when it has ended."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(60.0)
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
        return CompletableFuture(self.ended)

    def collect_iterator(self, transformation_id: int) -> Iterator[Any]:
        """Return the records of a collect operator."""
        return self.results.iterator(self._collect[transformation_id])


def _over(job: SparkJob) -> WeirError:
    return JobExecutionError(f"job {job.job_id} ended before that ({job.status.name})")


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
