"""One run: a real job on Spark, faults one after the other, and a verdict."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.chaos.clock import jump_of
from tests.chaos.cluster import HOSTS, Cluster
from tests.chaos.faults import (
    ENDING,
    FREEZING,
    NEED_MOUNT,
    NEEDS_NO_RESTART,
    SERVERS,
    Fault,
    Kind,
    Target,
    choose,
)
from tests.chaos.job import RECOVERY_S, START_S, Job, StuckError
from tests.chaos.places import Damage, DamageTurns, damage, newest_checkpoint
from tests.chaos.plan import Plan
from tests.chaos.proxy import Weather
from tests.chaos.report import Outcome

T = TypeVar("T")
WIDTHS = (3, 1, 2)
# Two cores of each of two hosts are too few for three slots of each level.
CLUSTER_WIDTHS = (1, 2)
# Nobody may be there to be struck while the job recovers from something else.
TRIES = 3
# What a job says that cannot go on without a person who chooses.
CHOICES = ("Bring the files back and start from checkpoint", "or start from")


class ChaosRun:
    """Attacks a job while rows come, and judges what came out."""

    def __init__(self, root: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._root = root
        self._job = Job(root, plan)
        self._asked_widths = 0
        self._turns = DamageTurns(plan.seed)
        self._widths: list[int] = []
        self._zombies = 0
        self._planned: list[Fault] = []
        self._recoveries: dict[Fault, float] = {}
        self._missed: list[Fault] = []
        self._faulty: list[str] = []
        self._notes: list[str] = []

    def run(self) -> Outcome:
        """Strike, wait, strike again; then drain and judge, also a job that is stuck."""
        job = self._job
        refused = {kind: self._refusal(kind) for kind in self._plan.kinds}
        kinds = [kind for kind, why in refused.items() if not why]
        self._planned = choose(self._plan.seed, self._plan.faults, kinds)
        if not kinds:
            self._faulty.append("no kind of fault that was wanted can be had here")
        stuck = False
        try:
            try:
                self._attack(self._planned)
            except (StuckError, subprocess.TimeoutExpired) as error:
                stuck = True
                self._faulty.append(f"stuck: {error}; {self._last_words(job.drivers)[-500:]}")
                self._say(self._faulty[-1])
            # Before anything is looked for that is left over: servers have to be gone for that.
            verdict = job.judge()
            left = [] if stuck else job.left_over()
        finally:
            job.end()
        return Outcome(
            verdict,
            len(job.feed.rows),
            self._recoveries,
            skipped={kind: why for kind, why in refused.items() if why},
            left_over=left,
            drivers=job.drivers,
            faulty=self._faulty,
            notes=self._notes,
            widths=self._widths,
            zombies=self._zombies,
            missed=self._missed,
            planned=self._planned,
            damaged=self._turns.done,
        )

    def _attack(self, faults: list[Fault]) -> None:
        job = self._job
        job.ensure_driver()
        job.await_row(job.feed.add(), START_S, "the first rows")
        for fault in faults:
            took = self._survive(fault)
            self._say(f"{fault}: {'missed' if took is None else f'{took:.1f} s'}")
            if took is None:
                self._missed.append(fault)
            else:
                self._recoveries[fault] = took
        self._faulty += [problem] if (problem := job.drain()) else []

    def _refusal(self, kind: Kind) -> str:
        mount = self._job.place.mount
        if kind in NEED_MOUNT and mount is not None and not mount.made:
            return "needs root"
        return self._plan.refuses(kind)

    def _survive(self, fault: Fault) -> float | None:
        """Strike; returns the time until a row that was fed after the fault has come out.

        None is the time of a fault that hit nobody, however often it was tried.
        """
        for _ in range(TRIES):
            took = self._struck(fault)
            if took is not None:
                return took
        return None

    def _struck(self, fault: Fault) -> float | None:
        job = self._job
        started, drivers, attempts = time.monotonic(), job.drivers, job.attempts()
        hit = self._strike(fault)
        if hit and fault.second is not None:
            job.pause.wait(fault.victim % 10 / 10)
            if not self._strike(Fault(fault.number, fault.second, fault.victim)):
                self._notes.append(f"{fault}: the second one hit nobody")
        row = job.feed.add()
        job.await_row(row, RECOVERY_S, f"recovery from fault {fault}")
        took = time.monotonic() - started
        if fault.kind not in ENDING and job.drivers > drivers:
            self._faulty.append(
                f"the job died of fault {fault}: {self._last_words(drivers)[-500:]}"
            )
        elif fault.kind in NEEDS_NO_RESTART and job.attempts() != attempts:
            self._faulty.append(f"the job restarted without need after fault {fault}")
        return took if hit else None

    def _last_words(self, number: int) -> str:
        log = self._root / f"driver-{number}.log"
        text = log.read_text("utf-8", errors="replace") if log.exists() else ""
        return " ".join(text.split())[-3000:]

    # ---- faults ---------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> bool:
        """Let it happen; tells whether it hit anybody."""
        kind, victim, target = fault.kind, fault.victim, self._job.target()
        if kind in FREEZING:
            return self._freeze(_one(self._of_kind(kind, target), victim), target, fault.lasts)
        match kind:
            case Kind.SLOT | Kind.WORKER | Kind.EXECUTOR:
                return bool(target.kill(_one(self._of_kind(kind, target), victim)))
            case Kind.ALL_SLOTS:
                return bool(target.kill(target.slots()))
            case Kind.STARTING_SLOT:
                return self._kill_starting(target, victim)
            case Kind.FROZEN_DRIVER:
                return self._freeze([target.driver], target, fault.lasts)
            case Kind.DRIVER | Kind.JVM | Kind.DAMAGE:
                hit = bool(target.kill(target.jvm() if kind is Kind.JVM else [target.driver]))
                if hit:
                    self._job.ensure_gone()
                return hit and (kind is not Kind.DAMAGE or self._resume_damaged(victim))
            case Kind.LIVE_DAMAGE:
                return self._damage_alive(fault, target)
            case Kind.SAVEPOINT:
                return self._asked("savepoint", "chaos")
            case Kind.RESCALE:
                return self._rescale()
            case Kind.STOP:
                return self._stop()
            case Kind.ZOMBIE:
                return self._wake_zombies(target)
        self._strike_around(fault)
        return True

    def _of_kind(self, kind: Kind, target: Target) -> list[int]:
        """Return the processes that may be killed or frozen by a kind of fault."""
        cluster = self._job.cluster
        match kind:
            case Kind.WORKER | Kind.FROZEN_WORKER:
                return target.workers() if cluster is None else cluster.workers()
            case Kind.FROZEN_JVM:
                return target.jvm()
            case Kind.EXECUTOR | Kind.FROZEN_EXECUTOR:
                return _given(cluster).executors()
        return target.slots()

    def _strike_around(self, fault: Fault) -> None:
        """Do what is wrong with the surroundings of the job for as long as the fault lasts."""
        job = self._job
        if fault.kind in SERVERS:
            server = _given(job.ends).servers[fault.kind]
            server.kill()
            job.pause.wait(fault.lasts)
            server.start()
            return
        with self._wrong(fault):
            before = time.monotonic()
            while time.monotonic() - before < fault.lasts:
                job.reader.look()
                job.feed_on()
                job.pause.wait(0.2)

    @contextmanager
    def _wrong(self, fault: Fault) -> Iterator[None]:
        job, kind = self._job, fault.kind
        match kind:
            case Kind.FULL | Kind.READ_ONLY:
                mount = _given(job.place.mount)
                mount.fill() if kind is Kind.FULL else mount.read_only(on=True)
                yield
                mount.empty() if kind is Kind.FULL else mount.read_only(on=False)
            case Kind.SLOW | Kind.FLAKY:
                proxy = _given(job.place.proxy)
                proxy.weather = Weather[kind.name]
                yield
                proxy.weather = Weather.FAIR
            case Kind.CLOCK:
                clock = _given(job.clock)
                clock.jump(jump_of(fault.victim))
                yield
                clock.jump(0)
            case Kind.HOST | Kind.NETWORK:
                host = HOSTS[(fault.victim // 2) % len(HOSTS)]
                cluster = _given(job.cluster)
                _cut_off(cluster, host, power=kind is not Kind.HOST)
                yield
                cluster.link(host, up=True)
                if kind is Kind.HOST:
                    cluster.start_worker(host)
            case _:
                msg = f"nobody knows how to do {fault}"
                raise NotImplementedError(msg)

    def _kill_starting(self, target: Target, victim: int) -> bool:
        before = set(target.slots())
        if not target.kill(_one(sorted(before), victim)):
            return False
        fresh: list[int] = []

        def started() -> bool:
            fresh[:] = [pid for pid in target.slots() if pid not in before]
            return bool(fresh)

        self._job.wait(started, RECOVERY_S, "slots of the next attempt")
        return bool(target.kill(fresh[:1]))

    def _freeze(self, pids: list[int], target: Target, seconds: float) -> bool:
        if not target.kill(pids, signal.SIGSTOP):
            return False
        try:
            self._job.pause.wait(seconds)
        finally:
            target.kill(pids, signal.SIGCONT)
        return True

    def _wake_zombies(self, target: Target) -> bool:
        """Let slots sleep through the death of their driver and the start of another one.

        What they were about to write when they fell asleep is somebody else's when they wake.
        """
        job = self._job
        driver, sleepers = job.ensure_driver(), target.slots()
        if not target.kill(sleepers, signal.SIGSTOP):
            return False
        try:
            target.kill([driver.pid])
            job.wait(lambda: driver.poll() is not None, RECOVERY_S, "the end of the driver")
            job.await_row(job.feed.add(), RECOVERY_S, "rows of a driver beside zombies")
        finally:
            self._zombies += target.kill(sleepers, signal.SIGCONT)
        gone = lambda: not set(sleepers) & set(target.slots())  # noqa: E731
        job.wait(gone, 60, "the end of the zombies")
        return True

    # ---- damage ---------------------------------------------------------------------------------

    def _resume_damaged(self, victim: int) -> bool:
        """What was damaged is refused with a sentence; then it is mended, and the job goes on."""
        harm = self._damage(victim)
        if harm is None:
            return False
        place = f"{self._job.place.storage.uri}/{harm.directory}"
        refused = self._job.weir("run", "-s", place, self._job.program, self._root)
        if refused.returncode == 0 or "Traceback" in refused.stderr:
            self._faulty.append(f"a job resumed from a {harm}: {refused.stderr[-300:]}")
        self._mend(harm)
        return True

    def _damage_alive(self, fault: Fault, target: Target) -> bool:
        """Damage the newest checkpoint while its job lives, then kill a slot.

        The job goes on, or it ends with a message that names what can be chosen; never with output
        that comes twice, which the verdict shows.
        """
        job = self._job
        driver = job.ensure_driver()
        # A driver that stands still completes no newer checkpoint.
        target.kill([driver.pid], signal.SIGSTOP)
        try:
            harm = self._damage(fault.victim)
            target.kill(_one(target.slots(), fault.victim))
        finally:
            target.kill([driver.pid], signal.SIGCONT)
        if harm is None:
            return False
        row = job.feed.add()
        over = lambda: driver.poll() is not None or job.shows(row)  # noqa: E731
        job.wait(over, RECOVERY_S, f"an end or new rows after fault {fault}")
        if driver.poll() is None:
            self._notes.append(f"{fault}: {harm}; the job went on")
            return True
        words = self._last_words(job.drivers)
        if all(choice in words for choice in CHOICES):
            self._notes.append(f"{fault}: {harm}; the job ended and named the choices")
        else:
            self._faulty.append(
                f"{fault}: {harm}; the job ended without the choices: {words[-500:]}"
            )
        self._mend(harm)
        job.ensure_gone()
        return True

    def _damage(self, victim: int) -> Damage | None:
        storage = self._job.place.storage
        newest = newest_checkpoint(storage)
        return None if newest is None else damage(storage, newest, victim, self._turns)

    def _mend(self, harm: Damage) -> None:
        """Bring back what was damaged; the next driver starts from it."""
        storage = self._job.place.storage
        harm.mend(storage)
        self._job.restore = f"{storage.uri}/{harm.directory}"

    # ---- what is asked for ----------------------------------------------------------------------

    def _asked(self, *words: object) -> bool:
        """Ask the job for something; while it recovers it may refuse, and is asked again."""
        done = self._job.weir(*words)
        if done.returncode != 0:
            self._notes.append(f"weir {words[0]}: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.returncode == 0

    def _rescale(self) -> bool:
        widths = WIDTHS if self._job.cluster is None else CLUSTER_WIDTHS
        width = widths[self._asked_widths % len(widths)]
        if not self._asked("rescale", "chaos", width):
            return False
        self._asked_widths += 1
        # Another driver keeps it.
        self._job.width = width
        self._widths.append(width)
        return True

    def _stop(self) -> bool:
        done = self._job.weir("stop", "--json", "chaos")
        if done.returncode != 0:
            self._notes.append(f"weir stop: {(done.stderr or done.stdout).strip()[-200:]}")
            return False
        self._job.ensure_gone()
        savepoints = list((self._root / "savepoints").glob("*/_metadata"))
        self._job.restore = str(max(savepoints, key=lambda p: p.stat().st_mtime_ns).parent)
        return True


def _cut_off(cluster: Cluster, host: int, *, power: bool) -> None:
    if power:
        cluster.link(host, up=False)
    else:
        cluster.lose_power(host)


def _one(pids: list[int], victim: int) -> list[int]:
    return [pids[victim % len(pids)]] if pids else []


def _given(thing: T | None) -> T:
    assert thing is not None, "the plan refuses this kind of fault"
    return thing
