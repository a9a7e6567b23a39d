"""Flat entries against a dict: many keys at once, one at a time, and as they were."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.examples import examples

from weir.backend.hashmap.flat import FlatEntries, SparseError


def numbers(values: list[int]) -> Any:
    return np.array(values, np.int64)


def contents(source: Any, groups: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for row in range(groups):
        keys, values = source.group(row)
        assert not set(found) & set(keys.tolist())
        found.update(zip(keys.tolist(), values.tolist(), strict=True))
    return found


def put(entries: FlatEntries, keys: Any, rows: Any, values: Any) -> None:
    entries.insert(keys, rows, values, ~entries.find(keys, rows))


class Pair:
    """Entries and the dict that they have to agree with."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = self.random.choice([1, 3, 8])
        self.entries = FlatEntries(self.groups)
        self.model: dict[int, int] = {}
        self.shadows: list[tuple[Any, dict[int, int]]] = []

    def some_keys(self) -> list[int]:
        # Few keys collide with themselves, multiples of a power of two with each other.
        space, step = self.random.choice([(30, 1), (1000, 1), (500, 1 << 40), ((1 << 62), 1)])
        count = self.random.randrange(1, 150)
        return sorted({self.random.randrange(-space, space) * step for _ in range(count)})

    def rows(self, keys: Any) -> Any:
        return np.abs((keys >> 3) ^ (keys >> 43)) % self.groups

    def step(self) -> None:
        keys = self.some_keys()
        array = numbers(keys)
        cells = self.entries.find(array, self.rows(array))
        assert [c >= 0 for c in cells] == [k in self.model for k in keys]
        for key, cell in zip(keys, cells.tolist(), strict=True):
            assert cell < 0 or self.entries.values[cell] == self.model[key]
            row = int(self.rows(numbers([key]))[0])
            assert self.entries.get(key, row) == self.model.get(key)
        change = self.random.choice([self.put, self.remove, self.put_one_by_one, self.drop])
        change(keys, array, cells)
        assert self.entries.count == len(self.model)

    def put(self, keys: list[int], array: Any, cells: Any) -> None:
        values = numbers([self.random.randrange(-(1 << 60), 1 << 60) for _ in keys])
        there = cells >= 0
        self.entries.write(cells[there], values[there])
        new = array[~there]
        self.entries.insert(new, self.rows(new), values[~there], ~cells[~there])
        self.model.update(zip(keys, values.tolist(), strict=True))

    def remove(self, keys: list[int], array: Any, cells: Any) -> None:
        self.entries.remove(cells[cells >= 0])
        for key in keys:
            self.model.pop(key, None)

    def put_one_by_one(self, keys: list[int], array: Any, cells: Any) -> None:
        for key, row in zip(keys, self.rows(array).tolist(), strict=True):
            self.entries.set(key, row, key ^ 1)
            self.model[key] = key ^ 1

    def drop(self, keys: list[int], array: Any, cells: Any) -> None:
        for key, row in zip(keys, self.rows(array).tolist(), strict=True):
            self.entries.drop(key, row)
            self.model.pop(key, None)

    def shadow_now_and_then(self) -> None:
        if self.random.random() < 0.3 and len(self.shadows) < 3:
            self.shadows.append((self.entries.shadow(), dict(self.model)))
        if self.shadows and self.random.random() < 0.3:
            shadow, expected = self.shadows.pop(self.random.randrange(len(self.shadows)))
            assert contents(shadow, self.groups) == expected
            self.entries.forget(shadow)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(40))
def test_entries_agree_with_a_dict_whatever_happens(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(40):
        pair.step()
        pair.shadow_now_and_then()
    assert contents(pair.entries, pair.groups) == pair.model
    for shadow, expected in pair.shadows:
        assert contents(shadow, pair.groups) == expected


def test_a_group_is_filled_as_a_whole_also_where_buckets_overflow() -> None:
    keys = numbers([number << 50 for number in range(1, 2000)])
    entries = FlatEntries(2)
    entries.reserve([0, len(keys)])
    entries.fill(1, keys, keys)
    assert contents(entries, 2) == {int(k): int(k) for k in keys}
    assert (entries.find(keys, np.ones(len(keys), np.int64)) >= 0).all()


def test_floats_keep_all_their_bits() -> None:
    entries = FlatEntries(1, np.float64)
    entries.set(1, 0, -0.0)
    put(entries, numbers([2]), numbers([0]), np.array([float("nan")]))
    assert str(entries.get(1, 0)) == "-0.0"
    assert entries.get(2, 0) != entries.get(2, 0)


def test_entries_that_come_and_go_do_not_use_more_and_more_room() -> None:
    entries = FlatEntries(1)
    for number in range(examples(20_000)):
        entries.set(number, 0, number)
        if number >= 10:
            entries.drop(number - 10, 0)
    assert entries.count == 10
    assert entries.width <= 64


def test_keys_in_one_of_many_groups_are_refused_before_memory_is_wasted() -> None:
    entries = FlatEntries(64)
    keys = numbers(list(range(1000)))
    put(entries, keys[:10], np.zeros(10, np.int64), keys[:10])
    with pytest.raises(SparseError):
        put(entries, keys[10:], np.zeros(990, np.int64), keys[10:])
    with pytest.raises(SparseError):
        entries.reserve([1000] + [0] * 63)
    assert contents(entries, 64) == {n: n for n in range(10)}
    put(entries, keys[10:], keys[10:] % 64, keys[10:])
    assert entries.count == 1000
