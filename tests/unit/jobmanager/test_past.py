"""What remains of jobs: everything that could be seen, with what directories say about it since."""

from __future__ import annotations

import os
import stat

import pytest
from tests.unit.rest.samples import JOB_ID, START, sample_job

from weir.errors import UsageError
from weir.jobmanager.directory import ENDED_KEPT, JobEntry, entries, known, past_file, publish
from weir.jobmanager.past import (
    FoundCheckpoint,
    PastJob,
    keep,
    read_record,
    record_of,
    with_found,
    write_record,
)
from weir.jobmanager.timeline import Event, Point, SlotPoint, TimelineView
from weir.storage.processes import process_started


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def entry(job_id=JOB_ID, **fields):
    known = {"pid": os.getpid(), "process": process_started(os.getpid()), "started_ms": START}
    return JobEntry(job_id=job_id, name="words", url="http://localhost:1", **{**known, **fields})


def test_a_job_is_read_as_it_was_written(run_dir):
    job = sample_job()
    job.times = TimelineView(
        recent=(Point(2_000, 1_000, 5, slots=(SlotPoint(0, 1, 0.5, 0.25),)),),
        events=(Event(2_000, "restart", "attempt 1: broken"),),
    )
    record = record_of(job, run_dir / "logs")
    write_record(record)
    read = read_record(entry())
    assert read == record
    assert read.view.vertices[1].states == job.view().vertices[1].states
    assert stat.S_IMODE(past_file(run_dir, JOB_ID).stat().st_mode) == 0o600


def test_what_nobody_can_read_leaves_a_bare_record(run_dir):
    publish(entry())
    for data in (None, b"{", b"[]", b'{"version": 99}', b"\xff"):
        if data is not None:
            past_file(run_dir, JOB_ID).write_bytes(data)
        record = read_record(entry())
        assert (record.view.name, record.history.entries) == ("words", ())


def test_a_job_that_said_how_it_ended_has_that_status():
    record = record_of(sample_job())
    job = PastJob(entry(status="FINISHED", ended_ms=START + 70_000), record)
    view = job.view()
    assert (view.status, view.end_ms, view.slots) == ("FINISHED", START + 70_000, ())
    assert len(view.exceptions) == 1


def test_a_job_whose_process_is_gone_has_failed_and_says_so():
    job = PastJob(entry(process="1"), record_of(sample_job()))
    view = job.view()
    assert (view.status, view.end_ms) == ("FAILED", START + 60_000)
    assert "is gone" in view.exceptions[-1].message


def test_a_savepoint_is_missed_only_where_somebody_looked():
    history = sample_job().history()
    savepoint = next(e for e in history.entries if e.is_savepoint and e.path is not None)
    place = str(savepoint.path).rpartition("/")[0]
    for looked, gone in (((), False), (("file:///elsewhere",), False), ((place,), True)):
        seen = with_found(history, [], looked).find(savepoint.checkpoint_id)
        assert seen is not None
        assert seen.discarded is gone


def test_checkpoints_in_directories_are_added_and_missed_ones_are_marked():
    history = sample_job().history()
    found = [
        FoundCheckpoint(7, START + 9_000, False, "file:///checkpoints/chk-7", 10),
        FoundCheckpoint(2, START + 3_000, True, history.entries[2].path or "", 10),
    ]
    seen = with_found(history, found)
    assert [(e.checkpoint_id, e.status, e.discarded) for e in seen.entries] == [
        (7, "COMPLETED", False),
        (4, "FAILED", False),
        (3, "FAILED", False),
        (2, "COMPLETED", False),
        (1, "COMPLETED", True),
    ]
    assert seen.completed == history.completed + 1


def test_a_savepoint_that_lies_elsewhere_is_not_called_deleted():
    seen = with_found(sample_job().history(), [])
    assert [e.discarded for e in seen.entries if e.is_savepoint] == [False]


@pytest.mark.parametrize(
    "ask",
    [
        lambda job: job.savepoint(),
        lambda job: job.stop(),
        lambda job: job.cancel_with_savepoint(),
        lambda job: job.checkpoint(),
        lambda job: job.cancel(),
        lambda job: job.rescale(2),
    ],
)
def test_nothing_can_be_asked_of_it(ask):
    job = PastJob(entry(status="CANCELED"), record_of(sample_job()))
    with pytest.raises(UsageError, match="has ended"):
        ask(job).result(0)


def test_a_dead_job_is_known_until_newer_ones_push_it_out(run_dir):
    publish(entry("a", process="1", started_ms=1))
    keep(sample_job())
    assert entries() == []
    assert [e.job_id for e in known()] == ["a"]
    for number in range(ENDED_KEPT):
        publish(entry(f"{number:02}", started_ms=2 + number, status="FINISHED"))
    past_file(run_dir, "a").write_bytes(b"")
    assert "a" not in [e.job_id for e in known()]
    assert not past_file(run_dir, "a").exists()


def test_a_job_that_cannot_be_written_down_goes_on(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "file" / "run"))
    keep(sample_job())
    assert "file/run" in caplog.text
