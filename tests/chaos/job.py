"""The attacked job: its driver, which is started again when it ends, its input and its output."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos import clock
from tests.chaos.clock import FakeClock
from tests.chaos.cluster import Cluster, kill_all, short
from tests.chaos.ends import Ends
from tests.chaos.faults import DAMAGING, Kind, Target, descendants
from tests.chaos.places import Bucket, Disk, newest_checkpoint
from tests.chaos.plan import Plan
from tests.chaos.recount import Feed, Reader, Verdict, judge
from tests.left_behind import with_variable
from tests.spark.scenario import processes

PROGRAM = Path(__file__).parent / "program.py"
BETWEEN_SERVERS = Path(__file__).parent / "ends_program.py"
WEIR = Path(sys.executable).parent / "weir"
BACKLOG_FILES = 6
WIDTH = 2
START_S = 120.0
RECOVERY_S = 180.0
# It may be refused while the job recovers from something else.
DRAIN_TRIES = 3
# A JVM whose driver has ended takes a moment to follow.
LEAVE_S = 10.0
# With long names Spark's log of the files soon is too large to be part of the metadata.
LONG_NAME = "-" + "long" * 40


class StuckError(AssertionError):
    """The job did not come back in time."""


class Job:
    """A job that is kept alive; every process is its own, and ends with it."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root = root
        self.logs = root / "logs"
        self.drivers = 0
        self.driver: subprocess.Popen[bytes] | None = None
        self.restore: str | None = None
        self.width = WIDTH
        self.pause = threading.Event()
        self._plan = plan
        self._environment = {
            **os.environ,
            "SPARK_MASTER": "local[2]",
            "WEIR_RUN_DIR": str(root / "run"),
            "WEIR_CONF_DIR": str(root / "conf"),
            # What is left over is to be found, and to be told from that of others.
            "TMPDIR": str(_made(root / "tmp")),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        self.clock: FakeClock | None = None
        self.cluster: Cluster | None = None
        self.ends = Ends(root, plan.seed) if plan.ends else None
        self.program = PROGRAM if self.ends is None else BETWEEN_SERVERS
        names = LONG_NAME if DAMAGING & set(plan.kinds) else ""
        self.feed = Feed(root, plan.seed, names) if self.ends is None else self.ends.feed
        self.reader = Reader(root) if self.ends is None else self.ends.reader
        self.place = Bucket(root, plan.seed) if plan.storage == "s3" else Disk(root)
        try:
            self._prepare()
        except BaseException:
            self.end()
            raise

    def _prepare(self) -> None:
        conf = self.root / "conf"
        conf.mkdir(parents=True)
        settings = {
            **self._plan.settings,
            **self.place.settings,
            "execution.checkpointing.savepoint-dir": (self.root / "savepoints").as_uri(),
            "weir.log.dir": str(self.logs),
        }
        lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
        (conf / "weir-conf.yaml").write_text(lines)
        preload = clock.library() if Kind.CLOCK in self._plan.kinds else None
        if preload is not None:
            self.clock = FakeClock(self.root, preload)
        if self._plan.cluster:
            self.cluster = Cluster(self.root, self._environment, self._plan.patience)
            self.cluster.start()
            self._environment["SPARK_MASTER"] = self.cluster.url
            self._environment["SPARK_LOCAL_IP"] = self.cluster.network.address(0)

    # ---- driver ---------------------------------------------------------------------------------

    def ensure_driver(self) -> subprocess.Popen[bytes]:
        """Start a driver if there is none, from what the last one left."""
        if self.driver is not None and self.driver.poll() is None:
            return self.driver
        self.drivers += 1
        restore = self.restore or self.newest()
        self.restore = None
        settings = ["-p", str(self.width)]
        settings += [] if restore is None else ["-s", restore]
        environment = self._environment
        if self.clock is not None:
            environment = self.clock.environment(environment)
        with self.log_file.open("wb") as log:
            self.driver = subprocess.Popen(
                self._here("run", *settings, self.program, self.root),
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.driver

    @property
    def log_file(self) -> Path:
        """Where the driver of the moment says what happens."""
        return self.root / f"driver-{self.drivers}.log"

    def newest(self) -> str | None:
        """Return where the newest checkpoint is."""
        directory = newest_checkpoint(self.place.storage)
        return None if directory is None else f"{self.place.storage.uri}/{directory}"

    def target(self) -> Target:
        """Return the processes of the job, which lives."""
        return Target(self.ensure_driver().pid, self.logs)

    def attempts(self) -> set[str]:
        """Return the names of the logs of all slots so far: a restart adds some."""
        return {str(path) for path in self.logs.rglob("slot-*.log")}

    def _here(self, *words: object) -> list[str]:
        """Return a `weir` command that runs on the driver's host."""
        inside = [] if self.cluster is None else self.cluster.network.inside(0)
        return [*inside, str(WEIR), *map(str, words)]

    def weir(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a `weir` command."""
        return subprocess.run(
            self._here(*words),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RECOVERY_S * self._plan.patience,
            check=False,
        )

    def ensure_gone(self) -> None:
        """Wait until the driver has ended, and with it everything that it had started."""
        driver = self.driver
        if driver is None:
            return
        self.wait(lambda: driver.poll() is not None, RECOVERY_S, "the end of the driver")
        self.wait(lambda: not processes(str(self.logs)), 60, "the end of a dead driver's slots")

    # ---- input and output -----------------------------------------------------------------------

    def await_row(self, row: int, seconds: float, what: str) -> float:
        """Wait until a row has come out, feeding on; a driver that ends is followed by another."""

        def there() -> bool:
            if self.shows(row):
                return True
            self.ensure_driver()
            return self.feed_on()

        return self.wait(there, seconds, what)

    def shows(self, row: int) -> bool:
        """Tell whether a row has come out."""
        self.reader.look()
        return row in self.reader.shown

    def feed_on(self) -> bool:
        """Let rows come while the job keeps up; always False."""
        if len(self.feed.rows) - len(self.reader.shown) < BACKLOG_FILES * 60:
            self.feed.add()
        return False

    def wait(self, done: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait for something that the job does; returns how long it took."""
        started, seconds = time.monotonic(), seconds * self._plan.patience
        while not done():
            if time.monotonic() - started > seconds:
                msg = f"{what} did not come within {seconds} s; logs are below {self.root}"
                raise StuckError(msg)
            self.pause.wait(0.1)
        return time.monotonic() - started

    # ---- the end --------------------------------------------------------------------------------

    def drain(self) -> str:
        """Let all rows come out and the job end; returns what went wrong with that."""
        said = ""
        for _ in range(DRAIN_TRIES):
            self.wait(self._everything, RECOVERY_S, "the output of all rows")
            done = self.weir("stop", "--drain", "chaos")
            if done.returncode == 0:
                self.ensure_gone()
                return ""
            said = (done.stderr or done.stdout).strip()[-300:]
            if self.driver is None or self.driver.poll() is not None:
                break
            self.await_row(self.feed.add(), RECOVERY_S, "rows after a drain that was refused")
        return f"weir stop --drain: {said}"

    def _everything(self) -> bool:
        self.reader.look()
        self.ensure_driver()
        return self.reader.has_all(len(self.feed.rows))

    def judge(self) -> Verdict:
        """Compare everything that readers see with a recount."""
        if self.ends is not None:
            return self.ends.judge()
        return judge(self.root, self.feed.rows, exactly_once=self._plan.exactly_once)

    def left_over(self) -> list[str]:
        """Return what should not be there after a drain; a cluster is at its end then."""
        hidden = [p for p in (self.root / "output").rglob(".*") if p.is_file()]
        found = [f"hidden file {p.name}" for p in hidden]
        found += self._stop_cluster()
        self._stop_servers()
        deadline = time.monotonic() + LEAVE_S
        while self._processes() and time.monotonic() < deadline:
            self.pause.wait(0.2)
        # Not open transactions: one that began after the last checkpoint before a kill is known to
        # nobody, and this sink, as most databases, does not list what is open.
        found += [f"process {pid} ({short(pid)})" for pid in self._processes()]
        return found + [f"temporary {path.name}" for path in self._temporary()]

    def _processes(self) -> list[int]:
        """Return what was started by this run: by its command line, or by its environment."""
        marked = with_variable("WEIR_RUN_DIR", self._environment["WEIR_RUN_DIR"])
        return sorted({*processes(str(self.root)), *marked})

    def _temporary(self) -> list[Path]:
        return sorted(Path(self._environment["TMPDIR"]).glob("weir-*"))

    def _stop_cluster(self) -> list[str]:
        cluster, self.cluster = self.cluster, None
        return [] if cluster is None else cluster.stop()

    def _stop_servers(self) -> None:
        if self.ends is not None:
            self.ends.close()

    def end(self) -> None:
        """Whatever happened: nothing of the run goes on."""
        if self.driver is not None and self.driver.poll() is None:
            started = descendants(self.driver.pid)
            self.driver.kill()
            self.driver.wait()
            kill_all(started)
        self._stop_cluster()
        self._stop_servers()
        self.place.close()
        if self.clock is not None:
            self.clock.close()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
