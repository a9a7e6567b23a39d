"""`weir page` and `weir top`: the link of a job, the page of a host, a job in a terminal."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.unit.rest.samples import START, sample_job

from weir.cli.host_page import start_command, start_program
from weir.cli.main import cli
from weir.cli.top import behind, plain, screen, skew, sparks
from weir.errors import JobExecutionError
from weir.jobmanager.directory import JobEntry
from weir.jobmanager.past import record_of
from weir.jobmanager.timeline import Event, Point, SlotPoint, TimelineView
from weir.rest import RestServer
from weir.testing.manual_job import ManualJob, serve


@pytest.fixture
def job() -> ManualJob:
    found = sample_job()
    found.change(name="words")
    slots = (SlotPoint(0, 5_000_000, 0.5, 0.25),)
    times = {"epoch_ms": 90, "spark_ms": 20, "level_0_ms": 30, "shuffle_ms": 15, "slot_ms": 25}
    points = tuple(
        Point(START + n * 1_000, 1_000, n * 10, slots=slots, **times) for n in range(1, 9)
    )
    points = (replace(points[0], latency_ms=1_400, commit_ms=12), *points[1:])
    found.times = TimelineView(points, points, (Event(START, "restart", "attempt 1: \x1b[2J"),))
    return found


@pytest.fixture
def served(job: ManualJob, tmp_path: Path) -> Iterator[RestServer]:
    with serve(job, tmp_path / "run") as server:
        yield server


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_link_of_a_job_has_its_token_in_the_fragment(
    served: RestServer, job: ManualJob
) -> None:
    link = urlsplit(invoke("page", "words").strip())
    assert f"{link.scheme}://{link.netloc}" == served.url
    assert (link.path, link.query) == ("/", "")
    path, _, token = unquote(link.fragment).partition("?token=")
    assert (path, token) == (f"/jobs/{job.job_id}", served.token)


def test_the_page_of_a_host_is_served_until_it_is_interrupted(
    served: RestServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "weir.cli.main", "page", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        link = urlsplit(process.stdout.readline().strip())
        token = unquote(link.fragment).partition("?token=")[2]
        request = urllib.request.Request(f"{link.scheme}://{link.netloc}/page")
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
        assert '"host":true' in text
        assert "words" in text
        process.send_signal(2)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_top_shows_operators_slots_checkpoints_and_what_happened(served: RestServer) -> None:
    shown = invoke("top", "words", "--once")
    for text in ("words", "RUNNING", "attempt 1", "epoch 17", "6 complete, 2 failed"):
        assert text in shown
    for text in ("host-a:4711", "25%", "50%", "5 MB", "total", "1.2", "records/s 80"):
        assert text in shown
    assert "epoch 90 ms = Spark 20 + level 0 30 + shuffles 15 + slots 25  commit 12 ms" in shown
    assert "latency 1,400 ms" in shown
    assert "restart: attempt 1: ?[2J" in shown
    assert "\x1b" not in shown


def test_a_name_is_no_markup_for_the_terminal(served: RestServer, job: ManualJob) -> None:
    job.change(name="[red]words[/red]\x1b[31m")
    assert "[red]words[/red]?[31m" in invoke("top", job.job_id, "--once")


def test_numbers_for_people() -> None:
    assert plain("a\nb\x1b") == "a?b?"
    assert sparks([]) == ""
    assert sparks([0.0, 5.0, 10.0]) == " ▄█"
    assert skew([3, 1]) == "1.5"
    assert (skew([3]), skew([0, 0])) == ("-", "-")
    assert behind(1_700_000_000_000, 1_700_000_001_500) == "1.5 s"
    assert (behind(None, 5), behind(-(2**63), 5), behind(7, 5)) == ("-", "-", "-")


def test_a_job_that_has_just_begun_can_be_shown() -> None:
    from weir.cli.top import Facts

    empty = {"records-in-rate": [], "slots": []}
    facts = Facts(
        {
            "name": "new",
            "state": "CREATED",
            "attempt": 0,
            "epoch": None,
            "parallelism": 1,
            "duration": 5,
            "now": 5,
            "vertices": [],
        },
        {"recent": empty, "events": []},
        [],
        {"counts": {"completed": 0, "failed": 0}, "latest": {"completed": None}},
    )
    console = Console(record=True, width=100)
    console.print(screen(facts))
    assert "new" in console.export_text()


def left(program: Path, **fields: object) -> JobEntry:
    return JobEntry(
        job_id="a" * 32,
        name="words",
        pid=1,
        process="1",
        url="",
        started_ms=1,
        program=str(program),
        work_dir=str(program.parent),
        **fields,
    )


def test_a_job_is_started_again_with_what_its_command_line_said(job: ManualJob) -> None:
    job.change(
        configuration={
            "parallelism.default": "2",
            "state.backend.type": "rocksdb",
            "s3.secret-key": "******",
            "execution.state-recovery.path": "file:///old",
            "execution.state-recovery.claim-mode": "CLAIM",
            "execution.state-recovery.ignore-unclaimed-state": "true",
        },
        origins={
            "parallelism.default": "the program",
            "state.backend.type": "the command line",
            "s3.secret-key": "the command line",
            "execution.state-recovery.path": "the command line",
            "execution.state-recovery.claim-mode": "the command line",
            "execution.state-recovery.ignore-unclaimed-state": "the command line",
        },
    )
    entry = left(Path("/srv/words.py"), arguments=("--its-own", "x"), master="spark://h:7077")
    command = start_command(entry, record_of(job), "file:///s", 3)
    assert command[1:] == [
        *("-m", "weir.cli.main", "run", "-d", "--json", "-s", "file:///s"),
        *("-D", "state.backend.type=rocksdb", "-p", "3", "--master", "spark://h:7077"),
        *("/srv/words.py", "--its-own", "x"),
    ]


def test_a_program_that_starts_no_job_is_told_with_what_it_said(
    job: ManualJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('the program has a hole')")
    with pytest.raises(JobExecutionError, match="has a hole"):
        start_program(left(program), record_of(job), "file:///nowhere", None)
