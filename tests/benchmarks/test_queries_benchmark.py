"""The benchmark of look-ups runs: a slot process that handles epochs, asked over Flight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_a_smoke_run_finds_every_key() -> None:
    command = [sys.executable, "benchmarks/queries.py", "--smoke"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of an idle slot" in done.stdout
