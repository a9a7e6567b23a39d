"""One run: a real job on Spark, faults one after the other, and a verdict."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import (
    ENDING,
    NEED_MOUNT,
    PLANNED,
    Fault,
    Kind,
    Mount,
    Target,
    choose,
    damage,
)
from tests.chaos.recount import Feed, Reader, Verdict, judge
from tests.spark.scenario import processes

PROGRAM = Path(__file__).parent / "program.py"
WEIR = Path(sys.executable).parent / "weir"
LEASE_S = 5
FROZEN_S = 2 * LEASE_S
AWAY_S = 3.0
BACKLOG_FILES = 6
START_S = 120.0
RECOVERY_S = 180.0
WIDTHS = (3, 1, 2)
BACKENDS = {
    "hashmap": {"state.backend.type": "hashmap"},
    "hashmap-incremental": {
        "state.backend.type": "hashmap",
        "execution.checkpointing.incremental": "true",
    },
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
    },
    "changelog": {"state.backend.type": "hashmap", "state.changelog.enabled": "true"},
    "rocksdb-changelog": {"state.backend.type": "rocksdb", "state.changelog.enabled": "true"},
}
MODES = {"aligned": "false", "unaligned": "true"}


@dataclass(frozen=True)
class Plan:
    """What a run does; `kinds` that need a mount are left out where there is none."""

    seed: int
    faults: int
    backend: str = "hashmap"
    mode: str = "aligned"
    kinds: tuple[Kind, ...] = tuple(Kind)

    @property
    def settings(self) -> dict[str, str]:
        """Return the job's settings."""
        return {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.num-retained": "3",
            "execution.checkpointing.unaligned.enabled": MODES[self.mode],
            "execution.checkpointing.timeout": "60 s",
            "weir.slot.lease": f"{LEASE_S} s",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "100000",
            "restart-strategy.fixed-delay.delay": "200 ms",
            "parallelism.default": "2",
            **BACKENDS[self.backend],
        }


@dataclass
class Outcome:
    """What became of a run; times are in seconds, from a fault to new output that follows it."""

    verdict: Verdict
    rows: int
    recoveries: dict[Fault, float]
    skipped: list[Kind]
    left_over: list[str]
    drivers: int
    notes: list[str] = field(default_factory=list)

    def summary(self, plan: Plan) -> list[str]:
        """Say it in a few lines."""
        v = self.verdict
        slots = self._times(lambda f: f.kind not in ENDING | PLANNED)
        whole = self._times(lambda f: f.kind in ENDING)
        planned = self._times(lambda f: f.kind in PLANNED - ENDING)
        lines = [
            f"seed {plan.seed}, {plan.backend}, {plan.mode}: {len(self.recoveries)} faults, "
            f"{self.drivers} drivers, {self.rows} rows",
            f"right {v.right}, lost {v.lost}, duplicated {v.duplicated}, wrong {v.wrong}, "
            f"complaints of the transactions {v.complaints}",
            f"recovery: {slots} (slots, workers, disks); {whole} (driver anew); "
            f"{planned} (asked for)",
            f"left over: {', '.join(self.left_over) or 'nothing'}",
        ]
        lines += [f"not done here: {kind.name}" for kind in self.skipped]
        return [*lines, *v.examples, *self.notes]

    def _times(self, chosen: Callable[[Fault], bool]) -> str:
        times = [t for fault, t in self.recoveries.items() if chosen(fault)]
        if not times:
            return "none"
        return f"p50 {statistics.median(times):.1f} s, max {max(times):.1f} s of {len(times)}"


class StuckError(AssertionError):
    """The job did not come back in time."""


