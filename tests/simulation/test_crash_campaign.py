"""Exactly once under any crash: every step of a job as a place to die, alone and twice.

A failure prints the command that repeats it.
"""

from __future__ import annotations

import pytest

from weir.testing.campaign import Crash, Kind, Mode, reproduction, run
from weir.testing.campaign_backends import BACKENDS
from weir.testing.campaign_scenario import ASKED

pytestmark = pytest.mark.campaign

FIXED = {name: -index for index, name in enumerate(BACKENDS)}
DRIVERS = {name: -len(BACKENDS) - index for index, name in enumerate(ASKED)}
# Every so many steps: the steps of the protocol are the same with all backends.
STRIDES = {"hashmap": 7, "rocksdb-incremental": 90, "rocksdb-changelog": 130, "rocksdb": 200}
KINDS = list(Kind)
# Ends the fixed scenario's first attempt when one checkpoint is complete and the second under way.
FIRST_CRASH = "slot 0: level 2 begins"


def failures(runs, **mode):
    found = []
    count = 0
    for seed, crashes in runs:
        count += 1
        try:
            problems = run(seed, crashes, **mode).problems
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            found.append(f"{reproduction(seed, crashes, **mode)}  # {problems[0]}")
    return count, found


def test_without_a_crash_every_seed_gives_the_right_answer():
    count, found = failures((seed, []) for seed in range(60))
    assert (count, found) == (60, [])


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_one_crash_at_many_steps_loses_and_repeats_nothing(backend):
    seed, stride = FIXED[backend], STRIDES.get(backend, 24)
    steps = len(run(seed).steps)
    count, found = failures(
        (seed, [Crash(point, kind, point)])
        for first, kind in enumerate(KINDS, 1)
        for point in range(first, steps + 1, stride)
    )
    assert count > 7 * (steps // stride)
    assert found == []


@pytest.mark.parametrize("mode", [Mode.ALIGNED, Mode.UNALIGNED])
def test_an_engine_that_fails_at_any_step_while_all_slots_live_loses_and_repeats_nothing(mode):
    """At every single one: others at every so many could miss the one that matters."""
    seed = FIXED["hashmap"]
    whole = run(seed, mode=mode)
    steps = len(whole.steps)
    assert whole.overtaken >= (mode is Mode.UNALIGNED)
    middle = Crash(steps // 2, Kind.ENGINE)
    assert len(run(seed, [middle], mode=mode).steps) > steps, "the job did not start again"
    count, found = failures(
        ((seed, [Crash(point, Kind.ENGINE)]) for point in range(1, steps + 1)), mode=mode
    )
    assert (count, found) == (steps, [])


@pytest.mark.parametrize("asked", list(ASKED))
def test_a_driver_that_dies_at_any_step_of_what_it_is_asked_loses_and_repeats_nothing(asked):
    """At every second step of the driver; other things go wrong at some of all steps."""
    seed = DRIVERS[asked]
    steps = run(seed).steps
    own = [i + 1 for i, label in enumerate(steps) if label.startswith("driver")]
    count, found = failures(
        [(seed, [Crash(point, Kind.DRIVER, point)]) for point in own[::2]]
        + [
            (seed, [Crash(point, kind, point)])
            for first, kind in enumerate(KINDS, 1)
            for point in range(first, len(steps) + 1, 60)
        ]
    )
    assert count > len(own) // 2
    assert found == []


@pytest.mark.parametrize("backend", ["hashmap", "hashmap-incremental"])
def test_a_second_crash_during_and_after_the_recovery_changes_nothing(backend):
    seed = FIXED[backend]
    steps = run(seed).steps
    first = [i + 1 for i, label in enumerate(steps) if label == FIRST_CRASH][3]
    crash = Crash(first, Kind.SLOT)
    recovered = run(seed, [crash]).steps
    assert "before read_range" in " ".join(recovered[first:]), "it restored no state"
    count, found = failures(
        (seed, [crash, Crash(point, KINDS[point % len(KINDS)], point)])
        for point in range(first + 1, len(recovered) + 1, 4)
    )
    assert count > 75
    assert found == []


@pytest.mark.parametrize("seed", [8, 22])
def test_barriers_that_overtake_rows_lose_and_repeat_nothing(seed):
    whole, stride = run(seed, mode=Mode.UNALIGNED), 90
    assert whole.overtaken >= 2
    count, found = failures(
        (
            (seed, [Crash(point, kind, point)])
            for first, kind in enumerate(KINDS, 1)
            for point in range(first, len(whole.steps) + 1, stride)
        ),
        mode=Mode.UNALIGNED,
    )
    assert count > 7 * (len(whole.steps) // stride)
    assert found == []
