"""Wrong paths, damaged savepoints, storages that refuse: a clear message, and the job goes on.

Wherever a write fails, nothing of it remains: no half file under any name, hidden or not.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.harness.full_disk import KINDS
from tests.unit.offline.samples import SAVEPOINT, job

from weir.checkpoint.store import list_completed, verify_files
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    JobExecutionError,
    StorageError,
    UsageError,
)
from weir.jobmanager.recovery import load_restore_point
from weir.storage.local import LocalStorage

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def savepoint(tmp_path):
    """A savepoint of a job, at a place of its own."""
    harness = job(tmp_path / "checkpoints")
    asked = harness.runner.savepoint(f"file://{tmp_path}/savepoints/{SAVEPOINT}")
    harness.run_epoch(take=6)
    harness.end_slots()
    assert asked.exception(timeout=0) is None
    return tmp_path / "savepoints" / SAVEPOINT


def every_file(root):
    return sorted(p.relative_to(root).as_posix() for p in Path(root).rglob("*") if p.is_file())


@contextmanager
def files_of_at_most(size):
    """Let no file of this process grow beyond a size: writes behind it fail half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- what a job is to start from ---------------------------------------------------------------


def test_a_savepoint_is_loaded_by_its_directory_and_by_its_metadata(savepoint):
    for spelling in (savepoint, savepoint / "_metadata", f"file://{savepoint}/"):
        assert load_restore_point(str(spelling)).metadata.kind == "savepoint"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("unknown", "found nothing"),
        ("empty", "found nothing"),
        ("a-file", "found a file"),
        ("a-file/below", "found nothing"),
        ("chk-7", r"found \['state-s0-a0-01'\]"),
        ("savepoints", f"such as {SAVEPOINT}"),
        ("jobs", "such as chk-7"),
    ],
)
def test_a_path_that_is_no_savepoint_is_refused_with_what_is_there(savepoint, path, found):
    root = savepoint.parents[1]
    (root / "empty").mkdir()
    (root / "a-file").write_text("text")
    for half in (root / "chk-7", root / "jobs" / "chk-7"):
        half.mkdir(parents=True)
        (half / "state-s0-a0-01").write_text("never completed")
    with pytest.raises(UsageError, match=f"no checkpoint or savepoint at .*{path}.*{found}"):
        load_restore_point(str(root / path))


def test_a_savepoint_of_a_newer_format_is_refused_with_both_versions(savepoint):
    file = savepoint / "_metadata"
    file.write_bytes(file.read_bytes().replace(b"weir-metadata 4", b"weir-metadata 5", 1))
    with pytest.raises(IncompatibleStateError, match=r"its format is 5.*reads up to 4.*upgrade"):
        load_restore_point(str(savepoint))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:11],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + b"]",
        lambda data: data.replace(b'"epoch":1', b'"epoch":2'),
        lambda data: data + b" ",
    ],
    ids=["empty", "header cut", "body cut", "last byte", "a number", "longer"],
)
def test_metadata_that_was_cut_or_altered_is_refused_by_name(savepoint, damage):
    file = savepoint / "_metadata"
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert file.read_bytes() != before
    with pytest.raises(CorruptStateError, match=r"_metadata' is damaged"):
        load_restore_point(str(savepoint))


@pytest.mark.parametrize("damage", ["missing", "cut", "altered"])
def test_a_savepoint_whose_state_is_not_whole_is_refused_with_the_files_name(savepoint, damage):
    file = next(savepoint.glob("state-s1*"))
    data = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(data[:-1] if damage == "cut" else data[:50] + b"!" + data[51:])
    with pytest.raises(CorruptStateError, match=file.name):
        load_restore_point(str(savepoint))


# ---- storages that refuse ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [10_000, 1 << 20])
def test_a_write_that_fails_half_way_leaves_nothing_and_can_be_repeated(tmp_path, size):
    storage = LocalStorage(str(tmp_path))
    with (
        files_of_at_most(4096),
        pytest.raises(StorageError, match=r"cannot write '.*/d/file': File too large"),
    ):
        storage.create("d/file", bytes(size))
    assert every_file(tmp_path) == []
    storage.create("d/file", bytes(size))
    assert storage.size("d/file") == size


def test_a_stream_that_fails_at_its_end_leaves_nothing(tmp_path):
    storage = LocalStorage(str(tmp_path))
    with (  # noqa: PT012 - the last write is the one that fails, when the block ends
        files_of_at_most(4096),
        pytest.raises(StorageError, match="File too large"),
        storage.open_write("d/file") as out,
    ):
        out.write(bytes(4096))
        out.write(b"one more")
    assert every_file(tmp_path) == []


@pytest.mark.parametrize("kind", ["hashmap", "hashmap-incremental", "hashmap-changelog"])
def test_a_failed_upload_declines_the_checkpoint_and_the_job_goes_on(tmp_path, kind, caplog):
    harness = job(tmp_path, kind, wait_for_checkpoints=True)
    harness.run_epoch(take=6, checkpoint=True)
    before = every_file(tmp_path)
    with files_of_at_most(200):
        harness.run_epoch(take=6, checkpoint=True)
    assert "checkpoint 2 declined: StorageError: cannot write" in caplog.text
    assert (harness.runner.history.view().completed, harness.runner.history.view().failed) == (1, 1)
    assert every_file(tmp_path) == before
    assert not list(tmp_path.glob("*/chk-2"))
    harness.run_epoch(take=6, checkpoint=True)
    assert harness.runner.history.view().completed == 2
    storage = LocalStorage(str(tmp_path))
    for stored in list_completed(storage, harness.job_id):
        assert verify_files(storage, stored.directory, stored.metadata) == []
    harness.kill_slot(1)
    harness.fail_over()
    assert sorted(harness.run().collected()) == list(range(1, 61))


def test_a_savepoint_directory_that_cannot_be_written_fails_the_savepoint_alone(tmp_path):
    (tmp_path / "occupied").write_text("a regular file")
    harness = job(tmp_path / "checkpoints", tolerable=1, wait_for_checkpoints=True)
    harness.run_epoch(take=6, checkpoint=True)
    before = every_file(tmp_path)
    asked = harness.runner.savepoint(f"file://{tmp_path}/occupied/{SAVEPOINT}")
    harness.run_epoch(take=6)
    refused = asked.exception(timeout=0)
    assert isinstance(refused, JobExecutionError)
    assert f"{tmp_path}/occupied/{SAVEPOINT}/" in str(refused)
    assert "a file stands where a directory is needed" in str(refused)
    assert every_file(tmp_path) == before
    assert sorted(harness.run().collected()) == list(range(1, 61))
    assert (tmp_path / "occupied").read_text() == "a regular file"


@pytest.mark.slow
def test_nothing_half_written_remains_on_a_disk_that_is_really_full(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare on this system")
    command = [unshare, "--user", "--map-root-user", "--mount"]
    command += [sys.executable, "-m", "tests.harness.full_disk", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system of our own: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{kind} survived" for kind in KINDS]
