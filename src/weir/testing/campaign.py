"""The crash campaign: run a program to its end through crashes, and check what it wrote.

A scenario (a seed) and its crashes say everything, so a failing run is one line. The checker knows
only the input and the disk: every record of the right answer is there once, and nothing else is.

    python -m weir.testing.campaign [--PROGRAM] [--MODE] SEED POINT:KIND:VICTIM ...
    python -m weir.testing.campaign --seeds 1-10000

Programs are `totals`, unless told, `windows`, `joins`, `patterns` and `aggregates`.

With `--unaligned` barriers overtake rows, at pauses that follow from the seed too. With
`--at-least-once` records may come twice, and none may be lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from weir.checkpoint.paths import resolve
from weir.checkpoint.settings import CheckpointingMode, CheckpointSettings, Retention
from weir.checkpoint.store import list_completed
from weir.errors import WeirError
from weir.jobmanager.job_states import Over, Running, Stop
from weir.jobmanager.overtake import Outcome
from weir.jobmanager.settings import LocalRecovery, StateFileSettings
from weir.runtime.epoch import Epoch
from weir.runtime.memory import MemoryLimits
from weir.slot.messages import EpochCall
from weir.storage.memory import MemoryStorage
from weir.storage.private_files import remove_directory, temporary_directory
from weir.testing.campaign_backends import settings_of
from weir.testing.campaign_checks import TEXT_FOLDER, TRANSACTIONS_FOLDER, Program, Seen
from weir.testing.campaign_leftovers import damaged, left_checkpoint, state_left
from weir.testing.campaign_programs import PLAIN, PROGRAMS
from weir.testing.campaign_scenario import Dice, Mode, Op, OpKind, Scenario
from weir.testing.campaign_world import Crash, Kind, World
from weir.testing.harness import HarnessOptions, JobHarness
from weir.testing.harness_slots import DriverCrash, HarnessSlot, InProcessNetwork

_ATTEMPTS_MAX = 12
_DRIVERS_MAX = 12
_STEPS_MAX = 300
_SAVEPOINT = "savepoint-"
NEVER_ENDED = "the job never ended"
CLOSING = "in close()"
Sabotage = Callable[[JobHarness], None]


@dataclass
class Result:
    """What became of a run."""

    steps: list[str]
    struck: list[str]
    problems: list[str] = field(default_factory=list)
    overtaken: int = 0


class _Run:
    """One run: drivers, one after the other, until the input is through."""

    def __init__(self, scenario: Scenario, world: World, sabotage: Sabotage | None) -> None:
        self.scenario = scenario
        self.program: Program = PROGRAMS[scenario.program]
        self.world = world
        self.storage = MemoryStorage()
        self.jobs: list[JobHarness] = []
        self._sabotage = sabotage
        self._dice = Dice(scenario.seed + 1)
        self._zombies: list[tuple[InProcessNetwork, HarnessSlot]] = []
        self._ops = list(scenario.ops)
        self._epochs = 0
        self._savepoints: list[str] = []
        self._resuming = 2
        self.cut_short = False
        self.excused: list[str] = []
        self.overtaken = 0
        self._pauses = Dice(scenario.seed + 2)
        self._local = LocalRecovery()
        self._damaged: dict[str, bytes] = {}
        if scenario.local:
            self.copies = temporary_directory("weir-campaign-")
            self._local = LocalRecovery(backup=True, restore=True, dirs=(str(self.copies),))
            world.rot, world.repair = self._rot, self._repair
        if scenario.mode is Mode.UNALIGNED:
            world.overtaker = self._overtake

    def _job(self) -> JobHarness:
        scenario = self.scenario
        unaligned = scenario.mode is Mode.UNALIGNED
        settings = CheckpointSettings(
            mode=CheckpointingMode.AT_LEAST_ONCE
            if scenario.mode is Mode.AT_LEAST_ONCE
            else CheckpointingMode.EXACTLY_ONCE,
            retention=Retention.RETAIN_ON_CANCELLATION,
            tolerable_failures=scenario.tolerable,
            max_concurrent=1 if unaligned else 2,
            unaligned=unaligned,
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
            # In a third of the scenarios every frame of an epoch goes through a file.
            memory=MemoryLimits(held=0) if scenario.inline_bytes else MemoryLimits(),
            local=self._local,
            partition_of=self.program.partition_of,
        )
        graph = self.program.build(self.world.name, scenario)
        return JobHarness(graph, scenario.parallelism, options)

    def run(self) -> None:
        """Run until the job ends; a dead driver is followed by a new one."""
        self._adopt(self._job())
        for _ in range(_DRIVERS_MAX):
            if self._lives(self.jobs[-1]) or self._is_over(self.jobs[-1]):
                return
            self._new_driver()
        raise RuntimeError(NEVER_ENDED)

    def _lives(self, job: JobHarness) -> bool:
        """Be a driver to the end; False when it dies before."""
        try:
            self._live(job)
        except DriverCrash:
            return False
        return True

    def _live(self, job: JobHarness) -> None:
        """Be a driver to the end of the job, and of those that follow it on purpose."""
        self._tried(job, job.start)
        for _ in range(_STEPS_MAX):
            if not isinstance(job.supervisor.job.state, Over):
                self._tried(job, lambda job=job: self._step(job))  # type: ignore[misc]
                self._haunt()
            elif self._is_through(job):
                break
            else:
                job = self._adopt(job.successor(self._resuming, self.savepoints()))
                self._tried(job, job.start)
        else:
            raise RuntimeError(NEVER_ENDED)
        while self._zombies:
            self._haunt()

    def _tried(self, job: JobHarness, work: Callable[[], Any]) -> None:
        """Do something; when it fails the attempt, attempts follow until one runs."""
        failed = self._failure_of(work)
        for _ in range(_ATTEMPTS_MAX):
            self._note_zombies(job)
            if failed is None:
                return
            if isinstance(job.supervisor.job.state, Over):
                # What close() raises fails a job that was to finish, when all is committed.
                if CLOSING in str(failed):
                    return
                break
            failed = self._failure_of(job.fail_over)
        msg = f"{NEVER_ENDED}: {failed}"
        raise RuntimeError(msg)

    @staticmethod
    def _failure_of(work: Callable[[], Any]) -> WeirError | None:
        try:
            work()
        except WeirError as error:
            return error
        return None

    def _step(self, job: JobHarness) -> None:
        """Do the next thing of the scenario."""
        dice, scenario = self._dice, self.scenario
        if self._ops and self._epochs >= self._ops[0].epoch:
            self._carry_out(job, self._ops.pop(0))
        elif not job.sources.exhausted:
            self._epochs += 1
            due = self._epochs % scenario.every == 0
            # Long epochs where barriers overtake: there have to be rows on their way.
            most = 9 if scenario.mode is Mode.UNALIGNED else 4
            job.run_epoch(take=1 + dice.below(most), checkpoint=due)
            job.clock.advance(10)
            if dice.below(2):
                job.run_async()
        elif scenario.drain:
            self._ask(job, Stop(self._new_savepoint(), drain=True))
        else:
            job.finish()

    def _carry_out(self, job: JobHarness, op: Op) -> None:
        match op.kind:
            case OpKind.SAVEPOINT:
                job.runner.savepoint(self._new_savepoint())
                job.run_epoch(take=0)
            case OpKind.STOP:
                self._resuming = op.parallelism
                self._ask(job, Stop(self._new_savepoint()))
            case OpKind.BAD_RESCALE:
                self.world.failing_trials = 1
                self._rescale(job, op.parallelism)
            case OpKind.RESCALE:
                self._rescale(job, op.parallelism)

    def _rescale(self, job: JobHarness, parallelism: int) -> None:
        asked = job.control.rescale(parallelism)
        job.turn_until(asked.done)
        job.turn_until(lambda: isinstance(job.supervisor.job.state, Running))
        self._note_zombies(job)

    def _ask(self, job: JobHarness, stop: Stop) -> None:
        asked = job.supervisor.ask(stop)
        job.turn_until(asked.done)

    def _new_savepoint(self) -> str:
        # Directly below the root: what is below that is another storage in memory.
        self._savepoints.append(f"{self.storage.uri}/{_SAVEPOINT}{len(self._savepoints)}")
        return self._savepoints[-1]

    def savepoints(self) -> list[str]:
        """Return the URIs of all savepoints that are complete, oldest first."""
        names = {uri: f"{_SAVEPOINT}{n}" for n, uri in enumerate(self._savepoints)}
        return [uri for uri, n in names.items() if "_metadata" in self.storage.list(n)]

    @staticmethod
    def _is_through(job: JobHarness) -> bool:
        """Tell whether a job that ended has taken time to its end: nothing follows it."""
        last = job.engine.ran
        return last is not None and last.final

    def _is_over(self, job: JobHarness) -> bool:
        """Tell whether a dead driver had done everything and left nothing to resume from."""
        left = list_completed(self.storage, job.job_id)
        self.cut_short = job.finished and self._is_through(job) and not left
        return self.cut_short

    def _adopt(self, job: JobHarness) -> JobHarness:
        self.jobs.append(job)
        self.world.harness = job
        if self._sabotage is not None:
            self._sabotage(job)
        return job

    def _rot(self) -> None:
        """Flip a bit in every file that the running job wrote for its newest checkpoint.

        Files that it took over from another job have no copies.
        """
        job_id = self.jobs[-1].job_id
        for stored in list_completed(self.storage, job_id)[:1]:
            names = {file.path for file in stored.metadata.files if file.data is None}
            paths = {resolve(stored.directory, name) for name in names} - self._damaged.keys()
            for path in sorted(path for path in paths if path.startswith(f"{job_id}/")):
                data = self._damaged[path] = self.storage.read(path)
                self.storage.delete(path)
                self.storage.create(path, data[:-1] + bytes([data[-1] ^ 1]))

    def _repair(self) -> None:
        """Bring back what was damaged: the next driver has no copies of it."""
        for path, data in self._damaged.items():
            if self.storage.exists(path):
                self.storage.delete(path)
                self.storage.create(path, data)
        self._damaged.clear()

    def close(self) -> list[str]:
        """Remove all copies; return what the last job, which ended in order, left of its own."""
        if not self.scenario.local:
            return []
        place = self.jobs[-1].supervisor.restoration.stand_ins.place
        left = [name for name in os.listdir(self.copies) if place and name == place.name]
        remove_directory(self.copies)
        return [] if self.cut_short else [f"local copies left: {name}" for name in left]

    def _note_zombies(self, job: JobHarness) -> None:
        self._zombies += [(job.slots, slot) for slot in job.slots.zombies]
        job.slots.zombies = []

    def _new_driver(self) -> None:
        """The driver is gone; its slots are too, or linger until their lease ends."""
        self._repair()
        job = self.jobs[-1]
        job.gone = True
        self._note_zombies(job)
        lingering = self._dice.below(2) == 0
        for slot in job.slots.slots:
            if slot.dead:
                continue
            if lingering:
                slot.lost = True
                self._zombies.append((job.slots, slot))
            else:
                job.slots.kill(slot)
        job.slots.bury()
        parallelism = 1 + self._dice.below(3) if self.scenario.seed > 0 else 2
        self._adopt(job.successor(parallelism, self.savepoints()))

    def _overtake(self) -> None:
        if self._pauses.below(7) == 0:
            self.overtaken += self.jobs[-1].overtake() is Outcome.SETTLED

    def _haunt(self) -> None:
        """Let a slot that was given up do what it was about to do, then end."""
        self._note_zombies(self.jobs[-1])
        if not self._zombies:
            return
        slots, slot = self._zombies.pop(0)
        with suppress(WeirError):
            slots.run_deferred([slot])
        service, late = slot.service, EpochCall(slot.attempt, 1, Epoch(self.jobs[-1].epoch + 1))
        if service is not None:
            with suppress(WeirError):
                slots.guarded(slot, lambda: service.run(late, []))
        slots.end(slot)
        if not slot.closed:
            # Its remains came after the new attempt had cleaned up; the next one would find them.
            self.excused.append(f"{slot.job_id}-a{slot.attempt}-s{slot.subtask}-")


def run(
    seed: int,
    crashes: Sequence[Crash] = (),
    sabotage: Sabotage | None = None,
    *,
    mode: Mode = Mode.ALIGNED,
    program: str = PLAIN,
) -> Result:
    """Run a scenario with crashes and check everything that it left behind."""
    scenario = replace(Scenario.of(seed), mode=mode, program=program)
    world = World(crashes)
    running = _Run(scenario, world, sabotage)
    left: list[str] = []
    try:
        running.run()
    finally:
        world.close()
        left = running.close()
    return Result(world.labels, world.struck, _problems(running) + left, running.overtaken)


def _problems(running: _Run) -> list[str]:
    scenario, disk, program = running.scenario, running.world.disk, running.program
    seen = Seen(
        disk.lines(TEXT_FOLDER),
        disk.lines(TRANSACTIONS_FOLDER),
        [repr(r) for job in running.jobs for r in job.collected()],
        partly=len(running.jobs) > 1,
    )
    if scenario.mode is Mode.AT_LEAST_ONCE:
        return program.lost(scenario, seen) + damaged(running.storage, _SAVEPOINT)
    problems = program.problems(scenario, seen)
    # Nobody knows a job that died before its first checkpoint, so nobody cleans up behind it.
    jobs = [job.job_id for job in running.jobs[:-1]]
    unknown = [job for job in jobs if not left_checkpoint(running.storage, job)]
    excused = [*unknown, *running.excused]
    hidden = [p for p in disk.hidden() if not any(name in p for name in excused)]
    problems += [f"hidden file left: {path}" for path in hidden]
    ended = running.jobs[-1].job_id
    problems += damaged(running.storage, _SAVEPOINT)
    if running.cut_short:
        return problems
    if scenario.drain:
        problems += state_left(running.savepoints()[-1], program.ends_empty)
    problems += [f"checkpoint file left: {ended}/{n}" for n in running.storage.list(ended)]
    return problems


def reproduction(
    seed: int, crashes: Sequence[Crash], *, mode: Mode = Mode.ALIGNED, program: str = PLAIN
) -> str:
    """Return the command that repeats a run."""
    options = [] if program == PLAIN else [f"--{program}"]
    options += [] if mode is Mode.ALIGNED else [f"--{mode.value}"]
    return " ".join(["python -m weir.testing.campaign", *options, str(seed), *map(str, crashes)])


def random_crashes(seed: int, steps: int) -> list[Crash]:
    """Choose one to three crashes among the steps of a scenario."""
    dice = Dice(seed ^ 0x5EED)
    kinds = list(Kind)
    return [
        Crash(1 + dice.below(steps + steps // 4), kinds[dice.below(len(kinds))], dice.below(3))
        for _ in range(1 + dice.below(3))
    ]


def failures(
    seeds: Iterable[int],
    *,
    mode: Mode = Mode.ALIGNED,
    program: str = PLAIN,
    steps: int = 700,
) -> Iterator[str | None]:
    """Run seeds with random crashes; gives for each the command that repeats a failure, or None."""
    for seed in seeds:
        crashes = random_crashes(seed, steps)
        try:
            problems = run(seed, crashes, mode=mode, program=program).problems
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        repeated = reproduction(seed, crashes, mode=mode, program=program)
        yield f"{repeated}  # {problems[0]}" if problems else None


def main(arguments: Sequence[str]) -> int:
    """Repeat one run and show what happened, or run many: `--seeds 1-10000`."""
    modes = {f"--{mode.value}": mode for mode in Mode}
    programs = {f"--{name}": name for name in PROGRAMS}
    chosen = [modes[a] for a in arguments if a in modes]
    named = [programs[a] for a in arguments if a in programs]
    plain = [a for a in arguments if a not in modes and a not in programs]
    if plain[:1] == ["--seeds"]:
        first, _, last = plain[1].partition("-")
        return _many(range(int(first), int(last) + 1), chosen or list(Mode), named or [*PROGRAMS])
    seed, *crashes = plain
    outcome = run(
        int(seed),
        [Crash.parse(text) for text in crashes],
        mode=chosen[0] if chosen else Mode.ALIGNED,
        program=named[0] if named else PLAIN,
    )
    out = [*outcome.struck, f"{len(outcome.steps)} steps", *(outcome.problems or ["all is well"])]
    sys.stdout.write("\n".join(out) + "\n")
    return 1 if outcome.problems else 0


def _many(seeds: range, modes: Sequence[Mode], programs: Sequence[str]) -> int:
    """Run seeds, by turns with every program and in every mode; says how many were wrong."""
    wrong = 0
    turns = list(product(programs, modes))
    for index, (program, mode) in enumerate(turns):
        for found in failures(seeds[index :: len(turns)], mode=mode, program=program):
            if found is not None:
                wrong += 1
                sys.stdout.write(found + "\n")
    sys.stdout.write(f"{len(seeds)} runs, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
