"""SIGKILL of every kind of process at every step that matters: the output stays exact."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "points",
    [
        ["slot.epoch@4"],
        ["slot.sync@2", "slot.upload@5"],
        ["slot.commit@2", "slot.committed@3"],
    ],
    ids=["in the middle of an epoch", "sync phase and upload", "before and after sink commit"],
)
def test_killed_slots_lose_and_duplicate_nothing(scenario, tmp_path, points):
    code, output = scenario.run(failpoints=failpoints(tmp_path, *points))
    assert code == 0, output
    assert_killed(tmp_path, *points)
    scenario.assert_exact()
    assert f"attempts {len(points) + 1}" in output
    assert list(scenario.checkpoints.iterdir()) == []


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]"], ids=["failover", "task retry"])
def test_killed_python_workers_lose_and_duplicate_nothing(scenario, tmp_path, master):
    points = ["worker.pipe@3", "worker.source@4"]
    code, output = scenario.run(failpoints=failpoints(tmp_path, *points), master=master)
    assert code == 0, output
    assert_killed(tmp_path, *points)
    scenario.assert_exact()
    if master == "local[2,4]":
        assert "attempts 1\n" in output, "a repeated task must not cost a failover"


@pytest.mark.parametrize(
    "point",
    ["driver.epoch@6+150", "driver.acknowledged@3", "driver.metadata@3"],
    ids=["in the middle of an epoch", "after the upload", "between metadata and sink commit"],
)
def test_a_killed_driver_resumes_exactly(scenario, tmp_path, point):
    code, output = scenario.run(failpoints=failpoints(tmp_path, point))
    assert code == -signal.SIGKILL, output
    took = wait_until(lambda: not scenario.slots(), 15, "slots of a dead driver leaving")
    assert took < 15
    before = scenario.committed()
    assert not before - scenario.expected(), "only whole, right rows are visible after a crash"
    code, output = scenario.run(restore=scenario.newest_checkpoint())
    assert code == 0, output
    scenario.assert_exact()
    abandoned = [d for d in scenario.checkpoints.glob("*/chk-*") if not (d / "_metadata").exists()]
    assert abandoned == []
