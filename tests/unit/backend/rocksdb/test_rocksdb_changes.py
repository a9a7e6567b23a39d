"""What a tracked database says it changed: never less than the truth, and hardly more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.databases import Databases, scratch_directory

from weir.backend.changelog.backend import ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.delta import apply_delta, decode_delta, encode_delta
from weir.common.typeinfo import Types
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.testing.background import ManualBackground
from weir.testing.checkpoint_world import CheckpointWorld
from weir.testing.clock import ManualClock

TINY = {"state.backend.rocksdb.memory.fixed-per-slot": 1 << 16}
LONG = Types.LONG()
VALUE = ValueStateDescriptor("value", LONG)
LIST = ListStateDescriptor("list", LONG)
MAP = MapStateDescriptor("map", LONG, LONG)
ANY_VALUE = ValueStateDescriptor("any value")
ANY_LIST = ListStateDescriptor("any list")
ANY_MAP = MapStateDescriptor("any map", LONG, None)
SETTINGS = ChangelogSettings(
    materialize_ms=None,
    failures_max=3,
    preemptive_bytes=1 << 20,
    attempts=1,
    in_flight_bytes=1 << 20,
)


@pytest.fixture
def databases() -> Iterator[Databases]:
    with scratch_directory() as directory:
        made = Databases(directory)
        yield made
        made.close()


def at(backend: Any, declaration: Any, key: str = "a", group: int = 3) -> Any:
    backend.current.key, backend.current.group = key, group
    return backend.state(declaration)


def drained(backend: Any) -> dict[str, dict[int, Any]]:
    """Return what is drained, by state and key group, as it comes out of a file."""
    return {
        change.name: {
            group: decode_delta(change.format, encode_delta(change.format, delta), "a file")
            for group, delta in change.groups.items()
        }
        for change in backend.drain()
    }


def test_nothing_changed_is_nothing_to_log(databases: Databases) -> None:
    backend = databases.tracked()
    at(backend, VALUE).update(1)
    at(backend, MAP).put(1, 1)
    at(backend, LIST).add(1)
    assert set(drained(backend)) == {"value", "map", "list"}
    assert (at(backend, VALUE).value(), at(backend, MAP).get(1)) == (1, 1)
    assert at(backend, LIST).get() == [1]
    assert drained(backend) == {}


def test_values_are_logged_once_however_often_they_change(databases: Databases) -> None:
    backend = databases.tracked()
    for number in range(1000):
        at(backend, VALUE, "hot").update(number)
        if number % 100 == 0:
            backend.flush()
    at(backend, VALUE, "gone").update(1)
    at(backend, VALUE, "gone").clear()
    delta = drained(backend)["value"][3]
    assert (delta.put, delta.cleared, delta.removed) == ({"hot": 999}, ["gone"], {})


def test_a_big_map_is_logged_by_its_changed_entries(databases: Databases) -> None:
    backend = databases.tracked()
    at(backend, MAP).put_all(dict.fromkeys(range(100), 0))
    backend.drain()
    entries = at(backend, MAP)
    entries.put(1, 7)
    backend.flush()
    entries.remove(2)
    entries.put(3, 8)
    entries.remove(3)
    delta = drained(backend)["map"][3]
    assert delta.put == {"a": {1: 7}}
    assert sorted(delta.removed["a"]) == [2, 3]
    assert delta.cleared == []


def test_a_map_that_was_cleared_is_logged_by_what_came_after(databases: Databases) -> None:
    backend = databases.tracked()
    entries = at(backend, MAP)
    entries.put_all({1: 1, 2: 2})
    backend.drain()
    entries.put(5, 5)
    backend.flush()
    entries.clear()
    backend.flush()
    entries.put(2, 9)
    delta = drained(backend)["map"][3]
    assert (delta.cleared, delta.removed, delta.put) == (["a"], {}, {"a": {2: 9}})


def test_a_big_list_is_logged_by_what_was_appended(databases: Databases) -> None:
    backend = databases.tracked()
    at(backend, LIST).add_all(range(100))
    backend.drain()
    at(backend, LIST).add(7)
    backend.flush()
    at(backend, LIST).add(8)
    delta = drained(backend)["list"][3]
    assert (delta.cleared, delta.put) == ([], {"a": [7, 8]})
    at(backend, LIST).add(9)
    backend.flush()
    at(backend, LIST).update([1])
    backend.flush()
    at(backend, LIST).add(2)
    delta = drained(backend)["list"][3]
    assert (delta.cleared, delta.put) == (["a"], {"a": [1, 2]})


def test_objects_changed_in_place_are_logged_and_others_are_not(databases: Databases) -> None:
    backend = databases.tracked()
    for key in ("a", "b"):
        at(backend, ANY_VALUE, key).update([1])
        at(backend, ANY_LIST, key).add([1])
        at(backend, ANY_MAP, key).put(1, [1])
    backend.drain()
    for key in ("a", "b"):
        found = [
            at(backend, ANY_VALUE, key).value(),
            *at(backend, ANY_LIST, key).get(),
            at(backend, ANY_MAP, key).get(1),
        ]
        if key == "b":
            for inner in found:
                inner.append(2)
    deltas = drained(backend)
    assert deltas["any value"][3].put == {"b": [1, 2]}
    assert deltas["any list"][3].put == {"b": [[1, 2]]}
    assert deltas["any map"][3].put == {"b": {1: [1, 2]}}


@pytest.mark.parametrize("flushed", [False, True])
def test_what_a_sweep_removes_is_logged(databases: Databases, flushed: bool) -> None:
    backend = databases.tracked()
    at(backend, VALUE).update(1)
    at(backend, LIST).add_all([1, 2])
    at(backend, MAP).put_all({1: 1, 2: 2})
    at(backend, VALUE, "b").update(2)
    if flushed:
        backend.drain()
    for name in ("value", "list", "map"):
        backend.sweep(name, lambda stored: stored != 1, 10)
    deltas = drained(backend)
    assert deltas["value"][3].cleared == ["a"]
    assert (deltas["list"][3].cleared, deltas["list"][3].put) == (["a"], {"a": [2]})
    assert deltas["map"][3].removed == {"a": [1]}
    assert deltas["map"][3].put == ({} if flushed else {"a": {2: 2}})


@pytest.mark.slow
def test_deltas_add_up_to_the_state_with_and_without_a_cache(databases: Databases) -> None:
    for options in ({}, TINY):
        backend = databases.tracked(options)
        folded: dict[str, dict[int, dict[Any, Any]]] = {}
        for epoch in range(4):
            for i in range(300):
                number = i * 7 + epoch
                work(backend, f"key {number % 40}", number)
            for change in backend.drain():
                for group, delta in change.groups.items():
                    entries = folded.setdefault(change.name, {}).setdefault(group, {})
                    again = decode_delta(change.format, encode_delta(change.format, delta), "f")
                    apply_delta(entries, again, change.kind.shape)
        for key in [f"key {n}" for n in range(40)]:
            group = len(key)
            found = {name: groups.get(group, {}).get(key) for name, groups in folded.items()}
            assert found["value"] == at(backend, VALUE, key, group).value()
            assert (found["list"] or []) == at(backend, LIST, key, group).get()
            assert (found["map"] or {}) == dict(at(backend, MAP, key, group).items())
            assert found["any value"] == at(backend, ANY_VALUE, key, group).value()


def work(backend: Any, key: str, number: int) -> None:
    """Change several kinds of state, in ways that depend on a number."""
    group = len(key)
    at(backend, VALUE, key, group).update(number)
    at(backend, LIST, key, group).add(number)
    at(backend, MAP, key, group).put(number % 5, number)
    held = at(backend, ANY_VALUE, key, group)
    if held.value() is None:
        held.update([])
    held.value().append(number)
    if number % 11 == 0:
        at(backend, MAP, key, group).remove(number % 3)
        at(backend, LIST, key, group).update([number])
    if number % 17 == 0:
        for declaration in (VALUE, LIST, MAP):
            at(backend, declaration, key, group).clear()


def test_a_changed_type_makes_the_next_checkpoint_write_all_state(databases: Databases) -> None:
    world = CheckpointWorld()

    def logged() -> Any:
        place = ChangelogPlace(world.shared, ManualClock(), SETTINGS)
        return ChangelogBackend(databases.tracked(), place, ManualBackground(inline=True))

    backend = logged()
    for key in ("a", "b"):
        at(backend, VALUE, key).update(1)
    backend.end_epoch()
    first = world.run(backend, 1)
    again = logged()
    again.restore([world.source(first, reusable=True)])
    wide = ValueStateDescriptor("value", Types.BIG_INT())
    at(again, wide, "a").update(1 << 70)
    again.end_epoch()
    second = world.run(again, 2)
    assert second.part is not None
    assert len(second.part.layers) == 1, "one materialisation, nothing of the old types"
    third = logged()
    third.restore([world.source(second, reusable=True)])
    assert [at(third, wide, key).value() for key in ("a", "b")] == [1 << 70, 1]
    at(third, wide, "b").update(2)
    third.end_epoch()
    part = world.run(third, 3).part
    assert part is not None
    assert part.layers[0] == second.part.layers[0], "the same types go on with the same files"
