"""Commands against running jobs: what they ask for, what they tell, how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from tests.cli.jobs import answer_later, invoke

from weir import errors
from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.store import write_metadata
from weir.jobmanager import directory
from weir.storage.local import LocalStorage
from weir.testing.manual_job import ManualJob, serve


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    """A JobManager for all tests: to close one takes half a second."""
    with serve(ManualJob("another"), tmp_path_factory.mktemp("run")) as server:
        yield server, directory.entries()[0]


@pytest.fixture
def job(tmp_path, manager, monkeypatch):
    server, known = manager
    job = ManualJob("payments")
    job.change(savepoint_dir="/default")
    server.register(job)
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    directory.publish(replace_entry(known, job_id=job.job_id, name="payments"))
    return job


# ---- list --------------------------------------------------------------------------------------


def test_a_list_has_the_running_jobs(job):
    result = invoke("list")
    assert result.exit_code == 0
    assert f"{job.job_id}  payments (RUNNING)" in result.stdout
    assert "ended" not in result.stdout


SHOWN = {
    (): {"RUNNING", "RESTARTING", "CREATED"},
    ("-r",): {"RUNNING", "RESTARTING"},
    ("--running",): {"RUNNING", "RESTARTING"},
    ("-s",): {"CREATED"},
    ("--scheduled",): {"CREATED"},
    ("-r", "-s"): {"RUNNING", "RESTARTING", "CREATED"},
    ("-a",): {"RUNNING", "RESTARTING", "CREATED", "FINISHED"},
    ("--all",): {"RUNNING", "RESTARTING", "CREATED", "FINISHED"},
}


@pytest.mark.parametrize("flags", SHOWN)
def test_flags_choose_jobs_by_status(job, flags):
    for status in ("RUNNING", "RESTARTING", "CREATED", "FINISHED"):
        job.change(status=status)
        found = json.loads(invoke("list", *flags, "--json").stdout)
        assert [one["status"] for one in found] == [status] * (status in SHOWN[flags])


def test_a_job_that_does_not_answer_is_listed_as_it_announced_itself(job):
    known = directory.entries()[0]
    directory.publish(replace_entry(known, url="http://127.0.0.1:1", status="RESTARTING"))
    assert json.loads(invoke("list", "--json").stdout)[0]["status"] == "RESTARTING"


def test_a_list_tells_programs_apart_by_their_files(job):
    directory.publish(replace_entry(directory.entries()[0], program="/apps/clicks.py"))
    assert invoke("list").stdout.splitlines()[1].endswith("(RUNNING)  clicks.py")
    assert json.loads(invoke("list", "--json").stdout)[0]["program"] == "/apps/clicks.py"


def replace_entry(entry, **changes):
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return directory.JobEntry(**{**fields, **changes})


# ---- savepoint and checkpoint ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "directory_", "form"),
    [
        ((), None, "CANONICAL"),
        (("/s",), "/s", "CANONICAL"),
        (("s3://b/s", "-type", "native"), "s3://b/s", "NATIVE"),
        (("/s", "--type", "NATIVE"), "/s", "NATIVE"),
        (("-t", "canonical", "/s"), "/s", "CANONICAL"),
    ],
)
def test_a_savepoint_is_asked_for_with_directory_and_format(job, words, directory_, form):
    result = invoke("savepoint", job.job_id, *words)
    assert result.exit_code == 0, result.stderr
    assert job.last.name == "savepoint"
    assert job.last.arguments == {"directory": directory_, "form": form}
    assert f"Path: {directory_ or '/default'}/savepoint-{job.job_id[:6]}-" in result.stdout
    assert "weir run -s" in result.stderr


def test_a_directory_is_meant_from_where_the_command_runs(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("savepoint", "payments", "here")
    assert job.last.arguments["directory"] == str(tmp_path / "here")


def test_the_result_as_json_is_alone_on_standard_output(job):
    result = invoke("savepoint", "payments", "/s", "--json")
    told = json.loads(result.stdout)
    assert told["job_id"] == job.job_id
    assert told["savepoint"] == job.last.future.result()


@pytest.mark.parametrize("flag", ["-detached", "--detached", "-dcp"])
def test_a_detached_savepoint_is_not_waited_for(job, flag):
    job.autocomplete = False
    result = invoke("savepoint", "payments", "/s", flag, "--json")
    told = json.loads(result.stdout)
    assert told["url"].endswith(f"/jobs/{job.job_id}/savepoints/{told['request_id']}")
    assert not job.last.future.done()
    assert "request-id" in invoke("savepoint", "payments", "/s", flag).stdout


def test_a_savepoint_that_takes_a_while_is_waited_for(job):
    job.autocomplete = False
    answer_later(job, "savepoint", "/s/savepoint-late")
    assert "Path: /s/savepoint-late\n" in invoke("savepoint", "payments", "/s").stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StorageError("the disk is full"), 5),
        (errors.JobExecutionError("a slot declined"), 1),
        (errors.IncompatibleStateError("not this one"), 3),
    ],
)
def test_why_a_savepoint_failed_is_told_and_in_the_exit_code(job, error, code):
    job.fail("savepoint", error)
    result = invoke("savepoint", "payments", "/s")
    assert result.exit_code == code
    assert f"weir: {error}\n" in result.stderr
    assert result.stdout == ""


def test_what_the_job_refuses_at_once_is_a_usage_error(job):
    job.refuse("savepoint", errors.UsageError("not while it restarts"))
    result = invoke("savepoint", "payments", "/s")
    assert result.exit_code == 2
    assert "not while it restarts" in result.stderr


@pytest.mark.parametrize("words", [(), ("JOB", "-d", "/s")])
def test_a_savepoint_needs_a_job_or_something_to_dispose_not_both(words):
    assert invoke("savepoint", *words).exit_code == 2


def a_savepoint(folder):
    directory_ = "savepoint-aaaaaa-0123456789ab"
    metadata = CheckpointMetadata(
        checkpoint_id=7,
        job_id="a" * 32,
        job_name="payments",
        timestamp_ms=0,
        kind="savepoint",
        epoch=3,
    )
    write_metadata(LocalStorage(str(folder)), directory_, metadata)
    return folder / directory_


def test_what_is_no_savepoint_is_not_disposed_of(tmp_path):
    result = invoke("savepoint", "-d", str(tmp_path))
    assert result.exit_code == 2
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize("flag", ["-d", "--dispose"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_savepoint_is_disposed_of_here_or_by_a_jobmanager(tmp_path, manager, flag, asked):
    there = ("-m", manager[0].url) if asked else ()
    owner = ManualJob("owner")
    owner.change(savepoint_dir=str(tmp_path))
    manager[0].register(owner)
    path = a_savepoint(tmp_path)
    result = invoke("savepoint", flag, str(path), "--json", *there)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {"disposed": str(path)}
    assert not path.exists()


@pytest.mark.parametrize(("flag", "full"), [((), False), (("-full",), True), (("--full",), True)])
def test_a_checkpoint_is_asked_for(job, flag, full):
    result = invoke("checkpoint", "payments", *flag)
    number = job.last.future.result()
    assert job.last.arguments == {"full": full}
    assert f"Checkpoint {number} of job {job.job_id} is complete" in result.stdout
    told = json.loads(invoke("checkpoint", "payments", "--json").stdout)
    assert told["checkpoint_id"] == job.last.future.result()


def test_why_a_checkpoint_failed_is_told(job):
    job.fail("checkpoint", errors.StorageError("the disk is full"))
    result = invoke("checkpoint", "payments")
    assert result.exit_code == 5
    assert "the disk is full" in result.stderr


# ---- stop, cancel, rescale ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ((), {"directory": None, "drain": False, "form": "CANONICAL"}),
        (("-p", "/s"), {"directory": "/s", "drain": False, "form": "CANONICAL"}),
        (("--savepointPath", "/s", "-d"), {"directory": "/s", "drain": True, "form": "CANONICAL"}),
        (("--drain", "-type", "native"), {"directory": None, "drain": True, "form": "NATIVE"}),
    ],
)
def test_stop_takes_a_savepoint_and_finishes_the_job(job, words, arguments):
    result = invoke("stop", *words, job.job_id)
    assert result.exit_code == 0, result.stderr
    assert (job.last.name, job.last.arguments) == ("stop", arguments)
    assert job.last.future.result() in result.stdout


def test_a_job_that_is_gone_before_it_could_answer_left_its_savepoint(tmp_path):
    job = ManualJob("payments", autocomplete=False)
    with serve(job, tmp_path) as server:
        entry = directory.entries()[0]

        def stop_for_good(directory_=None, **how):
            directory.publish(replace_entry(entry, status="FINISHED", savepoint="/s/last"))
            server._server.server_close()
            return ManualJob._called(job, "stop", None)

        job.stop = stop_for_good
        result = invoke("stop", "payments", "-p", "/s", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["savepoint"] == "/s/last"


def test_a_job_that_died_during_stop_is_no_success(tmp_path):
    job = ManualJob("payments", autocomplete=False)
    with serve(job, tmp_path) as server:
        entry = directory.entries()[0]

        def die(directory_=None, **how):
            directory.publish(replace_entry(entry, status="FAILED"))
            server._server.server_close()
            return ManualJob._called(job, "stop", None)

        job.stop = die
        result = invoke("stop", "payments", "-p", "/s")
    assert result.exit_code == 1
    assert "ended (FAILED) without one" in result.stderr


def test_a_job_whose_last_word_comes_late_is_waited_for(tmp_path):
    job = ManualJob("payments", autocomplete=False)
    with serve(job, tmp_path) as server:
        entry = directory.entries()[0]

        def stop_slowly(directory_=None, **how):
            late = replace_entry(entry, status="FINISHED", savepoint="/s/last")
            threading.Timer(0.2, directory.publish, [late]).start()
            server._server.server_close()
            return ManualJob._called(job, "stop", None)

        job.stop = stop_slowly
        result = invoke("stop", "payments", "-p", "/s")
    assert "Path: /s/last" in result.stdout


def test_cancel_ends_the_job(job):
    result = invoke("cancel", job.job_id)
    assert result.exit_code == 0, result.stderr
    assert [call.name for call in job.calls] == ["cancel"]
    assert "has ended: CANCELED" in result.stdout


@pytest.mark.parametrize(
    ("words", "directory_"),
    [
        (("-s", "/s", "payments"), "/s"),
        (("-s", "payments"), None),
        (("payments", "-s"), None),
        (("payments", "-s", "/s"), "/s"),
        (("payments", "--withSavepoint", "/s"), "/s"),
        (("--withSavepoint=/s", "payments"), "/s"),
        (("-s", "hdfs://n/s", "payments"), "hdfs://n/s"),
    ],
)
def test_cancel_with_savepoint_knows_the_directory_from_the_job(job, words, directory_):
    result = invoke("cancel", *words)
    assert result.exit_code == 0, result.stderr
    assert job.last.name == "cancel_with_savepoint"
    assert job.last.arguments["directory"] == directory_
    assert job.last.future.result() in result.stdout


def test_a_job_goes_on_when_the_savepoint_before_its_end_failed(job):
    job.fail("cancel_with_savepoint", errors.StorageError("the disk is full"))
    assert invoke("cancel", "-s", "payments").exit_code == 5
    assert [call.name for call in job.calls] == ["cancel_with_savepoint"]


def test_cancel_needs_a_job():
    assert "which job?" in invoke("cancel").stderr
    assert "which job?" in invoke("cancel", "-s").stderr


def test_rescale_asks_for_a_parallelism(job):
    result = invoke("rescale", "payments", "3")
    assert job.last.arguments == {"parallelism": 3}
    assert "goes on with parallelism 3" in result.stdout
    assert json.loads(invoke("rescale", "payments", "2", "--json").stdout)["parallelism"] == 2
    assert invoke("rescale", "payments", "0").exit_code == 2


def test_why_a_rescaling_failed_is_told(job):
    job.fail("rescale", errors.IncompatibleStateError("parallelism 9 is above 4"))
    result = invoke("rescale", "payments", "9")
    assert result.exit_code == 3
    assert "parallelism 9 is above 4" in result.stderr


# ---- in a process of its own -------------------------------------------------------------------


def command(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "weir.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_command_says_that_the_savepoint_goes_on(job):
    job.autocomplete = False
    process = command("savepoint", "payments", "/s")
    # The line says that the command waits; before it an interrupt would end it as any other.
    assert "was requested" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "goes on; look with: weir list" in err
    assert "Traceback" not in err


def test_a_long_savepoint_shows_how_far_it_is(job):
    from weir.jobmanager.history import CheckpointEntry, HistoryView, SubtaskEntry

    job.autocomplete = False
    entry = CheckpointEntry(7, 0, 3, is_savepoint=True, acks={0: SubtaskEntry(0, 1)})
    job.checkpoints = replace(HistoryView(), entries=(entry,))
    process = command("savepoint", "payments", "/s")
    assert "was requested" in process.stderr.readline()
    line = process.stderr.readline()
    job.last.future.set_result("/s/savepoint-1")
    out, _ = process.communicate(timeout=60)
    assert "under way: 1 of 3 subtasks are done (2 s)" in line
    assert "/s/savepoint-1" in out
