"""Jobs of a host as files: who is found, who is forgotten, who may read them."""

from __future__ import annotations

import os
import stat
import tempfile
import time

import pytest

from weir.errors import StorageError
from weir.jobmanager.announcement import refuse_twin
from weir.jobmanager.directory import ENDED_KEPT, JobEntry, entries, known, publish, running
from weir.jobmanager.settings import JobSettings
from weir.slot.spawn import default_logs
from weir.storage.processes import process_started


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def job(job_id, started_ms=1, **fields):
    known = {"pid": os.getpid(), "process": process_started(os.getpid()), **fields}
    return JobEntry(
        job_id=job_id, name="j", url="http://localhost:1", started_ms=started_ms, **known
    )


def test_running_jobs_are_found_newest_first_and_updated_in_place(run_dir):
    publish(job("a", 1))
    publish(job("b", 2))
    publish(job("a", 1, uses=("file:///s",)))
    assert [(e.job_id, e.uses) for e in running()] == [("b", ()), ("a", ("file:///s",))]
    publish(job("b", 2, status="FINISHED", savepoint="file:///x"))
    assert [e.job_id for e in running()] == ["a"]
    assert [(e.job_id, e.savepoint) for e in entries()] == [("b", "file:///x"), ("a", None)]


def test_a_job_whose_process_is_gone_does_not_run_and_is_still_known(run_dir):
    publish(job("a"))
    publish(job("b", process="1"))
    assert [e.job_id for e in entries()] == ["a"]
    assert sorted(e.job_id for e in known()) == ["a", "b"]


def test_only_the_last_ended_jobs_are_remembered(run_dir):
    for number in range(ENDED_KEPT + 3):
        publish(job(f"{number:02}", number, status="CANCELED"))
    assert [e.job_id for e in entries()][-1] == "03"
    assert len(list(run_dir.iterdir())) == ENDED_KEPT


def test_logs_of_jobs_that_are_long_forgotten_go_with_them(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logs, old = default_logs(), 1_000_000_000

    def logged(name, *, written):
        folder = logs / name
        folder.mkdir(parents=True)
        (folder / "slot-0-attempt-0.log").touch()
        for path in (folder / "slot-0-attempt-0.log", folder):
            os.utime(path, (written, written))

    logged("00", written=old)  # a job that is dropped now
    logged("gone", written=old)  # one that was dropped before
    logged("recent", written=time.time() - 3600)
    logged("05", written=old)  # ended, and still listed
    (logs / "link").symlink_to(run_dir)
    for number in range(ENDED_KEPT):
        publish(job(f"{number:02}", number, status="CANCELED"))
    known()
    assert len(list(logs.iterdir())) == 5, "nobody is dropped, so nothing is looked at"
    publish(job("99", 99, status="CANCELED"))
    known()
    assert sorted(path.name for path in logs.iterdir()) == ["05", "link", "recent"]


def test_nobody_else_can_read_the_files_and_broken_ones_are_passed_over(run_dir):
    publish(job("a", token="secret"))
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((run_dir / "a.json").stat().st_mode) == 0o600
    (run_dir / "b.json").write_text("{")
    (run_dir / "c.json").write_bytes(b'{"job_id":"\xff"}')
    (run_dir / "d.json").write_text('{"x":' + "[" * 100_000)
    assert [e.token for e in entries()] == ["secret"]


def test_a_directory_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "file" / "run"))
    with pytest.raises(StorageError, match="file/run"):
        publish(job("a"))
    assert entries() == []


def test_what_somebody_else_could_have_announced_is_not_read(run_dir):
    publish(job("a"))
    run_dir.chmod(0o770)
    for use in (entries, running, lambda: publish(job("b"))):
        with pytest.raises(StorageError, match=r"mode 0770.*set WEIR_RUN_DIR"):
            use()


def test_a_link_is_no_directory_of_jobs(tmp_path, run_dir):
    (tmp_path / "theirs").mkdir(mode=0o700)
    run_dir.symlink_to(tmp_path / "theirs")
    for use in (entries, lambda: publish(job("b"))):
        with pytest.raises(StorageError, match="it is a link"):
            use()
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_another_user_is_not_used_and_keeps_no_job_from_running(
    tmp_path, run_dir, caplog
):
    run_dir.mkdir(mode=0o755)
    os.chown(run_dir, 65534, 65534)
    for use in (entries, lambda: publish(job("b"))):
        with pytest.raises(StorageError, match="of user"):
            use()
    refuse_twin("payments", JobSettings(checkpoint_dir=str(tmp_path / "c")))
    assert "whether the job runs already is not known" in caplog.text


def test_the_usual_directory_is_narrowed(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_RUN_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"weir-jobs-{os.getuid()}"
    usual.mkdir(mode=0o755)
    publish(job("a"))
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700


def test_a_file_planted_under_the_name_of_an_update_is_not_written_through(run_dir, tmp_path):
    run_dir.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (run_dir / f".a.{os.getpid()}").symlink_to(victim)
    (run_dir / "a.json").symlink_to(victim)
    publish(job("a"))
    assert victim.read_text() == "mine"
    assert [e.job_id for e in entries()] == ["a"]
