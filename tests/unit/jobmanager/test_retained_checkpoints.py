"""Finding what an earlier job left, and clearing what it never finished, in any storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.store import load_checkpoint, write_metadata
from weir.ids import unique_suffix
from weir.jobmanager import owner
from weir.jobmanager.recovery import RestorePoint, remove_abandoned, retained_checkpoint
from weir.storage import LocalStorage, MemoryStorage, Storage, StorageOptions

OLD, OTHER, NEW = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture(params=["a remote storage", "the work directory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    remote = request.param == "a remote storage"
    return MemoryStorage(unique_suffix()) if remote else LocalStorage(str(tmp_path))


def keep(storage: Storage, work_root: Path, job: str, checkpoint_id: int, time_ms: int) -> None:
    (work_root / job).mkdir(exist_ok=True)
    facts = CheckpointMetadata(checkpoint_id, job, "totals", time_ms, "checkpoint", 0)
    write_metadata(storage, f"{job}/chk-{checkpoint_id}", facts)


def restored(storage: Storage, directory: str) -> RestorePoint:
    return RestorePoint(storage.uri, directory, load_checkpoint(storage, directory))


def test_the_newest_checkpoint_of_an_ended_job_of_that_name_is_found(
    storage: Storage, tmp_path: Path
) -> None:
    assert retained_checkpoint(storage, tmp_path, "totals", NEW) is None
    keep(storage, tmp_path, OLD, 9, 100)
    keep(storage, tmp_path, OLD, 10, 200)
    keep(storage, tmp_path, OTHER, 3, 150)
    found = retained_checkpoint(storage, tmp_path, "totals", NEW)
    assert found == f"{storage.uri}/{OLD}/chk-10"
    assert retained_checkpoint(storage, tmp_path, "another name", NEW) is None
    assert retained_checkpoint(storage, tmp_path, "totals", OLD) == f"{storage.uri}/{OTHER}/chk-3"


def test_a_job_that_may_be_running_is_left_alone(storage: Storage, tmp_path: Path) -> None:
    keep(storage, tmp_path, OLD, 1, 100)
    storage.create(f"{OLD}/chk-2/data", b"")
    owner.claim(tmp_path / OLD)
    assert retained_checkpoint(storage, tmp_path, "totals", NEW) is None
    point = restored(storage, f"{OLD}/chk-1")
    assert remove_abandoned(point, tmp_path, StorageOptions()) is None
    assert storage.exists(f"{OLD}/chk-2/data")


def test_unfinished_checkpoints_of_an_ended_job_go_and_finished_ones_stay(
    storage: Storage, tmp_path: Path
) -> None:
    keep(storage, tmp_path, OLD, 1, 100)
    for path in ("chk-2/data", "shared/kept", "chk-x/kept"):
        storage.create(f"{OLD}/{path}", b"")
    point = restored(storage, f"{OLD}/chk-1")
    assert remove_abandoned(point, tmp_path, StorageOptions()) == OLD
    assert storage.list(OLD) == ["chk-1", "chk-x", "shared"]
