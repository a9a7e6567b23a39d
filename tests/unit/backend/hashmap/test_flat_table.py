"""When a table is flat and when it is not, and what snapshots see across the change."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.examples import examples

from weir.backend.base import VOID
from weir.backend.hashmap import HashMapBackend
from weir.backend.hashmap.flat_table import FlatTable, can_be_flat
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange, key_group, key_groups_of_int64
from weir.state.descriptor import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from weir.testing.backend_snapshot_conformance import (
    ALL_GROUPS,
    MAX_PARALLELISM,
    source_of,
    write_file,
)

LONG = Types.LONG()
VALUE = ValueStateDescriptor("value", LONG)


def backend_of(flat_from: int, **options: Any) -> Any:
    return HashMapBackend(LONG, ALL_GROUPS, flat_from=flat_from, **options)


def table_of(backend: Any) -> FlatTable:
    table = backend._tables["value"]
    assert isinstance(table, FlatTable)
    return table


def at(backend: Any, key: int, namespace: Any = VOID) -> None:
    backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)
    backend.current.namespace = namespace


def put(backend: Any, keys: range, value: int) -> None:
    state = backend.state(VALUE)
    groups = [key_group(key, MAX_PARALLELISM) for key in keys]
    backend.begin_stride(list(keys), groups)
    for backend.current.key, backend.current.group in zip(keys, groups, strict=True):
        state.update(value)
    backend.end_stride()


def contents(backend: Any) -> dict[int, int]:
    state, found = backend.state(VALUE), {}
    for key in backend.keys("value"):
        at(backend, key)
        found[key] = state.value()
    return found


def restored(snapshot: Any) -> dict[int, int]:
    backend = backend_of(1 << 60)
    backend.restore([source_of(write_file(snapshot))])
    return contents(backend)


def test_a_table_becomes_flat_after_the_epoch_that_made_it_large() -> None:
    backend = backend_of(100)
    put(backend, range(99), 1)
    backend.end_epoch()
    assert table_of(backend).entries is None
    put(backend, range(100), 2)
    assert table_of(backend).entries is None
    backend.end_epoch()
    assert table_of(backend).entries is not None
    assert contents(backend) == dict.fromkeys(range(100), 2)


def test_a_large_state_is_flat_when_it_was_restored() -> None:
    small = backend_of(1 << 60)
    put(small, range(100), 1)
    backend = backend_of(100)
    backend.restore([source_of(write_file(small.snapshot(1)))])
    backend.state(VALUE)
    assert table_of(backend).entries is not None
    assert contents(backend) == dict.fromkeys(range(100), 1)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_snapshots_of_all_forms_are_in_flight_together(tracked: bool, order: Any) -> None:
    """The first of dicts, the second of arrays, the third of dicts again."""
    backend = backend_of(50, tracked=tracked)
    put(backend, range(60), 1)
    taken = [backend.snapshot(1)]
    backend.end_epoch()
    assert table_of(backend).entries is not None
    put(backend, range(30, 90), 2)
    taken.append(backend.snapshot(2))
    at(backend, 5, "space")
    backend.state(VALUE).update(9)
    backend.state(VALUE).clear()
    backend.current.namespace = VOID
    assert table_of(backend).entries is None
    put(backend, range(80, 99), 3)
    taken.append(backend.snapshot(3))
    put(backend, range(99), 4)
    first = dict.fromkeys(range(60), 1)
    second = {**first, **dict.fromkeys(range(30, 90), 2)}
    expected = [first, second, {**second, **dict.fromkeys(range(80, 99), 3)}]
    for number in order:
        assert restored(taken[number]) == expected[number]
        taken[number].release()
        put(backend, range(99), 5 + number)
    backend.end_epoch()
    assert {type(group) for group in table_of(backend).groups} == {dict}  # all layers are merged
    assert contents(backend) == dict.fromkeys(range(99), 5 + order[-1])
    assert restored(backend.snapshot(4)) == contents(backend)


@pytest.mark.slow
def test_a_snapshot_is_written_while_strides_change_everything() -> None:
    backend = backend_of(0)
    for start in range(0, 20_000, 500):
        put(backend, range(start, start + 500), 1)
    assert table_of(backend).entries is not None
    for round_ in range(examples(3)):
        before = contents(backend)
        snapshot = backend.snapshot(round_)
        files: list[bytes] = []
        writer = threading.Thread(target=lambda s=snapshot, f=files: f.append(write_file(s)))
        writer.start()
        for start in range(0, 40_000, 500):
            put(backend, range(start, start + 500), round_ + 2)
        writer.join()
        snapshot.release()
        again = backend_of(1 << 60)
        again.restore([source_of(files[0])])
        assert contents(again) == before


def test_a_table_that_has_become_small_is_dicts_until_it_is_large_again() -> None:
    backend = backend_of(80)
    state = backend.state(VALUE)
    for round_ in range(2):
        put(backend, range(100), round_)
        backend.end_epoch()
        assert table_of(backend).entries is not None
        for key in range(95):
            at(backend, key)
            state.clear()
        backend.end_epoch()
        assert table_of(backend).entries is None
        assert contents(backend) == dict.fromkeys(range(95, 100), round_)


@pytest.mark.parametrize("tracked", [False, True])
def test_keys_that_crowd_into_one_group_later_take_the_table_back_to_dicts(tracked: bool) -> None:
    backend = backend_of(100, tracked=tracked)
    put(backend, range(2000), 1)
    backend.end_epoch()
    assert table_of(backend).entries is not None
    later = np.arange(2000, 400_000)
    crowd = later[key_groups_of_int64(later, MAX_PARALLELISM) == 3].tolist()
    state, model = backend.state(VALUE), dict.fromkeys(range(2000), 1)
    for start in range(0, len(crowd), 100):
        keys = crowd[start : start + 100]
        backend.begin_stride(keys, [3] * len(keys))
        for backend.current.key in keys:
            backend.current.group = 3
            state.update(backend.current.key)
        backend.end_stride()
        model.update(zip(keys, keys, strict=True))
    assert table_of(backend).entries is None
    assert contents(backend) == model


class Number(int):
    """Equal to an integer, and not one."""


@pytest.mark.parametrize("make", [np.int64, Number])
def test_keys_that_are_only_like_integers_stay_in_dicts(make: Any) -> None:
    """Changes are marked by the key as it came: in arrays they would not be found again."""
    for flat_from in (0, 50):
        backend = backend_of(flat_from, tracked=True)
        state = backend.state(VALUE)
        for _ in range(2):
            keys = [make(n) for n in range(60)]
            groups = [key_group(int(key), MAX_PARALLELISM) for key in keys]
            backend.begin_stride(keys, groups)
            for backend.current.key, backend.current.group in zip(keys, groups, strict=True):
                state.update((state.value() or 0) + 1)
            backend.end_stride()
            (changes,) = backend.drain()
            assert sum(len(delta.put) for delta in changes.groups.values()) == 60
            assert not any(delta.cleared for delta in changes.groups.values())
            backend.end_epoch()
        assert table_of(backend).entries is None
        assert contents(backend) == dict.fromkeys(range(60), 2)


def test_keys_beyond_the_declared_type_fail_the_snapshot_as_they_do_in_dicts() -> None:
    """Bytes that nobody could read would be worse."""
    for flat_from in (0, 50, 1 << 60):
        backend = HashMapBackend(Types.INT(), ALL_GROUPS, flat_from=flat_from)
        put(backend, range(60), 1)
        backend.end_epoch()
        put(backend, range((1 << 31) - 1, (1 << 31) + 40), 1)
        with pytest.raises(UsageError, match=r"Types\.INT\(\) cannot hold 21474836"):
            write_file(backend.snapshot(1))


def test_many_key_groups_need_more_entries() -> None:
    groups = KeyGroupRange(0, (1 << 15) - 1)
    backend: Any = HashMapBackend(LONG, groups, flat_from=4000)
    state = backend.state(VALUE)
    for key in range(5000):
        backend.current.key, backend.current.group = key, key_group(key, 1 << 15)
        state.update(key)
    backend.end_epoch()
    assert table_of(backend).entries is None


def test_a_table_with_keys_in_few_groups_stays_dicts() -> None:
    backend = backend_of(50)
    crowd = [key for key in range(40_000) if key_group(key, MAX_PARALLELISM) == 3][:300]
    state = backend.state(VALUE)
    for key in crowd:
        at(backend, key)
        state.update(key)
    backend.end_epoch()
    assert table_of(backend).entries is None
    assert contents(backend) == {key: key for key in crowd}


def test_numbers_under_integer_keys_can_be_flat_and_nothing_else() -> None:
    assert can_be_flat(VALUE, LONG)
    assert can_be_flat(ValueStateDescriptor("v", Types.DOUBLE()), Types.INT())
    assert can_be_flat(ReducingStateDescriptor("v", max, Types.SHORT()), LONG)
    assert not can_be_flat(VALUE, Types.STRING())
    assert not can_be_flat(VALUE, None)
    assert not can_be_flat(ValueStateDescriptor("v"), LONG)
    assert not can_be_flat(ValueStateDescriptor("v", Types.BIG_INT()), LONG)
    assert not can_be_flat(ValueStateDescriptor("v", Types.BOOLEAN()), LONG)
    assert not can_be_flat(ListStateDescriptor("v", LONG), LONG)
    assert not can_be_flat(VALUE, Types.BIG_INT())


def test_flat_entries_take_less_memory_than_objects() -> None:
    backend = backend_of(20_000)
    for start in range(0, 20_000, 500):
        put(backend, range(start, start + 500), 1 << 40)
    objects = backend.approximate_bytes()
    backend.end_epoch()
    assert 0 < backend.approximate_bytes() < objects / 2
