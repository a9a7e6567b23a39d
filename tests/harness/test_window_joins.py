"""Window join and co-group: Flink's own cases, late data, keys and functions."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.common import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import CoGroupFunction, FlatJoinFunction, JoinFunction
from weir.datastream.window import CountEvictor, TumblingEventTimeWindows
from weir.errors import UsageError
from weir.testing.harness import collect

LEFT = [("a", n) for n in (0, 1, 2)] + [("b", n) for n in (3, 4, 5)] + [("a", n) for n in (6, 7, 8)]
RIGHT = [("a", 0), ("a", 1), ("b", 3), ("c", 6), ("c", 7), ("c", 8)]
L = [("a", "x", 0), ("a", "y", 1), ("a", "z", 2), ("b", "u", 3), ("b", "w", 5)]
L += [("a", "i", 6), ("a", "j", 7), ("a", "k", 8)]
R = [("a", "u", 0), ("a", "w", 1), ("b", "i", 3), ("b", "k", 5), ("a", "x", 6), ("a", "z", 8)]


def timed(env, records):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda value, _: value[-1])
    )


def key(record):
    return record[0]


def windowed(joined):
    return joined.where(key).equal_to(key).window(TumblingEventTimeWindows.of(3))


def numbers(records):
    return [record[-1] for record in records]


class Groups(CoGroupFunction):
    def open(self, runtime_context):
        self.opened = runtime_context.get_task_name()

    def co_group(self, first, second):
        assert self.opened
        yield numbers(first), numbers(second)


@pytest.mark.parametrize("function", [Groups(), lambda a, b: [(numbers(a), numbers(b))]])
@pytest.mark.parametrize("take", [None, 2])
def test_groups_of_both_streams(function, take):
    env = environment()
    collect(windowed(timed(env, LEFT).co_group(timed(env, RIGHT))).apply(function))
    found = run(env, take=take, partitions=1).collected()
    assert sorted(found, key=repr) == sorted(
        [([0, 1, 2], [0, 1]), ([3, 4, 5], [3]), ([6, 7, 8], []), ([], [6, 7, 8])], key=repr
    )


def pairs(left, right):
    return sorted((a, b) for a in left for b in right if a[0] == b[0] and a[-1] // 3 == b[-1] // 3)


class Pair(JoinFunction):
    def join(self, first, second):
        return first, second


class Pairs(FlatJoinFunction):
    def join(self, first, second):
        yield first, second


@pytest.mark.parametrize("function", [Pair(), Pairs(), lambda a, b: (a, b)])
@pytest.mark.parametrize(("other", "count"), [(R, 16), (L, 22)])
def test_pairs_of_both_streams(function, other, count):
    env = environment()
    collect(windowed(timed(env, L).join(timed(env, other))).apply(function))
    found = run(env).collected()
    assert len(found) == count
    assert sorted(found) == pairs(L, other)


def test_a_stream_joins_with_itself_after_a_failure_and_rescaling():
    env = environment()
    stream = timed(env, L)
    collect(windowed(stream.join(stream)).apply(Pair()).uid("join"))
    first = started(env, 2, wait_for_checkpoints=True)
    first.run_epoch(take=4, checkpoint=True)
    first.kill_slot(0)
    first.fail_over()
    second = first.restart(3)
    second.run()
    assert sorted([*first.collected(), *second.collected()]) == pairs(L, L)


def test_a_keyed_stream_is_keyed_anew():
    env = environment()
    first = timed(env, L).key_by(lambda record: record[1])
    collect(windowed(first.join(timed(env, R))).apply(Pair()))
    assert sorted(run(env).collected()) == pairs(L, R)


def test_a_join_has_evictors_and_results_are_stamped():
    env = environment()
    joined = windowed(timed(env, LEFT).co_group(timed(env, RIGHT))).evictor(CountEvictor.of(1))
    result = joined.apply(lambda a, b: [len(a) + len(b)])
    collect(result.window_all(TumblingEventTimeWindows.of(3)).reduce(lambda a, b: a + b))
    assert run(env).collected() == [1, 1, 2]


def test_keys_of_different_types_are_refused():
    env = environment()
    where = timed(env, L).join(timed(env, R)).where(key, Types.STRING())
    with pytest.raises(UsageError, match="The keys for the two inputs are not equal"):
        where.equal_to(key, Types.LONG())


@pytest.mark.parametrize("function", [Groups(), Pair, 5])
def test_something_else_than_a_join_function_is_refused(function):
    env = environment()
    with pytest.raises(TypeError):
        windowed(timed(env, L).join(timed(env, R))).apply(function)
