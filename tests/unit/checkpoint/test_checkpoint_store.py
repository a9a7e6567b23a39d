"""A checkpoint exists if and only if its metadata is valid."""

from __future__ import annotations

import zlib

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord, encode_metadata
from weir.checkpoint.store import (
    list_completed,
    load_checkpoint,
    verify_files,
    write_metadata,
)
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.storage import AlreadyExistsError, MemoryStorage
from weir.testing.faulty_storage import CrashMoment, FaultPlan, FaultyStorage, SimulatedCrash


def metadata(checkpoint_id: int, *files: FileRecord) -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id, "job", "job", 0, "checkpoint", 0, files=files)


def test_directory_and_metadata_file_load_the_same() -> None:
    storage = MemoryStorage()
    write_metadata(storage, "job/chk-3", metadata(3))
    for path in ("job/chk-3", "job/chk-3/", "job/chk-3/_metadata"):
        assert load_checkpoint(storage, path) == metadata(3)


def test_metadata_at_the_root_of_a_storage_loads() -> None:
    storage = MemoryStorage()
    write_metadata(storage, "", metadata(3))
    assert load_checkpoint(storage, "_metadata") == metadata(3)
    assert load_checkpoint(storage, "") == metadata(3)


def test_a_checkpoint_is_completed_once() -> None:
    storage = MemoryStorage()
    write_metadata(storage, "job/chk-3", metadata(3))
    with pytest.raises(AlreadyExistsError):
        write_metadata(storage, "job/chk-3", metadata(3))


def test_a_directory_that_is_no_checkpoint_is_explained() -> None:
    storage = MemoryStorage()
    storage.create("job/chk-9/state-1", b"")
    storage.create("job/chk-10/state-1", b"")
    with pytest.raises(UsageError, match="expected a directory with a _metadata file"):
        load_checkpoint(storage, "nothing")
    with pytest.raises(UsageError, match="name one of them, such as chk-10"):
        load_checkpoint(storage, "job")
    with pytest.raises(UsageError, match=r"expected a _metadata file, found \['state-1'\]"):
        load_checkpoint(storage, "job/chk-9")


def test_damaged_metadata_is_named_with_its_storage() -> None:
    storage = MemoryStorage()
    storage.create("job/chk-3/_metadata", b"rubbish")
    with pytest.raises(CorruptStateError, match=rf"{storage.uri}/job/chk-3/_metadata"):
        load_checkpoint(storage, "job/chk-3")


def test_completed_checkpoints_are_listed_by_number_newest_first() -> None:
    storage = MemoryStorage()
    for number in (9, 10, 2):
        write_metadata(storage, f"job/chk-{number}", metadata(number))
    storage.create("job/chk-11/_metadata", encode_metadata(metadata(11))[:-1])
    storage.create("job/chk-12/state-1", b"")
    storage.create("job/shared/f", b"")
    found = list_completed(storage, "job")
    assert [c.metadata.checkpoint_id for c in found] == [10, 9, 2]
    assert [c.directory for c in found] == ["job/chk-10", "job/chk-9", "job/chk-2"]
    assert list_completed(storage, "unknown") == []


def test_a_newer_checkpoint_is_never_silently_passed_over() -> None:
    storage = MemoryStorage()
    write_metadata(storage, "job/chk-1", metadata(1))
    storage.create("job/chk-2/_metadata", b"weir-metadata 99 \n")
    with pytest.raises(IncompatibleStateError, match="chk-2"):
        list_completed(storage, "job")


def test_a_storage_that_refuses_to_read_is_not_taken_for_a_missing_checkpoint() -> None:
    storage = FaultyStorage(MemoryStorage())
    write_metadata(storage, "job/chk-1", metadata(1))
    storage.fail_next("read", times=2)
    with pytest.raises(StorageError):
        list_completed(storage, "job")
    with pytest.raises(StorageError):
        load_checkpoint(storage, "job/chk-1")


def test_verification_names_every_unsound_file() -> None:
    storage = MemoryStorage()
    good = b"x" * (5 << 20)
    for name, data in (("good", good), ("short", b"123"), ("flipped", b"1235")):
        storage.create(f"job/chk-1/{name}", data)
    storage.create("job/shared/base", b"shared")
    whole = metadata(
        1,
        FileRecord("good", len(good), zlib.crc32(good), 0),
        FileRecord("../shared/base", 6, zlib.crc32(b"shared"), 0),
    )
    broken = metadata(
        1,
        *whole.files,
        FileRecord("short", 4, zlib.crc32(b"1234"), 0),
        FileRecord("flipped", 4, zlib.crc32(b"1234"), 1),
        FileRecord("gone", 4, 0, 1),
    )
    assert verify_files(storage, "job/chk-1", whole) == []
    short, flipped, gone = verify_files(storage, "job/chk-1", broken)
    assert "job/chk-1/short' has 3 bytes, expected 4" in short
    assert "job/chk-1/flipped' has the checksum" in flipped
    assert "job/chk-1/gone' is missing" in gone


@pytest.mark.parametrize("moment", list(CrashMoment))
def test_a_crash_while_completing_leaves_a_complete_checkpoint_or_none(
    moment: CrashMoment,
) -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, FaultPlan(crash_at=1, moment=moment))
    with pytest.raises(SimulatedCrash):
        write_metadata(storage, "job/chk-1", metadata(1))
    completed = [c.metadata for c in list_completed(inner, "job")]
    assert completed == ([metadata(1)] if moment is CrashMoment.AFTER else [])
