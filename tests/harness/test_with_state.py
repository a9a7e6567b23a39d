"""`map_with_state` and its like: keyed state in a function of two arguments."""

from __future__ import annotations

import pytest
from examples.map_with_state import TEXT, counted
from tests.harness.programs import by_key, environment, started

from weir.common.typeinfo import Types
from weir.errors import UsageError, WeirError
from weir.testing.harness import collect

SCALES = [(2, 3), (3, 1), (2, 2)]


def test_the_example_of_flinks_guide_gives_the_sum_before_each_record():
    env = environment()
    records = [(2, 21), (4, 1), (5, 4), (2, 1), (4, 2), (2, 5)]

    def before(value, count):
        if count is None:
            return (value[0], 0), value[1]
        return (value[0], count), count + value[1]

    collect(env.from_collection(records).key_by(lambda r: r[0]).map_with_state(before))
    found = by_key(started(env, 2).run().collected())
    assert found == {2: [(2, 0), (2, 21), (2, 22)], 4: [(4, 0), (4, 1)], 5: [(5, 0)]}


@pytest.mark.parametrize(("before", "after"), SCALES)
def test_words_are_counted_on_after_failover_and_rescaling(before, after):
    env = environment()
    collect(counted(env.from_collection(TEXT * 3, Types.STRING()).uid("text")))
    first = started(env, before, wait_for_checkpoints=True)
    first.run_epoch(take=2, checkpoint=True)
    first.run_epoch(take=1)
    first.kill_slot(0)
    first.fail_over()
    first.run_epoch(take=2, checkpoint=True)
    second = first.restart(after)
    second.run()
    words = [w for line in TEXT for w in line.split()]
    expected = {w: list(range(1, 3 * words.count(w) + 1)) for w in words}
    counts = by_key(first.collected() + second.collected())
    assert {w: [count for _, count in rows] for w, rows in counts.items()} == expected


def every_second(value, seen):
    """Let every second record of a key through; the state is there in between only."""
    return (False, True) if seen is None else (True, None)


def test_filter_with_state_decides_and_none_removes_the_state():
    env = environment()
    keyed = env.from_collection([("a", 1), ("a", 2), ("b", 1), ("a", 3), ("a", 4)])
    filtered = keyed.key_by(lambda r: r[0]).filter_with_state(every_second, Types.BOOLEAN())
    collect(filtered.uid("filter"))
    harness = started(env, 2)
    harness.run_epoch(checkpoint=True)
    assert sorted(harness.collected()) == [("a", 2), ("a", 4)]
    assert sum(op.state_entries() for op in harness.operators("filter")) == 1


def test_flat_map_with_state_gives_any_number_of_records():
    env = environment()

    def pairs(value, waiting):
        if value[1] < 0:
            return None, waiting
        if waiting is None:
            return [], value[1]
        return [(value[0], waiting), (value[0], value[1])], None

    records = [("a", 1), ("b", 7), ("a", -1), ("a", 2), ("a", 3)]
    keyed = env.from_collection(records).key_by(lambda r: r[0])
    collect(keyed.flat_map_with_state(pairs, state_type=Types.LONG()))
    assert started(env, 1).run().collected() == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("result", [None, 1, [1, 2], (1, 2, 3)])
def test_anything_but_a_pair_is_refused_with_the_operator_and_the_record(result):
    env = environment()
    keyed = env.from_sequence(7, 7).key_by(lambda v: v)
    collect(keyed.map_with_state(lambda value, state: result).name("stateful"))
    with pytest.raises(WeirError, match=r"'stateful'.*7.*pair \(result, new state\)"):
        started(env, 1).run_epoch()


def test_a_state_of_another_type_is_refused():
    env = environment()
    keyed = env.from_sequence(1, 1).key_by(lambda v: v)
    collect(keyed.map_with_state(lambda value, state: (value, "text"), None, Types.LONG()))
    with pytest.raises(WeirError, match=r"'state'.*'text'"):
        started(env, 1).run_epoch()


@pytest.mark.parametrize("function", [None, 5, dict])
def test_only_callables_are_taken(function):
    keyed = environment().from_sequence(1, 2).key_by(lambda v: v)
    for method in (keyed.map_with_state, keyed.flat_map_with_state, keyed.filter_with_state):
        with pytest.raises(TypeError, match=r"_with_state\(\) needs a callable of"):
            method(function)


def test_a_state_type_must_be_a_type():
    keyed = environment().from_sequence(1, 2).key_by(lambda v: v)
    with pytest.raises((TypeError, UsageError), match="state_type"):
        keyed.map_with_state(lambda v, s: (v, s), state_type="LONG")
