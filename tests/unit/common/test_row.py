"""Rows: PyFlink's behaviour, equality that agrees with hashing and key groups, pickling."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from weir.common import Row, RowKind
from weir.common.types import row_class
from weir.keygroup import key_group


def test_a_row_without_names_is_read_by_position() -> None:
    row = Row(1, "a", None)
    assert (row[0], row[-1], row[0:2], len(row), list(row)) == (
        1,
        None,
        [1, "a"],
        3,
        [1, "a", None],
    )
    assert (row.f1, row["f0"]) == ("a", 1)
    assert "a" in row
    assert repr(row) == "<Row(1, 'a', None)>"


def test_a_row_with_names_is_read_by_name_and_attribute() -> None:
    row = Row(name="Alice", age=11)
    assert (row["name"], row.age, row[0]) == ("Alice", 11, "Alice")
    assert "name" in row
    assert "Alice" not in row
    assert repr(row) == "Row(name='Alice', age=11)"


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert person("Alice", 11) == Row(name="Alice", age=11)
    with pytest.raises(ValueError, match="2 values"):
        person("Alice", 11, "too many")


def test_values_are_assigned_by_position_name_and_attribute() -> None:
    row = Row(a=1, b=2)
    row[0] = 10
    row["b"] = 20
    assert row == Row(a=10, b=20)
    row.a = 100
    row[0:2] = [7, 8]
    assert row == Row(a=7, b=8)
    with pytest.raises(ValueError, match="number of fields"):
        row[0:2] = [1]


def test_unknown_names_are_errors() -> None:
    row = Row(a=1)
    with pytest.raises(ValueError, match=r"'x'.*'a'"):
        row["x"]
    with pytest.raises(AttributeError, match="'x'"):
        _ = row.x
    with pytest.raises(AttributeError):
        row.x = 1
    with pytest.raises(IndexError):
        row[5]
    with pytest.raises(AttributeError):
        _ = Row(1).f1


def test_positional_and_named_values_do_not_mix() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_names_that_are_methods_are_still_read_by_name() -> None:
    row = Row(as_dict=1, _x=2)
    assert (row["as_dict"], row["_x"]) == (1, 2)
    assert row.as_dict() == {"as_dict": 1, "_x": 2}


def test_a_dict_is_made_of_names_also_recursively() -> None:
    row = Row(key=1, value=Row(name="a"), items=[Row(x=1)], table={"k": Row(y=2)})
    assert row.as_dict()["value"] == Row(name="a")
    assert row.as_dict(True) == {
        "key": 1,
        "value": {"name": "a"},
        "items": [{"x": 1}],
        "table": {"k": {"y": 2}},
    }
    with pytest.raises(TypeError, match="field names"):
        Row(1).as_dict()


def test_names_can_be_set_later() -> None:
    row = Row(1, 2)
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)
    assert row.get_fields_by_names(["b", "a"]) == [2, 1]
    assert Row(1, 2).get_fields_by_names(["x", "y"]) == [1, 2]
    with pytest.raises(ValueError, match="'c'"):
        row.get_fields_by_names(["c"])
    with pytest.raises(ValueError, match="2 values"):
        row.set_field_names(["a"])


def test_equal_rows_hash_alike_and_share_a_key_group() -> None:
    one, other = Row(a=1, b="x"), Row(b="x", a=1)
    assert one == other
    assert hash(one) == hash(other)
    assert key_group(one, 128) == key_group(other, 128)
    assert len({one, other}) == 1


def test_rows_differ_by_values_names_and_kind() -> None:
    assert Row(1, 2) != Row(1, 3)
    assert Row(1, 2) != Row(a=1, b=2)
    assert Row(a=1) != Row(b=1)
    assert Row(1, 2) != (1, 2)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)


def test_the_kind_belongs_to_the_row_and_costs_no_slot() -> None:
    row = Row(a=1)
    assert row.get_row_kind() is RowKind.INSERT
    row.set_row_kind(RowKind.UPDATE_AFTER)
    assert row.get_row_kind() is RowKind.UPDATE_AFTER
    assert Row(a=1).get_row_kind() is RowKind.INSERT
    assert sys.getsizeof(Row.of_kind(RowKind.DELETE, a=1)) == sys.getsizeof(Row(1))


@pytest.mark.parametrize(
    "row", [Row(1, "a"), Row(a=1, b=[Row(c=2)]), Row.of_kind(RowKind.DELETE, x=1), Row()], ids=repr
)
def test_rows_survive_pickling_and_copying(row: Any) -> None:
    for other in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert other == row
        assert type(other) is type(row)
        assert other.get_row_kind() is row.get_row_kind()


@pytest.mark.slow
def test_named_rows_can_be_read_by_another_process() -> None:
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).name)"
    data = pickle.dumps(Row(name="Alice"))
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"Alice"


def test_there_is_one_class_per_names_and_kind() -> None:
    assert row_class(("a",)) is row_class(("a",), RowKind.INSERT)
    assert type(Row(a=1)) is row_class(("a",))
    assert row_class(None) is Row
    with pytest.raises(ValueError, match="different names"):
        row_class(("a", "a"))


def test_a_named_class_takes_values_in_any_order_of_names() -> None:
    point = row_class(("x", "y"))
    assert list(point(y=2, x=1)) == [1, 2]
    with pytest.raises(ValueError, match="'z'"):
        point(x=1, z=2)
