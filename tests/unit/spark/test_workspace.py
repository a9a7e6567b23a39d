"""A job's directories: where they are for every kind of checkpoint directory, and when they go."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from weir.checkpoint.retention import JobEnd
from weir.errors import StorageError, UsageError
from weir.ids import JobId
from weir.jobmanager.owner import OWNER_NAME
from weir.jobmanager.settings import JobSettings
from weir.spark.session import _socket_dir
from weir.spark.workspace import Workspace
from weir.storage import LocalStorage

JOB = JobId("0123456789abcdef0123456789abcdef")


def test_a_local_checkpoint_directory_holds_everything(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    made = Workspace(JOB, JobSettings(checkpoint_dir=f"file:{root}"))
    assert made.job_dir == root / JOB
    assert made.storage == LocalStorage(str(root))


def test_without_a_checkpoint_directory_all_goes_with_the_job() -> None:
    made = Workspace(JOB, JobSettings())
    made.storage.create(f"{JOB}/chk-1/_metadata", b"")
    made.remove_job_dir()
    assert not made.root.exists()


def test_a_remote_checkpoint_directory_leaves_files_in_a_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Workspace(JOB, JobSettings(checkpoint_dir="hdfs://nowhere/checkpoints"))
    assert made.storage_uri == "hdfs://nowhere/checkpoints"
    assert made.job_dir.is_relative_to(tmp_path)
    assert made.query_dir(0).parent == made.job_dir


def test_a_work_directory_is_kept_while_checkpoints_are(tmp_path: Path) -> None:
    settings = JobSettings(checkpoint_dir=str(tmp_path / "c"), work_dir=str(tmp_path / "w"))
    made = Workspace(JOB, settings)
    made.storage.create(f"{JOB}/chk-3/_metadata", b"")
    made.remove_job_dir()
    assert made.job_dir == tmp_path / "w" / JOB
    assert made.job_dir.is_dir()
    made.storage.delete(f"{JOB}/chk-3/_metadata")
    made.remove_job_dir()
    assert not made.job_dir.exists()
    assert made.storage.list() == []


@pytest.mark.parametrize(
    "settings",
    [JobSettings(checkpoint_dir="memory://x"), JobSettings(work_dir="s3://bucket/x")],
    ids=["memory for checkpoints", "a bucket for files"],
)
def test_places_that_slots_cannot_use_are_refused(settings: JobSettings) -> None:
    with pytest.raises(UsageError):
        Workspace(JOB, settings)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a temporary directory of the host that nobody else uses; its path is short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


REMOTE = JobSettings(checkpoint_dir="hdfs://nowhere/checkpoints")


def test_the_usual_work_directory_is_only_this_users(shared: Path) -> None:
    Workspace(JOB, REMOTE)
    (usual,) = shared.glob("weir-work-*")
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700


@pytest.mark.parametrize("plant", ["link", "open", "theirs"])
def test_a_work_directory_that_somebody_else_made_is_refused(shared: Path, plant: str) -> None:
    usual = shared / f"weir-work-{os.getuid()}"
    if plant == "link":
        (shared / "other").mkdir()
        usual.symlink_to(shared / "other")
    else:
        usual.mkdir()
        usual.chmod(0o775 if plant == "open" else 0o700)
    if plant == "theirs":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(usual, 65534, 65534)
    with pytest.raises(StorageError, match=r"weir-work-.*weir\.work-dir"):
        Workspace(JOB, REMOTE)


def test_sockets_have_a_new_directory_that_nobody_could_foresee(shared: Path) -> None:
    made, other = (Workspace(JOB, JobSettings(work_dir=str(shared / "w"))) for _ in range(2))
    assert made.socket_dir != other.socket_dir
    assert JOB[:6] not in made.socket_dir.name
    assert stat.S_IMODE(made.socket_dir.stat().st_mode) == 0o700


@pytest.mark.slow
def test_all_that_a_killed_driver_left_goes_with_the_next_job(shared: Path) -> None:
    code = (
        "import os, signal; from weir.spark.workspace import Workspace\n"
        "from weir.jobmanager.settings import JobSettings\n"
        "from weir.spark.session import _socket_dir\n"
        f"made = Workspace({str(JOB)!r}, JobSettings()); _socket_dir()\n"
        "(made.socket_dir / 's0a0').touch()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(shared)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    left = set(shared.iterdir())
    assert {p.name[: p.name.rindex("-")] for p in left} == {"weir-job", "weir-slots", "weir-spark"}
    Workspace(JOB, JobSettings())
    _socket_dir()
    assert left.isdisjoint(shared.iterdir())


OPEN = [
    (0o777, "everybody can write to it"),
    (0o775, "the group 54321 can write to it"),
    (0o1777, None),
    (0o755, None),
]


@pytest.mark.parametrize("kind", ["checkpoint", "work"])
@pytest.mark.parametrize(("mode", "wrong"), OPEN)
def test_a_directory_that_others_can_write_to_is_refused_unless_it_is_trusted(
    tmp_path: Path, mode: int, wrong: str | None, kind: str
) -> None:
    root, other = tmp_path / kind, tmp_path / "other"
    root.mkdir()
    if mode == 0o775:
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(root, -1, 54_321)
    root.chmod(mode)
    work, checkpoints = (root, other) if kind == "work" else (other, root)
    settings = JobSettings(checkpoint_dir=str(checkpoints), work_dir=str(work))
    if wrong is not None:
        with pytest.raises(UsageError, match=rf"{kind} directory '.*{wrong}.*foreign-files"):
            Workspace(JOB, settings)
        assert not list(tmp_path.rglob(JOB))
    Workspace(JOB, replace(settings, trust_foreign_files=wrong is not None))


def test_a_directory_that_everybody_may_write_to_when_it_is_made_is_refused(
    tmp_path: Path,
) -> None:
    settings = JobSettings(checkpoint_dir=str(tmp_path / "c"))
    before = os.umask(0)
    try:
        with pytest.raises(UsageError, match="c' has mode 0777"):
            Workspace(JOB, settings)
    finally:
        os.umask(before)


def queries(made: Workspace) -> list[int]:
    return sorted(int(p.name.removeprefix("query-")) for p in made.job_dir.glob("query-*"))


def test_directories_of_earlier_queries_go_once_no_checkpoint_needs_them(tmp_path: Path) -> None:
    made = Workspace(JOB, JobSettings(checkpoint_dir=str(tmp_path)))

    def begin(attempt: int) -> None:
        (made.query_dir(attempt) / "offsets").mkdir(parents=True)

    begin(0)
    made.completed(0, [1])
    made.completed(0, [2, 3])
    begin(1)
    assert queries(made) == [0, 1]
    made.completed(1, [2, 3])
    assert queries(made) == [0, 1], "the attempt has no checkpoint of its own yet"
    begin(2)
    made.completed(2, [3, 4])
    assert queries(made) == [0, 2], "checkpoint 3 was taken in attempt 0"
    made.completed(2, [4, 5])
    assert queries(made) == [2]


def test_without_checkpoints_the_query_that_runs_is_the_only_one(tmp_path: Path) -> None:
    made = Workspace(JOB, JobSettings(checkpoint_dir=str(tmp_path)))
    for attempt in range(3):
        made.query_dir(attempt).mkdir()
    (made.job_dir / "query-x").mkdir()
    made.remove_queries(2)
    assert sorted(p.name for p in made.job_dir.iterdir()) == ["query-2", "query-x"]


def test_a_job_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    made = Workspace(JOB, JobSettings(checkpoint_dir=str(tmp_path)))
    made.job_dir.rmdir()
    with pytest.raises(StorageError, match=r"No such file or directory \(.*_owner\)"):
        made.enter("job")


def test_a_note_that_cannot_be_removed_does_not_hide_how_the_job_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Workspace(JOB, JobSettings(checkpoint_dir=str(tmp_path)))
    (made.job_dir / OWNER_NAME).mkdir()
    made.leave(JobEnd.FAILED)
    assert "the note of the job's owner stays" in caplog.text
    assert not made.job_dir.exists()
