"""Keyed state whose declared type has changed: values migrate on registration, keys never do."""

from __future__ import annotations

from typing import Any

import pytest

from weir.backend.base import VOID
from weir.backend.delta import GroupDelta, encode_delta
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.hashmap import HashMapBackend
from weir.backend.restored import EncodedGroup, RestoredState
from weir.backend.timers import EVENT_TIMERS
from weir.codec.stamped import StampedTypeInfo
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.errors import CorruptStateError, IncompatibleStateError
from weir.keygroup import KeyGroupRange, key_group
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.backend_snapshot_conformance import (
    ALL_GROUPS,
    MAX_PARALLELISM,
    Sum,
    source_of,
    write_file,
)

STRING, INT, LONG = Types.STRING(), Types.INT(), Types.LONG()
V1 = Types.ROW_NAMED(["name", "count"], [STRING, INT])
V2 = Types.ROW_NAMED(["count", "note", "name"], [LONG, STRING, STRING])
STORED = {"a": ("foo", 1456), "b": ("bar", 478), "c": ("hello", 189)}
MAKERS: dict[str, Any] = {
    "value": lambda t: ValueStateDescriptor("s", t),
    "list": lambda t: ListStateDescriptor("s", t),
    "map": lambda t: MapStateDescriptor("s", STRING, t),
    "reducing": lambda t: ReducingStateDescriptor("s", lambda a, b: b, t),
}


def empty(key_type: Any = STRING, key_groups: KeyGroupRange = ALL_GROUPS) -> Any:
    return HashMapBackend(key_type, key_groups)


def at(backend: Any, key: Any, namespace: Any = VOID) -> Any:
    backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)
    backend.current.namespace = namespace
    return backend


def put(kind: str, state: Any, value: Any) -> None:
    {
        "value": lambda: state.update(value),
        "list": lambda: state.add_all([value, value]),
        "map": lambda: state.put_all({"x": value, "null": None}),
        "reducing": lambda: state.add(value),
    }[kind]()


def look(kind: str, state: Any) -> Any:
    return {
        "value": lambda: state.value(),
        "list": lambda: list(state.get()),
        "map": lambda: dict(state.items()),
        "reducing": lambda: state.get(),
    }[kind]()


def shaped(kind: str, value: Any) -> Any:
    return {"list": [value, value], "map": {"x": value, "null": None}}.get(kind, value)


def stored(kind: str, type_info: Any = V1) -> bytes:
    backend = empty()
    state = backend.state(MAKERS[kind](type_info))
    for key, (name, count) in STORED.items():
        at(backend, key)
        put(kind, state, Row(name=name, count=count))
    return write_file(backend.snapshot(1))


def restored(*files: bytes, key_type: Any = STRING, key_groups: Any = ALL_GROUPS) -> Any:
    backend = empty(key_type, key_groups)
    backend.restore([source_of(data) for data in files])
    return backend


@pytest.mark.parametrize("kind", MAKERS)
def test_values_of_every_kind_survive_a_change_of_their_type(kind: str) -> None:
    backend = restored(stored(kind))
    for _ in range(2):
        state = backend.state(MAKERS[kind](V2))
        for key, (name, count) in STORED.items():
            at(backend, key)
            assert look(kind, state) == shaped(kind, Row(count=count, note=None, name=name))
        at(backend, "new")
        state.clear()
        put(kind, state, Row(count=1 << 40, note="n", name="x"))
        assert look(kind, state) == shaped(kind, Row(count=1 << 40, note="n", name="x"))
        backend = restored(write_file(backend.snapshot(2)))


def test_accumulators_widen() -> None:
    backend = empty()
    state = backend.state(AggregatingStateDescriptor("s", Sum(), INT))
    at(backend, "a")
    state.add(7)
    again = restored(write_file(backend.snapshot(1)))
    state = at(again, "a").state(AggregatingStateDescriptor("s", Sum(), LONG))
    state.add(1 << 40)
    assert state.get() == (1 << 40) + 7


