"""At-least-once: barriers overtake, the epoch is read again: nothing is lost, some comes twice."""

from __future__ import annotations

import pytest
from tests.harness.overtaking import Count, Overtake, Total, job, lost_and_extra, settings
from tests.harness.programs import environment

from weir.checkpoint.store import list_completed
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.testing.harness import collect

NUMBERS = 24


class First(KeyedProcessFunction):
    """Lets the first record of a key pass."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def process_element(self, value, ctx):
        if not self.seen.value():
            self.seen.update(True)
            yield value


def numbers(env):
    return env.from_sequence(1, NUMBERS)


def newest(harness):
    return list_completed(harness.storage, harness.job_id)[0].metadata


def crashed(env, at, parallelism=2):
    """Cut at a pause of the second epoch, go on to its end, lose a slot, finish."""
    hooks = Overtake(None)
    harness = job(env, hooks, parallelism, mode="at-least-once")
    harness.run_epoch(take=4)
    hooks.again(at)
    harness.run_epoch(take=16, checkpoint=True)
    assert hooks.settled
    hooks.at = None
    harness.kill_slot(0)
    harness.fail_over()
    return harness


def test_records_are_counted_again_and_none_is_missed():
    counted_twice = 0
    for at in (2, 9, 15, 20, 27):
        env = environment()
        collect(numbers(env).key_by(lambda n: n % 3).process(Total()).uid("totals"))
        harness = crashed(env, min(at, 16))
        harness.run()
        found = harness.collected()
        lost, extra = lost_and_extra(range(1, NUMBERS + 1), [r[1] for r in found])
        assert lost == 0
        counted_twice += extra
    assert counted_twice > 0


@pytest.mark.parametrize("at", [3, 10, 18, 25, 30])
def test_what_a_function_lets_pass_once_is_not_lost_behind_it(at):
    """A replayed record finds that it was seen: the row that is on its way must be kept."""
    env = environment()
    first = numbers(env).key_by(lambda n: n).process(First()).uid("first")
    second = first.key_by(lambda n: n % 3).process(Total()).uid("totals")
    third = second.key_by(lambda r: r[0]).process(Count()).uid("counts")
    collect(third)
    harness = crashed(env, at)
    harness.run()
    assert {r[1] for r in harness.collected()} == set(range(1, NUMBERS + 1))


def test_the_epoch_of_the_barrier_is_read_again():
    env = environment()
    collect(numbers(env).key_by(lambda n: n % 3).process(Total()).uid("totals"))
    harness = crashed(env, 8)
    assert newest(harness).epoch == 1
    assert harness.sources.take() == {0: list(range(5, NUMBERS + 1))}


def test_rows_straight_from_the_sources_are_not_stored():
    env = environment()
    collect(numbers(env).key_by(lambda n: n % 3).process(Total()).uid("totals"))
    harness = crashed(env, 1)
    assert newest(harness).in_flight == ()


def test_an_epoch_that_ends_before_the_cut_is_an_aligned_checkpoint():
    env = environment()
    collect(numbers(env).key_by(lambda n: n % 3).process(Total()).uid("totals"))
    hooks = Overtake(None)
    harness = job(env, hooks, mode="at-least-once")
    barrier = harness.run_epoch(take=16, checkpoint=True)
    assert barrier.overtaking
    assert newest(harness).epoch == 1
    harness.kill_slot(1)
    harness.fail_over()
    harness.run()
    expected = range(1, NUMBERS + 1)
    assert lost_and_extra(expected, [r[1] for r in harness.collected()]) == (0, 0)


def test_several_checkpoints_may_be_under_way():
    env = environment()
    collect(numbers(env).key_by(lambda n: n % 3).process(Total()).uid("totals"))
    hooks = Overtake(3)
    harness = job(
        env,
        hooks,
        mode="at-least-once",
        checkpoints=settings("at-least-once", max_concurrent=2),
        deferred=True,
    )
    harness.run_epoch(take=8, checkpoint=True)
    hooks.again(3)
    harness.run_epoch(take=8, checkpoint=True)
    assert len(harness.runner.coordinator.pending) == 2
    harness.run_async()
    assert newest(harness).checkpoint_id == 2
    hooks.at = None
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    assert {r[1] for r in harness.collected()} == set(range(1, NUMBERS + 1))
