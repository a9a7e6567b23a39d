"""What follows from each claim mode, on the job's own storage and on another one."""

from __future__ import annotations

import zlib

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.retention import CheckpointRef, JobEnd
from weir.checkpoint.settings import Retention
from weir.checkpoint.store import list_completed, write_metadata
from weir.errors import StorageError
from weir.ids import JobId
from weir.jobmanager.claims import ClaimMode, decide_claim
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.recovery import RestorePoint, load_restore_point, rebased
from weir.storage.local import LocalStorage
from weir.testing.faulty_storage import FaultyStorage

JOB = JobId("new")


@pytest.fixture
def storage(tmp_path):
    """A storage with two checkpoints of an old job that share a file."""
    made = LocalStorage(str(tmp_path / "root"))
    for name in ("a", "b", "c"):
        made.create(f"old/shared/state-s0-a0-{name}", name.encode())
    stored(made, "old/chk-4", 4, "a", "b")
    stored(made, "old/chk-5", 5, "b", "c")
    return made


def stored(storage, directory, number, *names):
    files = tuple(FileRecord(f"../shared/state-s0-a0-{n}", 1, crc(storage, n), 0) for n in names)
    metadata = CheckpointMetadata(number, "old", "job", 0, "checkpoint", 1, files=files)
    write_metadata(storage, directory, metadata)
    return metadata


def crc(storage, name):
    return zlib.crc32(storage.read(f"old/shared/state-s0-a0-{name}"))


def shared(*names):
    return {f"old/shared/state-s0-a0-{name}" for name in names}


def restored(storage):
    return load_restore_point(f"{storage.root}/old/chk-5")


def test_nothing_is_touched_or_referred_to_without_a_claim(storage):
    claim = decide_claim(ClaimMode.NO_CLAIM, restored(storage), storage)
    assert claim.point is not None
    assert (claim.owned, claim.foreign, claim.reusable) == (None, None, False)
    assert not claim.may_refer_to(claim.point)
    own = RestorePoint(storage.uri, "new/chk-6", claim.point.metadata)
    assert claim.may_refer_to(own), "the job's own checkpoints are its own"


def test_a_claimed_checkpoint_becomes_one_of_the_jobs_own(storage):
    claim = decide_claim(ClaimMode.CLAIM, restored(storage), storage)
    assert claim.owned == CheckpointRef(5, "old/chk-5")
    assert claim.files == shared("b", "c")
    assert claim.reusable
    files = CheckpointFiles(storage, JOB, claim)
    files.delete(claim.owned)
    assert storage.list("old") == ["chk-4", "shared"]
    assert storage.list("old/shared") == ["state-s0-a0-a", "state-s0-a0-b"], "b is used by chk-4"


def test_legacy_refers_to_files_and_deletes_none(storage):
    claim = decide_claim(ClaimMode.LEGACY, restored(storage), storage)
    assert (claim.owned, claim.foreign, claim.reusable) == (None, None, True)
    assert claim.protected == shared("b", "c")


def test_a_claimed_checkpoint_on_another_storage_goes_when_it_is_replaced(storage, tmp_path):
    elsewhere = LocalStorage(str(tmp_path / "elsewhere"))
    claim = decide_claim(ClaimMode.CLAIM, restored(storage), elsewhere)
    assert claim.owned is None
    assert not claim.reusable
    files = CheckpointFiles(elsewhere, JOB, claim)
    files.end_foreign(Retention.RETAIN_ON_CANCELLATION, JobEnd.CANCELED)
    assert len(list_completed(storage, "old")) == 2
    files.subsume_foreign()
    assert [s.metadata.checkpoint_id for s in list_completed(storage, "old")] == [4]
    assert storage.list("old/shared") == ["state-s0-a0-a", "state-s0-a0-b"]


def test_names_of_another_jobs_files_hold_in_both_jobs(storage):
    point = rebased(RestorePoint(storage.uri, "old/chk-5", restored(storage).metadata), JOB)
    assert [f.path for f in point.metadata.files] == [
        "../../old/shared/state-s0-a0-b",
        "../../old/shared/state-s0-a0-c",
    ]
    assert rebased(point, "old") == point


def test_a_checkpoint_that_refers_to_an_older_jobs_files_can_be_loaded(storage):
    metadata = rebased(
        RestorePoint(storage.uri, "old/chk-5", restored(storage).metadata), JOB
    ).metadata
    write_metadata(storage, "new/chk-6", metadata)
    point = load_restore_point(f"{storage.root}/new/chk-6")
    assert point.directory == "new/chk-6"
    assert decide_claim(ClaimMode.CLAIM, point, storage).files == shared("b", "c")


def test_files_that_checkpoints_of_the_job_before_the_last_one_use_stay(storage):
    metadata = rebased(
        RestorePoint(storage.uri, "old/chk-5", restored(storage).metadata), JOB
    ).metadata
    write_metadata(storage, "new/chk-6", metadata)
    point = load_restore_point(f"{storage.root}/new/chk-6")
    claim = decide_claim(ClaimMode.CLAIM, point, storage)
    CheckpointFiles(storage, JobId("newest"), claim).delete(claim.owned)
    assert storage.list("new") == []
    assert len(storage.list("old/shared")) == 3, "checkpoints 4 and 5 of the old job use them"


def test_a_checkpoint_whose_files_were_deleted_is_never_completed(storage):
    claim = decide_claim(ClaimMode.CLAIM, restored(storage), storage)
    files = CheckpointFiles(storage, JOB, claim)
    files.delete(claim.owned)
    metadata = rebased(claim.point, JOB).metadata
    with pytest.raises(StorageError, match="state-s0-a0-c"):
        files.check(CheckpointRef(6, "new/chk-6"), metadata)


def test_when_metadata_cannot_be_deleted_its_files_stay_until_the_end(storage):
    faulty = FaultyStorage(storage)
    claim = decide_claim(ClaimMode.CLAIM, restored(storage), storage)
    files = CheckpointFiles(faulty, JOB, claim)
    faulty.fail_next("delete")
    files.delete(claim.owned)
    assert storage.exists("old/chk-5/_metadata")
    assert storage.exists("old/shared/state-s0-a0-c")
    files.sweep_job([], None)
    assert storage.list("old/chk-5") == []
    assert not storage.exists("old/shared/state-s0-a0-c")


def test_the_last_sweep_tries_again_what_the_storage_refused(storage):
    faulty = FaultyStorage(storage)
    storage.create("new/shared/state-s0-a0-d", b"d")
    files = CheckpointFiles(faulty, JOB)
    faulty.fail_next("delete")
    files.sweep_job([], None)
    assert storage.list("new/shared") == []
