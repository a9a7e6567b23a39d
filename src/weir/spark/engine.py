"""Spark as the engine of a job: its sources, and one attempt after the other."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

from pyspark.sql import SparkSession

from weir.checkpoint.metadata import SourcePositions, layout_of
from weir.clock import Clock
from weir.errors import JobExecutionError
from weir.graph.plan import JobPlan, detach_sources
from weir.jobmanager.backlog import Backlog
from weir.jobmanager.engine import AttemptStart, Batch, JobSide
from weir.jobmanager.gateway import FlightNetwork
from weir.jobmanager.postmortem import OomKills, how_it_ended
from weir.jobmanager.settings import JobSettings
from weir.runtime.epoch import Epoch
from weir.runtime.report import SubtaskReport
from weir.spark.attempt import Attempt, JobInput
from weir.spark.code import ship_archives, ship_code
from weir.spark.driver_sinks import DriverSinks
from weir.spark.internals import JvmDeath, spark_stopped
from weir.spark.positions import offset_of
from weir.spark.resume import Describer, Resume
from weir.spark.source_logs import NO_OFFSET, LogChecks
from weir.spark.sources import Input, SourceOpener
from weir.spark.workspace import Workspace


class SparkEngine:
    """Runs one job in a Spark session; see `weir.jobmanager.engine.Engine`."""

    def __init__(
        self,
        spark: SparkSession,
        settings: JobSettings,
        workspace: Workspace,
        network: FlightNetwork,
        clock: Clock,
        resume: Resume,
    ) -> None:
        self.sinks = DriverSinks(spark, workspace.job_dir / "staging")
        self._spark = spark
        self._settings = settings
        self._workspace = workspace
        self._network = network
        self._clock = clock
        self._resume = resume
        self._stop = threading.Event()
        self._plan: JobPlan | None = None
        self._sources: dict[int, Any] = {}
        self._input: Input | None = None
        self._start: AttemptStart | None = None
        self._attempt: Attempt | None = None
        self._log_checks = LogChecks()
        self._oom = OomKills()
        self._dead: str | None = None

    def adopt(self, plan: JobPlan) -> None:
        """Keep sources and the functions of Spark writers here."""
        sources = detach_sources(plan)
        self.sinks.adopt(plan)
        if self._plan is None:
            self._plan, self._sources = plan, sources

    def open(self) -> None:
        """Open the sources, behind what the job before this one has read."""
        if self._plan is None:
            msg = "there is no plan to open sources of"
            raise JobExecutionError(msg)
        ship_code(self._spark, self._settings.python_files)
        if self._network.place.archives is not None:
            ship_archives(self._spark, self._settings.python_archives, self._network.place.archives)
        opener = SourceOpener(
            self._spark,
            self._workspace.spool,
            self._settings.batch_rows,
            self._resume,
            job_parameters=self._settings.job_parameters,
            files_per_batch=self._settings.batch_files,
        )
        self._input = opener.open(self._plan, self._sources, self._stop)
        self._workspace.enter(self._plan.job_name)

    def begin(self, start: AttemptStart, job: JobSide) -> SourcePositions:
        """Prepare the streaming query of an attempt, and let slots on this host start."""
        given = self._opened()
        layout = layout_of(given.uids)
        shared = JobInput(
            self._spark,
            self._settings,
            self._workspace,
            self._network,
            clock=self._clock,
            given=given,
            layout=layout,
        )
        self._start = start
        self._attempt = attempt = Attempt(shared, start, job)
        attempt.start_local_slots()
        return attempt.initial

    def start_input(self) -> None:
        """Start the query, and source functions."""
        self._current().start_query()
        if self._start is not None and self._start.positions is None:
            # There is no checkpoint that refers to the directories of earlier queries.
            self._workspace.remove_queries(self._start.attempt)
        for runner in self._opened().runners:
            runner.start()

    def input_is_over(self) -> bool:
        """Tell whether the query ended by itself."""
        return self._current().input_is_over()

    def is_quiet(self) -> bool:
        """Tell whether Spark is not about to run a batch."""
        return self._current().is_quiet()

    def found_nothing_ms(self) -> int | None:
        """Return when Spark last looked for data in vain."""
        return self._current().found_nothing_ms()

    def run_epoch(self, epoch: Epoch, batch: Batch | None) -> list[SubtaskReport]:
        """Run an epoch by Spark, or by the driver if it is small."""
        return self._current().run_epoch(epoch, batch)

    def describe(self, positions: SourcePositions, savepoint: str | None) -> SourcePositions:
        """Turn places in Spark's logs into positions that another job can use."""
        given = self._opened()
        options = self._settings.storage
        describer = Describer(given.spools, given.kept, options, checks=self._log_checks)
        return describer.describe(positions, savepoint)

    def committed(self, positions: SourcePositions) -> None:
        """Let those who plan splits know how far a complete checkpoint is."""
        for number, planner in self._opened().planners.items():
            line = offset_of(positions, number)
            if line != NO_OFFSET:
                planner.committed(json.loads(line))

    def backlog(self) -> Backlog:
        """Return how far the sources are behind, as Spark said after its last batch."""
        attempt = self._attempt
        return Backlog() if attempt is None else attempt.backlog()

    def lost(self) -> str | None:
        """Say that Spark was stopped, or that its JVM died."""
        try:
            stopped = spark_stopped(self._spark)
        except JvmDeath as death:
            self._dead = self._dead or self._describe(death)
            return self._dead
        return "the SparkContext was stopped while the job was running" if stopped else None

    def _describe(self, death: JvmDeath) -> str:
        status = death.status
        shown = None if status is None else status if status >= 0 else 128 - status
        starved = status == -signal.SIGKILL and self._oom.happened()
        process = "its process" if death.pid is None else f"its process {death.pid}"
        return (
            f"the JVM of Spark died while the job was running: {process} "
            f"{how_it_ended(shown, starved=starved)}; start the program again, from the newest "
            "checkpoint if it has any"
        )

    def end(self) -> None:
        """Stop the query of the current attempt."""
        if self._attempt is not None:
            self._attempt.close(spark_is_lost=self.lost() is not None)

    def close(self) -> None:
        """Let source functions return."""
        self._stop.set()
        if self._input is not None:
            for runner in self._input.runners:
                runner.cancel()
            for planner in self._input.planners.values():
                planner.close()

    def _opened(self) -> Input:
        if self._input is None:
            msg = "the sources are not open"
            raise JobExecutionError(msg)
        return self._input

    def _current(self) -> Attempt:
        if self._attempt is None:
            msg = "no attempt has begun"
            raise JobExecutionError(msg)
        return self._attempt
