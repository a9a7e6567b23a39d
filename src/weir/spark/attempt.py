"""One execution attempt on Spark: a streaming query whose batches become epochs."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from weir.checkpoint.metadata import SourceLayout, SourcePositions
from weir.clock import Clock
from weir.errors import JobExecutionError
from weir.failpoint import reach
from weir.jobmanager.backlog import Backlog, SourceBacklog, offsets_behind
from weir.jobmanager.engine import AttemptStart, Batch, JobSide
from weir.jobmanager.gateway import FlightNetwork
from weir.jobmanager.settings import JobSettings
from weir.runtime.epoch import Epoch
from weir.runtime.report import SubtaskReport
from weir.slot.spawn import start_slot
from weir.spark.code import unpacked_at
from weir.spark.direct import Relay
from weir.spark.epochs import EpochRunner, EpochSpec
from weir.spark.internals import found_nothing, is_initializing
from weir.spark.planned_source import raised_by_planner, refuse_unread
from weir.spark.polls import EmptyPolls
from weir.spark.positions import (
    has_listed,
    initial_positions,
    prepare_query_dir,
    read_positions,
    read_time,
)
from weir.spark.session import query_settings
from weir.spark.sources import Input
from weir.spark.workspace import Workspace

log = logging.getLogger("weir.attempt")
_INITIALIZING_S = 0.005
_REASON_CHARS = 500
# A checkpoint that is due waits this long for a batch to carry it, before it gets an epoch of its
# own: between two batches Spark plans, and an extra epoch would only delay the next one.
_GRACE_MS = 500
_GRACE_WHILE_PLANNING_MS = 5_000


@dataclass(frozen=True)
class JobInput:
    """What all attempts of a job share."""

    spark: SparkSession
    settings: JobSettings
    workspace: Workspace
    network: FlightNetwork
    clock: Clock
    given: Input
    layout: tuple[SourceLayout, ...]


class Attempt:
    """One attempt; `initial` is where the sources are before its first batch."""

    def __init__(self, shared: JobInput, start: AttemptStart, job: JobSide) -> None:
        """Prepare the query's directory at the positions to start from.

        Raises:
            StorageError, CorruptStateError: the directory cannot be written, or logs are missing.
        """
        self._shared = shared
        self._start = start
        self._job = job
        self._directory = shared.workspace.query_dir(start.attempt)
        fresh = {*shared.given.spools, *shared.given.kept} if start.foreign else set()
        prepare_query_dir(self._directory, self._begins_at(), shared.layout, fresh)
        self.initial = self._handled = self._initial()
        self._idle_since_ms = shared.clock.monotonic_ms()
        interval_ms = shared.settings.trigger_interval_ms or 0
        self._polls = EmptyPolls(shared.clock, interval_ms)
        self._query: Any = None
        self._closed = False
        self._draining: _Draining | None = None
        self._contact = shared.network.contact()
        self._runner = self._epoch_runner()

    def _begins_at(self) -> SourcePositions | None:
        start, shared = self._start, self._shared
        if start.positions is not None or start.attempt == 0:
            return start.positions
        # Starting over keeps where sources began: a source may begin "now" only once. An attempt
        # that could not even write its directory has nothing to say about it.
        for number in range(start.attempt - 1, -1, -1):
            before = shared.workspace.query_dir(number)
            if (before / "metadata").exists():
                return initial_positions(before, shared.layout)
        return None

    def _initial(self) -> SourcePositions:
        """Positions of a checkpoint before the first batch: the new directory, the old offsets."""
        if not (self._directory / "offsets" / "0").exists():
            return initial_positions(self._directory, self._shared.layout)
        return read_positions(self._directory, 0, self._shared.layout)

    def _epoch_runner(self) -> EpochRunner:
        shared, start = self._shared, self._start
        job_id, local = shared.workspace.job_id, shared.network.place.local
        spec = EpochSpec(
            plan=start.plan,
            plan_id=f"{job_id}-{start.attempt}",
            plan_bytes=start.plan_bytes,
            columns=shared.given.columns,
            contact=self._contact,
            job_id=job_id,
            attempt=start.attempt,
            anchored=not local,
        )
        registry = shared.network.registry
        relay = Relay(
            start.plan.level_parallelism,
            self._contact,
            shared.settings.direct_bytes,
            partial(registry.addresses, start.attempt, start.plan.slots),
            watch=self._refuse_unwanted,
        )
        return EpochRunner(spec, shared.spark, relay)

    def start_local_slots(self) -> None:
        """Let slots on this host start while Spark plans, instead of on first need."""
        network, attempt = self._shared.network, self._start.attempt
        directory = unpacked_at(self._contact)
        for subtask in range(self._start.plan.slots if network.place.local else 0):
            if network.registry.locate(attempt, subtask, 0).status == "start":
                process = start_slot(
                    self._contact, attempt, subtask, network.host, directory=directory
                )
                network.registry.started(attempt, subtask, process)

    def start_query(self) -> None:
        """Let batches come."""
        shared, settings = self._shared, self._shared.settings
        name = f"{self._start.plan.job_name} {shared.workspace.job_id[:8]}-{self._start.attempt}"
        writer = (
            shared.given.dataframe.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._directory))
            .queryName(name)
        )
        if shared.given.bounded or settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger_interval_ms is not None:
            interval = f"{settings.trigger_interval_ms} milliseconds"
            writer = writer.trigger(processingTime=interval)
        with query_settings(shared.spark):
            self._query = writer.start()
            # The query has its own copy of the settings by now, but its sources read the session's.
            initialized = threading.Event()
            while self._query.isActive and is_initializing(self._query):
                initialized.wait(_INITIALIZING_S)

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Spark's callback: one batch is one epoch."""
        try:
            positions = read_positions(self._directory, batch_id, self._shared.layout)
            reach("driver.epoch")
            read_ms = read_time(positions)
            looked_ms = self._polls.planned_ms(read_ms)
            attempt = self._start.attempt
            batch = Batch(attempt, positions, rows, read_ms=read_ms, looked_ms=looked_ms)
            self._job.handle(batch)
            self._handled = positions
            self._polls.handled()
        except BaseException as error:
            # Spark searches the text for a traceback, and overflows its stack on a long one.
            reason = str(error).strip().partition("\n")[0][:_REASON_CHARS]
            msg = f"the epoch of batch {batch_id} failed: {type(error).__name__}: {reason}"
            raise JobExecutionError(msg) from None

    def input_is_over(self) -> bool:
        """Tell whether the query handled bounded input to its end.

        Raises:
            JobExecutionError: the query has ended, and the input is not over.
            Exception: what ended the query, or a source function.
        """
        for runner in self._shared.given.runners:
            if runner.error is not None:
                raise runner.error
        if self._query.isActive:
            self._end_of_functions()
            return False
        failed = self._query.exception()
        if failed is not None:
            raise raised_by_planner(str(failed)) or failed
        refuse_unread(self._shared.given.planners, self._handled)
        return True

    def _end_of_functions(self) -> None:
        """Source functions that have returned make their input bounded after all."""
        runners = self._shared.given.runners
        only_functions = bool(runners) and len(runners) == len(self._shared.given.columns)
        over = only_functions and all(runner.finished for runner in runners)
        if over and self._draining is None:
            self._draining = _Draining(self._query)

    def is_quiet(self) -> bool:
        """Tell whether no batch is going to carry a barrier soon."""
        idle_ms = self._shared.clock.monotonic_ms() - self._idle_since_ms
        if idle_ms < _GRACE_MS:
            return False
        return idle_ms >= _GRACE_WHILE_PLANNING_MS or not self._query.status["isTriggerActive"]

    def found_nothing_ms(self) -> int | None:
        """Return when Spark last looked for data and found none, since the last batch."""
        return self._polls.ask(partial(found_nothing, self._query))

    def backlog(self) -> Backlog:
        """Return how far the sources are behind; nothing before the first batch, or without Spark.

        From any thread: nobody but people who watch depends on it.
        """
        query = self._query
        try:
            progress = None if query is None or self._closed else query.lastProgress
        except Exception as error:
            log.debug("Spark does not say how far its sources are: %s", error)
            return Backlog()
        if progress is None:
            return Backlog()
        steps = {str(name): int(ms) for name, ms in progress.durationMs.items()}
        return Backlog(tuple(map(_backlog, progress.sources)), steps)

    def run_epoch(self, epoch: Epoch, batch: Batch | None) -> list[SubtaskReport]:
        """Run an epoch."""
        if batch is None:
            reports = self._runner.run(None, epoch)
        else:
            reports = self._runner.run(batch.rows, epoch, self._over_at(batch.positions))
        self._idle_since_ms = self._shared.clock.monotonic_ms()
        return reports

    def _over_at(self, positions: SourcePositions) -> list[int]:
        """Return the source operators that are read to their end at a position, but for known ones.

        Nobody else says it of files whose rows Spark reads: there may be none.
        """
        given = self._shared.given
        operators = {index: given.columns[index].operator for index in given.files}
        return [
            operator
            for index, operator in operators.items()
            if operator not in self._runner.told
            and has_listed(positions, index, given.files[index])
        ]

    def _refuse_unwanted(self) -> None:
        """Raise when nobody wants the epoch that is running: Spark does not interrupt Python."""
        if self._closed:
            msg = "the attempt has ended"
            raise JobExecutionError(msg)
        self._job.refuse_unwanted(self._start.attempt)

    def close(self, *, spark_is_lost: bool) -> None:
        """Stop the query and free what the attempt holds; nothing of that is in a lost Spark."""
        self._closed = True
        try:
            if not spark_is_lost and self._query is not None and self._query.isActive:
                self._query.stop()
        finally:
            self._runner.close(spark_is_lost=spark_is_lost)


def _backlog(source: Any) -> SourceBacklog:
    return SourceBacklog(
        description=str(source.description),
        rows=int(source.numInputRows),
        rows_per_second=_finite(source.inputRowsPerSecond),
        handled_per_second=_finite(source.processedRowsPerSecond),
        read_to=source.endOffset,
        latest=source.latestOffset,
        behind=offsets_behind(source.endOffset, source.latestOffset),
    )


def _finite(rate: float | None) -> float:
    return 0.0 if rate is None or not math.isfinite(rate) else float(rate)


class _Draining:
    """Stops a query when everything that is there now was handled; nobody waits for it."""

    def __init__(self, query: Any) -> None:
        self._query = query
        threading.Thread(target=self._drain, name="weir-draining", daemon=True).start()

    def _drain(self) -> None:
        try:
            self._query.processAllAvailable()
            self._query.stop()
        except Exception as error:
            # Whoever asks whether the input is over learns from the query itself.
            log.debug("the query ended before all input was handled: %s", error)
