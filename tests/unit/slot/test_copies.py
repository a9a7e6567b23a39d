"""Which copy is read, which go, and how one is made: without a job."""

from __future__ import annotations

import zlib
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.ids import JobId
from weir.slot.copies import (
    Choice,
    FoundCopy,
    HostCopies,
    MissingCopyError,
    RestoreCopies,
    SlotCopies,
    Source,
    choose_source,
    new_copy_place,
    of_no_use,
    open_copies,
    remove_copies,
)
from weir.slot.files import SlotFiles, StoredFiles
from weir.snapshot import FileHandle
from weir.storage.memory import MemoryStorage

HANDLE = FileHandle("../shared/state-s0-a1-aa", 3, 7)
WHOLE = FoundCopy(Path("/a/x"), 3, 7)
CUT = FoundCopy(Path("/b/x"), 2, 7)
FLIPPED = FoundCopy(Path("/c/x"), 3, 8)


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(
    ("found", "copy", "ignored"),
    [
        ((), None, ()),
        ((WHOLE,), WHOLE, ()),
        ((CUT,), None, (CUT,)),
        ((FLIPPED, CUT), None, (FLIPPED, CUT)),
        ((CUT, WHOLE, FLIPPED), WHOLE, (CUT, FLIPPED)),
    ],
)
def test_a_copy_is_read_if_it_is_what_the_handle_says(found, copy, ignored, damaged):
    instead = Source.NOWHERE if damaged else Source.CHECKPOINT
    source = instead if copy is None else Source.COPY
    assert choose_source(HANDLE, found, damaged=damaged) == Choice(source, copy, ignored)


facts = st.builds(FoundCopy, st.just(Path("/x")), st.integers(2, 4), st.integers(6, 8))


@given(st.lists(facts, max_size=4), st.booleans())
def test_no_copy_is_ever_chosen_that_differs(found, damaged):
    choice = choose_source(HANDLE, found, damaged=damaged)
    assert (choice.source is Source.COPY) == (choice.copy is not None)
    if choice.copy is not None:
        assert (choice.copy.size, choice.copy.crc32) == (HANDLE.size, HANDLE.crc32)
    assert (choice.source is Source.CHECKPOINT) <= (not damaged)
    assert len(choice.ignored) == sum((c.size, c.crc32) != (3, 7) for c in found)


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("chk-4", True),
        ("chk-5", False),
        ("chk-6", False),
        ("chk-05", False),
        ("s0a2", True),
        ("s12a0", True),
        ("s0a3", False),
        ("s0a4", False),
        ("_owner", False),
        ("notes", False),
    ],
)
def test_older_checkpoints_and_attempts_go_and_nothing_else(name, goes):
    assert of_no_use([name], completed=5, attempt=3) == ([name] if goes else [])


def copies(root, subtask=0, attempt=1):
    return SlotCopies([root], subtask=subtask, attempt=attempt)


