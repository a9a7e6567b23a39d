"""One job on every kind of backend and checkpoint, with slots killed: the output stays exact."""

from __future__ import annotations

import pytest
from tests.spark.scenario import Scenario

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

INCREMENTAL = {"execution.checkpointing.incremental": "true"}
CHANGELOG = {
    "state.changelog.enabled": "true",
    "state.changelog.periodic-materialize.interval": "500 ms",
}


@pytest.fixture
def scenario(tmp_path):
    made = Scenario(tmp_path)
    made.write_input(6)
    return made


@pytest.mark.parametrize(
    ("settings", "directory", "point"),
    [
        ({"state.backend.type": "rocksdb", **INCREMENTAL}, "", "slot.upload@3"),
        ({**CHANGELOG, "execution.checkpointing.data-inline-threshold": "0 b"}, "", "slot.epoch@4"),
        ({}, "-", "slot.commit@2"),
    ],
    ids=["rocksdb, incremental", "changelog", "in the driver's memory"],
)
def test_a_killed_slot_loses_and_duplicates_nothing(scenario, tmp_path, settings, directory, point):
    if settings.get("state.backend.type") == "rocksdb":
        pytest.importorskip("rocksdict")
    scenario.configure(settings)
    name, _, count = point.partition("@")
    failpoints = f"{name}={tmp_path / 'killed'}@{count}"
    code, output = scenario.run(failpoints=failpoints, directory=directory)
    assert code == 0, output
    assert (tmp_path / "killed").exists(), f"{point} was never reached"
    scenario.assert_exact()
    assert "attempts 2" in output
    left = [] if directory else list(scenario.checkpoints.iterdir())
    assert left == []
    assert not (tmp_path / "-").exists()
