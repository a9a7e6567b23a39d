"""Running the totals program in a process of its own, and judging what it leaves behind."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import threading
import time
import venv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import py4j
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

PROGRAM = Path(__file__).parent / "programs" / "totals.py"
FILES = 12
ROWS = 2000
KEYS = 50


@dataclass
class Scenario:
    """Directories of one scenario."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def write_input(self, files: int = FILES) -> None:
        """Write seeded payments, one file per epoch."""
        self.input.mkdir(parents=True)
        rng = np.random.default_rng(11)
        for number in range(files):
            first = number * ROWS
            table = pa.table(
                {
                    "key": rng.integers(0, KEYS, ROWS),
                    "amount": rng.integers(1, 100, ROWS),
                    "seq": np.arange(first, first + ROWS),
                }
            )
            path = self.input / f"{number:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))

    def expected(self) -> Counter[tuple[int, ...]]:
        """Compute the result independently."""
        totals: dict[int, int] = {}
        seen: dict[int, set[int]] = {}
        rows: Counter[tuple[int, ...]] = Counter()
        for path in sorted(self.input.glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                key, amount = row["key"], row["amount"]
                totals[key] = totals.get(key, 0) + amount
                seen.setdefault(key, set()).add(amount)
                rows[(row["seq"], key, totals[key], len(seen[key]))] += 1
        return rows

    def committed(self) -> Counter[tuple[int, ...]]:
        """Read what a reader of the output directory sees."""
        rows: Counter[tuple[int, ...]] = Counter()
        for path in self.output.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                with path.open() as lines:
                    rows.update(tuple(map(int, row)) for row in csv.reader(lines))
        return rows

    def hidden_files(self) -> list[Path]:
        """Return files of the output directory that readers do not see."""
        return [p for p in self.output.rglob("*") if p.is_file() and p.name.startswith(".")]

    def slots(self) -> list[int]:
        """Return the pids of slot processes of this scenario."""
        return slot_processes(str(self.logs))

    def configure(self, settings: dict[str, str]) -> None:
        """Give settings that the program does not make itself."""
        (self.root / "conf").mkdir(exist_ok=True)
        lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
        (self.root / "conf" / "weir-conf.yaml").write_text(lines)

    def start(
        self,
        failpoints: str = "",
        restore: str = "",
        master: str = "local[2]",
        directory: str = "",
        launcher: str = "python",
    ) -> subprocess.Popen[str]:
        """Start the program; the directory "-" is none for checkpoints."""
        environment = {**os.environ, "WEIR_FAILPOINTS": failpoints}
        environment.pop("SPARK_MASTER", None)
        if launcher == "python":
            environment["SPARK_MASTER"] = master
        # As in a terminal where the environment was activated.
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        if (self.root / "conf").is_dir():
            environment["WEIR_CONF_DIR"] = str(self.root / "conf")
        checkpoints = directory or self.checkpoints
        arguments: list[object] = [self.input, self.output, checkpoints, self.logs]
        if restore:
            arguments.append(restore)
        return subprocess.Popen(
            [*launch(launcher, master), str(PROGRAM), *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **options: str) -> tuple[int, str]:
        """Run the program to its end."""
        process = self.start(**options)
        try:
            output, _ = process.communicate(timeout=240)
        finally:
            process.kill()  # unless it has ended
        return process.returncode, output

    def assert_exact(self) -> None:
        """Nothing lost, nothing duplicated, nothing left behind."""
        expected, got = self.expected(), self.committed()
        lost, extra = expected - got, got - expected
        assert (sum(lost.values()), sum(extra.values())) == (0, 0), (
            f"lost {list(lost)[:3]}, duplicated or wrong {list(extra)[:3]}"
        )
        assert self.hidden_files() == []
        assert self.slots() == []

    def newest_checkpoint(self) -> str:
        """Return the newest complete checkpoint."""
        found = list(self.checkpoints.glob("*/chk-*/_metadata"))
        newest = max(found, key=lambda p: int(p.parent.name.split("-")[1]))
        return str(newest.parent)


def launch(launcher: str, master: str) -> list[str]:
    """Return how a program is started: by Python, by `weir run` or by `spark-submit`."""
    commands = Path(sys.executable).parent
    if launcher == "weir":
        return [str(commands / "weir"), "run", "--master", master]
    if launcher == "spark-submit":
        return [str(commands / "spark-submit"), "--master", master]
    return [sys.executable]


def python_without_weir(root: Path) -> str:
    """Make a Python that finds PySpark and nothing else, whatever the environment says."""
    venv.create(root / "bare", with_pip=False)
    packages = root / "packages"
    packages.mkdir()
    for package in (pyspark, py4j):
        folder = Path(str(package.__file__)).parent
        (packages / folder.name).symlink_to(folder)
    python = root / "bare" / "bin" / "without-weir"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={packages} exec {root / "bare" / "bin" / "python"} "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


def processes(text: str) -> list[int]:
    """Return the pids of processes whose command line holds a text."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and int(entry.name) != os.getpid()
        and text in command(int(entry.name))
    ]


def slot_processes(text: str) -> list[int]:
    """Return the pids of slots whose command line holds a text; not the shells above them."""
    return [p for p in processes(text) if command(p).split("\0")[1:3] == ["-m", "weir.slot.main"]]


def command(pid: int) -> str:
    """Return the command line of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def wait_until(condition, seconds: float, what: str) -> float:
    """Wait for something that other processes do; return how long it took."""
    started = time.monotonic()
    pause = threading.Event()
    while not condition():
        assert time.monotonic() - started < seconds, f"{what} took longer than {seconds} s"
        pause.wait(0.05)
    return time.monotonic() - started
