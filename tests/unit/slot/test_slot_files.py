"""Files of a slot: in the message up to a size, on the storage beyond, refused without one."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from weir.checkpoint.paths import data_file_attempt
from weir.errors import CorruptStateError, StorageError
from weir.ids import JobId
from weir.slot.files import SlotFiles, StoredFiles
from weir.snapshot import FileHandle
from weir.storage.memory import MemoryStorage

JOB = JobId("0123456789abcdef0123456789abcdef")


def slot(storage, **options):
    return SlotFiles(storage, JOB, 1, 2, **options)


def local_file(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "local"
    path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    return path


def fill(size):
    def write(writer):
        writer.section(b"v" * size)
        return {}

    return write


@pytest.mark.parametrize(("size", "inline"), [(1000, True), (1001, False)])
def test_a_local_file_travels_in_its_handle_up_to_the_threshold(tmp_path, size, inline):
    storage = MemoryStorage()
    handle = slot(storage, inline_bytes=1000).shared("op").upload(local_file(tmp_path, size))
    assert (handle.data is not None) is inline
    assert storage.list(f"{JOB}/shared") == ([] if inline else [handle.path.split("/")[-1]])
    target = tmp_path / "back"
    StoredFiles(storage, f"{JOB}/chk-1").download(handle, target)
    assert target.read_bytes() == (tmp_path / "local").read_bytes()


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_snapshot_file_reads_the_same_wherever_it_is(size):
    storage = MemoryStorage()
    for threshold in (0, 1 << 20):
        handle = slot(storage, inline_bytes=threshold).shared("op").write(fill(size))
        reader = StoredFiles(storage, f"{JOB}/chk-7").reader(handle)
        assert reader.footer == {"operators": {"op": {"keyed": {}, "operator": {}}}}
        assert (handle.data is None) is (threshold == 0)


def test_without_a_storage_state_beyond_the_limit_is_refused_with_both_sizes(tmp_path):
    files = slot(MemoryStorage(), inline_bytes=500, in_memory=True).shared("op")
    with pytest.raises(
        StorageError, match=r"501 bytes.*at most 500.*execution\.checkpointing\.dir"
    ):
        files.upload(local_file(tmp_path, 501))
    with pytest.raises(StorageError, match="at most 500"):
        files.write(fill(501))
    assert files.upload(local_file(tmp_path, 500)).data is not None


def test_names_tell_the_attempt_that_made_a_file():
    storage = MemoryStorage()
    name = slot(storage).shared("op").write(fill(1)).path.split("/")[-1]
    assert data_file_attempt(name) == 2
    assert data_file_attempt("readme") is None
    assert data_file_attempt("state-s1-aX-00") is None


def test_a_file_kept_in_the_message_is_never_looked_for_on_the_storage():
    storage = MemoryStorage()
    storage.create(f"{JOB}/shared/x", b"somebody else's")
    handle = FileHandle("../shared/x", 1, zlib.crc32(b"a"), b"a")
    slot(storage).shared("op").delete(handle)
    assert storage.exists(f"{JOB}/shared/x")


def test_a_downloaded_file_that_is_not_what_was_written_is_refused(tmp_path):
    storage = MemoryStorage()
    storage.create(f"{JOB}/shared/x", b"abc")
    handle = FileHandle("../shared/x", 3, zlib.crc32(b"abd"))
    stored = StoredFiles(storage, f"{JOB}/chk-1")
    with pytest.raises(CorruptStateError, match="shared/x"):
        stored.download(handle, tmp_path / "x")


def test_a_file_that_a_host_does_not_see_may_be_seen_later(tmp_path):
    stored = StoredFiles(MemoryStorage(), f"{JOB}/chk-1")
    with pytest.raises(StorageError, match="missing on this host"):
        stored.download(FileHandle("../shared/y", 3, 0), tmp_path / "y")


def test_a_handle_of_another_job_becomes_one_that_holds_in_this_job():
    handle = FileHandle("../shared/x", 1, 2)
    stored = StoredFiles(MemoryStorage(), "older/chk-3", JOB)
    assert stored.lasting(handle).path == "../../older/shared/x"
    assert StoredFiles(MemoryStorage(), f"{JOB}/chk-3", JOB).lasting(handle) == handle
    inherited = FileHandle("../../oldest/shared/x", 1, 2)
    assert stored.lasting(inherited) == inherited
