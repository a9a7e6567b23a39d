"""A crash at any storage call of a run of checkpoints loses no completed checkpoint.

The run takes checkpoints with shared and exclusive files, deletes what they replace, and dies at
one call. Whatever is listed afterwards must be sound, and at least as new as what was known to be
complete before the crash.
"""

from __future__ import annotations

import zlib

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.retention import CheckpointRef, plan_subsumption
from weir.checkpoint.store import list_completed, verify_files, write_metadata
from weir.ids import JobId
from weir.jobmanager.cleanup import CheckpointFiles
from weir.storage import MemoryStorage, Storage
from weir.testing.faulty_storage import CrashMoment, FaultPlan, FaultyStorage, SimulatedCrash

CHECKPOINTS = 5
SUBTASKS = 2


def take(storage: Storage, number: int) -> CheckpointMetadata:
    """Write the files of one checkpoint; each refers to the shared file of the one before."""
    files = []
    for subtask in range(SUBTASKS):
        name = f"state-s{subtask}-{number}"
        data = f"{number}.{subtask}".encode() * 50
        with storage.open_write(f"job/chk-{number}/{name}") as file:
            file.write(data)
        files.append(FileRecord(name, len(data), zlib.crc32(data), subtask))
    storage.create(f"job/shared/base-{number}", b"%d" % number)
    for base in range(max(1, number - 1), number + 1):
        data = b"%d" % base
        files.append(FileRecord(f"../shared/base-{base}", len(data), zlib.crc32(data), 0))
    metadata = CheckpointMetadata(number, "job", "job", 0, "checkpoint", number, files=tuple(files))
    write_metadata(storage, f"job/chk-{number}", metadata)
    return metadata


def run(storage: Storage, done: list[int]) -> None:
    """Take checkpoints, deleting what each replaces."""
    kept: list[CheckpointRef] = []
    files = CheckpointFiles(storage, JobId("job"))
    for number in range(1, CHECKPOINTS + 1):
        ref = CheckpointRef(number, f"job/chk-{number}")
        files.complete(ref, take(storage, number))
        kept.append(ref)
        done.append(number)
        for gone in plan_subsumption(kept, 1):
            kept.remove(gone)
            files.delete(gone)


def test_without_a_crash_the_last_checkpoint_and_its_files_are_all_that_is_left() -> None:
    storage = MemoryStorage()
    run(storage, [])
    assert [c.metadata.checkpoint_id for c in list_completed(storage, "job")] == [CHECKPOINTS]
    assert storage.list("job") == [f"chk-{CHECKPOINTS}", "shared"]
    assert storage.list("job/shared") == [f"base-{CHECKPOINTS - 1}", f"base-{CHECKPOINTS}"]


@pytest.mark.parametrize("moment", list(CrashMoment))
def test_a_crash_at_any_call_leaves_a_sound_latest_checkpoint(moment: CrashMoment) -> None:
    counting = FaultyStorage(MemoryStorage())
    run(counting, [])
    assert len(counting.trace) > 30
    for point in range(1, len(counting.trace) + 1):
        inner, done = MemoryStorage(), list[int]()
        with pytest.raises(SimulatedCrash):
            run(FaultyStorage(inner, FaultPlan(crash_at=point, moment=moment)), done)
        completed = list_completed(inner, "job")
        newest = completed[0].metadata.checkpoint_id if completed else 0
        assert newest in ({max(done, default=0), max(done, default=0) + 1}), f"crash at {point}"
        if completed:
            problems = verify_files(inner, completed[0].directory, completed[0].metadata)
            assert problems == [], f"crash at {point}, {moment}"


@pytest.mark.parametrize("moment", list(CrashMoment))
@pytest.mark.parametrize("point", [1, 2])
def test_a_half_deleted_checkpoint_is_never_valid(point: int, moment: CrashMoment) -> None:
    inner, ref = MemoryStorage(), CheckpointRef(1, "job/chk-1")
    metadata = CheckpointMetadata(1, "job", "job", 0, "checkpoint", 0)
    for name in ("a", "z"):
        inner.create(f"{ref.directory}/{name}", b"")
    write_metadata(inner, ref.directory, metadata)
    dying = FaultyStorage(inner, FaultPlan(crash_at=point, moment=moment))
    with pytest.raises(SimulatedCrash):
        CheckpointFiles(dying, JobId("job")).delete(ref)
    if list_completed(inner, "job"):
        assert inner.list(ref.directory) == ["_metadata", "a", "z"]
    CheckpointFiles(inner, JobId("job")).delete(ref)
    assert inner.list("job") == []
