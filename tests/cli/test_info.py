"""`weir info`: the plan of a program that does not run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.cli.jobs import invoke

PROGRAM = """
import sys
from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
from weir.datastream.functions import KeyedProcessFunction

class Count(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value

print("declaring", sys.argv[1:])
env = StreamExecutionEnvironment.get_execution_environment()
rows = env.from_collection([(1, 2)], type_info=Types.TUPLE([Types.INT(), Types.INT()]))
keyed = rows.map(lambda x: x, output_type=Types.TUPLE([Types.INT(), Types.INT()])).key_by(
    lambda x: x[0])
counted = keyed.process(Count()).name("count").set_parallelism(4)
UID
counted.print()
env.execute("shown")
print("executed")
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(PROGRAM.replace("UID", ""))
    return str(path)


def test_a_plan_has_flinks_shape(job):
    result = invoke("info", "-p", "2", "--json", job)
    plan = json.loads(result.stdout)
    source, mapped, count, sink = plan["nodes"]
    assert plan["name"] == "shown"
    assert source["type"].startswith("Source: ")
    assert [node["pact"] for node in plan["nodes"]] == [
        "Data Source",
        "Operator",
        "Operator",
        "Data Sink",
    ]
    assert [node["parallelism"] for node in plan["nodes"]] == [1, 2, 4, 2]
    assert "predecessors" not in source
    assert mapped["predecessors"][0]["id"] == source["id"]
    assert count["predecessors"] == [
        {"id": mapped["id"], "ship_strategy": "HASH", "side": "first", "key_fields": [0]}
    ]
    assert sink["predecessors"][0]["id"] == count["id"]
    assert [node["stateful"] for node in plan["nodes"]] == [False, False, True, False]


def test_the_program_runs_up_to_execute_and_prints_elsewhere(job):
    result = invoke("info", "--json", job, "--its", "own")
    json.loads(result.stdout)
    assert "declaring ['--its', 'own']" in result.stderr
    assert "executed" not in result.stderr + result.stdout


def test_the_table_marks_state_that_no_uid_finds(job, tmp_path):
    rows = [line.split() for line in invoke("info", job).stdout.splitlines()]
    count = next(row for row in rows if "count" in row)
    assert count[1:] == ["count", "!", "4", "2", "HASH", "by", "0"]
    assert "Give them a uid" in invoke("info", job).stdout
    good = tmp_path / "good.py"
    good.write_text(PROGRAM.replace("UID", "counted.uid('counts')"))
    shown = invoke("info", "-py", str(good)).stdout
    assert "counts" in shown
    assert "!" not in shown


def test_spark_is_not_imported(job):
    code = (
        "import sys; from weir.cli.main import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "info", job]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "ended without execute()"),
        (
            "from weir.datastream import StreamExecutionEnvironment as E\n"
            "E.get_execution_environment().execute()",
            "No operators defined",
        ),
    ],
)
def test_a_program_without_a_plan_is_a_usage_error(tmp_path, text, said):
    (tmp_path / "job.py").write_text(text)
    result = invoke("info", str(tmp_path / "job.py"))
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_program_that_catches_everything_is_shown_too(tmp_path):
    text = PROGRAM.replace("UID", "").replace(
        'env.execute("shown")', 'try:\n    env.execute("shown")\nexcept BaseException:\n    pass'
    )
    (tmp_path / "job.py").write_text(text)
    assert "count" in invoke("info", str(tmp_path / "job.py")).stdout


def test_settings_are_checked(job):
    result = invoke("info", "-Dexecution.checkpointing.intervall=1s", job)
    assert result.exit_code == 2
    assert "did you mean" in result.stderr
