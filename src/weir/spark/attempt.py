"""One execution attempt: a streaming query, its epochs, and the end of bounded input."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from weir.checkpoint.decider import RequestKind
from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.retention import CheckpointRef
from weir.clock import Clock
from weir.errors import JobExecutionError
from weir.failpoint import reach
from weir.graph.plan import JobPlan
from weir.ids import JobId
from weir.jobmanager.checkpoints import Barrier
from weir.jobmanager.master import JobMaster
from weir.jobmanager.overtake import BarrierEpoch, overtaking
from weir.jobmanager.recovery import RestorePoint
from weir.jobmanager.settings import JobSettings
from weir.runtime.subtask import EpochInfo
from weir.slot.spawn import Contact, start_slot
from weir.spark.direct import Relay
from weir.spark.ending import Ending
from weir.spark.epochs import EpochRunner, EpochSpec
from weir.spark.positions import initial_positions, prepare_query_dir, read_positions
from weir.spark.resume import Describer
from weir.spark.session import query_settings
from weir.spark.sources import Input
from weir.spark.workspace import Workspace

log = logging.getLogger("weir.attempt")
_TICK_S = 0.02
_ENDING_PATIENCE_S = 0.5
# A checkpoint that is due waits this long for a batch to carry it, before it gets an epoch of its
# own: between two batches Spark plans, and an extra epoch would only delay the next one.
_GRACE_MS = 500
_GRACE_WHILE_PLANNING_MS = 5_000


class JobSide(Protocol):
    """What an attempt needs of its job."""

    spark: SparkSession
    settings: JobSettings
    job_id: JobId
    clock: Clock
    plan: JobPlan
    plan_bytes: bytes
    workspace: Workspace
    master: JobMaster
    input: Input
    ending: Ending | None

    def confirm(self) -> None:
        """Learn that the slots of the attempt have their state and work."""

    def take_reports(self, epoch: int, reports: list[dict[str, Any]]) -> None:
        """Take what the subtasks reported for an epoch."""


class Attempt:
    """One attempt of a job; ends by returning (input is over) or by raising."""

    def __init__(self, job: JobSide, number: int, restored: RestorePoint | None) -> None:
        """Prepare the query's directory at the restored positions."""
        self._job = job
        self._number = number
        master = job.master
        self._layout = master.layout
        self._query_dir = job.workspace.query_dir(number)
        positions = self._start_positions(number, restored)
        prepare_query_dir(self._query_dir, positions, self._layout, self._fresh(restored))
        given = job.input
        self._describer = Describer(given.spools, given.kept, job.settings.storage)
        self._positions = self._initial()
        self._handled = self._positions
        self._epoch = restored.metadata.epoch if restored else 0
        self._lock = threading.Lock()
        self._idle_since_ms = job.clock.monotonic_ms()
        self._query: Any = None
        self._ended = False
        self._closed = False
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._contact = Contact(
            master.location,
            master.token,
            master.host,
            os.getpid(),
            str(job.workspace.log_dir),
            str(job.workspace.socket_dir),
            not master.local,
        )
        spec = EpochSpec(
            job.plan,
            f"{job.job_id}-{number}",
            job.plan_bytes,
            job.input.columns,
            self._contact,
            job.job_id,
            number,
            anchored=not master.local,
        )
        relay = Relay(
            job.plan.level_parallelism,
            self._contact,
            job.settings.direct_bytes,
            partial(master.registry.addresses, number, job.plan.slots),
            self._refuse_unwanted,
        )
        self._runner = EpochRunner(spec, job.spark, relay)

    def _start_positions(
        self, number: int, restored: RestorePoint | None
    ) -> SourcePositions | None:
        if restored is not None:
            return restored.metadata.sources
        if number == 0:
            return None
        # Starting over keeps where sources began: a source may begin "now" only once.
        return initial_positions(self._job.workspace.query_dir(number - 1), self._layout)

    def _fresh(self, restored: RestorePoint | None) -> set[int]:
        """Return the sources whose spool begins behind the restored positions."""
        if restored is None or restored.metadata.job_id == self._job.job_id:
            return set()
        return {*self._job.input.spools, *self._job.input.kept}

    def _initial(self) -> SourcePositions:
        """Positions of a checkpoint before the first batch: the new directory, the old offsets."""
        here = initial_positions(self._query_dir, self._layout)
        if not (self._query_dir / "offsets" / "0").exists():
            return here
        return read_positions(self._query_dir, 0, self._layout)

    def run(self, stop: threading.Event) -> None:
        """Run until bounded input is over, the attempt fails, or the job is stopped."""
        self._stop = stop
        self._start_local_slots()
        self._begin()
        self._start_query()
        for runner in self._job.input.runners:
            runner.start()
        while not stop.is_set():
            if self._query_over():
                break
            if self._job.master.attempt_failed:
                msg = "the attempt failed"
                raise self._job.master.failure() or JobExecutionError(msg)
            # Here too: the epoch that carries the barrier may take longer than the checkpoint may.
            self._job.master.checkpoints.expire()
            if self._end_on_purpose():
                return
            self._run_control_epoch()
            self._end_of_functions()
            stop.wait(_TICK_S)
        if stop.is_set():
            return
        self._finish()

    def _begin(self) -> None:
        """Run an epoch ahead of the query, for restored rows or for somebody who waits for it.

        Rows that the restored barrier overtook come first; and its end shows that all slots work.
        """
        ending = self._job.ending
        awaited = ending is not None and ending.reached is not None
        if not awaited and not self._job.master.has_rows_in_flight:
            return
        with self._lock:
            self._run_epoch(None, final=False)
        if awaited:
            self._job.confirm()

    def _start_local_slots(self) -> None:
        """Let slots on this host start while Spark plans, instead of on first need."""
        master = self._job.master
        for subtask in range(self._job.plan.slots if master.local else 0):
            if master.registry.locate(self._number, subtask, 0).status == "start":
                start_slot(self._contact, self._number, subtask, master.host)

    def _start_query(self) -> None:
        job = self._job
        settings = job.settings
        writer = (
            job.input.dataframe.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._query_dir))
            .queryName(f"{job.plan.job_name} {job.job_id[:8]}-{self._number}")
        )
        if job.input.bounded or settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger_interval_ms is not None:
            interval = f"{settings.trigger_interval_ms} milliseconds"
            writer = writer.trigger(processingTime=interval)
        with query_settings(job.spark):
            self._query = writer.start()
            # The query has its own copy of the settings by now, but its sources read the session's.
            while self._query.isActive and self._is_initializing():
                self._stop.wait(_TICK_S / 4)

    def _is_initializing(self) -> bool:
        return str(self._query.status["message"]).startswith("Initializing")

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Spark's callback: one batch is one epoch."""
        try:
            with self._lock:
                if self._ended:
                    msg = "the attempt has ended"
                    raise JobExecutionError(msg)
                positions = read_positions(self._query_dir, batch_id, self._layout)
                self._positions = positions
                reach("driver.epoch")
                self._run_epoch(batch, final=False)
        except BaseException as error:
            self._error = error
            # Spark searches the text for a traceback, and overflows its stack on a long one.
            msg = f"epoch {self._epoch} failed: {type(error).__name__}"
            raise JobExecutionError(msg) from None

    def _run_epoch(self, batch: DataFrame | None, *, final: bool) -> Barrier | None:
        master = self._job.master
        self._epoch += 1
        describe = partial(self._describer.describe, self._positions)
        barrier = master.checkpoints.begin_epoch(self._epoch, describe)
        number = None if barrier is None else barrier.checkpoint_id
        master.note_epoch(self._epoch, number)
        info = EpochInfo(self._epoch, final=final)
        if barrier is not None:
            info = barrier.info(self._epoch, final=final)
        directory = "" if barrier is None else barrier.directory
        before = partial(self._describer.describe, self._handled, None)
        sent = BarrierEpoch(barrier, self._epoch, before) if barrier and info.overtaking else None
        with overtaking(master.calls, master.checkpoints, sent):
            reports = self._runner.run(batch, info, directory)
        self._handled = self._positions
        self._job.take_reports(self._epoch, reports)
        master.checkpoints.epoch_done(barrier)
        self._idle_since_ms = self._job.clock.monotonic_ms()
        return barrier

    def _query_over(self) -> bool:
        if self._query.isActive:
            return False
        failed = self._query.exception()
        if self._error is not None:
            raise self._error
        if failed is not None:
            raise failed
        return True

    def _run_control_epoch(self) -> None:
        """Give idle slots an epoch when a checkpoint or a timer is due and no batch is running."""
        master = self._job.master
        timer = master.next_timer_ms()
        due = timer is not None and timer <= master.clock.now_ms()
        if not due and not (master.checkpoints.due() and self._idle()):
            return
        if self._lock.acquire(blocking=False):
            try:
                self._run_epoch(None, final=False)
            finally:
                self._lock.release()

    def _idle(self) -> bool:
        """Tell whether no batch is going to carry a barrier soon."""
        idle_ms = self._job.clock.monotonic_ms() - self._idle_since_ms
        if idle_ms < _GRACE_MS:
            return False
        return idle_ms >= _GRACE_WHILE_PLANNING_MS or not self._query.status["isTriggerActive"]

    def _end_of_functions(self) -> None:
        """Source functions that have returned make their input bounded after all."""
        runners = self._job.input.runners
        for runner in runners:
            if runner.error is not None:
                raise runner.error
        only_functions = len(runners) == len(self._job.input.columns)
        if runners and only_functions and all(r.finished for r in runners):
            self._query.processAllAvailable()
            self._query.stop()

    def _finish(self) -> None:
        """Run the last epoch: watermark to the end, timers, and a checkpoint that commits all."""
        master = self._job.master
        master.checkpoints.close()
        with self._lock:
            self._serve_waiting()
            master.checkpoints.request(RequestKind.MANUAL, force=True, token="final")
            barrier = self._run_epoch(None, final=True)
        if barrier is None:
            msg = "the last epoch carried no checkpoint"
            raise JobExecutionError(msg)
        self._await_commit(barrier.checkpoint_id)

    def _end_on_purpose(self) -> bool:
        """End with a last barrier if somebody asked for it; False when the attempt goes on."""
        ending = self._job.ending
        # A batch may take long; meanwhile other things, such as timeouts, have to be seen to.
        if ending is None or not self._lock.acquire(timeout=_ENDING_PATIENCE_S):
            return False
        try:
            return self._end_with(ending)
        finally:
            self._lock.release()

    def _end_with(self, ending: Ending) -> bool:
        master = self._job.master
        self._serve_waiting()
        if ending.savepoint is None:
            asked = master.checkpoints.checkpoint(force=True)
        else:
            asked = master.checkpoints.savepoint(
                ending.savepoint, native=ending.native, synchronous=True
            )
        barrier = self._run_epoch(None, final=ending.drain)
        if barrier is not None:
            self._await_answer(asked)
        error = asked.exception() if asked.done() else None
        if error is not None and not ending.drain:
            self._job.ending = None
            ending.fail(error)
            return False
        if barrier is None or error is not None:
            msg = f"the job cannot end: {error or 'its last epoch carried no checkpoint'}"
            raise JobExecutionError(msg)
        self._await_commit(barrier.checkpoint_id)
        self._ended = True
        ending.reached = asked.result()
        return True

    def _serve_waiting(self) -> None:
        """Give those who wait for a checkpoint theirs, before the last one."""
        checkpoints = self._job.master.checkpoints
        while checkpoints.waiting():
            self._refuse_failed()
            self._run_epoch(None, final=False)
            threading.Event().wait(_TICK_S)

    def _await_answer(self, asked: Future[CheckpointRef]) -> None:
        while not asked.done():
            self._job.master.checkpoints.expire()
            self._refuse_failed()
            threading.Event().wait(_TICK_S)

    def _await_commit(self, number: int) -> None:
        """Wait until a checkpoint is complete and committed."""
        master = self._job.master
        while not master.checkpoints.is_completed(number):
            master.checkpoints.expire()
            self._refuse_failed()
            if master.checkpoints.is_given_up(number):
                msg = f"the last checkpoint, {number}, was not completed"
                raise JobExecutionError(msg)
            threading.Event().wait(_TICK_S)
        # The checkpoint may stand and its commits have failed: then the job has not ended.
        self._refuse_failed()

    def _refuse_failed(self) -> None:
        master = self._job.master
        if master.attempt_failed:
            msg = "the attempt failed"
            raise master.failure() or JobExecutionError(msg)
        if self._stop.is_set():
            msg = "the job was canceled"
            raise JobExecutionError(msg)

    def _refuse_unwanted(self) -> None:
        """Raise when nobody wants the epoch that is running: Spark does not interrupt Python."""
        self._refuse_failed()
        if self._closed:
            msg = "the attempt has ended"
            raise JobExecutionError(msg)

    def close(self) -> None:
        """Stop the query and free what the attempt holds."""
        self._closed = True
        if self._query is not None and self._query.isActive:
            self._query.stop()
        self._runner.close()
