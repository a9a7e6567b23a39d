"""Redistribution of state: golden tables, and what must hold for every change of parallelism."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.checkpoint.metadata import (
    OperatorRecord,
    OperatorStateRecord,
    RedistributionMode,
    SubtaskRecord,
)
from weir.checkpoint.rescale import (
    KeyedRead,
    StateReads,
    SubtaskMapping,
    map_subtasks,
    plan_keyed,
    plan_operator_state,
    plan_watermarks,
    redistribute,
)
from weir.errors import IncompatibleStateError
from weir.keygroup import KeyGroupRange, range_of

Lists = list[dict[str, list[str]]]


def spread(mode: RedistributionMode, lists: Lists, new: int) -> Lists:
    """Redistribute real lists by the plan, so that tables can be read."""
    reported = [
        {name: OperatorStateRecord(mode, len(values)) for name, values in states.items()}
        for states in lists
    ]
    return [
        {
            name: [v for r in reads for v in lists[r.old_subtask][name][r.start : r.stop]]
            for name, reads in states.items()
        }
        for states in redistribute(reported, new)
    ]


def of_one(lists: Lists, name: str = "s") -> list[str]:
    return ["".join(states.get(name, [])) for states in lists]


def one(*texts: str) -> Lists:
    return [{"s": list(text)} for text in texts]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (("abc", "de"), 3, ["ab", "cd", "e"]),
        (("abc", "de"), 1, ["abcde"]),
        (("ab",), 2, ["a", "b"]),
        (("ab",), 4, ["a", "b", "", ""]),
        (("abcde", ""), 2, ["abcde", ""]),
        (("", "", "a"), 2, ["a", ""]),
    ],
)
def test_split_state_is_cut_evenly_and_stays_when_nothing_changes(
    old: tuple[str, ...], new: int, expected: list[str]
) -> None:
    assert of_one(spread("SPLIT", one(*old), new)) == expected


def test_the_remainder_rotates_over_the_names() -> None:
    lists = [{"a": list("12"), "b": list("56")}, {"a": list("34"), "b": list("78")}]
    spread_lists = spread("SPLIT", lists, 3)
    assert of_one(spread_lists, "a") == ["12", "3", "4"]
    assert of_one(spread_lists, "b") == ["8", "56", "7"]


def test_elements_of_single_subtasks_are_split_over_new_ones() -> None:
    lists: Lists = [{"t-1": list("ab")}, {"t-2": list("cd")}]
    up = spread("SPLIT", lists, 3)
    assert [of_one(up, "t-1"), of_one(up, "t-2")] == [["a", "b", ""], ["d", "", "c"]]
    assert spread("SPLIT", lists, 1) == [{"t-1": ["a", "b"], "t-2": ["c", "d"]}]
    assert spread("SPLIT", lists, 2) == lists


@pytest.mark.parametrize("new", [1, 2, 3])
def test_union_state_goes_to_all(new: int) -> None:
    lists: Lists = [{"t-3": list("ab"), "t-4": list("x")}, {"t-3": list("cd")}]
    assert spread("UNION", lists, new) == [{"t-3": list("abcd"), "t-4": ["x"]}] * new


@pytest.mark.parametrize("new", [1, 2, 3])
def test_broadcast_state_goes_to_each_once_also_when_partially_reported(new: int) -> None:
    assert spread("BROADCAST", [{"s": list("abc")}, {}], new) == [{"s": list("abc")}] * new
    full = spread("BROADCAST", one("abc", "ABC"), new)
    assert of_one(full) == ["abc", "ABC", "abc"][:new]


@pytest.mark.parametrize(
    ("reporting", "expected"),
    [((0, 1, 3), ["a", "b", "d", "a", "b"]), ((0, 1, 2, 3, 4), ["a", "b", "c", "d", "e"])],
)
def test_broadcast_state_moves_at_the_same_parallelism_only_when_partially_reported(
    reporting: tuple[int, ...], expected: list[str]
) -> None:
    lists: Lists = [{"s": ["abcde"[i]]} if i in reporting else {} for i in range(5)]
    assert of_one(spread("BROADCAST", lists, 5)) == expected


@pytest.mark.parametrize("new", [1, 2, 3])
def test_states_of_all_modes_are_redistributed_side_by_side(new: int) -> None:
    """The mixed case of Flink's assignment test: two subtasks, six states."""
    old: list[dict[str, OperatorStateRecord]] = [
        {
            "t-1": OperatorStateRecord("UNION", 2),
            "t-2": OperatorStateRecord("UNION", 2),
            "t-3": OperatorStateRecord("SPLIT", 2),
            "t-4": OperatorStateRecord("BROADCAST", 3),
            "t-5": OperatorStateRecord("BROADCAST", 3),
        },
        {
            "t-1": OperatorStateRecord("UNION", 2),
            "t-4": OperatorStateRecord("BROADCAST", 3),
            "t-6": OperatorStateRecord("BROADCAST", 3),
        },
    ]
    handles: Counter[str] = Counter()
    for states in redistribute(old, new):
        handles.update({name: len(reads) for name, reads in states.items()})
    assert handles == {
        "t-1": 2 * new,
        "t-2": new,
        "t-3": 2 if new == 3 else 1,
        "t-4": new,
        "t-5": new,
        "t-6": new,
    }


