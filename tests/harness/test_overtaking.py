"""Barriers that overtake rows: what a checkpoint holds then, and what a restore makes of it."""

from __future__ import annotations

import pytest
from tests.harness.overtaking import Count, Overtake, Total, job, lost_and_extra, settings
from tests.harness.programs import environment

from weir.checkpoint.store import list_completed
from weir.errors import UsageError, WeirError
from weir.jobmanager.overtake import Outcome
from weir.slot.messages import Cut
from weir.testing.harness import HarnessOptions, JobHarness, collect

NUMBERS = 24


def skewed(env, numbers=NUMBERS):
    """Most numbers have one key."""
    return (
        env.from_sequence(1, numbers)
        .key_by(lambda n: 0 if n % 6 else n % 4)
        .process(Total())
        .uid("totals")
    )


def two_levels(env, numbers=NUMBERS):
    counted = skewed(env, numbers).key_by(lambda r: r[0]).process(Count()).uid("counts")
    return collect(counted)


def expected(numbers=NUMBERS):
    totals, counts, found = {}, {}, []
    for n in range(1, numbers + 1):
        key = 0 if n % 6 else n % 4
        totals[key] = totals.get(key, 0) + n
        counts[key] = counts.get(key, 0) + 1
        found.append((key, n, totals[key], counts[key]))
    return found


def newest(harness):
    return list_completed(harness.storage, harness.job_id)[0].metadata


def test_the_checkpoint_is_complete_while_most_rows_of_its_epoch_wait():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=7)
    harness = job(env, hooks)
    harness.run_epoch(checkpoint=True)
    assert hooks.settled
    assert sum(row.records for row in newest(harness).in_flight) == NUMBERS


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_an_aligned_checkpoint_waits_for_all_rows_and_an_unaligned_one_does_not(mode):
    env = environment()
    two_levels(env)
    hooks = Overtake(at=4)
    harness = job(env, hooks, mode=mode)
    at_level_two = []

    def step(label):
        if label == "level 2 begins":
            at_level_two.append(bool(harness.runner.coordinator.completed))

    hooks.step = step
    harness.run_epoch(checkpoint=True)
    assert at_level_two == [mode == "unaligned"] * 2
    assert harness.runner.is_completed(1)


@pytest.mark.parametrize("at", [2, 9, 17, 28, 36])
@pytest.mark.parametrize("when", ["at once", "after the epoch", "after another epoch"])
def test_a_crash_after_an_overtaking_barrier_loses_and_repeats_nothing(at, when):
    env = environment()
    two_levels(env)
    hooks = Overtake(at)
    harness = job(env, hooks, repeated=at % 2 == 0)
    if when == "at once":
        hooks.then = lambda: harness.kill_slot(at % 2)
    with_failure = False
    try:
        harness.run_epoch(take=20, checkpoint=True)
        if when == "after another epoch":
            harness.run_epoch(take=2)
    except WeirError:
        with_failure = True
    assert with_failure == (when == "at once" and hooks.outcomes != [])
    harness.kill_slot(0)
    harness.fail_over()
    hooks.at = None
    harness.run(take=3)
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


@pytest.mark.slow
def test_every_pause_of_both_levels_can_be_the_place_of_the_cut():
    env = environment()
    two_levels(env)
    levels = set()
    for at in range(1, 41, 3):
        hooks = Overtake(at)
        harness = job(env, hooks)
        harness.run_epoch(take=20, checkpoint=True)
        assert hooks.settled
        levels |= {row.level for row in newest(harness).in_flight}
        harness.kill_slot(1)
        harness.fail_over()
        hooks.at = None
        harness.run()
        assert lost_and_extra(expected(), harness.collected()) == (0, 0), at
    assert levels == {1, 2}


def test_a_barrier_that_overtakes_nothing_is_an_aligned_checkpoint():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=None)
    harness = job(env, hooks)
    harness.run_epoch(take=20, checkpoint=True)
    assert newest(harness).in_flight == ()
    entry = harness.runner.history.view().find(1)
    assert (entry.overtook, entry.in_flight_bytes) == (False, 0)
    assert len(harness.collected()) == 20
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


def test_results_of_the_epoch_are_released_by_the_next_checkpoint_only():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=30)
    harness = job(env, hooks)
    harness.run_epoch(take=4)
    harness.run_epoch(take=16, checkpoint=True)
    assert hooks.settled
    assert len(harness.collected()) == 4
    harness.checkpoint()
    assert len(harness.collected()) == 20


