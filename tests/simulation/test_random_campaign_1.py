"""The first share of the random campaign; the shares are files so that they run side by side."""

import pytest
from tests.simulation.seeds import SEEDS, wrong

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]


def test_random_scenarios_with_up_to_three_crashes_give_the_right_answer():
    count, found = wrong(0, 4)
    assert count >= SEEDS // 4
    assert found == []
