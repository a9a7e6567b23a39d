"""Operator state: lists and broadcast maps through snapshots, mode clashes, read-only views."""

from __future__ import annotations

import io
from typing import Any

import pytest

from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.snapshot import SnapshotWriter
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor
from weir.state.operator_state import OperatorRestoreSource, OperatorStateStore
from weir.state.ttl import StateTtlConfig
from weir.testing.backend_snapshot_conformance import read_file

INTS = ListStateDescriptor("ints", Types.LONG())
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


def written(store: OperatorStateStore) -> bytes:
    return written_snapshot(store.snapshot(1))


def written_snapshot(snapshot: Any) -> bytes:
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    part = snapshot.write(writer)
    writer.finish({"operators": {"op": {"operator": part}}})
    snapshot.release()
    return out.getvalue()


def source(data: bytes) -> OperatorRestoreSource:
    reader = read_file(data)
    return OperatorRestoreSource(reader, reader.operator("op")["operator"])


def restored(*files: bytes) -> OperatorStateStore:
    store = OperatorStateStore()
    store.restore([source(data) for data in files])
    return store


def test_all_states_survive_in_order() -> None:
    store = OperatorStateStore()
    for name, values in (("list1", [42, 4711]), ("list2", [7, 13, 23])):
        store.get_list_state(ListStateDescriptor(name, Types.LONG())).update(values)
    store.get_union_list_state(ListStateDescriptor("union", None)).update([17, [18], "19", 20])
    for name, entries in (("b1", {1: 2, 2: 5}), ("b2", {2: 5}), ("b3", {})):
        descriptor = MapStateDescriptor(name, Types.LONG(), Types.LONG())
        store.get_broadcast_state(descriptor).put_all(entries)
    again = restored(written(store))
    assert again.get_registered_state_names() == {"list1", "list2", "union"}
    assert again.get_registered_broadcast_state_names() == {"b1", "b2", "b3"}
    assert list(again.get_list_state(ListStateDescriptor("list1", Types.LONG()))) == [42, 4711]
    assert list(again.get_list_state(ListStateDescriptor("list2", Types.LONG()))) == [7, 13, 23]
    union = again.get_union_list_state(ListStateDescriptor("union", None))
    assert list(union.get()) == [17, [18], "19", 20]
    for name, entries in (("b1", {1: 2, 2: 5}), ("b2", {2: 5}), ("b3", {})):
        descriptor = MapStateDescriptor(name, Types.LONG(), Types.LONG())
        assert dict(again.get_broadcast_state(descriptor).items()) == entries


def test_an_empty_list_is_an_empty_iterable_and_null_is_refused() -> None:
    state = OperatorStateStore().get_list_state(INTS)
    assert list(state.get()) == []
    calls: list[Any] = [
        lambda: state.add(None),
        lambda: state.add_all([1, None]),
        lambda: state.update(None),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="You cannot add null to a ListState"):
            call()
    with pytest.raises(UsageError, match="'ints'"):
        state.add_all([1, "x"])
    assert list(state) == []
    state.add(1)
    state.add_all([])
    state.update([])
    assert list(state) == []
    state.add(1)
    state.clear()
    assert list(state) == []


def test_a_name_has_one_mode_and_one_type() -> None:
    store = OperatorStateStore()
    first = store.get_list_state(INTS)
    assert store.get_list_state(ListStateDescriptor("ints", Types.LONG())) is first
    with pytest.raises(UsageError, match=r"SPLIT.*UNION"):
        store.get_union_list_state(INTS)
    with pytest.raises(UsageError, match=r"SPLIT.*BROADCAST"):
        store.get_broadcast_state(MapStateDescriptor("ints", Types.LONG(), Types.LONG()))
    with pytest.raises(UsageError, match=r"LONG.*STRING"):
        store.get_list_state(ListStateDescriptor("ints", Types.STRING()))


def test_a_restored_name_keeps_its_mode_and_type() -> None:
    store = OperatorStateStore()
    store.get_list_state(INTS).add(1)
    again = restored(written(store))
    with pytest.raises(IncompatibleStateError, match=r"SPLIT.*UNION"):
        again.get_union_list_state(INTS)
    with pytest.raises(IncompatibleStateError, match=r"LONG.*STRING"):
        again.get_list_state(ListStateDescriptor("ints", Types.STRING()))
    assert list(again.get_list_state(INTS)) == [1]


def test_later_changes_do_not_reach_a_snapshot() -> None:
    store = OperatorStateStore()
    ints = store.get_list_state(INTS)
    objects = store.get_list_state(ListStateDescriptor("objects"))
    rules = store.get_broadcast_state(MapStateDescriptor("rules"))
    ints.update([1, 2])
    objects.add([1])
    rules.put("x", {"inner": [1]})
    snapshot = store.snapshot(1)
    ints.add(3)
    next(iter(objects.get())).append(2)
    rules.get("x")["inner"].append(2)
    rules.put("y", 1)
    again = restored(written_snapshot(snapshot))
    assert list(again.get_list_state(INTS)) == [1, 2]
    assert list(again.get_list_state(ListStateDescriptor("objects"))) == [[1]]
    assert dict(again.get_broadcast_state(MapStateDescriptor("rules")).items()) == {
        "x": {"inner": [1]}
    }