def test_history_tells_that_the_barrier_overtook_and_how_much():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=3)
    harness = job(env, hooks)
    harness.run_epoch(checkpoint=True)
    entry = harness.runner.history.view().find(1)
    assert entry.overtook
    assert entry.in_flight_bytes > 0
    assert sum(ack.in_flight_records for ack in entry.acks.values()) == NUMBERS


def test_savepoints_and_the_last_checkpoint_are_aligned(tmp_path):
    env = environment()
    two_levels(env)
    hooks = Overtake(at=3)
    harness = job(env, hooks)
    harness.runner.savepoint(f"file://{tmp_path}/savepoint-1")
    barrier = harness.run_epoch(take=20)
    assert (barrier.overtaking, hooks.outcomes) == (False, [])
    harness.finish()
    assert hooks.outcomes == []
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


def test_unaligned_checkpoints_are_one_at_a_time():
    with pytest.raises(UsageError, match="one checkpoint at a time"):
        settings(max_concurrent=2)


def test_nothing_is_agreed_on_before_a_level_begins_and_the_epoch_goes_on():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=None)
    harness = job(env, hooks)
    hooks.on("level 1 begins", lambda: hooks.outcomes.append(harness.overtake()))
    harness.run_epoch(take=20, checkpoint=True)
    assert hooks.outcomes == [Outcome.NOT_YET]
    assert newest(harness).in_flight == ()


def test_rows_in_flight_can_be_given_up_by_name():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=3)
    harness = job(env, hooks, without_rows_of=1)
    harness.run_epoch(take=20, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    hooks.at = None
    harness.run()
    lost, extra = lost_and_extra(expected(), harness.collected())
    assert lost > 0
    assert extra < lost


@pytest.mark.parametrize("first", [2, 12, 22, 32])
@pytest.mark.parametrize("second", [1, 8, 20])
def test_a_second_barrier_may_overtake_rows_that_were_restored(first, second):
    env = environment()
    two_levels(env)
    hooks = Overtake(first)
    harness = JobHarness(
        env.build_graph(),
        2,
        HarnessOptions(
            hooks=hooks, checkpoints=settings(interval_ms=1000), wait_for_checkpoints=True
        ),
    )
    hooks.harness = harness
    # The first epoch of every attempt carries a barrier: in the second one it is the recovery.
    hooks.step = lambda label: label == "attempt runs" and harness.clock.advance(1000)
    harness.start()
    harness.run_epoch(take=20)
    harness.kill_slot(0)
    hooks.again(second)
    harness.fail_over()
    assert newest(harness).checkpoint_id == 2
    harness.kill_slot(1)
    hooks.at = None
    harness.fail_over()
    harness.run(take=2)
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


def test_an_aborted_checkpoint_drops_its_cut_and_the_next_one_stands():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=7)
    harness = job(env, hooks, deferred=True)
    hooks.then = lambda: harness.runner.give_up(1, "on purpose")
    harness.run_epoch(take=16, checkpoint=True)
    harness.run_async()
    assert harness.runner.coordinator.completed == []
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_async()
    assert newest(harness).checkpoint_id == 2
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


@pytest.mark.parametrize("label", ["level 1 is done", "level 2 begins"])
def test_slots_between_two_levels_cut_where_they_stand(label):
    env = environment()
    two_levels(env)
    hooks = Overtake(at=None)
    harness = job(env, hooks)
    hooks.on(label, lambda: hooks.outcomes.append(harness.overtake()))
    harness.run_epoch(take=20, checkpoint=True)
    assert hooks.settled
    assert {row.level for row in newest(harness).in_flight} == {1}
    assert sum(row.records for row in newest(harness).in_flight) == 20
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)


def test_a_barrier_overtakes_nothing_when_all_rows_are_handled():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=None)
    harness = job(env, hooks, 1, deferred=True)
    hooks.on("level 2 is done", lambda: hooks.outcomes.append(harness.overtake()))
    harness.run_epoch(take=20, checkpoint=True)
    harness.run_async()
    assert hooks.outcomes == [Outcome.GIVEN_UP]
    assert (newest(harness).in_flight, len(harness.collected())) == ((), 20)


def test_a_slot_that_cuts_without_an_agreement_makes_no_checkpoint():
    env = environment()
    two_levels(env)
    hooks = Overtake(at=None)
    harness = job(env, hooks, 1, checkpoints=settings(tolerable_failures=1))

    def cut():
        slot = harness.slots.slots[0].service
        barrier = harness._sent.barrier
        slot.cut(Cut(0, harness.epoch, 1, barrier))

    hooks.on("slice", cut)
    harness.run_epoch(take=20, checkpoint=True)
    assert harness.runner.coordinator.completed == []
    harness.run()
    assert lost_and_extra(expected(), harness.collected()) == (0, 0)
