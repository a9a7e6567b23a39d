"""A damaged newest checkpoint, and a fault at every step of going back behind its commits.

What the sinks show in the end is right: exactly once where output is taken back, and nothing lost
where it is written again.
"""

from __future__ import annotations

from collections import Counter

import pytest

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed
from weir.connector.file_sink import FileSink
from weir.datastream import StreamExecutionEnvironment
from weir.errors import JobExecutionError, WeirError
from weir.jobmanager.job_states import Over
from weir.jobmanager.recovery import BehindCommits
from weir.storage.memory import MemoryStorage
from weir.testing.campaign_program import TEXT_FOLDER, TRANSACTIONS_FOLDER, Totals, events
from weir.testing.campaign_world import Crash, Kind, World, WorldFileSystem
from weir.testing.harness import HarnessOptions, JobHarness
from weir.testing.harness_slots import DriverCrash
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

pytestmark = pytest.mark.campaign

EVENTS = 12
EPOCHS_BEFORE = 3
SETTINGS = CheckpointSettings(
    num_retained=3, retention=Retention.RETAIN_ON_CANCELLATION, tolerable_failures=1
)
KINDS = (Kind.SLOT, Kind.ALL_SLOTS, Kind.DRIVER, Kind.REFUSED, Kind.UNKNOWN, Kind.ENGINE)


class Fallback:
    """A job whose newest checkpoint is damaged behind an epoch, once; drivers follow dead ones."""

    def __init__(self, behind: BehindCommits, crashes: list[Crash]) -> None:
        self.world = World(crashes)
        self.storage = MemoryStorage()
        self.behind = behind
        self.damaged_at = 0
        self.epochs = 0

    def run(self) -> Fallback:
        job = self._adopt(JobHarness(self._graph(), 2, self._options()))
        try:
            for _ in range(8):
                if self._lives(job) or self._left_nothing(job):
                    return self
                job = self._adopt(job.successor(1 + self.epochs % 3))
        finally:
            self.world.close()
        msg = "no driver came to the end"
        raise RuntimeError(msg)

    def _lives(self, job: JobHarness) -> bool:
        try:
            self._live(job)
        except DriverCrash:
            for slot in job.slots.slots:
                job.slots.kill(slot)
            job.slots.bury()
            job.gone = True
            return False
        return True

    def _left_nothing(self, job: JobHarness) -> bool:
        return job.finished and not list_completed(self.storage, job.job_id)

    def _options(self) -> HarnessOptions:
        return HarnessOptions(
            storage=self.storage,
            checkpoints=SETTINGS,
            hooks=self.world,
            behind_commits=self.behind,
        )

    def _graph(self):
        env = StreamExecutionEnvironment()
        keyed = env.from_collection(events(EVENTS)).uid("events").key_by(lambda e: e[1])
        totals = keyed.process(_Plain()).uid("totals")
        files = WorldFileSystem(self.world.name)
        totals.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(files)).uid("text")
        if self.behind is BehindCommits.REPEAT:
            sink = ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, files)
            totals.sink_to(sink).uid("transactions")
        return env.build_graph("fallback")

    def _adopt(self, job: JobHarness) -> JobHarness:
        self.world.harness = job
        return job

    def _live(self, job: JobHarness) -> None:
        self._tried(job, job.start)
        while not isinstance(job.supervisor.job.state, Over):
            self._tried(job, lambda: self._step(job))

    def _tried(self, job: JobHarness, work) -> None:
        for _ in range(12):
            if self._works(work):
                return
            assert not isinstance(job.supervisor.job.state, Over), job.failure
            work = job.fail_over
        msg = "no attempt runs"
        raise RuntimeError(msg)

    @staticmethod
    def _works(work) -> bool:
        try:
            work()
        except WeirError:
            return False
        return True

    def _step(self, job: JobHarness) -> None:
        if job.sources.exhausted:
            job.finish()
            return
        job.run_epoch(take=2, checkpoint=True)
        self.epochs += 1
        stored = list_completed(self.storage, job.job_id)
        if not self.damaged_at and self.epochs >= EPOCHS_BEFORE and len(stored) > 1:
            self._damage(stored[0].directory)
            job.supervisor.fail(job.supervisor.job.attempt, JobExecutionError("damage"))
            job.fail_over()

    def _damage(self, directory: str) -> None:
        self.damaged_at = len(self.world.labels)
        path = f"{directory}/{self.storage.list(directory)[-1]}"
        data = self.storage.read(path)
        self.storage.delete(path)
        self.storage.create(path, data[:-1])


class _Plain(Totals):
    """Running totals without timers, so that every line follows from the events alone."""

    def process_element(self, value, ctx):
        total = (self._total.value() or 0) + value[0]
        self._total.update(total)
        yield (value[1], value[0], total)


def expected() -> Counter[str]:
    sums: Counter[str] = Counter()
    found = []
    for number, key, _, _ in events(EVENTS):
        sums[key] += number
        found.append(str((key, number, sums[key])))
    return Counter(found)


def check(job: Fallback) -> None:
    found = Counter(job.world.disk.lines(TEXT_FOLDER))
    if job.behind is BehindCommits.TAKE_BACK:
        assert found == expected()
        return
    assert set(found) == set(expected())
    assert set(job.world.disk.lines(TRANSACTIONS_FOLDER)) == set(expected())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [BehindCommits.TAKE_BACK, BehindCommits.REPEAT])
def test_a_fault_at_any_step_of_going_back(behind: BehindCommits, kind: Kind) -> None:
    plain = Fallback(behind, []).run()
    check(plain)
    assert plain.damaged_at
    stride = 13 if behind is BehindCommits.TAKE_BACK else 41
    steps = len(plain.world.labels)
    for point in (*range(plain.damaged_at, steps, stride), steps - 1):
        crash = Crash(point, kind, point)
        try:
            check(Fallback(behind, [crash]).run())
        except Exception as error:
            msg = f"{behind.value} {crash}: {error}"
            raise AssertionError(msg) from error
