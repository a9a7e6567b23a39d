"""The crash campaign: run one program to its end through crashes, and check what it wrote.

A scenario (a seed) and its crashes say everything, so a failing run is one line. The checker knows
only the input and the disk: every record of the right answer is there once, and nothing else is.

    python -m weir.testing.campaign [--unaligned] SEED POINT:KIND:VICTIM ...

With `--unaligned` barriers overtake rows, at pauses that follow from the seed too.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import list_completed, verify_files
from weir.errors import WeirError
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.settings import StateFileSettings
from weir.runtime.subtask import EpochInfo
from weir.storage.memory import MemoryStorage
from weir.testing.campaign_backends import BACKENDS, SHARES, settings_of
from weir.testing.campaign_program import TEXT_FOLDER, TRANSACTIONS_FOLDER, build, expected
from weir.testing.campaign_world import Crash, Kind, World
from weir.testing.harness import HarnessOptions, JobHarness
from weir.testing.harness_slots import DriverCrash, HarnessSlot, HarnessSlots

_ATTEMPTS_MAX = 12
_UNALIGNED = "--unaligned"
Sabotage = Callable[[JobHarness], None]


class Dice:
    """Numbers that look random and follow from a seed alone."""

    def __init__(self, seed: int) -> None:
        """Start a sequence."""
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """Return the next number from 0 to `limit - 1`."""
        self._count += 1
        # A checksum would do no good: its bits follow those of the seed.
        digest = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit


@dataclass(frozen=True)
class Scenario:
    """How a job is run when nothing goes wrong."""

    seed: int
    events: int
    rules: int
    parallelism: int
    partitions: int
    deferred: bool
    tolerable: int
    every: int
    repeated: bool = False
    backend: str = "hashmap"
    claim: ClaimMode = ClaimMode.NO_CLAIM
    inline_bytes: int = 0
    unaligned: bool = False

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Derive everything from a seed.

        Seeds of 0 and below are the fixed scenarios of the full enumeration, one per backend.
        """
        backends = list(BACKENDS)
        if seed <= 0:
            claim = ClaimMode.CLAIM if seed else ClaimMode.NO_CLAIM
            return cls(seed, 14, 2, 2, 2, False, 0, 2, backend=backends[-seed], claim=claim)
        dice = Dice(seed)
        return cls(
            seed,
            events=8 + dice.below(10),
            rules=1 + dice.below(3),
            parallelism=1 + dice.below(3),
            partitions=1 + dice.below(3),
            deferred=bool(dice.below(2)),
            tolerable=dice.below(2),
            every=1 + dice.below(3),
            repeated=bool(dice.below(2)),
            backend=SHARES[dice.below(len(SHARES))],
            claim=list(ClaimMode)[dice.below(3)],
            inline_bytes=(0, 0, 900)[dice.below(3)],
        )


@dataclass
class Result:
    """What became of a run."""

    steps: list[str]
    struck: list[str]
    problems: list[str] = field(default_factory=list)
    overtaken: int = 0


