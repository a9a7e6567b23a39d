"""What is particular to the hashmap backend: layers, sharing and copying, costs."""

from __future__ import annotations

import copy
import datetime
import decimal
import random
import threading
from typing import Any

import pytest

from weir.backend.address import address_of
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.hashmap import HashMapBackend
from weir.backend.hashmap.overlay import Overlay, contents, merge_into
from weir.backend.isolation import is_immutable, isolate
from weir.backend.kinds import StateKind
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.testing.backend_snapshot_conformance import source_of, write_file


def backend_at(key: Any = "a", group: int = 0) -> Any:
    backend = HashMapBackend(None, KeyGroupRange(0, 3))
    backend.current.key, backend.current.group = key, group
    return backend


@pytest.mark.parametrize(
    "value",
    [
        1,
        "x",
        1.5,
        True,
        b"x",
        None,
        (1, ("x", None)),
        datetime.date(2024, 1, 1),
        decimal.Decimal("1.5"),
        datetime.timedelta(1),
        frozenset({1, 2}),
    ],
)
def test_immutable_values_are_shared(value: Any) -> None:
    assert is_immutable(value)
    assert isolate(value) is value


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, ([1],), Row(1, 2), Row(a=[1]), [[1]]])
def test_values_that_can_change_are_copied(value: Any) -> None:
    assert not is_immutable(value)
    copied = isolate(value)
    assert copied == value
    assert copied is not value


def test_a_copy_shares_nothing_that_can_change() -> None:
    value = {"a": [1, {"b": [2]}], "row": Row(x=[3])}
    copied = isolate(value)
    copied["a"][1]["b"].append(9)
    copied["row"]["x"].append(9)
    assert value == {"a": [1, {"b": [2]}], "row": Row(x=[3])}


def test_a_value_that_cannot_be_copied_is_refused_with_advice() -> None:
    with pytest.raises(UsageError, match="plain data"):
        isolate([threading.Lock()])


def test_an_object_changed_in_place_without_a_snapshot_is_changed() -> None:
    backend = backend_at()
    state = backend.state(ValueStateDescriptor("v"))
    state.update([1])
    state.value().append(2)
    assert state.value() == [1, 2]
    snapshot = backend.snapshot(1)
    state.value().append(3)
    assert state.value() == [1, 2, 3]
    snapshot.release()
    assert state.value() == [1, 2, 3]


def test_without_snapshots_in_flight_a_key_group_is_one_plain_dict() -> None:
    backend = backend_at()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    state.update(1)
    snapshots = [backend.snapshot(i) for i in range(3)]
    state.update(2)
    more = backend.snapshot(4)
    state.clear()
    for snapshot in (snapshots[1], more, snapshots[0], snapshots[2]):
        snapshot.release()
        snapshot.release()
    tables = backend._tables["v"].groups
    assert all(type(table) is dict for table in tables)
    assert backend.size() == 0


def test_overlapping_snapshots_do_not_pile_up_layers() -> None:
    backend = backend_at()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    state.update(0)
    previous = backend.snapshot(0)
    for number in range(1, 50):
        state.update(number)
        following = backend.snapshot(number)
        previous.release()
        previous = following
        depth, layer = 0, backend._tables["v"].groups[0]
        while isinstance(layer, Overlay):
            depth, layer = depth + 1, layer.below
        assert depth == 1
    assert source_value(write_file(previous)) == 49


def source_value(data: bytes) -> Any:
    again = backend_at()
    again.restore([source_of(data)])
    return again.state(ValueStateDescriptor("v", Types.LONG())).value()


def test_a_snapshot_copies_no_entry_and_keeps_groups_without_entries_as_they_are() -> None:
    backend = backend_at()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    for key in range(1000):
        backend.current.key = key
        state.update(key)
    before = backend._tables["v"].groups[0]
    backend.snapshot(1)
    overlay = backend._tables["v"].groups[0]
    assert overlay.below is before
    assert dict.__len__(overlay) == 0
    assert type(backend._tables["v"].groups[1]) is dict
    for key in range(1000):
        backend.current.key = key
        assert state.value() == key
    assert dict.__len__(overlay) == 0


def test_reading_a_declared_container_during_a_snapshot_copies_nothing() -> None:
    backend = backend_at()
    elements = backend.state(ListStateDescriptor("l", Types.LONG()))
    entries = backend.state(MapStateDescriptor("m", Types.LONG(), Types.STRING()))
    elements.add(1)
    entries.put(1, "x")
    backend.snapshot(1)
    assert list(elements) == [1]
    assert entries.get(1) == "x"
    entries.remove(99)
    for name in ("l", "m"):
        assert dict.__len__(backend._tables[name].groups[0]) == 0


