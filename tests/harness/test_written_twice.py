"""An edit of a savepoint that is written twice, after a failure, or by a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.harness.test_state_edit import checkpoint_of

from weir.checkpoint.paths import METADATA_NAME
from weir.common.typeinfo import Types
from weir.datastream.state import ListStateDescriptor, ValueStateDescriptor
from weir.errors import StorageError, UsageError
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.changes import rename_state
from weir.offline.listing import list_snapshots
from weir.storage.local import LocalStorage

TOTAL = ValueStateDescriptor("total", Types.LONG())
BATCH = pa.RecordBatch.from_pydict({"key": [1, 2, 3], "value": [10, 20, 30]})


def contents_of(place):
    """All rows of all states, without the key groups of a max parallelism."""
    found = read_snapshot(str(place), unpickle=True)
    return {
        stored.name: sorted(
            repr({name: cell for name, cell in row.items() if name != "key_group"})
            for batch in found.table(stored.operator.id, stored.name).batches()
            for row in batch.to_pylist()
        )
        for stored in found.states()
    }


def emptied(place):
    return {name for name, rows in contents_of(place).items() if not rows}


def moved(edit, contents):
    edit.with_max_parallelism("kinds", 200)


def renamed(edit, contents):
    rename_state(edit, contents, "kinds", "total", "sum")


def replaced(edit, contents):
    edit.with_rows("kinds", "total", pa.Table.from_batches([BATCH]))
    buffer = ListStateDescriptor("buffer", Types.LONG())
    edit.with_element_rows("kinds", buffer, pa.table({"value": [1, 2, 3]}))


def by_iterators(edit, contents):
    edit.with_operator_state("kinds", "buffer", "SPLIT", (Types.LONG(), None), iter([1, 2, 3]))


@pytest.mark.parametrize("change", [moved, renamed, replaced, by_iterators])
def test_an_edit_that_is_written_twice_gives_the_same_savepoint_twice(tmp_path, change):
    contents = read_snapshot(str(checkpoint_of(tmp_path)), unpickle=True)
    edit = SavepointEdit.of(contents)
    change(edit, contents)
    first, second = (edit.write(str(tmp_path / name)) for name in ("first", "second"))
    assert contents_of(second) == contents_of(first)
    assert emptied(first) == emptied(contents.snapshot.location), "what held something still does"


@pytest.mark.parametrize("change", [moved, renamed, replaced, by_iterators])
def test_an_edit_is_written_after_the_storage_failed(tmp_path, monkeypatch, change):
    contents = read_snapshot(str(checkpoint_of(tmp_path)), unpickle=True)
    edit = SavepointEdit.of(contents)
    change(edit, contents)
    expected = contents_of(edit.write(str(tmp_path / "expected")))
    create = LocalStorage.create

    def full(self, path, data):
        if path.endswith(METADATA_NAME):
            msg = "the disk is full"
            raise StorageError(msg)
        return create(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", full)
        with pytest.raises(StorageError, match="full"):
            edit.write(str(tmp_path / "again"))
    assert contents_of(edit.write(str(tmp_path / "again"))) == expected


def reader():
    return pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])


@pytest.mark.parametrize("rows", [lambda: iter([BATCH]), lambda: (b for b in [BATCH]), reader])
def test_rows_of_an_iterator_are_written_once_and_refused_after_that(tmp_path, rows):
    edit = SavepointEdit.new().with_operator("kinds", parallelism=2, max_parallelism=8)
    edit.with_rows("kinds", TOTAL, rows(), key_type=Types.LONG())
    assert len(contents_of(edit.write(str(tmp_path / "first")))["total"]) == 3
    with pytest.raises(UsageError, match="rows of state 'total' came from an iterator"):
        edit.write(str(tmp_path / "second"))
    assert not (tmp_path / "second").exists()


def test_whatever_gives_its_batches_anew_is_written_again(tmp_path):
    edit = SavepointEdit.new().with_operator("kinds", parallelism=2, max_parallelism=8)
    data = pytest.importorskip("pyarrow.dataset")
    rows = data.dataset(pa.Table.from_batches([BATCH]))
    edit.with_rows("kinds", TOTAL, rows, key_type=Types.LONG())
    edit.write(str(tmp_path / "first"))
    assert len(contents_of(edit.write(str(tmp_path / "second")))["total"]) == 3


KILLED = """
import sys

import pyarrow as pa

from weir.common.typeinfo import Types
from weir.datastream.state import ValueStateDescriptor
from weir.offline import SavepointEdit

BATCH = pa.RecordBatch.from_pydict({"key": [1, 2, 3], "value": [10, 20, 30]})


def rows():
    yield BATCH
    print("in the middle", flush=True)
    sys.stdin.read()


edit = SavepointEdit.new()
for uid, given in (("one", [BATCH]), ("two", rows())):
    edit.with_operator(uid, parallelism=2, max_parallelism=8)
    state = ValueStateDescriptor("total", Types.LONG())
    edit.with_rows(uid, state, given, key_type=Types.LONG())
edit.write(sys.argv[1])
"""


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_counts(tmp_path):
    """One operator's files are there, the other's are not, and no metadata makes them one."""
    place = tmp_path / "savepoints" / "savepoint-killed"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    ) as child:
        try:
            assert child.stdout.readline() == "in the middle\n"
            assert any(place.iterdir()), "files were written"
        finally:
            os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    with pytest.raises(UsageError, match="savepoint-killed"):
        read_snapshot(str(place))
    assert all(found.problem for found in list_snapshots(str(place.parent)))
    edit = SavepointEdit.new().with_operator("kinds", parallelism=1, max_parallelism=8)
    with pytest.raises(UsageError, match="not empty"):
        edit.write(str(place))
