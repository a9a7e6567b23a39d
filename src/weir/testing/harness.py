"""A whole job in one process on a manual clock: everything of the engine but Spark.

`JobHarness` compiles a program and hands it to the supervisor that every job has, with an engine
and slots in this process. Nothing of a job is done here: a test decides when batches come and when
the supervisor takes a turn, and what dies before that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from weir.backend.factory import BackendSettings
from weir.checkpoint.decider import RequestKind
from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed
from weir.connector.decoder import Partition
from weir.errors import JobExecutionError, UsageError, WeirError
from weir.graph.kinds import COLLECT
from weir.graph.plan import JobPlan, OperatorNode, compile_plan
from weir.graph.runtime_mode import RuntimeMode, runs_in_batch
from weir.graph.transformation import StreamGraph
from weir.ids import new_job_id
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.control import JobControl
from weir.jobmanager.job_states import Busy, Closing, Idle, Over, Restarting
from weir.jobmanager.origin import start_from
from weir.jobmanager.overtake import BarrierEpoch, CutSlots, Outcome, Overtaking
from weir.jobmanager.recovery import BehindCommits, RestorePoint, candidates, load_restore_point
from weir.jobmanager.restart import FixedDelayRestart, RestartStrategy
from weir.jobmanager.restoration import JobSpec
from weir.jobmanager.results import Results
from weir.jobmanager.settings import JobSettings, LocalRecovery, StateFileSettings
from weir.jobmanager.supervisor import Supervisor
from weir.jobmanager.surroundings import Surroundings
from weir.keygroup import key_group, subtask_of
from weir.runtime.epoch import Barrier
from weir.runtime.memory import MemoryLimits
from weir.runtime.metrics import by_name
from weir.runtime.operator import Operator
from weir.storage.base import Storage
from weir.storage.memory import MemoryStorage
from weir.testing.clock import ManualClock
from weir.testing.engine import InProcessEngine, Reading
from weir.testing.harness_slots import Hooks, InProcessNetwork, SlotSettings
from weir.testing.harness_sources import HarnessSources, Records

_SETTINGS = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION)
# A test says when an attempt fails; how often it may is not what it tests.
_RESTART = FixedDelayRestart(attempts=1_000_000, delay_ms=0)
_TURNS_MAX = 200
_PATIENT_TURNS = 10
_PAUSE_MS = 5_000


def collect(stream: Any) -> int:
    """End a stream in a collecting sink, as `execute_and_collect` does; returns its handle."""
    return int(stream._declare(COLLECT, "Sink: Collect").id)


@dataclass
class HarnessOptions:
    """How a job is run; the defaults suit most tests.

    `partitions` is the number of tasks that read the sources in an epoch, `partition_of` says which
    partition of its source a record is of; `deferred` lets async phases wait
    for `run_async`; `repeated` calls every slot twice, as Spark does after a task failed;
    `wait_for_checkpoints` holds collected records back until they are covered. State goes to
    files of any size unless `state_files` says otherwise; `claim` is what a successor may do with
    the checkpoint that it starts from. Without `one_host` the driver does not look at the slots'
    local copies, as if they were on other hosts. In epochs whose barrier may overtake rows, slots
    handle `slice_rows` records at a time. With `mode` BATCH the job runs in batch mode, and so it
    does with AUTOMATIC if its sources are bounded.

    Example:
        collect(numbers.map(lambda n: n + 1))
        JobHarness(env.build_graph(), 2, HarnessOptions())
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
    behind_commits: BehindCommits = BehindCommits.REFUSE
    restart: RestartStrategy = _RESTART
    savepoint_dir: str | None = None
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    local: LocalRecovery = field(default_factory=LocalRecovery)
    one_host: bool = True
    partition_of: Callable[[Any], Partition] | None = None
    mode: RuntimeMode = RuntimeMode.STREAMING


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
            super().take(epoch, index, kind, values, to_stderr=to_stderr)

    def _release(self, index: int, values: list[Any]) -> None:
        self.released[index].extend(values)


