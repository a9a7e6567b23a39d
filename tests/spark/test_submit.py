"""`spark-submit` runs a program as it runs any other: nobody needs the command `weir`."""

from __future__ import annotations

import pytest
from tests.spark.scenario import Scenario

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_spark_submit_runs_a_program_exactly(tmp_path):
    scenario = Scenario(tmp_path)
    scenario.write_input(4)
    code, output = scenario.run(launcher="spark-submit")
    assert code == 0, output
    assert "attempts 1\n" in output
    scenario.assert_exact()
    assert list(scenario.checkpoints.iterdir()) == []