def names(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def write(made, name, data=b"abc", local=None):
    with made.beside(name, local) as stream:
        stream.write(data)
    return FileHandle(f"../shared/{name}", len(data), zlib.crc32(data))


def test_a_file_that_several_checkpoints_use_goes_with_the_last_of_them(tmp_path):
    made = copies(tmp_path)
    shared, own = write(made, "state-shared"), write(made, "state-1")
    made.keep(1, [own, shared], [own, shared])
    made.completed(1)
    assert names(tmp_path) == ["chk-1/state-1", "chk-1/state-shared"]
    own = write(made, "state-2")
    made.keep(2, [own, shared], [own])
    made.completed(2)
    assert names(tmp_path) == ["chk-2/state-2", "chk-2/state-shared"]
    own = write(made, "state-3")
    made.keep(3, [own], [own])
    made.aborted(3)
    assert names(tmp_path) == ["chk-2/state-2", "chk-2/state-shared"]


def test_a_file_that_is_no_checkpoints_own_outlives_one_that_is_aborted(tmp_path):
    made = copies(tmp_path)
    segment, own = write(made, "state-log"), write(made, "state-1")
    made.keep(1, [own, segment], [own])
    made.aborted(1)
    assert names(tmp_path) == ["s0a1/state-log"]
    made.keep(2, [segment], [])
    made.completed(2)
    assert names(tmp_path) == ["chk-2/state-log"]


def test_a_checkpoint_that_was_aborted_before_it_was_written_keeps_nothing(tmp_path):
    made = copies(tmp_path)
    made.aborted(1)
    own = write(made, "state-1")
    made.keep(1, [own], [own])
    assert names(tmp_path) == []


def test_slots_of_one_host_keep_copies_together_and_the_next_attempt_goes_on(tmp_path):
    first, second = copies(tmp_path, 0), copies(tmp_path, 1)
    a, b = write(first, "state-a"), write(second, "state-b")
    first.keep(1, [a], [a])
    second.keep(1, [b], [b])
    write(first, "state-left")
    later = copies(tmp_path, 0, attempt=2)
    own = write(later, "state-c")
    later.keep(2, [own, a, b, FileHandle("../shared/elsewhere", 1, 1)], [own])
    later.completed(2)
    assert names(tmp_path) == ["chk-2/state-a", "chk-2/state-b", "chk-2/state-c"]


def test_a_local_file_gets_another_name_and_a_failure_leaves_nothing(tmp_path):
    local = tmp_path / "000007.sst"
    local.write_bytes(b"abc")
    made = copies(tmp_path / "root")
    (tmp_path / "root").mkdir()
    write(made, "state-sst", local=local)
    assert (tmp_path / "root/s0a1/state-sst").samefile(local)
    with pytest.raises(ZeroDivisionError), made.beside("state-other", local):
        raise ZeroDivisionError
    assert names(tmp_path / "root") == ["s0a1/state-sst"]
    assert local.read_bytes() == b"abc"


def test_no_copy_is_left_of_a_file_that_could_not_be_made_durable(tmp_path):
    storage = MemoryStorage()
    files = SlotFiles(storage, JobId("job"), 0, 1, copies=copies(tmp_path))
    taken = "job/shared/state-taken"
    storage.create(taken, b"there")
    with pytest.raises(Exception, match="exists"), ExitStack() as stack:
        files.create(stack, taken).write(b"abc")
    assert names(tmp_path) == []


def test_what_is_deleted_has_no_copy(tmp_path):
    files = SlotFiles(MemoryStorage(), JobId("job"), 0, 1, copies=copies(tmp_path))
    shared = files.shared("op")
    handle = shared.write(lambda writer: {})
    assert len(names(tmp_path)) == 1
    shared.delete(handle)
    assert names(tmp_path) == []


def test_a_savepoint_has_no_copies(tmp_path):
    files = SlotFiles(MemoryStorage(), JobId("job"), 0, 1, copies=copies(tmp_path))
    savepoint, path = files.at("memory://copies-test/savepoint-1")
    savepoint.write(path, "", lambda writer: {"operators": {}})
    assert names(tmp_path) == []


def test_every_flipped_bit_of_a_copy_is_found(tmp_path, caplog):
    storage, made = MemoryStorage(), copies(tmp_path)
    files = SlotFiles(storage, JobId("job"), 0, 1, copies=made)
    handle = files.write("job/chk-1", "", lambda writer: {"operators": {}})
    made.keep(1, [handle], [handle])
    (copy,) = (tmp_path / "chk-1").iterdir()
    data = copy.read_bytes()
    host = HostCopies([tmp_path])
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        copy.write_bytes(flipped)
        assert RestoreCopies(host, 1).of(handle, "own") is None
        with pytest.raises(MissingCopyError):
            RestoreCopies(host, 1, frozenset({handle.path})).of(handle, "own")
    copy.write_bytes(data)
    assert RestoreCopies(host, 1).of(handle, "own") == copy


def test_readers_and_downloads_take_the_copy(tmp_path):
    storage, made = MemoryStorage(), copies(tmp_path)
    files = SlotFiles(storage, JobId("job"), 0, 1, copies=made)
    handle = files.write("job/chk-1", "", lambda writer: {"operators": {"op": {}}})
    made.keep(1, [handle], [handle])
    storage.delete_tree("job")
    damaged = frozenset({handle.path})
    stored = StoredFiles(
        storage, "job/chk-1", "job", RestoreCopies(HostCopies([tmp_path]), 1, damaged)
    )
    assert stored.reader(handle).footer == {"operators": {"op": {}}}
    stored.download(handle, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == next((tmp_path / "chk-1").iterdir()).read_bytes()


def test_directories_of_one_job_are_found_again_and_removed(tmp_path):
    place = new_copy_place([str(tmp_path / "a"), str(tmp_path / "b")], restore=True)
    for subtask in range(3):
        made, _ = open_copies(place, subtask=subtask, attempt=0)
        own = write(made, f"state-{subtask}")
        made.keep(1, [own], [own])
    _, host = open_copies(place, subtask=0, attempt=1)
    assert [len(host.find(1, f"state-{n}")) for n in range(4)] == [1, 1, 1, 0]
    assert len(HostCopies.there(place).find(1, "state-1")) == 1
    remove_copies(place)
    assert names(tmp_path) == []
    assert HostCopies.there(place).find(1, "state-1") == []
