"""Window join and co-group: Flink's own cases, late data, keys and functions."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.checkpoint.store import list_completed
from weir.common import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessFunction
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from weir.errors import UsageError
from weir.offline import describe
from weir.storage.local import LocalStorage
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


def test_late_records_of_either_stream_are_dropped_and_counted():
    env = environment()
    streams = [timed(env, records) for records in ([("a", 0), ("a", 9)], [("a", 1), ("a", 8)])]
    joined = windowed(streams[0].co_group(streams[1])).allowed_lateness(3).apply(Groups())
    collect(joined.uid("groups"))
    harness = started(env, 1)
    for records in ({}, {0: [("a", 2)], 1: [("a", 1)]}, {0: [("a", 4)]}):
        harness.run_epoch(records)
    # The watermark is 7, that of the slower stream: [0, 3) is gone, [3, 6) may still be late.
    assert harness.collected() == [([0], [1]), ([4], [])]
    assert harness.metrics("groups")["numLateRecordsDropped"] == [2]
    harness.finish()
    assert harness.collected()[2:] == [([], [8]), ([9], [])]


# ---- what decides when windows fire, and what they hold


def numbered(first, second):
    return first[-1], second[-1]


def met(settle, steps, meeting="join", function=numbered):
    """Let (side, number) come, each in an epoch of its own; return the results of each and the end.

    The watermark is one below the smaller of the last numbers of both sides.
    """
    env = environment()
    first, second = timed(env, []), timed(env, [])
    joined = getattr(first, meeting)(second).where(key).equal_to(key)
    collect(settle(joined).apply(function))
    harness, results = started(env, 1), []
    for side, number in steps:
        before = len(harness.collected())
        harness.run_epoch({side: [("a", number)]})
        results.append(harness.collected()[before:])
    before = len(harness.collected())
    harness.finish()
    return [*results, harness.collected()[before:]]


FOUR = [(0, 0), (1, 1), (0, 2), (1, 2)]
TEN = TumblingEventTimeWindows.of(10)


@pytest.mark.parametrize(
    ("trigger", "second_time"),
    [
        (CountTrigger.of(2), [(0, 1), (0, 2), (2, 1), (2, 2)]),
        (PurgingTrigger.of(CountTrigger.of(2)), [(2, 2)]),
    ],
    ids=["keeping", "purging"],
)
def test_a_trigger_counts_the_records_of_both_streams(trigger, second_time):
    found = met(lambda joined: joined.window(TEN).trigger(trigger), FOUR)
    assert found == [[], [(0, 1)], [], second_time, []]


def test_a_trigger_lets_groups_come_before_their_window_is_over():
    early = PurgingTrigger.of(CountTrigger.of(1))
    found = met(lambda joined: joined.window(TEN).trigger(early), FOUR, "co_group", Groups())
    assert found == [[([0], [])], [([], [1])], [([2], [])], [([], [2])], []]


@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (CountEvictor.of(2), [(2, 1)]),
        (TimeEvictor.of(2), [(2, 1)]),
        (DeltaEvictor.of(1, lambda older, newer: int(older[0] != newer[0])), []),
        (CountEvictor.of(2, True), [(0, 1), (2, 1)]),
    ],
    ids=["count", "time", "side", "after"],
)
def test_an_evictor_sees_the_records_of_both_streams_in_their_order(evictor, expected):
    found = met(lambda joined: joined.window(TEN).evictor(evictor), FOUR[:3])
    assert found == [[], [], [], expected]


@pytest.mark.parametrize(
    ("trigger", "again"),
    [(None, [(0, 1), (2, 1)]), (PurgingTrigger.of(EventTimeTrigger.create()), [])],
    ids=["keeping", "purging"],
)
def test_a_late_record_meets_what_its_window_still_holds(trigger, again):
    def settle(joined):
        windows = joined.window(TumblingEventTimeWindows.of(3)).allowed_lateness(3)
        return windows if trigger is None else windows.trigger(trigger)

    found = met(settle, [(0, 0), (1, 1), (0, 4), (1, 4), (0, 2), (0, 9), (1, 9), (0, 2)])
    # At 3 the first window is over but stays, at 8 it is gone.
    assert found == [[], [], [], [(0, 1)], again, [], [(4, 4)], [], [(9, 9)]]


class Stamped(ProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


def test_a_pair_is_joined_once_for_each_sliding_window_that_has_both():
    env = environment()
    first = timed(env, [("a", 1), ("b", 2), ("a", 5)])
    second = timed(env, [("a", 1), ("a", 3), ("b", 9)])
    joined = first.join(second).where(key).equal_to(key).window(SlidingEventTimeWindows.of(4, 2))
    collect(joined.apply(numbered).process(Stamped()))
    assert sorted(run(env).collected()) == [(1, 1, 1), (1, 1, 3), (1, 3, 3), (5, 3, 5)]


def test_groups_of_sliding_windows_are_those_of_each_window():
    env = environment()
    first, second = timed(env, [("a", 1)]), timed(env, [("a", 3)])
    grouped = first.co_group(second).where(key).equal_to(key)
    collect(grouped.window(SlidingEventTimeWindows.of(4, 2)).apply(Groups()))
    assert run(env).collected() == [([1], []), ([1], [3]), ([], [3])]


def test_a_record_of_the_other_stream_makes_two_sessions_one():
    found = met(
        lambda joined: joined.window(EventTimeSessionWindows.with_gap(5)),
        [(0, 0), (0, 8), (1, 4), (1, 20)],
    )
    # Of two sessions that became one, records may come in either order.
    assert [sorted(pairs) for pairs in found] == [[], [], [], [], [(0, 4), (8, 4)]]


class GapOfTheSide(SessionWindowTimeGapExtractor):
    def extract(self, element):
        side, first, second = element
        assert (first is None, second is None) == ((False, True), (True, False))[side]
        return (10, 1)[side]


def test_a_gap_is_told_from_the_record_and_its_side():
    found = met(
        lambda joined: joined.window(EventTimeSessionWindows.with_dynamic_gap(GapOfTheSide())),
        [(0, 0), (1, 5), (1, 12), (0, 14)],
    )
    assert found == [[], [], [], [(0, 5)], []]


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


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def stored_types(first, second, tmp_path):
    """Return the types of the contents of a co-group of streams with these declared types."""
    env = environment()
    streams = [
        env.from_collection(records, declared).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                lambda value, _: value[-1]
            )
        )
        for records, declared in ((LEFT, first), (R, second))
    ]
    collect(windowed(streams[0].co_group(streams[1])).apply(Groups()).uid("groups"))
    storage = LocalStorage(tmp_path)
    harness = started(env, 1, storage=storage)
    harness.run_epoch(take=7, checkpoint=True)
    directory = list_completed(storage, harness.job_id)[0].directory
    operators = describe(f"{storage.uri}/{directory}").operators
    [states] = [operator.states for operator in operators if operator.uid == "groups"]
    harness.run()
    assert len(harness.collected()) == 3
    return {state.name: state.types for state in states}["_window_contents"]


def test_contents_of_joins_have_the_types_of_both_streams(tmp_path):
    types = stored_types(PAIR, TRIPLE, tmp_path)
    both = "TUPLE<STRING, LONG>, TUPLE<STRING, STRING, LONG>"
    assert types["value"] == f"TUPLE<INT, {both}>"
    assert types["namespace"] == "TUPLE<LONG, LONG>"


def test_a_stream_without_a_type_is_pickled_beside_one_that_has_one(tmp_path):
    types = stored_types(PAIR, None, tmp_path)
    assert types["value"] == "TUPLE<INT, TUPLE<STRING, LONG>, PICKLED_BYTE_ARRAY>"


def grouped(declared):
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value[-1]
    )
    first, second = (
        env.from_collection(records, declared).uid(uid).assign_timestamps_and_watermarks(strategy)
        for uid, records in (("first", LEFT), ("second", RIGHT))
    )
    collect(windowed(first.co_group(second)).apply(Groups(), Types.PICKLED_BYTE_ARRAY()).uid("g"))
    return env