def test_a_released_snapshot_cannot_be_written() -> None:
    backend = backend_at()
    backend.state(ValueStateDescriptor("v", Types.LONG())).update(1)
    snapshot = backend.snapshot(7)
    snapshot.release()
    with pytest.raises(UsageError, match="snapshot 7 was released"):
        write_file(snapshot)


def test_an_overlay_hides_what_was_removed() -> None:
    base = {"a": 1, "b": 2}
    overlay = Overlay(base, False)
    overlay.pop("a", None)
    overlay.pop("never", None)
    overlay["c"] = 3
    assert overlay.get("a", "none") == "none"
    assert "a" not in overlay
    assert "b" in overlay
    with pytest.raises(KeyError):
        overlay["a"]
    upper = Overlay(overlay, False)
    assert "a" not in upper
    assert contents(upper) == {"b": 2, "c": 3}
    assert base == {"a": 1, "b": 2}
    merge_into(base, overlay)
    assert base == contents(overlay) == {"b": 2, "c": 3}


def test_a_backend_is_restored_once_and_before_registration() -> None:
    backend = backend_at()
    backend.state(ValueStateDescriptor("v", Types.LONG())).update(1)
    data = write_file(backend.snapshot(1))
    with pytest.raises(UsageError, match="once"):
        backend.restore([source_of(data)])
    with pytest.raises(CorruptStateError, match="in another file"):
        backend_at().restore([source_of(data), source_of(data)])
    with pytest.raises(UsageError, match="no state 'other' is registered"):
        list(backend.keys("other"))


def test_a_closed_backend_has_no_entries() -> None:
    backend = backend_at()
    backend.state(ValueStateDescriptor("v", Types.LONG())).update(1)
    backend.close()
    assert backend.size() == 0


def test_group_bytes_that_are_not_a_group_are_refused() -> None:
    format_ = GroupFormat.of(None, AddressTypes(Types.STRING()), Types.LONG())
    good = format_.encode(["a", "b"], [1, 2])
    assert format_.decode(good, "f") == [("a", 1), ("b", 2)]
    uneven = GroupFormat.of(None, AddressTypes(Types.STRING()), Types.LONG()).encode(["a"], [1, 2])
    for bad in (b"", good[:-1], b"\x93\x01\x02\x03", uneven):
        with pytest.raises(CorruptStateError):
            format_.decode(bad, "f")


@pytest.mark.parametrize("kind", [None, StateKind.LIST, StateKind.MAP])
def test_altered_group_bytes_raise_nothing_but_corrupt_state(kind: StateKind | None) -> None:
    address = AddressTypes(Types.STRING(), Types.LONG())
    format_ = GroupFormat.of(kind, address, Types.LONG(), Types.LONG())
    values: list[Any] = [1, 2, 3]
    if kind is not None:
        values = [[1, 2], [3], [4]] if kind is StateKind.LIST else [{1: 2, 3: 4}, {5: 6}, {7: 8}]
    good = format_.encode(["a", address_of("b", 7), "c"], values)
    assert [v for _, v in format_.decode(good, "f")] == values
    rng = random.Random(11)
    messages = []
    for _ in range(500):
        altered = bytearray(good)
        for _ in range(rng.randrange(1, 3)):
            altered[rng.randrange(len(altered))] = rng.randrange(256)
        try:
            format_.decode(bytes(altered[: rng.randrange(1, len(altered) + 40)]), "chk/file")
        except CorruptStateError as e:
            messages.append(str(e))
    assert len(messages) > 250
    assert all("chk/file" in message for message in messages)


def test_rows_in_state_are_kept_apart_from_a_snapshot() -> None:
    backend = backend_at()
    row_type = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
    state = backend.state(ValueStateDescriptor("v", row_type))
    state.update(Row(n=1, s="x"))
    before = copy.copy(state.value())
    snapshot = backend.snapshot(1)
    row = state.value()
    row["n"] = 2
    state.update(row)
    data = write_file(snapshot)
    snapshot.release()
    again = backend_at()
    again.restore([source_of(data)])
    assert again.state(ValueStateDescriptor("v", row_type)).value() == before
    assert state.value() == Row(n=2, s="x")
