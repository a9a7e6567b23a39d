"""The command line: what it offers, and how it says no."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import weir
from weir import errors
from weir.cli import doctor as checks
from weir.cli.configuration import overrides, parse_definitions
from weir.cli.errors import WeirGroup
from weir.cli.main import cli
from weir.config import ambient


def invoke(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def test_help_lists_the_commands():
    result = invoke("--help")
    assert result.exit_code == 0
    lines = result.output.partition("Commands:")[2].splitlines()
    listed = {line.split()[0] for line in lines if line}
    assert listed == set(cli.commands)
    assert {"run", "list", "savepoint", "checkpoint", "stop", "cancel", "rescale", "info"} <= listed


def test_every_command_lives_in_the_module_of_its_name():
    found = {name: command.callback.__module__ for name, command in cli.commands.items()}
    assert found == {name: f"weir.cli.{name}" for name in found}


def test_the_version_is_the_package_version():
    assert weir.__version__ in invoke("--version").output


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_explains_itself(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {command}")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("a"), 2),
        (errors.IncompatibleStateError("b"), 3),
        (errors.CorruptStateError("c"), 4),
        (errors.StorageError("d"), 5),
        (errors.JobExecutionError("e"), 1),
        (errors.UserFunctionError("op", "1", "boom"), 1),
    ],
)
def test_an_error_is_one_message_and_the_exit_code_of_its_branch(error, code):
    @click.group(cls=WeirGroup)
    def group():
        pass

    @group.command()
    def fail():
        raise error

    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == code
    assert result.stderr == f"weir: {error}\n"
    assert result.stdout == ""


# ---- run ---------------------------------------------------------------------------------------


def program(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(text)
    return str(path)


def test_a_program_gets_its_arguments_and_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_job.py").write_text("NAME = 'next door'")
    job = program(
        tmp_path,
        "import sys, neighbour_of_job\nprint(__name__, sys.argv[1:], neighbour_of_job.NAME)\n",
    )
    before = list(sys.path)
    result = invoke("run", job, "-p", "7", "--flag")
    assert result.output == "__main__ ['-p', '7', '--flag'] next door\n"
    assert sys.path == before
    sys.modules.pop("neighbour_of_job")


def test_settings_of_the_command_line_reach_the_program_and_end_with_it(tmp_path):
    job = program(tmp_path, "from weir.config import ambient\nprint(ambient.layers()[-1])\n")
    result = invoke("run", "-p", "3", "-s", "/x/chk-1", "-n", "-D", "weir.trigger=5 s", job)
    assert eval(result.output) == {
        "weir.trigger": "5 s",
        "parallelism.default": "3",
        "execution.state-recovery.path": "/x/chk-1",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    assert ambient.layers()[-1] == {}


def test_a_misspelt_setting_is_refused_before_the_program_starts(tmp_path):
    job = program(tmp_path, "print('started')")
    result = invoke("run", "-D", "execution.checkpointing.intervall=1 s", job)
    assert result.exit_code == 2
    assert "did you mean 'execution.checkpointing.interval'" in result.stderr
    assert result.stdout == ""


def test_a_program_that_does_not_exist_is_a_usage_error():
    assert invoke("run", "no-such-job.py").exit_code == 2


def test_an_error_of_weir_in_the_program_ends_it_without_a_stack_trace(tmp_path):
    job = program(
        tmp_path,
        "from weir.datastream import StreamExecutionEnvironment\n"
        "StreamExecutionEnvironment.get_execution_environment().execute()\n",
    )
    result = invoke("run", job)
    assert result.exit_code == 2
    assert result.stderr.startswith("weir: No operators defined")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("text", ["novalue", "=1", " =1"])
def test_a_definition_needs_a_key_and_a_value(text):
    with pytest.raises(errors.UsageError, match="key=value"):
        parse_definitions([text])


def test_a_value_may_contain_equals_signs_and_later_definitions_win():
    assert parse_definitions(["a=1", "a=b=c"]) == {"a": "b=c"}


def test_a_short_option_is_stronger_than_its_key():
    assert overrides(["parallelism.default=9"], parallelism=2) == {"parallelism.default": "2"}


# ---- demo --------------------------------------------------------------------------------------


def test_the_demo_refuses_a_folder_that_holds_something(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    result = invoke("demo", "--keep", str(tmp_path))
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
    assert (tmp_path / "mine.txt").read_text() == "precious"


# ---- doctor ------------------------------------------------------------------------------------


def test_the_doctor_reports_every_check_and_its_exit_code_sums_them_up():
    result = invoke("doctor", "--json")
    findings = json.loads(result.stdout)
    assert {"Python", "Java", "pyspark", "pyarrow", "pandas", "slot process"} <= {
        f["name"] for f in findings
    }
    assert result.exit_code == (0 if all(f["ok"] for f in findings) else 1)
    problems = [f for f in findings if not f["ok"]]
    assert all(f["advice"] for f in problems)


def test_the_doctor_says_what_to_do_about_a_missing_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "problem  Java:" in result.stdout
    assert "JAVA_HOME" in result.stdout


@pytest.mark.parametrize(
    ("finding", "ok"),
    [
        (checks.check_python((3, 9, 18)), False),
        (checks.check_python((3, 10, 0)), True),
        (checks.check_package("pyarrow", (18,), None), True),
        (checks.check_extra("no-such-package", "rocksdb", "some jobs"), True),
        (checks.check_package("pyarrow", (9_999,), None), False),
        (checks.check_package("pyarrow", (1,), (2,)), False),
        (checks.check_package("no-such-package-at-all", (1,), None), False),
        (checks.check_disk(Path("x"), 10), False),
        (checks.check_disk(Path("x"), 2 << 30), True),
        (checks.check_temporary(Path("no/such/folder")), False),
    ],
)
def test_a_check_judges(finding, ok):
    assert finding.ok is ok
    assert ok or finding.advice


def test_a_temporary_directory_whose_path_is_too_long_for_sockets_is_a_problem(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    assert not checks.check_temporary(deep).ok


def test_a_worker_python_without_weir_is_a_problem(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    assert not checks.check_slot().ok


def test_the_doctor_names_the_extra_that_brings_a_missing_package():
    finding = checks.check_extra("no-such-package", "rocksdb", "some jobs")
    assert finding.found == "not installed; some jobs need it: pip install 'weir-spark[rocksdb]'"
