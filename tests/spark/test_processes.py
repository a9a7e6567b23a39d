"""Every process that a job starts ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.scenario import command, processes, wait_until

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
        return [pid for pid in processes(str(self.logs)) if "weir.slot.main" in command(pid)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_slots_leave_when_the_driver_gets_a_signal(tmp_path, number):
    run = Run(tmp_path)
    slots = run.slots()
    assert len(slots) == 2, run.lines
    run.process.send_signal(number)
    took = wait_until(lambda: not run.slots(), 15, "slots leaving")
    run.process.wait(60)
    assert took < 15
    leftovers = [p for p in processes(str(tmp_path)) if p != os.getpid()]
    assert leftovers == []


def test_slots_leave_when_spark_is_stopped(tmp_path):
    run = Run(tmp_path, "stop-spark")
    output, _ = run.process.communicate(timeout=90)
    assert run.process.returncode == 0
    assert run.slots() == []
    assert "ended:" in output


def test_every_slot_has_a_log_file_of_its_own_and_starts_quickly(tmp_path):
    run = Run(tmp_path)
    logs = sorted(p.name for p in run.logs.rglob("*.log"))
    run.process.send_signal(signal.SIGTERM)
    run.process.wait(60)
    wait_until(lambda: not run.slots(), 15, "slots leaving")
    assert logs == ["slot-0-attempt-0.log", "slot-1-attempt-0.log"]
