"""Spellings of Flink's command line: one dash or two, and options that mean nothing on Spark."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from weir.cli.configuration import overrides
from weir.cli.main import cli


def invoke(*words: str):
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize("command", ["savepoint", "stop", "cancel", "checkpoint"])
@pytest.mark.parametrize("option", ["-yid", "--yarnapplicationId"])
def test_the_application_of_yarn_is_taken_and_said_to_mean_nothing(
    command: str, option: str
) -> None:
    result = invoke(command, "no-such-job-at-all", option, "application_1")
    assert "No such option" not in result.output
    assert "--yarnapplicationId has no effect: jobs are found on this host" in result.output


def test_run_takes_flinks_spellings(tmp_path) -> None:
    program = tmp_path / "job.py"
    program.write_text("print('ran')\n", "utf-8")
    result = invoke(
        *("run", "--n", "-parallelism", "3", "-fromSavepoint", "/sp", "-claimMode", "claim"),
        *("-yqu", "root", "-sae", "-pyexec", "python3", "-python", str(program)),
    )
    assert result.exit_code == 0, result.output
    assert "--yarnqueue has no effect: set spark.yarn.queue" in result.output
    assert "--shutdownOnAttachedExit has no effect" in result.output
    assert "ran" in result.output


def test_dependencies_become_settings() -> None:
    found = overrides((), python_files="a.py,b.zip", python_archives="c.zip#c", parallelism=2)
    assert found == {
        "python.files": "a.py,b.zip",
        "python.archives": "c.zip#c",
        "parallelism.default": "2",
    }
    assert overrides((), python_requirements=None) == {}


@pytest.mark.parametrize(
    "words",
    [
        ("savepoint", "-dispose", "/no/such/savepoint"),
        ("stop", "-drain", "no-such-job-at-all"),
        ("stop", "-savepointPath", "/sp", "no-such-job-at-all"),
        ("cancel", "-withSavepoint", "/sp", "no-such-job-at-all"),
        ("list", "-running"),
        ("checkpoint", "-full", "no-such-job-at-all"),
    ],
)
def test_spellings_with_one_dash_are_options(words: tuple[str, ...]) -> None:
    assert "No such option" not in invoke(*words).output
