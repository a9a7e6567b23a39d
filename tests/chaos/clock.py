"""A wall clock that jumps: libfaketime under all Python processes of a job, not under its JVM."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_PLACES = ("lib/*/faketime", "lib/faketime", "local/lib/*/faketime", "local/lib/faketime")
_NAME = "libfaketimeMT.so.1"
_SHARED = Path("/dev/shm")
_MINUTE_S, _HOUR_S = 60, 3600


def library(base: Path = Path("/usr")) -> Path | None:
    """Return libfaketime where it is installed."""
    return next((found for place in _PLACES for found in base.glob(f"{place}/{_NAME}")), None)


def jump_of(victim: int) -> int:
    """Return how far the clock jumps, in seconds: minutes to hours, forward or back."""
    rng = random.Random(f"clock {victim}")
    # Not a day: state of the attacked job expires then, as it should.
    unit, most = rng.choice(((_MINUTE_S, 59), (_HOUR_S, 12)))
    return rng.choice((-1, 1)) * rng.randint(1, most) * unit


# Sleeps of Python end at a moment of the monotonic clock, which some versions of libfaketime take
# for one of the wall clock and refuse. All other ways to wait are well.
_SLEEP = """
import select, time

def sleep(seconds):
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)

time.sleep = sleep
"""


class FakeClock:
    """A file that says how wrong the clock is, and what makes processes look at it."""

    def __init__(self, root: Path, preload: Path) -> None:
        self._file = root / "clock"
        self._preload = preload
        self._began = time.time()
        self._python = root / "clocked-python"
        self._conf = root / "spark-conf"
        self._site = root / "clocked-site"
        self._conf.mkdir(parents=True)
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(_SLEEP)
        # The JVM keeps the true time, and so does what it starts, but for Python.
        (self._conf / "spark-env.sh").write_text("unset LD_PRELOAD\n")
        script = f'#!/bin/sh\nexport LD_PRELOAD={preload}\nexec {sys.executable} "$@"\n'
        self._python.write_text(script)
        self._python.chmod(0o755)
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Let all clocks be wrong by this much from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a driver."""
        path = [str(self._site), *filter(None, [base.get("PYTHONPATH")])]
        return {
            **base,
            "PYTHONPATH": os.pathsep.join(path),
            "LD_PRELOAD": str(self._preload),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYSPARK_PYTHON": str(self._python),
            "SPARK_CONF_DIR": str(self._conf),
        }

    def close(self) -> None:
        """Remove what libfaketime keeps in memory of processes that were killed."""
        for path in _SHARED.glob("*faketime_*"):
            gone = not Path(f"/proc/{path.name.rpartition('_')[2]}").exists()
            if gone and path.stat().st_mtime >= self._began:
                path.unlink(missing_ok=True)