class _Run:
    """One run: attempts and jobs until the input is through."""

    def __init__(self, scenario: Scenario, world: World, sabotage: Sabotage | None) -> None:
        self.scenario = scenario
        self.world = world
        self.storage = MemoryStorage()
        self.jobs: list[JobHarness] = []
        self._sabotage = sabotage
        self._dice = Dice(scenario.seed + 1)
        self._zombies: list[tuple[HarnessSlots, HarnessSlot]] = []
        self._epochs = 0
        self.cut_short = False
        self.excused: list[str] = []
        self.overtaken = 0
        self._pauses = Dice(scenario.seed + 2)
        if scenario.unaligned:
            world.overtaker = self._overtake

    def _job(self) -> JobHarness:
        scenario = self.scenario
        settings = CheckpointSettings(
            retention=Retention.RETAIN_ON_CANCELLATION,
            tolerable_failures=scenario.tolerable,
            max_concurrent=1 if scenario.unaligned else 2,
            unaligned=scenario.unaligned,
        )
        options = HarnessOptions(
            storage=self.storage,
            checkpoints=settings,
            partitions=scenario.partitions,
            deferred=scenario.deferred,
            repeated=scenario.repeated,
            wait_for_checkpoints=True,
            hooks=self.world,
            backend=settings_of(scenario.backend),
            state_files=StateFileSettings(scenario.inline_bytes),
            claim=scenario.claim,
        )
        graph = build(self.world.name, scenario.events, scenario.rules)
        return JobHarness(graph, scenario.parallelism, options)

    def run(self) -> None:
        """Run until the job ends; every failure is followed by a failover or a new driver."""
        begin: Callable[[], Any] = self._adopt(self._job()).start
        for _ in range(_ATTEMPTS_MAX):
            following = self._attempt(begin)
            if following is None:
                return
            begin = following
        msg = "the job never ended"
        raise RuntimeError(msg)

    def _attempt(self, begin: Callable[[], Any]) -> Callable[[], Any] | None:
        """Run one attempt; returns how to begin the next one, None when the job is over."""
        try:
            begin()
            self._drive(self.jobs[-1])
        except DriverCrash:
            return None if self._is_over(self.jobs[-1]) else self._new_driver()
        except WeirError:
            return self._fail_over
        return None

    def _is_over(self, job: JobHarness) -> bool:
        """Tell whether a dead driver had done everything and left nothing to resume from."""
        self.cut_short = job.finished and not list_completed(self.storage, job.job_id)
        return self.cut_short

    def _adopt(self, job: JobHarness) -> JobHarness:
        self.jobs.append(job)
        self.world.harness = job
        if self._sabotage is not None:
            self._sabotage(job)
        return job

    def _fail_over(self) -> None:
        job = self.jobs[-1]
        old = job.slots
        job.end_slots()
        self._zombies += [(old, slot) for slot in job.zombies]
        job.zombies = []
        job.begin_attempt()

    def _new_driver(self) -> Callable[[], Any]:
        """The driver is gone; its slots are too, or linger until their lease ends."""
        job = self.jobs[-1]
        job.gone = True
        lingering = self._dice.below(2) == 0
        for slot in job.slots.slots:
            if lingering and not slot.dead:
                slot.lost = True
                self._zombies.append((job.slots, slot))
            else:
                job.slots.kill(slot)
        job.slots.bury()
        parallelism = 1 + self._dice.below(3) if self.scenario.seed > 0 else 2
        return self._adopt(job.successor(parallelism)).start

    def _drive(self, job: JobHarness) -> None:
        dice = self._dice
        # Long epochs where barriers overtake: there have to be rows on their way.
        most = 9 if self.scenario.unaligned else 4
        while not job.sources.exhausted:
            self._epochs += 1
            due = self._epochs % self.scenario.every == 0
            job.run_epoch(take=1 + dice.below(most), checkpoint=due)
            job.clock.advance(10)
            if dice.below(2):
                job.run_async()
            self._haunt()
        while self._zombies:
            self._haunt()
        job.finish()

    def _overtake(self) -> None:
        if self._pauses.below(7) == 0:
            self.overtaken += self.jobs[-1].overtake() is Outcome.SETTLED

    def _haunt(self) -> None:
        """Let a slot that was given up do what it was about to do, then end."""
        if not self._zombies:
            return
        slots, slot = self._zombies.pop(0)
        with suppress(WeirError):
            slots.run_deferred([slot])
        service, late = slot.service, EpochInfo(self.jobs[-1].epoch + 1)
        if service is not None:
            with suppress(WeirError):
                slots.guarded(slot, lambda: service.run(slots.attempt, 1, late, [], ""))
        if slot.dead:
            # Its remains came after the new attempt had cleaned up; the next one would find them.
            self.excused.append(f"{slots.job_id}-a{slot.attempt}-s{slot.subtask}-")
        slots.close(slot)


