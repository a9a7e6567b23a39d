"""A job's directories: where they are for every kind of checkpoint directory, and when they go."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from weir.errors import UsageError
from weir.ids import JobId
from weir.jobmanager.settings import JobSettings
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