class JobHarness:
    """One job; `restart` gives the next one of the same program.

    A test sets `gone` when the driver is dead and hears nothing any more.

    Example:
        collect(numbers.map(lambda n: n * 2).uid("doubled"))
        job = JobHarness(env.build_graph(), parallelism=2).start()
        job.run()
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
        self.options = options = options or HarnessOptions()
        self.clock = options.clock
        self.job_id = new_job_id()
        self.storage = options.hooks.storage(options.storage, None)
        self.results = _Collected(options.wait_for_checkpoints)
        self.slots = InProcessNetwork(
            SlotSettings(
                storage=options.storage,
                clock=options.clock,
                hooks=options.hooks,
                deferred=options.deferred,
                slice_rows=options.slice_rows,
            )
        )
        self.engine = InProcessEngine(
            self.job_id,
            self.slots,
            options.clock,
            options.hooks,
            reading=Reading(options.partitions, options.repeated, options.partition_of),
        )
        self._restore = restore
        self._sent: BarrierEpoch | None = None
        batch = runs_in_batch(graph, options.mode)
        self.supervisor = self._supervisor(compile_plan(graph, parallelism, batch=batch))
        self.control = JobControl(self.supervisor)

    def _supervisor(self, plan: JobPlan) -> Supervisor:
        options, restore = self.options, self._restore
        settings = JobSettings(
            checkpoint=options.checkpoints,
            savepoint_dir=options.savepoint_dir,
            restart=options.restart,
            allow_non_restored=options.allow_non_restored,
            without_rows_of=options.without_rows_of,
            behind_commits=options.behind_commits,
            backend=options.backend,
            state_files=options.state_files,
            claim_mode=options.claim,
            job_parameters=options.job_parameters,
            memory=options.memory,
            local=options.local,
        )
        spec = JobSpec(
            job_id=self.job_id,
            plan=plan,
            settings=settings,
            storage=self.storage,
            graph=self._graph,
            claim=start_from(restore, plan, settings, options.storage),
            lineage=() if restore is None else (restore.metadata.job_id,),
            one_host=options.one_host,
        )
        surroundings = Surroundings(
            clock=self.clock,
            overtaking=self._overtaking,
            chance=lambda: 0.5,
            wait=_refuse_to_wait,
            reach=options.hooks.step,
        )
        return Supervisor(spec, self.engine, self.slots, self.results, surroundings=surroundings)

    def start(self) -> JobHarness:
        """Begin the first attempt."""
        self.supervisor.open()
        self.supervisor.start()
        self.turn()
        return self

    def turn(self) -> None:
        """Let the supervisor take a turn.

        Raises:
            WeirError: what failed the attempt.
        """
        self.supervisor.turn()
        self._raise_failure()

    @property
    def plan(self) -> JobPlan:
        """The plan that runs."""
        return self.supervisor.plan

    @property
    def runner(self) -> CheckpointRunner:
        """The job's checkpoints."""
        return self.supervisor.checkpoints

    @property
    def sources(self) -> HarnessSources:
        """All records of all sources, and how far they were read."""
        return self.engine.sources

    @property
    def attempt(self) -> int:
        """The number of the current attempt."""
        return self.slots.attempt

    @property
    def epoch(self) -> int:
        """The number of the last epoch."""
        epochs = self.supervisor.job.epochs
        if isinstance(epochs, Idle | Busy):
            return epochs.number
        return 0 if self.engine.ran is None else self.engine.ran.number

    @property
    def finished(self) -> bool:
        """Tell whether the input is through and committed."""
        state = self.supervisor.job.state
        return isinstance(state, Closing | Over) and state.end is JobEnd.FINISHED

    @property
    def failure(self) -> WeirError | None:
        """What failed the newest attempt, until the next one begins."""
        state = self.supervisor.job.state
        return state.error if isinstance(state, Restarting | Closing | Over) else None

    @property
    def gone(self) -> bool:
        """Tell whether the driver is dead."""
        return self.slots.gone

    @gone.setter
    def gone(self, value: bool) -> None:
        self.slots.gone = value

    def run_epoch(
        self, records: Records = (), *, take: int | None = None, checkpoint: bool = False
    ) -> Barrier | None:
        """Run one epoch over what has arrived, at most `take` records of every source.

        Raises:
            WeirError: what failed the attempt; only `fail_over` helps.
        """
        self.sources.arrive(records)
        if checkpoint:
            self.runner.request(RequestKind.MANUAL, force=True)
        return self._offer(take)

    def _offer(self, take: int | None) -> Barrier | None:
        self._raise_failure()
        self.engine.ran = None
        try:
            self.engine.offer(take)
        except Exception as error:
            raise self.failure or error from error
        self._raise_failure()
        ran = self.engine.ran
        return None if ran is None else ran.barrier

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def overtake(self) -> Outcome:
        """Let the barrier of the running epoch overtake rows now, as the driver's thread does."""
        if self._sent is None:
            return Outcome.GIVEN_UP
        with self.options.hooks.process(None):
            self.options.hooks.step("the barrier overtakes")
            outcome = Overtaking(self.slots, self.runner, self._sent).attempt()
        if outcome is not Outcome.NOT_YET:
            self._sent = None
        return outcome

    @contextmanager
    def _overtaking(
        self, slots: CutSlots, runner: CheckpointRunner, sent: BarrierEpoch | None
    ) -> Iterator[None]:
        self._sent = sent
        try:
            yield
        finally:
            self._sent = None

    def checkpoint(self) -> int:
        """Take a checkpoint now, in an epoch without input; returns its id."""
        self.runner.request(RequestKind.MANUAL, force=True)
        barrier = self._offer(0)
        if barrier is None:
            msg = "the coordinator did not start a checkpoint"
            raise JobExecutionError(msg)
        return barrier.checkpoint_id

    def run_async(self) -> None:
        """Let async phases that were deferred run now."""
        self.slots.run_deferred()
        self._raise_failure()

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
        if not self.sources.exhausted:
            self._offer(None)
        self.engine.over = True
        self.turn_until(lambda: isinstance(self.supervisor.job.state, Over))

    def turn_until(self, reached: Callable[[], bool]) -> None:
        """Let the supervisor take turns until something is so; deferred work is done meanwhile.

        Raises:
            WeirError: what failed the attempt.
            RuntimeError: nothing changes any more.
        """
        for turns in range(_TURNS_MAX):
            self.turn()
            if reached():
                return
            self.run_async()
            if turns >= _PATIENT_TURNS:
                # Only time can help now: a slot that is dead or hangs is noticed by its lease.
                self.clock.advance(_PAUSE_MS)
        msg = f"the job stays as it is: {type(self.supervisor.job.state).__name__}"
        raise RuntimeError(msg)

    def end(self, how: JobEnd) -> None:
        """End the job: slots leave, checkpoints are kept or deleted."""
        self.supervisor.cancel(how)
        self.supervisor.turn()

    def kill_slot(self, subtask: int) -> None:
        """Take a slot's process away; the driver learns it with the next call."""
        self.slots.kill(self.slots.slots[subtask])

    def fail_over(self) -> None:
        """Start a new attempt from the newest checkpoint that is whole.

        Raises:
            WeirError: what failed the new attempt, or ended the job.
        """
        job = self.supervisor.job
        if not isinstance(job.state, Restarting):
            self.supervisor.fail(job.attempt, JobExecutionError("a test lets the attempt fail"))
        before = job.attempt
        for _ in range(_TURNS_MAX):
            if not isinstance(job.state, Restarting) or job.attempt != before:
                break
            self.supervisor.turn()
        self._raise_failure()

    def end_slots(self) -> None:
        """Tell all slots to leave; those that do not hear it are among the zombies afterwards."""
        self.slots.dismiss([], "a test lets them leave")

    def restart(self, parallelism: int = 2) -> JobHarness:
        """End this job and start a new one from its last checkpoint."""
        self.end(JobEnd.CANCELED)
        return self.successor(parallelism).start()

    def successor(self, parallelism: int = 2, savepoints: Sequence[str] = ()) -> JobHarness:
        """Return a new job, not yet started, that resumes from what is on the storage.

        That is the newest of this job's checkpoints, of the savepoints at these URIs, and of what
        this job started from.
        """
        stored = list_completed(self.options.storage, self.job_id)
        refs = [CheckpointRef(s.metadata.checkpoint_id, s.directory) for s in stored]
        usable = [c.point for c in candidates(self.options.storage, refs) if c.point is not None]
        usable += [load_restore_point(uri) for uri in savepoints]
        usable += [] if self._restore is None else [self._restore]
        newest = max(usable, key=lambda p: p.metadata.checkpoint_id, default=None)
        successor = JobHarness(self._graph, parallelism, self.options, newest)
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

    def metrics(self, name: str) -> dict[str, list[Any]]:
        """Return the metrics of an operator (by uid or name), each with a value per subtask."""
        reports = self.supervisor.reports.all()
        return by_name(reports, self._node(name).index, self.clock.now_ms())

    def _node(self, name: str) -> OperatorNode:
        return next(op for op in self.plan.operators if name in (op.uid, op.name))


def _refuse_to_wait(changed: object) -> None:
    msg = "a batch was offered while the job ends: let the supervisor take turns first"
    raise UsageError(msg)