def test_namespaces_keep_their_entries() -> None:
    backend = empty()
    state = backend.state(ValueStateDescriptor("s", INT))
    for namespace in (VOID, (0, 10), (10, 20)):
        at(backend, "a", namespace)
        state.update(1 if namespace is VOID else namespace[1])
    again = restored(write_file(backend.snapshot(1)))
    state = again.state(ValueStateDescriptor("s", Types.DOUBLE()))
    found = []
    for namespace in (VOID, (0, 10), (10, 20)):
        at(again, "a", namespace)
        found.append(state.value())
    assert [repr(f) for f in found] == ["1.0", "10.0", "20.0"]


def test_state_that_is_not_asked_for_keeps_its_type_until_it_is() -> None:
    carried = write_file(restored(stored("value")).snapshot(2))
    backend = restored(carried)
    assert at(backend, "a").state(MAKERS["value"](V2)).value().name == "foo"


@pytest.mark.parametrize("kind", MAKERS)
def test_a_refused_change_shows_both_types_and_leaves_the_state_readable(kind: str) -> None:
    backend = restored(stored(kind))
    narrow = Types.ROW_NAMED(["name", "count"], [STRING, Types.SHORT()])
    with pytest.raises(IncompatibleStateError) as caught:
        backend.state(MAKERS[kind](narrow))
    text = str(caught.value)
    assert text.startswith(
        f"state 's' was stored as {V1!r} and is declared as {narrow!r}: in count"
    )
    assert look(kind, at(backend, "a").state(MAKERS[kind](V1))) == shaped(
        kind, Row(name="foo", count=1456)
    )


@pytest.mark.parametrize("old", MAKERS)
@pytest.mark.parametrize("new", MAKERS)
def test_a_state_never_becomes_one_of_another_kind(old: str, new: str) -> None:
    backend = restored(stored(old))
    if old != new:
        with pytest.raises(IncompatibleStateError, match=rf"{old.upper()}.*{new.upper()}"):
            backend.state(MAKERS[new](V1))
    assert look(old, at(backend, "b").state(MAKERS[old](V1))) == shaped(
        old, Row(name="bar", count=478)
    )


@pytest.mark.parametrize("key_type", [None, LONG, Types.CHAR()], ids=repr)
def test_keys_never_change_their_type(key_type: Any) -> None:
    backend = restored(stored("value"), key_type=key_type)
    with pytest.raises(IncompatibleStateError, match=r"'s'.*key types cannot change"):
        backend.state(ValueStateDescriptor("s", V1))


def test_map_keys_never_change_their_type() -> None:
    backend = restored(stored("map"))
    with pytest.raises(IncompatibleStateError, match=r"map key of Types.STRING.*cannot change"):
        backend.state(MapStateDescriptor("s", None, V1))


def test_timers_of_keys_of_another_type_are_refused() -> None:
    backend = empty(INT)
    backend.timers(EVENT_TIMERS).register(5, 1, key_group(1, MAX_PARALLELISM))
    data = write_file(backend.snapshot(1))
    with pytest.raises(IncompatibleStateError, match=r"_timer\.event.*key types cannot change"):
        restored(data, key_type=LONG)
    assert restored(data, key_type=INT).timers(EVENT_TIMERS).next_timestamp() == 5


def test_undeclared_values_must_fit_the_type_they_get() -> None:
    backend = empty()
    state = backend.state(ValueStateDescriptor("s"))
    for key, value in (("a", 1), ("b", "two")):
        at(backend, key)
        state.update(value)
    again = restored(write_file(backend.snapshot(1)))
    with pytest.raises(IncompatibleStateError, match=r"state 's'.*class builtins\.str"):
        again.state(ValueStateDescriptor("s", LONG))
    assert at(again, "b").state(ValueStateDescriptor("s")).value() == "two"


