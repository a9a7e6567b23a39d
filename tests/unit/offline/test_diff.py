"""What differs between two savepoints: by whole values, whatever of them is shown."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from weir.common.typeinfo import Types
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.errors import UsageError
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.diff import diff

LONG_TEXT = "x" * 1000


class Point:
    """An object that is equal to itself alone."""

    def __init__(self, x):
        self.x = x


class Refusing:
    """An object that cannot be compared."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        msg = "no"
        raise RuntimeError(msg)

    __hash__ = None


def elements(place, mode, types, found, name="rules"):
    edit = SavepointEdit.new().with_operator("o", parallelism=2, max_parallelism=8)
    edit.with_operator_state("o", name, mode, types, found)
    return read_snapshot(edit.write(str(place)))


def objects(place, descriptor, columns):
    """Write pickled objects as a keyed state."""
    edit = SavepointEdit.new().with_operator("o", parallelism=2, max_parallelism=8)
    empty = read_snapshot(edit.write(str(place.with_suffix(".empty"))), unpickle=True)
    edit = SavepointEdit.of(empty)
    edit.with_rows("o", descriptor, pa.table(columns), key_type=Types.LONG())
    return read_snapshot(edit.write(str(place)), unpickle=True)


def counts(before, after):
    [found] = diff(before, after)
    assert found.note is None
    return found.added, found.removed, found.changed, found.same


def test_elements_of_a_list_are_told_apart_behind_what_is_shown(tmp_path):
    types = (Types.STRING(), None)
    before = elements(tmp_path / "a", "SPLIT", types, [LONG_TEXT + "a", LONG_TEXT + "b", "same"])
    after = elements(tmp_path / "b", "SPLIT", types, [LONG_TEXT + "a", LONG_TEXT + "c", "same"])
    assert counts(before, after) == (1, 1, 0, 2)
    [found] = diff(before, after)
    assert all(len(change.entry) == 200 for change in found.examples)
    assert counts(before, before) == (0, 0, 0, 3)
    more = elements(tmp_path / "c", "SPLIT", types, [LONG_TEXT + "a"] * 3)
    less = elements(tmp_path / "d", "SPLIT", types, [LONG_TEXT + "a"])
    assert counts(more, less) == (0, 0, 1, 0)


@pytest.mark.parametrize("unpickle", [False, True])
def test_keys_of_broadcast_state_are_told_apart_behind_what_is_shown(tmp_path, unpickle):
    types = (Types.LONG(), Types.PICKLED_BYTE_ARRAY())
    keys = [LONG_TEXT + "a", LONG_TEXT + "b", LONG_TEXT + "c"]
    before = elements(tmp_path / "a", "BROADCAST", types, [(keys[0], 1), (keys[1], 2)])
    after = elements(tmp_path / "b", "BROADCAST", types, [(keys[0], 7), (keys[2], 2)])
    sides = [read_snapshot(c.snapshot.location, unpickle=unpickle) for c in (before, after)]
    assert counts(*sides) == (1, 1, 1, 0)


def test_elements_are_the_same_also_where_only_their_declared_types_differ(tmp_path):
    declared = elements(tmp_path / "a", "SPLIT", (Types.STRING(), None), ["x", "y"])
    pickled = elements(tmp_path / "b", "SPLIT", (Types.PICKLED_BYTE_ARRAY(), None), ["x", "z"])
    allowed = read_snapshot(pickled.snapshot.location, unpickle=True)
    assert counts(declared, allowed) == (1, 1, 0, 1)


def test_objects_without_equality_are_compared_by_their_bytes(tmp_path):
    columns = {"key": [1, 2], "value": [pickle.dumps(Point(x)) for x in (1, 2)]}
    changed = {"key": [1, 2], "value": [pickle.dumps(Point(x)) for x in (1, 3)]}
    state = ValueStateDescriptor("s", None)
    before = objects(tmp_path / "a", state, columns)
    assert counts(before, objects(tmp_path / "b", state, columns)) == (0, 0, 0, 2)
    assert counts(before, objects(tmp_path / "c", state, changed)) == (0, 0, 1, 1)


@pytest.mark.parametrize("shape", ["value", "list", "map"])
def test_arrays_are_compared_by_their_bytes(tmp_path, shape):
    state, more = {
        "value": (ValueStateDescriptor("s", None), {}),
        "list": (ListStateDescriptor("s", None), {"position": [0, 0]}),
        "map": (MapStateDescriptor("s", Types.STRING(), None), {"map_key": ["m", "m"]}),
    }[shape]

    def place(name, *arrays):
        values = [pickle.dumps(found) for found in arrays]
        return objects(tmp_path / name, state, {"key": [1, 2], "value": values, **more})

    before = place("a", np.arange(3000), np.arange(4.0))
    assert counts(before, place("b", np.arange(3000), np.arange(4.0))) == (0, 0, 0, 2)
    longer = np.arange(3000)
    longer[1500] = 0
    assert counts(before, place("c", longer, np.arange(4.0))) == (0, 0, 1, 1)


def test_objects_whose_comparison_fails_are_named(tmp_path):
    state = ValueStateDescriptor("s", None)
    sides = [
        objects(tmp_path / str(x), state, {"key": [1], "value": [pickle.dumps(Refusing(x))]})
        for x in (1, 2)
    ]
    [found] = diff(*sides)
    assert "a value of Refusing cannot be compared" in found.note


def test_keyed_state_and_operator_state_of_one_name_are_both_compared(tmp_path):
    def place(name, value):
        edit = SavepointEdit.new().with_operator("o", parallelism=2, max_parallelism=8)
        rows = pa.table({"key": [1], "value": [1]})
        edit.with_rows("o", ValueStateDescriptor("s", Types.LONG()), rows, key_type=Types.LONG())
        edit.with_operator_state("o", "s", "SPLIT", (Types.LONG(), None), [value])
        return read_snapshot(edit.write(str(tmp_path / name)))

    found = {(d.kind, bool(d)) for d in diff(place("a", 1), place("b", 2))}
    assert found == {("ValueState", False), ("operator list state", True)}


def test_what_is_on_neither_side_is_refused(tmp_path):
    found = elements(tmp_path / "a", "SPLIT", (Types.STRING(), None), ["x"])
    with pytest.raises(UsageError, match="neither side has state 'x'"):
        list(diff(found, found, operator="o", state="x"))
