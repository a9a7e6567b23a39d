"""Every process that a job starts ends with it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.scenario import command, processes, slot_processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
PROGRAM = Path(__file__).parent / "programs" / "forever.py"


class Run:
    """The unbounded program in a process of its own."""

    def __init__(self, tmp_path, *arguments):
        self.logs = tmp_path / "logs"
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path / "chk"), str(self.logs), *arguments],
            env={**os.environ, "SPARK_MASTER": "local[2]"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line == "running\n":
                break

    def slots(self):
        return slot_processes(str(self.logs))

    @staticmethod
    def socket(pid):
        return Path(json.loads(command(pid).split("\0")[-2])["socket"])


@pytest.fixture
def start(tmp_path):
    runs = []

    def make(*arguments):
        runs.append(Run(tmp_path, *arguments))
        return runs[-1]

    yield make
    for run in runs:
        run.process.stdout.close()
        # A test that failed has not ended its program; one that has ended is not touched.
        run.process.kill()
        run.process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_slots_leave_when_the_driver_gets_a_signal(start, tmp_path, number):
    run = start()
    assert len(run.slots()) == 2, run.lines
    logs = sorted(p.name for p in run.logs.rglob("*.log"))
    assert logs == ["slot-0-attempt-0.log", "slot-1-attempt-0.log"]
    sockets = {run.socket(pid).parent for pid in run.slots()}
    assert all(folder.is_dir() for folder in sockets)
    run.process.send_signal(number)
    assert wait_until(lambda: not run.slots(), 15, "slots leaving") < 15
    wait_until(lambda: processes(str(tmp_path)) == [], 30, "all processes of the job leaving")
    assert not any(folder.exists() for folder in sockets)


def test_slots_leave_and_the_job_ends_when_spark_is_stopped(start):
    run = start("stop-spark")
    output = run.process.stdout.read()
    assert run.process.wait(90) == 0
    assert run.slots() == []
    assert "ended: the SparkContext was stopped" in output
