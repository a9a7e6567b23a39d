"""What stands in for damaged files: decided on the copies of this host, or left to the slots."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import write_metadata
from weir.errors import StorageError
from weir.jobmanager.recovery import candidates
from weir.jobmanager.settings import LocalRecovery
from weir.jobmanager.stand_ins import StandIns
from weir.slot.copies import MissingCopyError, open_copies
from weir.snapshot import FileHandle
from weir.storage.memory import MemoryStorage

JOB = "a" * 32
DATA = b"state"
FILE = FileRecord("state-s0-a0-aa", len(DATA), zlib.crc32(DATA), subtask=0)
REF = CheckpointRef(3, f"{JOB}/chk-3")


def metadata(*files: FileRecord) -> CheckpointMetadata:
    return CheckpointMetadata(3, JOB, "job", 0, "checkpoint", 0, files=files)


def stand_ins(tmp_path: Path, *, one_host: bool = True, restore: bool = True) -> StandIns:
    local = LocalRecovery(backup=True, restore=restore, dirs=(str(tmp_path),))
    made = StandIns(local, one_host=one_host)
    assert made.place is not None
    copies, _ = open_copies(made.place, subtask=0, attempt=0)
    assert copies is not None
    with copies.beside(FILE.path) as stream:
        stream.write(DATA)
    copies.keep(3, [FileHandle(FILE.path, FILE.size, FILE.crc32)], [])
    return made


def copy(tmp_path: Path) -> Path:
    (found,) = tmp_path.glob(f"*/chk-3/{FILE.path}")
    return found


def test_on_one_host_the_driver_reads_the_copies(tmp_path: Path) -> None:
    made = stand_ins(tmp_path)
    assert made.replace(3, [FILE])
    assert not made.replace(2, [FILE])
    other = FileRecord("state-s1-a0-bb", 1, 1, subtask=1)
    assert not made.replace(3, [FILE, other])
    copy(tmp_path).write_bytes(b"stats")
    assert not made.replace(3, [FILE])


def test_on_other_hosts_slots_try_until_one_has_said_that_there_is_none(tmp_path: Path) -> None:
    made = stand_ins(tmp_path, one_host=False)
    copy(tmp_path).unlink()
    assert made.replace(3, [FILE])
    made.failed(StorageError("something else"), 3)
    assert made.replace(3, [FILE])
    made.failed(MissingCopyError("none here"), 3)
    assert not made.replace(3, [FILE])
    assert made.replace(4, [FILE])


def test_without_a_wish_for_copies_there_are_none(tmp_path: Path) -> None:
    assert not stand_ins(tmp_path, restore=False).replace(3, [FILE])
    off = StandIns(LocalRecovery(), one_host=True)
    off.keep(REF, metadata())
    assert off.place is None
    assert off.metadata(REF) is None
    assert not off.replace(3, [FILE])


def test_only_the_newest_metadata_of_a_checkpoint_is_kept(tmp_path: Path) -> None:
    made = stand_ins(tmp_path)
    older = CheckpointRef(2, f"{JOB}/chk-2")
    made.keep(older, metadata())
    made.keep(REF, metadata(FILE))
    made.keep(CheckpointRef(4, "memory://x/savepoint-1"), metadata())
    assert made.metadata(older) is None
    assert made.metadata(REF) == metadata(FILE)


@pytest.mark.parametrize("one_host", [True, False])
def test_nothing_stands_in_for_wrong_bytes_inside_the_metadata(
    tmp_path: Path, one_host: bool
) -> None:
    storage, made = MemoryStorage(), stand_ins(tmp_path, one_host=one_host)
    wrong = replace(FILE, data=b"stats")
    write_metadata(storage, REF.directory, metadata(wrong))
    (found,) = candidates(storage, [REF], copies=made)
    assert found.point is None
    assert "is not what was written" in found.problems[0]