def test_state_that_is_never_registered_is_carried_along() -> None:
    store = OperatorStateStore()
    store.get_list_state(INTS).update([1, 2])
    store.get_broadcast_state(RULES).put(1, None)
    data = written(restored(written(restored(written(store)))))
    again = restored(data)
    assert list(again.get_list_state(INTS)) == [1, 2]
    assert list(again.get_broadcast_state(RULES).items()) == [(1, None)]


def test_elements_of_several_files_are_concatenated_in_order() -> None:
    files = []
    for values in ([1, 2], [3], [4, 5]):
        store = OperatorStateStore()
        store.get_list_state(INTS).update(values)
        files.append(written(store))
    assert list(restored(*files).get_list_state(INTS)) == [1, 2, 3, 4, 5]


def test_a_subtask_can_be_given_single_elements() -> None:
    store = OperatorStateStore()
    store.get_list_state(INTS).update([10, 20, 30, 40])
    reader = read_file(written(store))
    part = reader.operator("op")["operator"]["ints"]
    given = {"ints": {**part, "elements": part["elements"][1:3]}}
    again = OperatorStateStore()
    again.restore([OperatorRestoreSource(reader, given)])
    assert list(again.get_list_state(INTS)) == [20, 30]


def test_broadcast_state_reads_and_writes_like_a_map() -> None:
    state = OperatorStateStore().get_broadcast_state(RULES)
    assert state.is_empty()
    state.put(1, 10)
    state[2] = 20
    state.put_all({3: None})
    assert (state.get(1), state[2], state.get(9)) == (10, 20, None)
    assert 3 in state
    assert state.contains(1)
    assert sorted(state) == [1, 2, 3]
    assert list(state.values()) == [10, 20, None]
    for key in state.keys():  # noqa: SIM118 - the method is what is tested
        state.remove(key)
    assert state.is_empty()
    with pytest.raises(UsageError, match="'rules'"):
        state.put("x", 1)
    state.put(1, 1)
    del state[1]
    state.clear()
    assert state.is_empty()


def test_the_other_side_only_reads_broadcast_state() -> None:
    store = OperatorStateStore()
    state = store.get_broadcast_state(RULES)
    view: Any = store.get_read_only_broadcast_state(RULES)
    state.put(1, 10)
    assert (view.get(1), view[1], 1 in view, view.contains(2)) == (10, 10, True, False)
    assert list(view.items()) == [(1, 10)]
    assert list(view) == list(view.keys()) == [1]
    assert list(view.values()) == [10]
    assert not view.is_empty()
    calls: list[Any] = [
        lambda: view.put(1, 2),
        lambda: view.put_all({}),
        lambda: view.remove(1),
        view.clear,
        lambda: view.__setitem__(1, 2),
        lambda: view.__delitem__(1),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="read-only"):
            call()
    assert state.get(1) == 10


def test_damage_is_detected_and_a_store_is_restored_once() -> None:
    store = OperatorStateStore()
    store.get_list_state(INTS).update([1, 2])
    good = written(store)
    damaged = bytearray(good)
    damaged[8] ^= 1
    again = OperatorStateStore()
    with pytest.raises(CorruptStateError, match="a file"):
        again.restore([source(bytes(damaged))])
    again.restore([source(good)])
    with pytest.raises(UsageError, match="once"):
        again.restore([source(good)])


def test_files_that_disagree_on_a_state_are_refused() -> None:
    split, union = OperatorStateStore(), OperatorStateStore()
    split.get_list_state(INTS).add(1)
    union.get_union_list_state(INTS).add(1)
    with pytest.raises(CorruptStateError, match="another mode"):
        restored(written(split), written(union))


EXPIRING = StateTtlConfig.new_builder(1000).build()


@pytest.mark.parametrize(
    ("method", "make"),
    [
        ("get_list_state", ListStateDescriptor),
        ("get_union_list_state", ListStateDescriptor),
        ("get_broadcast_state", MapStateDescriptor),
        ("get_read_only_broadcast_state", MapStateDescriptor),
    ],
)
def test_operator_state_cannot_expire(method: str, make: Any) -> None:
    descriptor = make("the state")
    descriptor.enable_time_to_live(EXPIRING)
    store = OperatorStateStore()
    with pytest.raises(UsageError, match=r"operator state 'the state' has a time to live.*keyed"):
        getattr(store, method)(descriptor)
    assert store.get_registered_state_names() == set()
    assert store.get_registered_broadcast_state_names() == set()


def test_operator_state_may_have_a_time_to_live_that_is_disabled() -> None:
    descriptor = ListStateDescriptor("the state", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.DISABLED)
    OperatorStateStore().get_list_state(descriptor).update([1])
