"""Signs of life while a command waits, and what shells are told."""

from __future__ import annotations

import contextlib
import io
import threading

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.cli.jobs import invoke

from weir.cli.main import cli
from weir.cli.notice import notice
from weir.cli.waiting import LineProgress, LiveProgress
from weir.testing.clock import ManualClock
from weir.testing.manual_job import ManualJob, serve


def test_two_seconds_are_silent_then_there_is_a_line_every_five(capsys):
    clock = ManualClock()
    progress = LineProgress(clock)
    for _ in range(121):
        progress.show(lambda: "under way")
        clock.advance(100)
    progress.close()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["under way (2 s)", "under way (7 s)", "under way (12 s)"]


def test_a_text_that_nobody_sees_is_not_asked_for():
    def text():
        raise AssertionError

    LineProgress(ManualClock()).show(text)


def test_a_terminal_gets_one_line_that_vanishes():
    clock, out = ManualClock(), io.StringIO()
    progress = LiveProgress(clock, Console(file=out, force_terminal=True, width=80))
    progress.show(lambda: "too early")
    clock.advance(3_000)
    progress.show(lambda: "under way")
    progress.close()
    assert "under way (3 s)" in out.getvalue()
    assert "too early" not in out.getvalue()


def test_a_notice_is_for_what_lasts(capsys):
    with notice("slow", silent_s=60):
        pass
    assert capsys.readouterr().err == ""
    said = threading.Event()

    class Listening(io.StringIO):
        def write(self, text):
            said.set()
            return super().write(text)

    listening = Listening()
    with contextlib.redirect_stderr(listening), notice("slow", silent_s=0.001):
        assert said.wait(30)
    assert listening.getvalue() == "slow\n"


# ---- completion --------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_every_shell(shell):
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_WEIR_COMPLETE" in result.stdout


def completed(*words):
    """Return what a shell offers for the last word."""
    env = {
        "_WEIR_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["weir", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(cli, [], prog_name="weir", env=env)
    return [line.split(",", 1)[1] for line in result.stdout.splitlines() if line]


def test_commands_options_and_choices_are_completed():
    assert "savepoint" in completed("sa")
    assert "--drain" in completed("stop", "--dr")
    assert completed("savepoint", "-type", "na") == ["native"]


def test_job_ids_and_names_are_completed(tmp_path):
    job = ManualJob("payments", job_id="ab" * 16)
    with serve(job, tmp_path):
        for command in ("savepoint", "checkpoint", "stop", "cancel", "rescale"):
            assert completed(command, "ab") == [job.job_id]
            assert completed(command, "") == [job.job_id]
            assert completed(command, "pay") == ["payments"]
            assert completed(command, "zz") == []