def run(
    seed: int,
    crashes: Sequence[Crash] = (),
    sabotage: Sabotage | None = None,
    *,
    unaligned: bool = False,
) -> Result:
    """Run a scenario with crashes and check everything that it left behind."""
    scenario = replace(Scenario.of(seed), unaligned=unaligned)
    world = World(crashes)
    running = _Run(scenario, world, sabotage)
    try:
        running.run()
    finally:
        world.close()
    return Result(world.labels, world.struck, _problems(running), running.overtaken)


def _problems(running: _Run) -> list[str]:
    scenario, disk = running.scenario, running.world.disk
    totals, matched = expected(scenario.events, scenario.rules)
    problems = _difference("text sink", totals, disk.lines(TEXT_FOLDER))
    problems += _difference("two-phase sink", matched, disk.lines(TRANSACTIONS_FOLDER))
    shown = [repr(r) for job in running.jobs for r in job.collected()]
    collected = _difference("collect", matched, shown)
    if len(running.jobs) > 1:
        # What a driver had released when it died is gone with it; nothing may come twice.
        collected = [p for p in collected if "lost" not in p]
    problems += collected
    # Nobody knows a job that died before its first checkpoint, so nobody cleans up behind it.
    unknown = [job.job_id for job in running.jobs[:-1] if not _left_checkpoint(running, job)]
    excused = [*unknown, *running.excused]
    hidden = [p for p in disk.hidden() if not any(name in p for name in excused)]
    problems += [f"hidden file left: {path}" for path in hidden]
    ended = running.jobs[-1].job_id
    problems += _damaged(running.storage)
    if running.cut_short:
        return problems
    problems += [f"checkpoint file left: {ended}/{n}" for n in running.storage.list(ended)]
    return problems


def _damaged(storage: MemoryStorage) -> list[str]:
    """Return what is wrong with checkpoints that exist, whoever they belong to."""
    stored = [s for job in storage.list() for s in list_completed(storage, job)]
    problems = [p for s in stored for p in verify_files(storage, s.directory, s.metadata)]
    return [f"complete checkpoint is damaged: {problem}" for problem in problems]


def _left_checkpoint(running: _Run, job: JobHarness) -> bool:
    return any(
        "_metadata" in running.storage.list(f"{job.job_id}/{name}")
        for name in running.storage.list(job.job_id)
    )


def _difference(where: str, wanted: list[str], found: list[str]) -> list[str]:
    lost = Counter(wanted) - Counter(found)
    surplus = Counter(found) - Counter(wanted)
    problems = [f"{where}: lost {line} x{n}" for line, n in lost.items()]
    return problems + [f"{where}: duplicated or wrong {line} x{n}" for line, n in surplus.items()]


def reproduction(seed: int, crashes: Sequence[Crash], *, unaligned: bool = False) -> str:
    """Return the command that repeats a run."""
    mode = [_UNALIGNED] if unaligned else []
    return " ".join(["python -m weir.testing.campaign", *mode, str(seed), *map(str, crashes)])


def random_crashes(seed: int, steps: int) -> list[Crash]:
    """Choose one to three crashes among the steps of a scenario."""
    dice = Dice(seed ^ 0x5EED)
    kinds = list(Kind)
    return [
        Crash(1 + dice.below(steps + steps // 4), kinds[dice.below(len(kinds))], dice.below(3))
        for _ in range(1 + dice.below(3))
    ]


def main(arguments: Sequence[str]) -> None:
    """Repeat one run and show what happened."""
    unaligned = _UNALIGNED in arguments
    seed, *crashes = [a for a in arguments if a != _UNALIGNED]
    outcome = run(int(seed), [Crash.parse(text) for text in crashes], unaligned=unaligned)
    out = [*outcome.struck, f"{len(outcome.steps)} steps", *(outcome.problems or ["all is well"])]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
