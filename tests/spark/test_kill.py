"""SIGKILL of every kind of process at every step that matters: the output stays exact."""

from __future__ import annotations

import re
import signal

import pytest
from tests.spark.scenario import Scenario, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def scenario(tmp_path):
    made = Scenario(tmp_path)
    made.write_input()
    return made


def failpoints(tmp_path, *points):
    """Kill at each point once; the markers tell that it happened."""
    entries = []
    for point in points:
        name, _, rest = point.partition("@")
        entries.append(f"{name}={tmp_path / name}@{rest or 1}")
    return ";".join(entries)


def assert_killed(tmp_path, *points):
    for point in points:
        assert (tmp_path / point.partition("@")[0]).exists(), f"{point} was never reached"


@pytest.mark.parametrize("size", ["1 mb", "0"], ids=["direct", "by Spark"])
def test_killed_slots_lose_and_duplicate_nothing(scenario, tmp_path, size):
    """In the middle of an epoch, in the sync phase, in the upload, before and after a commit."""
    scenario.configure({"weir.epoch.direct-size": size})
    points = ["slot.epoch@4", "slot.sync@2", "slot.upload@5", "slot.commit@2", "slot.committed@3"]
    code, output = scenario.run(failpoints=failpoints(tmp_path, *points))
    assert code == 0, output
    assert_killed(tmp_path, *points)
    scenario.assert_exact()
    # Two slots may die in one attempt. Workers of Spark may still complain behind the last line.
    attempts = int(re.findall(r"^attempts (\d+)$", output, re.MULTILINE)[-1])
    assert 2 < attempts <= len(points) + 1
    assert list(scenario.checkpoints.iterdir()) == []


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]"], ids=["failover", "task retry"])
def test_killed_python_workers_lose_and_duplicate_nothing(scenario, tmp_path, master):
    scenario.configure({"weir.epoch.direct-size": "0"})
    points = ["worker.pipe@3", "worker.source@4"]
    code, output = scenario.run(failpoints=failpoints(tmp_path, *points), master=master)
    assert code == 0, output
    assert_killed(tmp_path, *points)
    scenario.assert_exact()
    if master == "local[2,4]":
        assert "attempts 1\n" in output, "a repeated task must not cost a failover"


def test_a_driver_that_is_killed_again_and_again_resumes_exactly(scenario, tmp_path):
    """In an epoch, between its levels, after the upload, between metadata and sink commit."""
    restore = None
    points = ("driver.epoch@6+150", "driver.relay@2", "driver.acknowledged@2", "driver.metadata@2")
    for point in points:
        killed = failpoints(tmp_path, point)
        code, output = scenario.run(failpoints=killed, restore=restore)
        assert code == -signal.SIGKILL, output
        took = wait_until(lambda: not scenario.slots(), 15, "slots of a dead driver leaving")
        assert took < 15
        before = scenario.committed()
        assert not before - scenario.expected(), "only whole, right rows are visible after a crash"
        restore = scenario.newest_checkpoint()
    code, output = scenario.run(restore=restore)
    assert code == 0, output
    scenario.assert_exact()
    last = max(scenario.checkpoints.glob("*/chk-*"), key=lambda d: d.stat().st_mtime).parent
    abandoned = [d for d in last.glob("chk-*") if not (d / "_metadata").exists()]
    assert abandoned == []