def drawn_states(rng: random.Random, old: int) -> list[dict[str, OperatorStateRecord]]:
    """Draw up to nine states of every mode, which all subtasks have."""
    modes: tuple[RedistributionMode, ...] = ("SPLIT", "UNION", "BROADCAST")
    reported: list[dict[str, OperatorStateRecord]] = [{} for _ in range(old)]
    for mode in modes:
        for number in range(rng.randint(1, 9)):
            for states in reported:
                states[f"{mode}-{number}"] = OperatorStateRecord(mode, rng.randint(1, 9))
    return reported


def times_read(plan: tuple[StateReads, ...]) -> Counter[tuple[str, int, int]]:
    return Counter(
        (name, read.old_subtask, element)
        for states in plan
        for name, reads in states.items()
        for read in reads
        for element in range(read.start, read.stop)
    )


@pytest.mark.slow
def test_flinks_random_repartitioning_keeps_every_element_as_often_as_it_should() -> None:
    rng = random.Random(42)
    for _ in range(400):
        old, new = rng.randint(1, 9), rng.randint(1, 9)
        reported = drawn_states(rng, old)
        plan = redistribute(reported, new)
        expected: Counter[tuple[str, int, int]] = Counter()
        for i, states in enumerate(reported):
            copies = {"SPLIT": 1, "UNION": new, "BROADCAST": new // old + (i < new % old)}
            for name, state in states.items():
                for element in range(state.elements):
                    expected[name, i, element] = copies[state.mode]
        assert times_read(plan) == +expected
        if new != old:
            loads = [
                sum(len(r) for name, reads in s.items() if "SPLIT" in name for r in reads)
                for s in plan
            ]
            assert max(loads) - min(loads) <= 1


def test_subtasks_that_disagree_about_a_mode_are_refused_by_name() -> None:
    record = OperatorRecord(
        "id",
        None,
        "buffer",
        2,
        128,
        True,
        (
            SubtaskRecord(0, operator_states={"s": OperatorStateRecord("SPLIT", 1)}),
            SubtaskRecord(1, operator_states={"s": OperatorStateRecord("UNION", 1)}),
        ),
    )
    with pytest.raises(IncompatibleStateError, match=r"'buffer' \(id\).*'s'.*SPLIT.*UNION"):
        plan_operator_state(record, 3)


COUNTS = st.lists(
    st.dictionaries(st.sampled_from("abcdefghi"), st.integers(0, 9)), min_size=1, max_size=9
)


@given(COUNTS, st.integers(1, 9))
def test_split_keeps_every_element_once_and_loads_even(
    counts: list[dict[str, int]], new: int
) -> None:
    lists = [
        {n: [f"{n}{i}.{k}" for k in range(c)] for n, c in s.items()} for i, s in enumerate(counts)
    ]
    result = spread("SPLIT", lists, new)
    assert len(result) == new
    for name in "abcdefghi":
        before = [v for states in lists for v in states.get(name, [])]
        after = [v for states in result for v in states.get(name, [])]
        assert Counter(after) == Counter(before)
    if new != len(lists):
        loads = [sum(map(len, states.values())) for states in result]
        assert max(loads) - min(loads) <= 1
        for name in "abcdefghi":
            sizes = [len(states.get(name, [])) for states in result]
            assert max(sizes) - min(sizes) <= 1


@given(COUNTS, st.integers(1, 9))
def test_union_and_broadcast_replicate_as_often_as_they_should(
    counts: list[dict[str, int]], new: int
) -> None:
    lists = [
        {n: [f"{n}{i}.{k}" for k in range(c)] for n, c in s.items()} for i, s in enumerate(counts)
    ]
    union = Counter(
        v for states in spread("UNION", lists, new) for vs in states.values() for v in vs
    )
    assert union == Counter(
        {v: new for states in lists for values in states.values() for v in values}
    )
    broadcast = Counter(
        v for states in spread("BROADCAST", lists, new) for vs in states.values() for v in vs
    )
    expected: Counter[str] = Counter()
    for name in "abcdefghi":
        holders = [states[name] for states in lists if name in states]
        for i, values in enumerate(holders):
            times = new // len(holders) + (i < new % len(holders))
            expected.update({v: times for v in values if times})
    assert broadcast == expected


def keyed(parallelism: int, maximum: int) -> OperatorRecord:
    ranges = [range_of(i, parallelism, maximum) for i in range(parallelism)]
    subtasks = tuple(SubtaskRecord(i, i, (r.start, r.end), ("s",)) for i, r in enumerate(ranges))
    return OperatorRecord("id", "uid", "count", parallelism, maximum, True, subtasks)


@pytest.mark.parametrize(
    ("stored", "new", "expected"),
    [
        ((5, 9), 2, (5, 9)),
        ((5, 9), 3, (5, 5, 5)),
        ((5, 9), 1, (5,)),
        ((-7, None), 2, (-7, None)),
        ((-7, None), 1, (None,)),
        ((None, None), 3, (None, None, None)),
    ],
)
def test_event_time_begins_where_the_slowest_old_subtask_was(
    stored: tuple[int | None, ...], new: int, expected: tuple[int | None, ...]
) -> None:
    record = keyed(len(stored), 128)
    pairs = zip(record.subtasks, stored, strict=True)
    subtasks = tuple(replace(subtask, watermark=watermark) for subtask, watermark in pairs)
    assert plan_watermarks(replace(record, subtasks=subtasks), new) == expected


def test_a_subtask_that_stored_nothing_was_at_the_minimum() -> None:
    record = replace(keyed(2, 128), subtasks=(SubtaskRecord(1, watermark=8),))
    assert plan_watermarks(record, 2) == (None, 8)
    assert plan_watermarks(record, 1) == (None,)


def test_keyed_state_is_read_by_intersecting_ranges() -> None:
    assert plan_keyed(keyed(2, 13), 4) == (
        (KeyedRead(0, (0,), KeyGroupRange(0, 3), KeyGroupRange(0, 6)),),
        (KeyedRead(0, (0,), KeyGroupRange(4, 6), KeyGroupRange(0, 6)),),
        (KeyedRead(1, (1,), KeyGroupRange(7, 9), KeyGroupRange(7, 12)),),
        (KeyedRead(1, (1,), KeyGroupRange(10, 12), KeyGroupRange(7, 12)),),
    )
    assert plan_keyed(keyed(3, 128), 2) == (
        (
            KeyedRead(0, (0,), KeyGroupRange(0, 42), KeyGroupRange(0, 42)),
            KeyedRead(1, (1,), KeyGroupRange(43, 63), KeyGroupRange(43, 85)),
        ),
        (
            KeyedRead(1, (1,), KeyGroupRange(64, 85), KeyGroupRange(43, 85)),
            KeyedRead(2, (2,), KeyGroupRange(86, 127), KeyGroupRange(86, 127)),
        ),
    )


def test_subtasks_without_keyed_state_are_not_read() -> None:
    record = OperatorRecord(
        "id",
        None,
        "n",
        3,
        128,
        True,
        (SubtaskRecord(0), SubtaskRecord(1, 0, (43, 85)), SubtaskRecord(2, 1)),
    )
    assert plan_keyed(record, 1) == (
        (KeyedRead(1, (0,), KeyGroupRange(43, 85), KeyGroupRange(43, 85)),),
    )


@given(st.data())
def test_every_key_group_is_read_exactly_once_by_its_owner(choice: st.DataObject) -> None:
    maximum = choice.draw(st.integers(1, 300))
    old, new = choice.draw(st.integers(1, maximum)), choice.draw(st.integers(1, maximum))
    read: Counter[int] = Counter()
    for i, reads in enumerate(plan_keyed(keyed(old, maximum), new)):
        own = range_of(i, new, maximum)
        for part in reads:
            assert set(part.key_groups) <= set(own)
            assert set(part.key_groups) <= set(range_of(part.old_subtask, old, maximum))
            read.update(part.key_groups)
    assert read == Counter(range(maximum))


@pytest.mark.parametrize(
    ("mapping", "old", "new", "expected"),
    [
        ("RANGE", 3, 2, [{0, 1}, {1, 2}]),
        ("RANGE", 10, 2, [{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}]),
        ("RANGE", 3, 4, [{0}, {0, 1}, {1, 2}, {2}]),
        ("RANGE", 3, 7, [{0}, {0}, {0, 1}, {1}, {1, 2}, {2}, {2}]),
        ("ROUND_ROBIN", 10, 4, [{0, 4, 8}, {1, 5, 9}, {2, 6}, {3, 7}]),
        ("ROUND_ROBIN", 5, 2, [{0, 2, 4}, {1, 3}]),
        ("ROUND_ROBIN", 4, 10, [{0}, {1}, {2}, {3}, *[set()] * 6]),
        ("FIRST", 3, 2, [{0, 1, 2}, set()]),
        ("FULL", 3, 2, [{0, 1, 2}, {0, 1, 2}]),
    ],
)
def test_rows_in_flight_go_where_flink_sends_them(
    mapping: str, old: int, new: int, expected: list[set[int]]
) -> None:
    found = map_subtasks(SubtaskMapping(mapping), old, new)
    assert [set(old_subtasks) for old_subtasks in found] == expected
