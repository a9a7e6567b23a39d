"""One run: a real job on Spark, faults one after the other, and a verdict."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.chaos.clock import jump_of
from tests.chaos.cluster import HOSTS, Cluster
from tests.chaos.faults import (
    ENDING,
    FROZEN_S,
    NEED_MOUNT,
    NEEDS_NO_RESTART,
    SERVERS,
    Fault,
    Kind,
    Target,
    choose,
)
from tests.chaos.job import RECOVERY_S, START_S, Job
from tests.chaos.places import Damage, damage, newest_checkpoint
from tests.chaos.plan import Plan
from tests.chaos.proxy import Weather
from tests.chaos.report import Outcome

T = TypeVar("T")
WIDTHS = (3, 1, 2)
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
        self._widths: list[int] = []
        self._zombies = 0
        self._faulty: list[str] = []
        self._notes: list[str] = []

    def run(self) -> Outcome:
        """Strike, wait, strike again; then drain and judge."""
        job = self._job
        refused = {kind: self._refusal(kind) for kind in self._plan.kinds}
        kinds = [kind for kind, why in refused.items() if not why]
        recoveries: dict[Fault, float] = {}
        try:
            job.ensure_driver()
            job.await_row(job.feed.add(), START_S, "the first rows")
            for fault in choose(self._plan.seed, self._plan.faults, kinds):
                recoveries[fault] = self._survive(fault)
                self._say(f"{fault}: {recoveries[fault]:.1f} s")
            self._notes += [problem] if (problem := job.drain()) else []
            verdict = job.judge()
            left = job.left_over()
        finally:
            job.end()
        return Outcome(
            verdict,
            len(job.feed.rows),
            recoveries,
            skipped={kind: why for kind, why in refused.items() if why},
            left_over=left,
            drivers=job.drivers,
            faulty=self._faulty,
            notes=self._notes,
            widths=self._widths,
            zombies=self._zombies,
        )

    def _refusal(self, kind: Kind) -> str:
        mount = self._job.place.mount
        if kind in NEED_MOUNT and mount is not None and not mount.made:
            return "needs root"
        return self._plan.refuses(kind)

    def _survive(self, fault: Fault) -> float:
        """Strike; returns the time until a row that was fed after the fault has come out."""
        job = self._job
        started, drivers, attempts = time.monotonic(), job.drivers, job.attempts()
        self._strike(fault)
        if fault.second is not None:
            job.pause.wait(fault.victim % 10 / 10)
            self._strike(Fault(fault.number, fault.second, fault.victim))
        row = job.feed.add()
        job.await_row(row, RECOVERY_S, f"recovery from fault {fault}")
        took = time.monotonic() - started
        if fault.kind not in ENDING and job.drivers > drivers:
            self._faulty.append(
                f"the job died of fault {fault}: {self._last_words(drivers)[-500:]}"
            )
        elif fault.kind in NEEDS_NO_RESTART and job.attempts() != attempts:
            self._faulty.append(f"the job restarted without need after fault {fault}")
        return took

    def _last_words(self, number: int) -> str:
        text = (self._root / f"driver-{number}.log").read_text("utf-8", errors="replace")
        return " ".join(text.split())[-3000:]

    # ---- faults ---------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        kind, victim, target = fault.kind, fault.victim, self._job.target()
        match kind:
            case Kind.SLOT:
                target.kill(_one(target.slots(), victim))
            case Kind.ALL_SLOTS:
                target.kill(target.slots())
            case Kind.STARTING_SLOT:
                self._kill_starting(target, victim)
            case Kind.FROZEN_SLOT:
                self._freeze(_one(target.slots(), victim), target, FROZEN_S)
            case Kind.WORKER:
                target.kill(_one(target.workers(), victim))
            case Kind.FROZEN_DRIVER:
                self._freeze([target.driver], target, fault.lasts)
            case Kind.DRIVER | Kind.JVM | Kind.DAMAGE:
                target.kill(target.jvm() if kind is Kind.JVM else [target.driver])
                self._job.ensure_gone()
                if kind is Kind.DAMAGE:
                    self._resume_damaged(victim)
            case Kind.LIVE_DAMAGE:
                self._damage_alive(fault, target)
            case Kind.SAVEPOINT:
                self._asked("savepoint", "chaos")
            case Kind.RESCALE:
                self._rescale()
            case Kind.STOP:
                self._stop()
            case Kind.ZOMBIE:
                self._wake_zombies(target)
            case _:
                self._strike_around(fault)

    def _strike_around(self, fault: Fault) -> None:
        """Do what is wrong with the surroundings of the job for as long as the fault lasts."""
        job = self._job
        if fault.kind is Kind.EXECUTOR:
            cluster = _given(job.cluster)
            self._job.target().kill(_one(cluster.executors(), fault.victim))
            return
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

    def _kill_starting(self, target: Target, victim: int) -> None:
        before = set(target.slots())
        target.kill(_one(sorted(before), victim))
        fresh: list[int] = []

        def started() -> bool:
            fresh[:] = [pid for pid in target.slots() if pid not in before]
            return bool(fresh)

        self._job.wait(started, RECOVERY_S, "slots of the next attempt")
        target.kill(fresh[:1])

    def _freeze(self, pids: list[int], target: Target, seconds: float) -> None:
        target.kill(pids, signal.SIGSTOP)
        try:
            self._job.pause.wait(seconds)
        finally:
            target.kill(pids, signal.SIGCONT)

    def _wake_zombies(self, target: Target) -> None:
        """Let slots sleep through the death of their driver and the start of another one.

        What they were about to write when they fell asleep is somebody else's when they wake.
        """
        job = self._job
        driver, sleepers = job.ensure_driver(), target.slots()
        target.kill(sleepers, signal.SIGSTOP)
        try:
            target.kill([driver.pid])
            job.wait(lambda: driver.poll() is not None, RECOVERY_S, "the end of the driver")
            job.await_row(job.feed.add(), RECOVERY_S, "rows of a driver beside zombies")
        finally:
            self._zombies += target.kill(sleepers, signal.SIGCONT)
        gone = lambda: not set(sleepers) & set(target.slots())  # noqa: E731
        job.wait(gone, 60, "the end of the zombies")

    # ---- damage ---------------------------------------------------------------------------------

    def _resume_damaged(self, victim: int) -> None:
        """What was damaged is refused with a sentence; then it is mended, and the job goes on."""
        harm = self._damage(victim)
        if harm is None:
            return
        place = f"{self._job.place.storage.uri}/{harm.directory}"
        refused = self._job.weir("run", "-s", place, self._job.program, self._root)
        if refused.returncode == 0 or "Traceback" in refused.stderr:
            self._faulty.append(f"a job resumed from a {harm}: {refused.stderr[-300:]}")
        self._mend(harm)

    def _damage_alive(self, fault: Fault, target: Target) -> None:
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
            return
        row = job.feed.add()
        over = lambda: driver.poll() is not None or job.shows(row)  # noqa: E731
        job.wait(over, RECOVERY_S, f"an end or new rows after fault {fault}")
        if driver.poll() is None:
            self._notes.append(f"{fault}: {harm}; the job went on")
            return
        words = self._last_words(job.drivers)
        if all(choice in words for choice in CHOICES):
            self._notes.append(f"{fault}: {harm}; the job ended and named the choices")
        else:
            self._faulty.append(
                f"{fault}: {harm}; the job ended without the choices: {words[-500:]}"
            )
        self._mend(harm)
        job.ensure_gone()

    def _damage(self, victim: int) -> Damage | None:
        storage = self._job.place.storage
        newest = newest_checkpoint(storage)
        return None if newest is None else damage(storage, newest, victim)

    def _mend(self, harm: Damage) -> None:
        """Bring back what was damaged; the next driver starts from it."""
        storage = self._job.place.storage
        harm.mend(storage)
        self._job.restore = f"{storage.uri}/{harm.directory}"

    # ---- what is asked for ----------------------------------------------------------------------

    def _asked(self, *words: object) -> bool:
        """Ask the job for something; that it is refused while the job recovers is no fault."""
        done = self._job.weir(*words)
        if done.returncode != 0:
            self._notes.append(f"weir {words[0]}: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.returncode == 0

    def _rescale(self) -> None:
        width = WIDTHS[self._asked_widths % len(WIDTHS)]
        self._asked_widths += 1
        if self._asked("rescale", "chaos", width):
            # Another driver keeps it.
            self._job.width = width
            self._widths.append(width)

    def _stop(self) -> None:
        done = self._job.weir("stop", "--json", "chaos")
        if done.returncode != 0:
            self._notes.append(f"weir stop: {(done.stderr or done.stdout).strip()[-200:]}")
            return
        self._job.ensure_gone()
        savepoints = list((self._root / "savepoints").glob("*/_metadata"))
        self._job.restore = str(max(savepoints, key=lambda p: p.stat().st_mtime_ns).parent)


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
