"""A whole job in one process on a manual clock: everything of the engine but Spark.

`JobHarness` compiles a program and drives the real pieces: source side, frames, slots, checkpoint
runner and coordinator, storage, recovery. Spark's part, moving frames and calling slots, is plain
calls here, so a test decides when anything happens, and what dies before it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import cloudpickle

from weir.backend.factory import BackendSettings
from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.decider import RequestKind
from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed
from weir.errors import JobExecutionError, WeirError
from weir.graph.plan import OperatorNode, compile_plan
from weir.graph.transformation import StreamGraph
from weir.ids import new_job_id
from weir.jobmanager.checkpoints import Barrier, CheckpointEvents, CheckpointRunner
from weir.jobmanager.claims import ClaimMode, decide_claim
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.failures import from_failure
from weir.jobmanager.overtake import BarrierEpoch, Outcome, Overtaking
from weir.jobmanager.recovery import (
    RestorePoint,
    adopt_max_parallelism,
    assignments,
    in_flight_sources,
    newest_valid,
    rebased,
)
from weir.jobmanager.results import Results
from weir.jobmanager.settings import StateFileSettings
from weir.keygroup import key_group, subtask_of
from weir.runtime.frame import REPORT_EDGE, Chunk, Frame, unpack_report
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.source_side import SourceSide
from weir.runtime.subtask import EpochInfo
from weir.slot.messages import Acknowledge, Assignment, Decline, OperatorRestore
from weir.slot.service import failure_message
from weir.storage.base import Storage
from weir.storage.memory import MemoryStorage
from weir.testing.clock import ManualClock
from weir.testing.harness_slots import HarnessSlot, HarnessSlots, Hooks, Message, SlotSettings
from weir.testing.harness_sources import HarnessSources, Records, split

T = TypeVar("T")
_SETTINGS = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION)


def collect(stream: Any) -> int:
    """End a stream in a collecting sink, as `execute_and_collect` does; returns its handle."""
    return int(stream._declare("collect", "Sink: Collect").id)


@dataclass
class HarnessOptions:
    """How a job is run; the defaults suit most tests.

    `partitions` is the number of source partitions of an epoch; `deferred` lets async phases wait
    for `run_async`; `repeated` calls every slot twice, as Spark does after a task failed;
    `wait_for_checkpoints` holds collected records back until they are covered. State goes to
    files of any size unless `state_files` says otherwise; `claim` is what a successor may do with
    the checkpoint that it starts from. In epochs whose barrier may overtake rows, slots handle
    `slice_rows` records at a time.
    """

    storage: Storage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)
    checkpoints: CheckpointSettings = _SETTINGS
    partitions: int = 2
    deferred: bool = False
    repeated: bool = False
    wait_for_checkpoints: bool = False
    hooks: Hooks = field(default_factory=Hooks)
    job_parameters: dict[str, str] = field(default_factory=dict)
    backend: BackendSettings = field(default_factory=BackendSettings)
    state_files: StateFileSettings = field(default_factory=lambda: StateFileSettings(0))
    claim: ClaimMode = ClaimMode.NO_CLAIM
    slice_rows: int = 1
    allow_non_restored: bool = False
    without_rows_of: int = -1


class _Collected(Results):
    """Keeps released and printed records in lists."""

    def __init__(self, wait_for_checkpoints: bool) -> None:
        super().__init__(wait_for_checkpoints)
        self.released: dict[int, list[Any]] = defaultdict(list)
        self.printed: list[str] = []

    def take(self, epoch: int, index: int, kind: str, values: list[Any], to_stderr: bool) -> None:
        """Take reported records."""
        if kind == "print":
            self.printed.extend(values)
        else:
            super().take(epoch, index, kind, values, to_stderr)

    def _release(self, index: int, values: list[Any]) -> None:
        self.released[index].extend(values)


class JobHarness:
    """One job; `restart` gives the next one of the same program.

    `finished` says that the input is through and committed; a test sets `gone` when the driver is
    dead and hears nothing any more.
    """

    def __init__(
        self,
        graph: StreamGraph,
        parallelism: int = 2,
        options: HarnessOptions | None = None,
        restore: RestorePoint | None = None,
    ) -> None:
        """Compile the program; `start` begins its first attempt.

        Raises:
            WeirError: the program or the restored state is refused.
        """
        self._graph = graph
        self.options = options or HarnessOptions()
        self.clock = self.options.clock
        self._hooks = self.options.hooks
        self.job_id = new_job_id()
        self.plan = compile_plan(graph, parallelism)
        self.sources = HarnessSources(self.plan)
        self._claim = decide_claim(self.options.claim, restore, self.options.storage)
        self._initial = restore = self._claim.point
        if restore is not None:
            adopt_max_parallelism(self.plan, restore, self.options.allow_non_restored)
        self._plan_bytes = cloudpickle.dumps(self.plan)
        self.results = _Collected(self.options.wait_for_checkpoints)
        self.storage = self._hooks.storage(self.options.storage, None)
        self.attempt = -1
        self.epoch = 0
        self.finished = False
        self.gone = False
        self.zombies: list[HarnessSlot] = []
        self.failure: WeirError | None = None
        self._epochs: dict[int, int] = {}
        self._read = self.sources.positions(0)
        self._sent: BarrierEpoch | None = None
        first = 1 if restore is None else restore.metadata.checkpoint_id + 1
        self.slots = self._new_slots(0)
        coordinator = CheckpointCoordinator(
            self.options.checkpoints,
            self.job_id,
            next_checkpoint_id=first,
            completed=() if self._claim.owned is None else (self._claim.owned,),
        )
        self.runner = CheckpointRunner(
            coordinator,
            CheckpointFiles(self.storage, self.job_id, self._claim),
            _CurrentSlots(self),
            self.plan,
            self.clock,
            CheckpointEvents(self._completed, self._fail, overtook=self._overtook),
        )

    def start(self) -> JobHarness:
        """Begin the first attempt."""
        self.begin_attempt()
        return self

    def _new_slots(self, attempt: int) -> HarnessSlots:
        lineage: tuple[str, ...] = ()
        if self._initial is not None:
            lineage = (self._initial.metadata.job_id,)
        settings = SlotSettings(
            self.job_id,
            self.options.storage,
            self.clock,
            partial(self._receive, attempt),
            self._hooks,
            lineage,
            self.options.deferred,
            self.options.slice_rows,
        )
        return HarnessSlots(self._plan_bytes, attempt, settings)

    def begin_attempt(self) -> None:
        """Fence the attempt before, restore the newest checkpoint, rewind the sources."""
        self.attempt += 1
        self.failure = None
        self._hooks.step("attempt begins")
        self.results.drop_unreleased()
        self.slots = self._new_slots(self.attempt)
        self.runner.failover(self.attempt)
        point = self._choose()
        parts: list[list[OperatorRestore]] = [[] for _ in range(self.plan.slots)]
        if point is not None:
            point = rebased(point, self.job_id)
            parts = assignments(self.plan, point, self.options.allow_non_restored)
        self.sources.rewind(None if point is None else point.metadata.sources)
        self.epoch = 0 if point is None else point.metadata.epoch
        self._read, self._sent = self.sources.positions(self.epoch), None
        self.runner.start_periodic()
        for part in parts:
            self._raise_failures(partial(self.slots.start, self._assignment(point, part)))
        self._hooks.step("attempt runs")
        if in_flight_sources(point, self.options.without_rows_of):
            self._raise_failures(lambda: self._run_epoch({}, final=False))

    def _choose(self) -> RestorePoint | None:
        refs = self.runner.coordinator.completed
        point, problems = newest_valid(self.storage, self.storage.uri, refs)
        if point is None and refs:
            raise JobExecutionError("; ".join(problems))
        return point or self._initial

    def _assignment(self, point: RestorePoint | None, part: list[OperatorRestore]) -> Assignment:
        files = self.options.state_files
        return Assignment(
            job_id=self.job_id,
            job_name=self.plan.job_name,
            plan=b"",
            storage_uri=self.storage.uri,
            job_dir="",
            backend=self.options.backend,
            lineage=[],
            heartbeat_ms=0,
            lease_ms=0,
            checkpoint_id=None if point is None else point.metadata.checkpoint_id,
            restore_uri=self.storage.uri,
            restore_directory="" if point is None else point.directory,
            restore=part,
            job_parameters=self.options.job_parameters,
            inline_bytes=files.inline_bytes,
            compress=files.compress,
            in_memory=files.in_memory,
            reusable=point is not None and self._claim.may_refer_to(point),
            in_flight=in_flight_sources(point, self.options.without_rows_of),
            allow_non_restored=self.options.allow_non_restored,
        )

    def run_epoch(
        self,
        records: Records = (),
        *,
        take: int | None = None,
        checkpoint: bool = False,
        final: bool = False,
    ) -> Barrier | None:
        """Run one epoch over what has arrived, at most `take` records of every source.

        Raises:
            WeirError: what failed the attempt; only `fail_over` helps.
        """
        self.sources.arrive(records)
        if checkpoint:
            self.runner.request(RequestKind.MANUAL, force=True)
        return self._raise_failures(lambda: self._run_epoch(self.sources.take(take), final))

    def _run_epoch(self, taken: dict[int, list[Any]], final: bool) -> Barrier | None:
        self.epoch += 1
        self._hooks.step("epoch begins")
        before, self._read = self._read, self.sources.positions(self.epoch)
        barrier = self.runner.begin_epoch(self.epoch, lambda _: self._read)
        self._hooks.step("epoch is decided")
        info = EpochInfo(self.epoch, final=final)
        directory = ""
        if barrier is not None:
            directory = barrier.directory
            self._epochs[barrier.checkpoint_id] = self.epoch
            info = barrier.info(self.epoch, final=final)
            self._sent = BarrierEpoch(barrier, self.epoch, lambda: before)
        frames = self._source_frames(taken, info)
        for level in range(1, self.plan.levels):
            frames = self._level(level, info, frames, directory)
        self._take_reports(frames)
        self._sent = None
        self._hooks.step("epoch's results are here")
        self.runner.epoch_done(barrier)
        self._hooks.step("epoch is done")
        return barrier

    def overtake(self) -> Outcome:
        """Let the barrier of the running epoch overtake rows now, as the driver's thread does."""
        if self._sent is None or not self._sent.barrier.overtaking:
            return Outcome.GIVEN_UP
        with self._hooks.process(None):
            self._hooks.step("the barrier overtakes")
            outcome = Overtaking(self.slots, self.runner, self._sent).attempt()
        if outcome is not Outcome.NOT_YET:
            self._sent = None
        return outcome

    def _source_frames(self, taken: dict[int, list[Any]], info: EpochInfo) -> list[Frame]:
        """Level 0; an epoch without input has none, as on Spark."""
        if not any(taken.values()):
            return []
        parts = self.options.partitions
        frames: list[Frame] = []
        for partition in range(parts):
            facts = TaskFacts(
                self.job_id,
                self.plan.job_name,
                self.attempt,
                partition,
                self.clock,
                lambda index, kind, values: None,
            )
            try:
                side = SourceSide(cloudpickle.loads(self._plan_bytes), facts)
                for source, values in taken.items():
                    side.feed(source, Chunk(split(values, parts)[partition]))
                frames += [*side.take_frames(), *side.finish(info.checkpoint_id)]
            except WeirError as error:
                raise from_failure(failure_message(self.attempt, -1, error), "") from error
        return frames

    def _level(
        self, level: int, info: EpochInfo, frames: list[Frame], directory: str
    ) -> list[Frame]:
        by_target: dict[int, list[Frame]] = defaultdict(list)
        # Backwards: what a shuffle does to the order must not matter.
        for frame in reversed(frames):
            by_target[frame.target].append(frame)
        out: list[Frame] = []
        for subtask in range(self.plan.level_parallelism[level]):
            if self.options.repeated:
                self.slots.run(subtask, level, info, by_target[subtask], directory)
            out += self.slots.run(subtask, level, info, by_target[subtask], directory)
        return out

    def _take_reports(self, frames: list[Frame]) -> None:
        reports = [unpack_report(f.payload) for f in frames if f.edge == REPORT_EDGE]
        for report in sorted(reports, key=lambda r: (r["level"], r["subtask"])):
            for index, kind, values in report["rows"]:
                self.results.take(report["epoch"], index, kind, values, False)

    def _raise_failures(self, work: Callable[[], T]) -> T:
        """Do a part of the driver's work; what slots and checkpoints report is raised instead."""
        try:
            result = work()
        except WeirError as error:
            raise self.failure or error from error
        if self.failure is not None:
            raise self.failure
        return result

    def checkpoint(self) -> int:
        """Take a checkpoint now, in an epoch without input; returns its id."""
        self.runner.request(RequestKind.MANUAL, force=True)
        barrier = self._raise_failures(lambda: self._run_epoch({}, final=False))
        if barrier is None:
            msg = "the coordinator did not start a checkpoint"
            raise JobExecutionError(msg)
        return barrier.checkpoint_id

    def run_async(self) -> None:
        """Let async phases that were deferred run now."""
        self._raise_failures(self.slots.run_deferred)

    def run(self, take: int | None = None) -> JobHarness:
        """Run everything to the end of the input."""
        while not self.sources.exhausted:
            self.run_epoch(take=take)
        self.finish()
        return self

    def finish(self) -> None:
        """End the bounded input: last epoch, last checkpoint, end of the job.

        Raises:
            WeirError: the last checkpoint or its commits failed.
        """
        self.runner.request(RequestKind.MANUAL, force=True, token="final")
        barrier = self._raise_failures(lambda: self._run_epoch(self.sources.take(), final=True))
        self.run_async()
        if barrier is None or not self.runner.is_completed(barrier.checkpoint_id):
            msg = "the last checkpoint was not completed"
            raise JobExecutionError(msg)
        self.finished = True
        self.end(JobEnd.FINISHED)

    def end(self, how: JobEnd) -> None:
        """End the job: slots leave, checkpoints are kept or deleted."""
        self._hooks.step("job ends")
        self.end_slots()
        self.runner.end(how)
        self._hooks.step("job has ended")

    def kill_slot(self, subtask: int) -> None:
        """Take a slot's process away; the driver learns it with the next call."""
        self.slots.kill(self.slots.slots[subtask])

    def fail_over(self) -> None:
        """Start a new attempt from the newest checkpoint that is whole."""
        self.end_slots()
        self.begin_attempt()

    def end_slots(self) -> None:
        """Tell all slots to leave; those that do not hear it are among `zombies` afterwards."""
        self.zombies += self.slots.leave()

    def restart(self, parallelism: int = 2) -> JobHarness:
        """End this job and start a new one from its last checkpoint."""
        self.end(JobEnd.CANCELED)
        return self.successor(parallelism).start()

    def successor(self, parallelism: int = 2) -> JobHarness:
        """Return a new job, not yet started, that resumes from what is on the storage."""
        stored = list_completed(self.options.storage, self.job_id)
        refs = [CheckpointRef(s.metadata.checkpoint_id, s.directory) for s in stored]
        point, _ = newest_valid(self.options.storage, self.options.storage.uri, refs)
        successor = JobHarness(self._graph, parallelism, self.options, point or self._initial)
        successor.sources.inherit(self.sources)
        return successor

    def collected(self, handle: int | None = None) -> list[Any]:
        """Return the records that a `collect` released so far; the only one unless told."""
        nodes = [op for op in self.plan.operators if op.kind == "collect"]
        chosen = [op for op in nodes if handle in (None, op.transformation_id)]
        return self.results.released[chosen[0].index]

    @property
    def printed(self) -> list[str]:
        """Return the lines that `print` showed."""
        return self.results.printed

    def operators(self, name: str) -> Iterator[Operator]:
        """Return the running operators of a uid or name, by subtask."""
        node = self._node(name)
        for slot in self.slots.slots[: node.parallelism]:
            if slot.operators is not None:
                yield slot.operators.operators[node.index]

    def state(self, name: str, descriptor: Any, key: Any) -> Any:
        """Return a keyed state of an operator (by uid or name), at a key."""
        node = self._node(name)
        group = key_group(key, node.max_parallelism)
        owner = subtask_of(group, node.parallelism, node.max_parallelism)
        operator: Any = list(self.operators(name))[owner]
        current = operator.backend.current
        current.key, current.group = key, group
        return operator.runtime_context.get_state(descriptor)

    def _node(self, name: str) -> OperatorNode:
        return next(op for op in self.plan.operators if name in (op.uid, op.name))

    def _receive(self, attempt: int, message: Message) -> None:
        """Take a message of a slot; only slots of the current attempt can fail it."""
        if self.gone:
            return
        if isinstance(message, Acknowledge):
            self.runner.acknowledge(message)
        elif isinstance(message, Decline):
            self.runner.decline(message)
        elif message.attempt == self.attempt and self.failure is None:
            self.failure = from_failure(message, "")

    def _completed(self, ref: CheckpointRef) -> None:
        epoch = self._epochs.pop(ref.checkpoint_id, 0)
        # A failover does not go back to a savepoint, so what it covers may come again.
        if ref in self.runner.coordinator.completed:
            self.results.release_up_to(epoch)

    def _overtook(self, checkpoint_id: int) -> None:
        self._epochs[checkpoint_id] -= 1

    def _fail(self, message: str) -> None:
        if self.failure is None:
            self.failure = JobExecutionError(message)


class _CurrentSlots:
    """The slots of whichever attempt is current."""

    def __init__(self, harness: JobHarness) -> None:
        self._harness = harness

    def complete(self, checkpoint_id: int) -> list[tuple[str, list[bytes]]]:
        return self._harness.slots.complete(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        self._harness.slots.aborted(checkpoint_id)
