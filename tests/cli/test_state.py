"""`weir state`: what it lists, what it shows, and how it says no."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner
from tests.unit.offline.samples import SAVEPOINT, job, take_savepoint

from weir.checkpoint.store import load_checkpoint, write_metadata
from weir.cli.main import cli
from weir.cli.state_text import place, size_text
from weir.config import ambient
from weir.jobmanager.directory import JobEntry, publish
from weir.storage.local import LocalStorage
from weir.storage.processes import process_started


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("WEIR_CONF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def root(tmp_path):
    """A job with two checkpoints and a savepoint."""
    harness = job(tmp_path / "state", "hashmap-incremental")
    for _ in range(2):
        harness.run_epoch(take=6, checkpoint=True)
    take_savepoint(harness)
    harness.end_slots()
    return tmp_path / "state"


def invoke(*arguments):
    return CliRunner().invoke(cli, ["state", *map(str, arguments)])


def newest_of(root):
    return next(p for p in root.glob("*/chk-2"))


def test_ls_shows_a_line_for_each_with_a_path_that_show_takes(root):
    result = invoke("ls", root)
    assert result.exit_code == 0
    head, *lines = result.output.splitlines()
    assert head.split() == ["taken", "kind", "id", "job", "size", "path"]
    assert [line.split()[2:4] for line in lines] == [
        ["savepoint", "3"],
        ["checkpoint", "2"],
        ["checkpoint", "1"],
    ]
    for line in lines:
        assert invoke("show", line.split()[-1]).exit_code == 0


def test_ls_tells_json(root):
    found = json.loads(invoke("ls", root, "--json").output)
    assert [(s["kind"], s["checkpoint_id"], s["problem"]) for s in found] == [
        ("savepoint", 3, None),
        ("checkpoint", 2, None),
        ("checkpoint", 1, None),
    ]


def test_ls_names_what_it_cannot_read(root):
    (root / SAVEPOINT / "_metadata").unlink()
    lines = invoke("ls", root).output.splitlines()
    assert lines[-1].startswith(f"unreadable: {root}/{SAVEPOINT}: it has no _metadata")


def test_ls_without_a_directory_takes_the_configured_ones(root, tmp_path):
    (tmp_path / ambient.FILE_NAME).write_text(
        f"state.checkpoints.dir: {newest_of(root).parent}\nstate.savepoints.dir: {tmp_path}/none\n"
    )
    result = invoke("ls")
    assert result.exit_code == 0
    assert "chk-2" in result.stdout
    assert SAVEPOINT not in result.stdout
    assert f"no directory '{tmp_path}/none'" in result.stderr, "one that is not there hides nothing"


def test_ls_without_a_directory_takes_those_of_running_jobs_each_once(root):
    pid = os.getpid()
    for number in "ab":
        entry = JobEntry(
            job_id=number * 32,
            name="payments",
            pid=pid,
            process=process_started(pid),
            url="",
            started_ms=0,
            checkpoint_dir=str(root) if number == "a" else f"file://{root}/",
        )
        publish(entry)
    assert len(invoke("ls").stdout.splitlines()) == 4


def test_ls_without_a_directory_finds_savepoints_that_ended_jobs_wrote_elsewhere(root):
    entry = JobEntry(
        job_id="c" * 32,
        name="payments",
        pid=1,
        process=None,
        url="",
        started_ms=0,
        status="FINISHED",
        savepoint_dirs=(f"file://{root}",),
    )
    publish(entry)
    assert SAVEPOINT in invoke("ls").stdout


def test_ls_without_any_directory_says_what_to_do():
    result = invoke("ls")
    assert result.exit_code == 2
    assert "'weir state ls DIR'" in result.stderr


@pytest.mark.parametrize("path", ["nowhere", "a-file"])
def test_ls_of_a_directory_that_is_none_is_an_error(tmp_path, path):
    (tmp_path / "a-file").write_text("")
    result = invoke("ls", tmp_path / path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"there is no directory '{tmp_path / path}'" in result.stderr


def test_show_tells_operators_states_files_and_sources(root):
    result = invoke("show", newest_of(root))
    assert result.exit_code == 0
    text = result.output
    assert "All kinds (uid 'everything'): parallelism 2 of at most 128" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("total ValueState, expires LONG by LONG") for line in lines)
    assert any(line.startswith("buffer operator state, SPLIT STRING 6") for line in lines)
    assert any(line.startswith("subtask 1, key groups 64-127: shared/state-s1") for line in lines)
    assert any(line.startswith("numbers") for line in lines)
    assert "cannot be moved: " in text
    assert "all there; --verify compares" in text


def test_show_verifies_on_request(root):
    result = invoke("show", root / SAVEPOINT, "--verify")
    assert result.exit_code == 0
    assert "sound: every checksum is right" in result.output
    assert "the directory can be moved" in result.output


def test_show_tells_json_and_nothing_else(root):
    found = json.loads(invoke("show", root / SAVEPOINT / "_metadata", "--json").output)
    assert found["kind"] == "savepoint"
    states = next(op for op in found["operators"] if op["uid"] == "everything")["states"]
    assert {state["name"]: state["entries"] for state in states}["total"] == 7


def test_show_of_a_damaged_savepoint_tells_all_and_exits_with_4(root):
    file = next((root / SAVEPOINT).glob("state-s0*"))
    file.unlink()
    result = invoke("show", root / SAVEPOINT)
    assert result.exit_code == 4
    assert "1 missing or damaged" in result.stdout
    assert f"{file.name}' is missing" in result.stderr
    damaged = json.loads(invoke("show", root / SAVEPOINT, "--json").stdout)
    assert len(damaged["problems"]) == 1


def test_names_in_a_file_do_not_reach_the_terminal_as_commands(root):
    storage = LocalStorage(str(root))
    metadata = load_checkpoint(storage, SAVEPOINT)
    write_metadata(storage, "renamed", replace(metadata, job_name="red \x1b[31m\nline"))
    shown = invoke("show", root / "renamed").stdout
    assert "\x1b" not in invoke("ls", root).stdout + shown
    assert "red ?[31m?line" in invoke("ls", root).stdout


@pytest.mark.parametrize("name", ["d417b129", "payments"])
def test_show_of_a_job_names_the_command_that_lists_jobs(name):
    result = invoke("show", name)
    assert result.exit_code == 2
    assert "'weir list'" in result.stderr


def test_show_of_a_newer_format_exits_with_3(root):
    path = root / SAVEPOINT / "_metadata"
    path.write_bytes(path.read_bytes().replace(b"weir-metadata 4", b"weir-metadata 5", 1))
    assert invoke("show", path).exit_code == 3


def test_show_of_a_directory_with_checkpoints_names_one(root):
    result = invoke("show", newest_of(root).parent)
    assert result.exit_code == 2
    assert "such as chk-2" in result.stderr


def test_a_misspelt_storage_setting_is_refused(root):
    result = invoke("ls", root, "-D", "s3.endpoin=x")
    assert result.exit_code == 2
    assert "did you mean 's3.endpoint'" in result.stderr


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (1500 << 10, "1.5 MB"), (3 << 40, "3.0 TB")],
)
def test_sizes_are_for_people(size, text):
    assert size_text(size) == text


def test_a_local_place_is_a_path_and_any_other_a_uri():
    assert place("file:///a%20b/c") == "/a b/c"
    assert place("s3://bucket/a%20b") == "s3://bucket/a%20b"