def test_changes_in_later_layers_migrate_with_the_entries_below_them() -> None:
    old = GroupFormat.of(MAKERS["map"](V1).kind, AddressTypes(STRING), V1, STRING)
    new = GroupFormat.of(MAKERS["map"](V2).kind, AddressTypes(STRING), V2, STRING)
    first = old.encode(
        ["a", "b"], [{"x": Row(name="foo", count=1), "y": None}, {"z": Row(name="c", count=2)}]
    )
    delta = GroupDelta(["b"], {"a": ["y"]}, {"a": {"w": Row(name="bar", count=3)}})
    parts = [
        EncodedGroup(first, 2, "base"),
        EncodedGroup(encode_delta(old, delta), len(delta), "delta", delta=True),
    ]
    state = RestoredState("s", "MAP", old.describe(), {0: parts})
    assert state.entries(0, state.reader_format("MAP", new)) == {
        "a": {
            "x": Row(count=1, note=None, name="foo"),
            "w": Row(count=3, note=None, name="bar"),
        }
    }
    assert state.reader_format("MAP", old) is old


class Cleanup:
    """Nothing expires; the time is 77."""

    full_snapshot = False

    def keep(self) -> Any:
        return lambda stored: True

    def now_ms(self) -> int:
        return 77


def expiring(kind: str, type_info: Any) -> Any:
    declaration = MAKERS[kind](StampedTypeInfo(type_info))
    declaration.cleanup = Cleanup()
    return declaration


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_time_to_live_is_switched_on_and_off_again(kind: str) -> None:
    backend = restored(stored(kind))
    new = Row(count=1456, note=None, name="foo")
    state = at(backend, "a").state(expiring(kind, V2))
    found = look(kind, state)
    if kind == "map":
        assert found == {"x": (new, 77), "null": (None, 77)}
    else:
        assert found == shaped(kind, (new, 77))
    again = restored(write_file(backend.snapshot(2)))
    assert look(kind, at(again, "a").state(MAKERS[kind](V2))) == shaped(kind, new)


def halves() -> tuple[Any, Any]:
    low, high = KeyGroupRange(0, 63), KeyGroupRange(64, 127)
    return restored(stored("value"), key_groups=low), restored(stored("value"), key_groups=high)


def united(low: Any, high: Any) -> Any:
    files = [(low, KeyGroupRange(0, 63)), (high, KeyGroupRange(64, 127))]
    backend = empty()
    backend.restore([source_of(write_file(b.snapshot(2)), groups) for b, groups in files])
    return backend


def test_subtasks_that_migrated_together_can_be_united() -> None:
    low, high = halves()
    for half in (low, high):
        half.state(MAKERS["value"](V2))
    backend = united(low, high)
    state = backend.state(MAKERS["value"](V2))
    assert [at(backend, k).state(MAKERS["value"](V2)) is state for k in STORED] == [True] * 3
    found = []
    for key in STORED:
        at(backend, key)
        found.append((state.value().name, state.value().count))
    assert found == list(STORED.values())


def test_subtasks_that_did_not_migrate_together_are_refused_by_name() -> None:
    low, high = halves()
    low.state(MAKERS["value"](V2))
    with pytest.raises(IncompatibleStateError, match=r"state 's'.*ask for the state in open"):
        united(low, high)


def test_a_subtask_without_entries_does_not_hinder_a_migration() -> None:
    idle = empty(key_groups=KeyGroupRange(0, 63))
    idle.state(MAKERS["value"](V1))
    busy = empty(key_groups=KeyGroupRange(64, 127))
    state = busy.state(MAKERS["value"](V2))
    key = next(k for k in "abcdefgh" if key_group(k, MAX_PARALLELISM) >= 64)
    at(busy, key)
    state.update(Row(count=1, note="n", name="x"))
    assert at(united(idle, busy), key).state(MAKERS["value"](V2)).value().note == "n"


@pytest.mark.parametrize("missing", ["key", "namespace", "value", "map_key"])
def test_a_type_that_is_not_described_is_refused_by_name(missing: str) -> None:
    backend = empty()
    declared = MapStateDescriptor("s", STRING, LONG)
    at(backend, "a").state(declared).put("x", 1)
    source = source_of(write_file(backend.snapshot(1)))
    del source.layers[0].states["s"]["type"][missing]  # type: ignore[attr-defined]
    again = empty()
    again.restore([source])
    with pytest.raises((CorruptStateError, IncompatibleStateError), match="None"):
        again.state(declared)
