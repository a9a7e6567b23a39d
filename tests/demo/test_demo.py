"""The demonstration as a user starts it, with few rows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

WEIR = [sys.executable, "-m", "weir.cli.main"]


@pytest.mark.spark
def test_the_demo_survives_a_kill_and_a_move_to_more_subtasks_and_says_so(tmp_path):
    folder = tmp_path / "kept"
    command = [*WEIR, "demo", "--rows", "120000", "--seed", "3", "--keep", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Killed slot \d \(process \d+\) with SIGKILL", done.stdout)
    assert re.search(r"Recovered \d+\.\d s after the kill: attempt 1 goes on", done.stdout)
    assert "Stopping the job with a savepoint" in done.stdout
    stopped = re.search(r"Stopped after \d+\.\d s with .* \d\.\d MB: file://(\S+)", done.stdout)
    assert stopped is not None, done.stdout
    assert Path(stopped[1]).parent == folder / "savepoints"
    assert (Path(stopped[1]) / "_metadata").exists()
    moved = re.search(r"with parallelism (\d+) instead of (\d+)", done.stdout)
    assert moved is not None, done.stdout
    assert int(moved[1]) == int(moved[2]) + 1
    assert re.search(rf"Job [0-9a-f]{{32}} goes on with {moved[1]} slots behind", done.stdout)
    row = re.search(r"│ +120,000 │ 120,000 │ +(\d+) │ +(\d+) │ +(\d+) │", done.stdout)
    assert row is not None, done.stdout
    assert row.groups() == ("0", "0", "0")
    assert str(folder / "output") in done.stdout
    assert (folder / "logs" / "driver.log").exists()
    assert "Traceback" not in done.stderr
