"""The JVM of Spark dies: the job says so, its slots end, and its checkpoints are good."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.spark.scenario import Scenario, command, processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def jvm_of(driver):
    """Return the JVM that a driver started, None before that."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and "org.apache.spark" in command(int(entry.name)):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == driver:
                return int(entry.name)
    return None


def test_a_dead_jvm_fails_the_job_by_name_and_the_checkpoint_is_resumed(tmp_path):
    scenario = Scenario(tmp_path)
    scenario.write_input()
    keep = "execution.checkpointing.externalized-checkpoint-retention"
    scenario.configure({keep: "RETAIN_ON_CANCELLATION"})
    process = scenario.start()
    wait_until(lambda: list(scenario.checkpoints.glob("*/chk-*/_metadata")), 120, "a checkpoint")
    os.kill(jvm_of(process.pid), signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=120)
    assert time.monotonic() - killed < 60
    assert process.returncode == 1, output
    assert "JobExecutionError: the JVM of Spark died while the job was running" in output
    assert "was killed by SIGKILL" in output
    last = output[output.rindex("JobExecutionError: ") :]
    assert "ConnectionRefused" not in last
    wait_until(lambda: processes(str(tmp_path)) == [], 30, "all processes of the job leaving")
    code, output = scenario.run(restore=scenario.newest_checkpoint())
    assert code == 0, output
    scenario.assert_exact()
