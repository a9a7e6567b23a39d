"""`weir check`: lines, exit codes, JSON."""

from __future__ import annotations

import json

from tests.cli.jobs import invoke

PROGRAM = """\
from pyflink.datastream import StreamExecutionEnvironment
{more}
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).print()
"""


def written(tmp_path, more=""):
    file = tmp_path / "job.py"
    file.write_text(PROGRAM.format(more=more))
    return str(file)


def test_what_differs_is_said_with_its_place_and_is_no_failure(tmp_path):
    file = written(tmp_path)
    result = invoke("check", file)
    assert result.exit_code == 0
    said = f"{file}:4:1: different: print(): in the driver (PyFlink: on the TaskManager)\n"
    assert result.stdout == said
    assert result.stderr == "1 program: 1 different\n"


def test_what_is_refused_is_a_failure(tmp_path):
    result = invoke("check", written(tmp_path, "from pyflink.table import TableEnvironment"))
    assert result.exit_code == 1
    assert ":2:1: refused: pyflink.table.TableEnvironment: not there: there is no Table API" in (
        result.stdout
    )


def test_json_is_one_document(tmp_path):
    file = written(tmp_path)
    found = json.loads(invoke("check", "--json", file).stdout)
    assert found == [
        {
            "file": file,
            "line": 4,
            "column": 1,
            "meets": "different",
            "what": "print()",
            "text": "in the driver (PyFlink: on the TaskManager)",
        }
    ]


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path):
    result = invoke("check", str(tmp_path / "gone.py"))
    assert result.exit_code == 2
    assert "gone.py' cannot be read: No such file or directory" in result.stderr
