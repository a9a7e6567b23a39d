"""Operator state whose type has changed: elements migrate when the state is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.state.test_operator_state import restored, written

from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.errors import IncompatibleStateError
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor
from weir.state.operator_state import OperatorStateStore

OLD = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
NEW = Types.ROW_NAMED(["name", "id", "score"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])


def stored(old: Any = OLD) -> bytes:
    store = OperatorStateStore()
    store.get_list_state(ListStateDescriptor("split", old)).update(
        [Row(id=1456, name="foo"), Row(id=478, name="bar")]
    )
    store.get_union_list_state(ListStateDescriptor("union", old)).add(Row(id=189, name="hello"))
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), old))
    rules.put_all({"k": Row(id=1, name="x"), "none": None})
    return written(store)


def test_elements_of_every_mode_migrate_and_are_written_in_the_new_type() -> None:
    store = restored(stored())
    for _ in range(2):
        split = store.get_list_state(ListStateDescriptor("split", NEW))
        union = store.get_union_list_state(ListStateDescriptor("union", NEW))
        rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), NEW))
        assert list(split) == [
            Row(name="foo", id=1456, score=None),
            Row(name="bar", id=478, score=None),
        ]
        assert list(union.get()) == [Row(name="hello", id=189, score=None)]
        assert dict(rules.items()) == {"k": Row(name="x", id=1, score=None), "none": None}
        store = restored(written(store))
    narrow = Types.ROW_NAMED(["name", "id"], [Types.STRING(), Types.INT()])
    with pytest.raises(IncompatibleStateError, match=r"'split'.*Types\.LONG.*Types\.INT"):
        store.get_list_state(ListStateDescriptor("split", narrow))


def test_a_refused_change_leaves_the_state_to_be_asked_for_again() -> None:
    store = restored(stored())
    with pytest.raises(IncompatibleStateError, match="cannot become") as caught:
        store.get_list_state(ListStateDescriptor("split", Types.STRING()))
    assert str(caught.value).startswith("operator state 'split' was stored as Types.ROW_NAMED(")
    with pytest.raises(IncompatibleStateError, match=r"'rules'.*key types cannot change"):
        store.get_broadcast_state(MapStateDescriptor("rules", None, OLD))
    assert next(iter(store.get_list_state(ListStateDescriptor("split", OLD)))).id == 1456
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), OLD))
    assert rules.get("k").name == "x"


def test_undeclared_elements_must_fit_the_type_they_get() -> None:
    store = OperatorStateStore()
    store.get_list_state(ListStateDescriptor("good")).update([1, 2])
    store.get_list_state(ListStateDescriptor("bad")).update([1, "two"])
    again = restored(written(store))
    assert list(again.get_list_state(ListStateDescriptor("good", Types.LONG()))) == [1, 2]
    with pytest.raises(IncompatibleStateError, match=r"'bad'.*class builtins\.str"):
        again.get_list_state(ListStateDescriptor("bad", Types.LONG()))
    assert list(again.get_list_state(ListStateDescriptor("bad"))) == [1, "two"]


def test_subtasks_that_did_not_migrate_together_are_refused_by_name() -> None:
    ready, late = restored(stored()), restored(stored())
    ready.get_union_list_state(ListStateDescriptor("union", NEW))
    with pytest.raises(IncompatibleStateError, match=r"'union'.*ask for the state in"):
        restored(written(ready), written(late))
