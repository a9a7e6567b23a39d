"""The benchmark of look-ups runs: a slot process that handles epochs, asked over Flight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.queries import TURN_S, rates_of, ratios_of

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_a_smoke_run_finds_every_key() -> None:
    command = [sys.executable, "-m", "benchmarks.queries", "--smoke"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of an idle slot" in done.stdout


def test_epochs_count_for_the_turn_they_lie_in_whole_and_turns_go_in_pairs() -> None:
    # Four turns: epochs of a tenth of a turn, of a fifth in those with look-ups.
    ends, begin = [10.0 - TURN_S], 10.0
    while ends[-1] < begin + 4 * TURN_S:
        turn = int((ends[-1] - begin + 1e-9) // TURN_S)
        ends.append(ends[-1] + TURN_S / (5 if turn % 2 == 0 else 10))
    rates = rates_of([round(end, 6) for end in ends], begin, 100, 4)
    assert [len(one) for one in rates] == [5, 10, 5, 10]
    assert ratios_of(rates) == pytest.approx([0.5, 0.5])
    assert rates_of([9.9, 10.0 + TURN_S * 1.5], begin, 100, 2) == [[], []]
    assert ratios_of([[], [1.0], [2.0], [4.0]]) == [0.5]
