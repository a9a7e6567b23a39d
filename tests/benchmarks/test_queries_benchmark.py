"""The benchmark of look-ups runs: a slot process that handles epochs, asked by a client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.queries import (
    EDGE_S,
    KINDS,
    LOOK_UPS,
    NOTHING,
    TURN_S,
    kinds_of,
    rates_of,
    ratios_of,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_a_smoke_run_finds_every_key() -> None:
    command = [sys.executable, "-m", "benchmarks.queries", "--smoke"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of an idle slot" in done.stdout


def test_each_triple_has_every_kind_of_turn_and_orders_take_turns() -> None:
    kinds = kinds_of(7)
    triples = [tuple(kinds[i : i + 3]) for i in range(0, len(kinds), 3)]
    assert all(sorted(triple) == sorted(KINDS) for triple in triples)
    assert len(set(triples[:6])) == 6
    assert triples[6] == triples[0]


def test_epochs_count_for_the_turn_that_they_lie_in_whole_behind_its_first_moments() -> None:
    begin, step = 10.0, TURN_S / 10
    ends = [begin - step, *(begin + n * step for n in range(31))]
    rates = rates_of([round(end, 6) for end in ends], begin, 100, 3)
    assert rates == pytest.approx([100 / step] * 3)
    inside = [begin + EDGE_S + 0.001, begin + TURN_S * 1.5]
    assert rates_of(inside, begin, 100, 2) == [None, None]


def test_ratios_are_those_of_a_triple_that_has_both() -> None:
    kinds = [*KINDS, *reversed(KINDS)]
    assert ratios_of([1.0, 2.0, 9.0, 9.0, 8.0, 2.0], kinds, LOOK_UPS, NOTHING) == [0.5, 0.25]
    assert ratios_of([None, 2.0, 9.0, 9.0, 8.0, 2.0], kinds, LOOK_UPS, NOTHING) == [0.25]
