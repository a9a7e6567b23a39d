"""The demonstration as a user starts it, with few rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

WEIR = [sys.executable, "-m", "weir.cli.main"]


@pytest.mark.spark
def test_the_demo_survives_a_killed_slot_and_says_so(tmp_path):
    folder = tmp_path / "kept"
    command = [*WEIR, "demo", "--rows", "120000", "--seed", "3", "--keep", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Killed slot \d \(process \d+\) with SIGKILL", done.stdout)
    assert re.search(r"Recovered \d+\.\d s after the kill: attempt 1 goes on", done.stdout)
    row = re.search(r"│ +120,000 │ 120,000 │ +(\d+) │ +(\d+) │ +(\d+) │", done.stdout)
    assert row is not None, done.stdout
    assert row.groups() == ("0", "0", "0")
    assert str(folder / "output") in done.stdout
    assert (folder / "logs" / "driver.log").exists()
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_the_demo_without_a_kill_leaves_nothing_behind(tmp_path):
    command = [*WEIR, "demo", "--rows", "20000", "--no-kill", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["ok"], result["expected"], result["got"]) == (True, 20_000, 20_000)
    assert result["killed_pid"] is None
    assert not list(tmp_path.glob("weir-demo-*"))
