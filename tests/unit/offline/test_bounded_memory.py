"""State that is larger than the memory for it is read, written and edited."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange
from weir.offline.encoding import with_key_groups
from weir.offline.export import conform
from weir.offline.keyed import Layout
from weir.offline.spilled import RowsByGroup, SpilledRows
from weir.offline.writing import state_kind

STATE_MB = 160
LIMIT_MB = 110
LONG = Types.LONG()

CHILD = """
import json, sys
import pyarrow as pa
from weir.common.typeinfo import Types
from weir.datastream.state import ValueStateDescriptor
from weir.offline import SavepointEdit, read_snapshot

what, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
ROWS, WIDTH = 4096, 2048
parts = size // (ROWS * WIDTH)
def rows():
    text = "v" * WIDTH
    for number in range(parts):
        keys = range(number, parts * ROWS, parts)  # every part has keys of all key groups
        yield pa.RecordBatch.from_pydict(
            {"key": pa.array(keys), "value": pa.array([text] * ROWS)})
def peak():
    # Of this program alone: the figure of getrusage begins with the parent's.
    told = open("/proc/self/status").read().split("VmHWM:")[1]
    return int(told.split()[0]) >> 10
warm = pa.array(["v" * 2048] * ROWS); del warm
before = peak()
count = 0
if what == "write":
    state = ValueStateDescriptor("s", Types.STRING())
    edit = SavepointEdit.new().with_operator("o", parallelism=2, max_parallelism=128)
    edit.with_rows("o", state, rows(), key_type=Types.LONG()).write(path)
elif what == "edit":
    edit = SavepointEdit.of(read_snapshot(path))
    edit.with_max_parallelism("o", 64).write(path + "-other")
elif what == "materialise":
    kept = list(read_snapshot(path).table("o", "s").batches())
    count = sum(batch.num_rows for batch in kept)
else:
    for batch in read_snapshot(path).table("o", "s").batches():
        count += batch.num_rows
print(json.dumps([peak() - before, count]))
"""


def run(what: str, path: Path) -> tuple[int, int]:
    """Do something in a process of its own; returns by how much its memory grew, and rows."""
    command = [sys.executable, "-c", CHILD, what, str(path), str(STATE_MB)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    grown, count = json.loads(done.stdout)
    return grown, count


@pytest.mark.matrix  # seconds of one process after the other
def test_state_larger_than_memory_is_written_read_and_edited(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("large")
    grown, _ = run("write", root / "savepoint")
    assert grown < LIMIT_MB
    stored = sum(file.stat().st_size for file in (root / "savepoint").rglob("*"))
    assert stored >= STATE_MB << 20
    grown, count = run("read", root / "savepoint")
    assert (grown < LIMIT_MB, count) == (True, (STATE_MB << 20) // 2048 // 4096 * 4096)
    grown, _ = run("edit", root / "savepoint")
    assert grown < LIMIT_MB
    grown, same = run("materialise", root / "savepoint-other")
    assert same == count
    assert grown > LIMIT_MB, "the measure would notice"


@settings(max_examples=examples(60), deadline=None)
@given(
    keys=st.lists(st.lists(st.integers(-50, 50), max_size=12), max_size=8),
    groups=st.sampled_from([1, 2, 7, 128, 200, 1000]),
    held=st.sampled_from([0, 100, 1 << 20]),
    width=st.integers(1, 5),
)
def test_rows_come_in_the_order_of_their_groups_whatever_is_held(
    keys: list[list[int]], groups: int, held: int, width: int
) -> None:
    kind = state_kind("VALUE", key=LONG, value=LONG)
    layout = Layout.of(kind, unpickle=False, in_windows=False)
    given_rows = [(key, 100 * number + key) for number, part in enumerate(keys) for key in part]
    found: list[tuple[int, int, int]] = []
    with SpilledRows(layout, groups, held) as spilled:
        for number, part in enumerate(keys):
            values = [100 * number + key for key in part]
            columns = {"key": pa.array(part, pa.int64()), "value": pa.array(values, pa.int64())}
            spilled.add(pa.RecordBatch.from_pydict(columns))
        rows = RowsByGroup(spilled.in_order())
        for index in range(width):
            last = groups * (index + 1) // width - 1
            part_found = [
                (row["key_group"], row["key"], row["value"])
                for batch in rows.up_to(last)
                for row in batch.to_pylist()
            ]
            assert all(group <= last for group, _, _ in part_found)
            found += part_found
        assert list(rows.up_to(groups)) == []
    assert [group for group, _, _ in found] == sorted(group for group, _, _ in found)
    assert sorted((key, value) for _, key, value in found) == sorted(given_rows)


def test_memory_holds_one_key_group_however_many_there_are() -> None:
    kind = state_kind("VALUE", key=LONG, value=LONG)
    layout = Layout.of(kind, unpickle=False, in_windows=False)
    numbers = pa.array(range(5000), pa.int64())
    for own in (None, KeyGroupRange(1000, 1999)):
        with SpilledRows(layout, 3000, held_bytes=0, key_groups=own) as spilled:
            placed = with_key_groups(
                pa.RecordBatch.from_pydict({"key": numbers, "value": numbers}),
                layout.key,
                3000,
            )
            if own is not None:
                inside = [group.as_py() in own for group in placed.column(0)]
                placed = placed.filter(pa.array(inside))
            spilled.add_placed(conform(placed, layout.schema))
            batches = list(spilled.in_order())
        held = [set(batch.column(0).to_pylist()) for batch in batches]
        assert all(len(groups) == 1 for groups in held)
        assert [max(groups) for groups in held] == sorted(set(placed.column(0).to_pylist()))
        assert sum(batch.num_rows for batch in batches) == placed.num_rows > 0