class ChaosRun:
    """Keeps a job alive while faults come; every process is its own or its job's."""

    def __init__(self, root: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self._root = root
        self._plan = plan
        self._say = say
        self._feed = Feed(root, plan.seed)
        self._reader = Reader(root)
        self._checkpoints = root / "checkpoints"
        self._mount = Mount(self._checkpoints)
        self._logs = root / "logs"
        self._driver: subprocess.Popen[bytes] | None = None
        self._drivers = 0
        self._restore: str | None = None
        self._widths = 0
        self._pause = threading.Event()
        self._notes: list[str] = []
        conf = root / "conf"
        conf.mkdir(parents=True)
        lines = self._settings().items()
        (conf / "weir-conf.yaml").write_text("".join(f"{k}: {v}\n" for k, v in lines))
        self._environment = {
            **os.environ,
            "SPARK_MASTER": "local[2]",
            "WEIR_RUN_DIR": str(root / "run"),
            "WEIR_CONF_DIR": str(conf),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }

    def _settings(self) -> Mapping[str, str]:
        return {
            **self._plan.settings,
            "execution.checkpointing.dir": self._checkpoints.as_uri(),
            "execution.checkpointing.savepoint-dir": (self._root / "savepoints").as_uri(),
            "weir.log.dir": str(self._logs),
        }

    def run(self) -> Outcome:
        """Strike, wait, strike again; then drain and judge."""
        kinds = [k for k in self._plan.kinds if self._mount.made or k not in NEED_MOUNT]
        skipped = [k for k in self._plan.kinds if k not in kinds]
        recoveries: dict[Fault, float] = {}
        try:
            self._ensure_driver()
            self._await_row(self._feed.add(), START_S, "the first rows")
            for fault in choose(self._plan.seed, self._plan.faults, kinds):
                recoveries[fault] = self._survive(fault)
                self._say(f"{fault}: {recoveries[fault]:.1f} s")
            self._drain()
            verdict = judge(self._root, self._feed.rows)
            left = self._left_over()
        finally:
            self._end()
        return Outcome(
            verdict,
            len(self._feed.rows),
            recoveries,
            skipped=skipped,
            left_over=left,
            drivers=self._drivers,
            notes=self._notes,
        )

    # ---- the job --------------------------------------------------------------------------------

    def _ensure_driver(self) -> subprocess.Popen[bytes]:
        """Start a driver if there is none, from what the last one left."""
        if self._driver is not None and self._driver.poll() is None:
            return self._driver
        self._drivers += 1
        restore = self._restore or self._newest_checkpoint()
        self._restore = None
        environment = dict(self._environment)
        settings = [] if restore is None else ["-s", restore]
        with (self._root / f"driver-{self._drivers}.log").open("wb") as log:
            self._driver = subprocess.Popen(
                [str(WEIR), "run", *settings, str(PROGRAM), str(self._root)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._driver

    def _newest_checkpoint(self) -> str | None:
        found = list(self._checkpoints.glob("*/chk-*/_metadata"))
        newest = max(found, key=lambda path: path.stat().st_mtime_ns, default=None)
        return None if newest is None else str(newest.parent)

    def _target(self) -> Target:
        return Target(self._ensure_driver().pid, self._logs)

    def _await_row(self, row: int, seconds: float, what: str) -> float:
        """Wait until a row has come out, feeding on; a driver that ends is followed by another."""

        def there() -> bool:
            self._reader.look()
            if row in self._reader.shown:
                return True
            self._ensure_driver()
            return self._feed_on()

        return self._wait(there, seconds, what)

    def _feed_on(self) -> bool:
        """Let rows come while the job keeps up; always False."""
        if len(self._feed.rows) - len(self._reader.shown) < BACKLOG_FILES * 60:
            self._feed.add()
        return False

    def _wait(self, done: Callable[[], bool], seconds: float, what: str) -> float:
        started = time.monotonic()
        while not done():
            if time.monotonic() - started > seconds:
                msg = f"{what} did not come within {seconds} s; logs are below {self._root}"
                raise StuckError(msg)
            self._pause.wait(0.1)
        return time.monotonic() - started

    def _weir(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(WEIR), *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RECOVERY_S,
            check=False,
        )

    # ---- faults ---------------------------------------------------------------------------------

    def _survive(self, fault: Fault) -> float:
        """Strike; returns the time until a row that was fed after the fault has come out."""
        started = time.monotonic()
        self._strike(fault.kind, fault.victim)
        if fault.second is not None:
            self._pause.wait(fault.victim % 10 / 10)
            self._strike(fault.second, fault.victim)
        row = self._feed.add()
        self._await_row(row, RECOVERY_S, f"recovery from fault {fault}")
        return time.monotonic() - started

    def _strike(self, kind: Kind, victim: int) -> None:
        target = self._target()
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
                self._freeze([target.driver], target, AWAY_S)
            case Kind.DRIVER | Kind.DAMAGE:
                target.kill([target.driver])
                self._ensure_gone()
                if kind is Kind.DAMAGE:
                    self._resume_damaged(victim)
            case Kind.JVM:
                target.kill(target.jvm())
                self._ensure_gone()
            case Kind.FULL:
                self._mount.fill()
                self._pause.wait(AWAY_S)
                self._mount.empty()
            case Kind.READ_ONLY:
                self._mount.read_only(on=True)
                self._pause.wait(AWAY_S)
                self._mount.read_only(on=False)
            case Kind.SAVEPOINT:
                self._asked("savepoint", "chaos")
            case Kind.RESCALE:
                self._widths += 1
                self._asked("rescale", "chaos", WIDTHS[self._widths % len(WIDTHS)])
            case Kind.STOP:
                self._stop()

    def _kill_starting(self, target: Target, victim: int) -> None:
        before = set(target.slots())
        target.kill(_one(sorted(before), victim))
        fresh: list[int] = []

        def started() -> bool:
            fresh[:] = [pid for pid in target.slots() if pid not in before]
            return bool(fresh)

        self._wait(started, RECOVERY_S, "slots of the next attempt")
        target.kill(fresh[:1])

    def _freeze(self, pids: list[int], target: Target, seconds: float) -> None:
        target.kill(pids, signal.SIGSTOP)
        try:
            self._pause.wait(seconds)
        finally:
            target.kill(pids, signal.SIGCONT)

    def _ensure_gone(self) -> None:
        """Wait until the driver has ended, and with it everything that it had started."""
        driver = self._driver
        if driver is None:
            return
        self._wait(lambda: driver.poll() is not None, RECOVERY_S, "the end of the driver")
        self._wait(lambda: not processes(str(self._logs)), 60, "the end of a dead driver's slots")

    def _resume_damaged(self, victim: int) -> None:
        """What was damaged is refused with a sentence; then it is mended, and the job goes on."""
        newest = self._newest_checkpoint()
        if newest is None:
            return
        path, whole = damage(Path(newest), victim)
        refused = self._weir("run", "-s", newest, str(PROGRAM), str(self._root))
        if refused.returncode == 0 or "Traceback" in refused.stderr:
            self._notes.append(f"a job resumed from damaged {path.name}: {refused.stderr[-300:]}")
        path.write_bytes(whole)
        self._restore = newest

    def _asked(self, *words: object) -> None:
        """Ask the job for something; that it is refused while the job recovers is no fault."""
        done = self._weir(*words)
        if done.returncode != 0:
            self._notes.append(f"weir {words[0]}: {(done.stderr or done.stdout).strip()[-200:]}")

    def _stop(self) -> None:
        done = self._weir("stop", "--json", "chaos")
        if done.returncode != 0:
            self._notes.append(f"weir stop: {(done.stderr or done.stdout).strip()[-200:]}")
            return
        self._ensure_gone()
        savepoints = list((self._root / "savepoints").glob("*/_metadata"))
        self._restore = str(max(savepoints, key=lambda p: p.stat().st_mtime_ns).parent)

    # ---- the end --------------------------------------------------------------------------------

    def _drain(self) -> None:
        last = len(self._feed.rows)

        def fired() -> bool:
            self._reader.look()
            self._ensure_driver()
            fired = sum(n for line, n in self._reader.files.items() if line[0] == "fired")
            return len(self._reader.shown) == last and fired >= last

        self._wait(fired, RECOVERY_S, "the output of all rows")
        done = self._weir("stop", "--drain", "chaos")
        if done.returncode != 0:
            self._notes.append(f"weir stop --drain: {(done.stderr or done.stdout).strip()[-300:]}")
        self._ensure_gone()

    def _left_over(self) -> list[str]:
        hidden = [p for p in (self._root / "output").rglob(".*") if p.is_file()]
        found = [f"hidden file {p.name}" for p in hidden]
        # Not open transactions: one that began after the last checkpoint before a kill is known to
        # nobody, and this sink, as most databases, does not list what is open.
        return found + [f"process {pid}" for pid in processes(str(self._root))]

    def _end(self) -> None:
        """Whatever happened: nothing of the run goes on."""
        if self._driver is not None and self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()
        self._mount.read_only(on=False) if self._mount.made else None
        self._mount.close()


def _one(pids: list[int], victim: int) -> list[int]:
    return [pids[victim % len(pids)]] if pids else []
