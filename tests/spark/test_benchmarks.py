"""The benchmark's own programs run on Spark and give the right results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import brokers

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_smoke_run_of_weir_gives_right_results():
    """Of records, columns, timers, windows, single rows; it looks into the job for epochs."""
    chosen = ["--only", "a-1k,c-sum,h,w-sum,n11,epoch", "--contenders", "weir-hashmap"]
    command = [sys.executable, "-m", "benchmarks", "--smoke", *chosen]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("right result") == 5, done.stderr


def test_what_a_page_costs_is_measured():
    command = [sys.executable, "benchmarks/page.py", "--smoke"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^cost of one +-?[\d.]+% of records/s, .*(?:aim|decided)", done.stdout, re.M)
    asked, wanted = re.findall(r"^requests +([\d,]+) of ([\d,]+)", done.stdout, re.M)[0]
    assert int(asked.replace(",", "")) > int(wanted.replace(",", "")) / 2


@pytest.mark.kafka
def test_a_smoke_run_between_topics_gives_right_results(tmp_path):
    """It has a broker of its own, kills Weir's processes, and reads committed records."""
    command = [sys.executable, "-m", "benchmarks.kafka_ends", "--smoke", "--contenders", "weir"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=brokers.with_kafka_jars(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right result" in done.stdout
