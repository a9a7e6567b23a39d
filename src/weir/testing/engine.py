"""An engine in one process: sources are lists, and moving records between levels is plain calls.

A test decides when anything happens: a batch comes when it is offered, and bounded input is over
when that is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from weir.checkpoint.metadata import SourcePositions
from weir.connector.decoder import Partition, Records
from weir.errors import JobExecutionError, WeirError
from weir.graph.plan import JobPlan, detach_sources
from weir.jobmanager.engine import AttemptStart, Batch, JobSide
from weir.jobmanager.failures import from_failure
from weir.runtime.epoch import Epoch
from weir.runtime.frame import REPORT_EDGE, Frame, load_program, unpack_report
from weir.runtime.operator import TaskFacts
from weir.runtime.report import LevelZero, SubtaskReport
from weir.runtime.source_side import SourceSide
from weir.slot.service import failure_message
from weir.testing.clock import ManualClock
from weir.testing.harness_slots import Hooks, InProcessNetwork
from weir.testing.harness_sources import PIECES, HarnessSources, split


@dataclass(frozen=True)
class Reading:
    """How an epoch is run: by how many tasks its input is read, and which partition a record is of.

    With `repeated`, every slot is called twice, as Spark does after a task failed.
    """

    tasks: int = 2
    repeated: bool = False
    partition_of: Callable[[Any], Partition] | None = None


class InProcessEngine:
    """Runs one job in this process; see `weir.jobmanager.engine.Engine`.

    `over` says that bounded input has ended, `ran` is the last epoch.
    """

    def __init__(
        self,
        job_id: str,
        network: InProcessNetwork,
        clock: ManualClock,
        hooks: Hooks,
        *,
        reading: Reading,
    ) -> None:
        self.over = False
        self.ran: Epoch | None = None
        self._job_id = job_id
        self._network = network
        self._clock = clock
        self._hooks = hooks
        self._partitions = reading.tasks
        self._repeated = reading.repeated
        self._partition_of = reading.partition_of
        self._sources: HarnessSources | None = None
        self._start: AttemptStart | None = None
        self._job: JobSide | None = None
        self._batches = 0
        self._level_0 = LevelZero()

    @property
    def sources(self) -> HarnessSources:
        """All records of all sources, and how far they were read."""
        if self._sources is None:
            msg = "the engine has no plan yet"
            raise JobExecutionError(msg)
        return self._sources

    def adopt(self, plan: JobPlan) -> None:
        """Keep the sources here."""
        if self._sources is None:
            self._sources = HarnessSources(plan)
        else:
            detach_sources(plan)

    def open(self) -> None:
        """Do nothing: lists are always open."""

    def begin(self, start: AttemptStart, job: JobSide) -> SourcePositions:
        """Rewind the sources and start all slots, one after the other."""
        self._level_0 = LevelZero()
        self._hooks.step("attempt begins")
        self._hooks.begins()
        self._start, self._job, self.over = start, job, False
        self.sources.rewind(start.positions)
        for subtask in range(start.plan.slots):
            if self._network.registry.locate(start.attempt, subtask, 0).status == "start":
                self._network.start(subtask)
        self._hooks.step("attempt runs")
        return self.sources.positions(self._batches)

    def start_input(self) -> None:
        """Do nothing: batches come when they are offered."""

    def offer(self, limit: int | None = None) -> None:
        """Let a batch come, of at most `limit` records of every source.

        Raises:
            WeirError: its epoch failed, or the attempt is over.
        """
        start, job = self._begun()
        taken = self.sources.take(limit)
        self._batches += 1
        positions = self.sources.positions(self._batches)
        read_ms = self._clock.now_ms() if any(taken.values()) else None
        looked_ms = self.found_nothing_ms()
        batch = Batch(start.attempt, positions, taken, read_ms=read_ms, looked_ms=looked_ms)
        job.handle(batch)

    def input_is_over(self) -> bool:
        """Tell what a test has said."""
        return self.over

    def is_quiet(self) -> bool:
        """Say no: barriers that are due wait for a batch, unless a test asks for them."""
        return False

    def found_nothing_ms(self) -> int | None:
        """Say now, unless there are records that no batch has brought."""
        return self._clock.monotonic_ms() if self.sources.exhausted else None

    def run_epoch(self, epoch: Epoch, batch: Batch | None) -> list[SubtaskReport]:
        """Run an epoch at all slots, level after level."""
        start, _ = self._begun()
        self.ran = epoch
        frames = self._level_zero(start, {} if batch is None else batch.rows)
        for level in range(1, start.plan.levels):
            self._hooks.step(f"level {level} is sent")
            self._hooks.fails()
            frames = self._level(start.plan, level, epoch, frames)
        self._hooks.fails()
        received = [unpack_report(f.payload) for f in frames if f.edge == REPORT_EDGE]
        reports = [report for report in received if isinstance(report, SubtaskReport)]
        reports.sort(key=lambda report: report.place)
        return [*reports, *self._level_0.reports(epoch.number)]

    def _level_zero(self, start: AttemptStart, taken: dict[int, list[Any]]) -> list[Frame]:
        """Run level 0; an epoch without input has none, as on Spark."""
        if not any(taken.values()):
            return []
        frames: list[Frame] = []
        for partition in range(self._partitions):
            facts = TaskFacts(
                job_id=self._job_id,
                job_name=start.plan.job_name,
                attempt=start.attempt,
                subtask=partition,
                clock=self._clock,
                report=lambda index, kind, values: None,
            )
            try:
                side = SourceSide(load_program(start.plan_bytes), facts)
                for source, values in taken.items():
                    self._feed(side, source, split(values, self._partitions)[partition])
                frames += [*side.take_frames(), *side.finish()]
                self._level_0.add(side.undecoded)
            except WeirError as error:
                raise from_failure(failure_message(start.attempt, -1, error), "") from error
        return frames

    def _feed(self, side: SourceSide, source: int, values: list[Any]) -> None:
        """Feed records of a source, in runs of one partition where partitions have names."""
        for piece in [value for value in values if isinstance(value, PIECES)]:
            side.take(source, piece)
        values = [value for value in values if not isinstance(value, PIECES)]
        if self._partition_of is None:
            side.take(source, Records(values))
            return
        for partition, run in groupby(values, key=self._partition_of):
            side.take(source, partition)
            side.take(source, Records(list(run)))

    def _level(self, plan: JobPlan, level: int, epoch: Epoch, frames: list[Frame]) -> list[Frame]:
        by_target: dict[int, list[Frame]] = defaultdict(list)
        # Backwards: what a shuffle does to the order must not matter.
        for frame in reversed(frames):
            by_target[frame.target].append(frame)
        out: list[Frame] = []
        for subtask in range(plan.level_parallelism[level]):
            if self._repeated:
                self._network.run(subtask, level, epoch, by_target[subtask])
            out += self._network.run(subtask, level, epoch, by_target[subtask])
        return out

    def describe(self, positions: SourcePositions, savepoint: str | None) -> SourcePositions:
        """Return the positions: they are numbers of records, and need nothing else."""
        return positions

    def committed(self, positions: SourcePositions) -> None:
        """Nobody wants to know."""

    def lost(self) -> str | None:
        """Say no: this process is here."""
        return None

    def end(self) -> None:
        """Forget the attempt."""
        self._start = self._job = None

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _begun(self) -> tuple[AttemptStart, JobSide]:
        if self._start is None or self._job is None:
            msg = "no attempt is running"
            raise JobExecutionError(msg)
        return self._start, self._job
