"""The benchmark's own programs run on Spark and give the right results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


def test_a_smoke_run_of_weir_gives_right_results():
    """Of records, columns, timers and windows; benchmarks look into the job to know its epochs."""
    chosen = ["--only", "a-1k,c-sum,h,w-sum,n11", "--contenders", "weir-hashmap"]
    command = [sys.executable, "-m", "benchmarks", "--smoke", *chosen]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("right result") == 5, done.stderr
