"""Which checkpoints are found where, in which order, and what is said of those that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord, encode_metadata
from weir.checkpoint.store import write_metadata
from weir.errors import UsageError
from weir.offline import list_snapshots
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage

JOB = "a" * 32
SAVEPOINT = "savepoint-aaaaaa-0123456789ab"
BASE = CheckpointMetadata(1, JOB, "payments", 0, "checkpoint", 1)


@pytest.fixture
def root(tmp_path):
    """Two jobs with three checkpoints and a savepoint, and things that are none."""
    storage = LocalStorage(str(tmp_path))
    files = (
        FileRecord("../shared/state-s0-a0-1", 10, 0, 0),
        FileRecord("../shared/state-s0-a0-1", 10, 0, 1),
        FileRecord("state-s0-a0-2", 5, 0, 0, b"12345"),
    )
    for number in (1, 2, 10):
        metadata = replace(BASE, checkpoint_id=number, timestamp_ms=number, files=files)
        write_metadata(storage, f"{JOB}/chk-{number}", metadata)
    write_metadata(storage, f"{'b' * 32}/chk-7", replace(BASE, checkpoint_id=7, timestamp_ms=5))
    form = replace(BASE, kind="savepoint", timestamp_ms=99, savepoint_format="NATIVE")
    write_metadata(storage, f"savepoints/{SAVEPOINT}", form)
    for path in ("shared/state-s0-a0-1", "query-0/offsets/0", "spool/0/_metadata", "_owner"):
        storage.create(f"{JOB}/{path}", b"x")
    storage.create("readme.txt", b"x")
    return tmp_path


def names(found):
    return [summary.location.rpartition("/")[2] for summary in found]


def test_a_root_lists_everything_below_it_newest_first(root):
    found = list_snapshots(str(root))
    assert names(found) == [SAVEPOINT, "chk-10", "chk-7", "chk-2", "chk-1"]
    assert found[0].savepoint_format == "NATIVE"
    assert (found[1].bytes, found[1].files) == (15, 1), "a file that two subtasks use counts once"
    assert all(summary.problem is None for summary in found)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (JOB, ["chk-10", "chk-2", "chk-1"]),
        (f"{JOB}/chk-2", ["chk-2"]),
        (f"{JOB}/chk-2/_metadata", ["chk-2"]),
        ("savepoints", [SAVEPOINT]),
    ],
)
def test_every_level_can_be_named(root, inside, expected):
    assert names(list_snapshots(f"{root}/{inside}")) == expected
    assert names(list_snapshots(f"file://{root}/{inside}/")) == expected


def test_checkpoints_of_one_moment_are_in_the_order_of_their_numbers(root):
    storage = LocalStorage(str(root))
    write_metadata(storage, f"{JOB}/chk-11", replace(BASE, checkpoint_id=11, timestamp_ms=10))
    assert names(list_snapshots(f"{root}/{JOB}"))[:2] == ["chk-11", "chk-10"]


def test_what_cannot_be_read_is_listed_last_with_the_reason(root):
    newer = root / JOB / "chk-10" / "_metadata"
    newer.write_bytes(newer.read_bytes().replace(b"weir-metadata 4", b"weir-metadata 8", 1))
    damaged = root / "savepoints" / SAVEPOINT / "_metadata"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    storage = LocalStorage(str(root))
    storage.create(f"{JOB}/chk-12/state-s0-a0-1", b"x")
    storage.create(f"{JOB}/chk-3/_disposing", encode_metadata(BASE))
    found = list_snapshots(str(root))
    assert names(found[:3]) == ["chk-7", "chk-2", "chk-1"]
    problems = {names([summary])[0]: summary.problem for summary in found[3:]}
    assert "its format is 8" in problems["chk-10"]
    assert "is damaged" in problems[SAVEPOINT]
    assert "being written, or was given up" in problems["chk-12"]
    assert "disposal was interrupted" in problems["chk-3"]
    kinds = {names([summary])[0]: (summary.kind, summary.checkpoint_id) for summary in found[3:]}
    assert kinds["chk-12"] == ("checkpoint", 12)
    assert kinds[SAVEPOINT] == ("savepoint", None)


def test_a_checkpoint_without_metadata_that_is_named_itself_is_told(root):
    (root / JOB / "chk-2" / "_metadata").unlink()
    (found,) = list_snapshots(f"{root}/{JOB}/chk-2")
    assert found.problem


@pytest.mark.parametrize("missing", ["nowhere", "readme.txt"])
def test_a_directory_that_is_none_is_refused(root, missing):
    with pytest.raises(UsageError, match=f"there is no directory .*{missing}"):
        list_snapshots(f"{root}/{missing}")


def test_an_empty_directory_holds_nothing(tmp_path):
    assert list_snapshots(str(tmp_path)) == []


def test_other_storages_are_listed_too():
    storage = MemoryStorage("test-listing")
    write_metadata(storage, f"{JOB}/chk-4", replace(BASE, checkpoint_id=4))
    (found,) = list_snapshots("memory://test-listing")
    assert found.location == f"memory://test-listing/{JOB}/chk-4"
