"""Raw state: what its outputs refuse, and that damage is noticed."""

from __future__ import annotations

import io
from typing import Any

import pytest

from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter
from weir.state.descriptor import ListStateDescriptor
from weir.state.operator_state import RAW_OPERATOR, OperatorStateStore
from weir.state.raw import (
    RawKeyedOutput,
    RawKeyedSource,
    RawOperatorOutput,
    read_raw_keyed,
    write_raw_keyed,
)
from weir.testing.backend_snapshot_conformance import read_file


def keyed(*groups: int) -> RawKeyedOutput:
    output = RawKeyedOutput(KeyGroupRange(3, 9))
    for group in groups:
        output.start_new_key_group(group)
        output.write(b"%d" % group)
    return output


def test_key_groups_are_written_once_in_ascending_order() -> None:
    output = keyed(3, 5)
    with pytest.raises(UsageError, match="key group 5 is there already"):
        output.start_new_key_group(5)
    with pytest.raises(UsageError, match="key group 3 is there already"):
        output.start_new_key_group(3)
    with pytest.raises(UsageError, match=r"key group 4 comes after 5.*ascending"):
        output.start_new_key_group(4)
    output.write(bytearray(b"+"))
    output.write(memoryview(b"-"))
    output.start_new_key_group(9)
    assert output.groups() == {3: b"3", 5: b"5+-", 9: b""}


@pytest.mark.parametrize("group", [2, 10, -1, "3", True, None, 3.0])
def test_only_key_groups_of_the_subtask_are_taken(group: Any) -> None:
    output = RawKeyedOutput(KeyGroupRange(1, 1) if group is True else KeyGroupRange(3, 9))
    with pytest.raises(UsageError, match=r"does not belong to this subtask, expected one of \d to"):
        output.start_new_key_group(group)
    assert output.groups() == {}


@pytest.mark.parametrize(
    ("output", "begin"),
    [
        (RawKeyedOutput(KeyGroupRange(0, 9)), r"start_new_key_group\(key_group\)"),
        (RawOperatorOutput(), r"start_new_partition\(\)"),
    ],
)
def test_bytes_need_a_place_and_nothing_else_is_taken(output: Any, begin: str) -> None:
    with pytest.raises(UsageError, match=begin):
        output.write(b"x")
    with pytest.raises(UsageError, match="is bytes, found str"):
        output.write("x")


def test_nothing_is_taken_after_the_hook() -> None:
    output, partitions = keyed(3), RawOperatorOutput()
    partitions.start_new_partition()
    partitions.write(b"p")
    output.close()
    partitions.close()
    calls: list[Any] = [
        lambda: output.write(b"late"),
        lambda: output.start_new_key_group(4),
        lambda: partitions.write(b"late"),
        partitions.start_new_partition,
    ]
    for call in calls:
        with pytest.raises(UsageError, match="only while snapshot_state runs"):
            call()
    assert output.groups() == {3: b"3"}
    assert partitions.partitions() == [b"p"]


def written(groups: dict[int, bytes]) -> bytes:
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    part = write_raw_keyed(groups, writer)
    writer.finish({"operators": {"op": {"raw_keyed": part}}})
    return out.getvalue()


def source(data: bytes, start: int, end: int) -> RawKeyedSource:
    reader = read_file(data)
    part = reader.footer["operators"]["op"]["raw_keyed"]
    return RawKeyedSource(reader, part, KeyGroupRange(start, end))


def test_groups_of_several_files_are_taken_by_range_and_come_in_order() -> None:
    high, low = written({8: b"h", 12: b"hh"}), written({2: b"l", 5: b"ll"})
    found = read_raw_keyed([source(high, 8, 9), source(low, 3, 7)])
    assert found == ((5, b"ll"), (8, b"h"))
    assert read_raw_keyed([]) == ()


def test_damaged_bytes_are_refused() -> None:
    data = bytearray(written({2: b"marked"}))
    data[data.index(b"marked")] ^= 1
    with pytest.raises(CorruptStateError, match="a file"):
        read_raw_keyed([source(bytes(data), 2, 2)])


def test_the_name_of_raw_operator_state_is_reserved() -> None:
    with pytest.raises(UsageError, match=f"'{RAW_OPERATOR}' is reserved"):
        OperatorStateStore().get_list_state(ListStateDescriptor(RAW_OPERATOR))
