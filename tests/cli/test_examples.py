"""Every example runs by itself and prints what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "count_window_average.py": ["(1, 4)", "(1, 5)"],
    "broadcast_rules.py": [
        "MATCH: blue square 2 - blue circle 5",
        "MATCH: red square 1 - red circle 4",
    ],
    "dataframe_in_out.py": ["rows: 1000", "account 0: 125500", "account 3: 125250"],
    "resume_after_crash.py": [
        "first job: ['a,1', 'a,2', 'b,1']",
        "after the second job: ['a,1', 'a,2', 'a,3', 'b,1', 'b,2', 'c,1']",
    ],
}


def test_every_example_is_known():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PRINTED)


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_its_result(name, tmp_path):
    command = [sys.executable, "-m", "weir.cli.main", "run", str(EXAMPLES / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [line for line in PRINTED[name] if line not in done.stdout]
    assert missing == [], done.stdout


@pytest.mark.spark
def test_a_failing_function_ends_the_command_with_its_own_traceback(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "from weir.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1, 0]).map(lambda x: 1 // x).print()\n"
        "env.execute()\n"
    )
    command = [sys.executable, "-m", "weir.cli.main", "run", "-p", "1", str(job)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 1, done.stdout + done.stderr
    message = done.stderr[done.stderr.index("weir: operator") :]
    assert "ZeroDivisionError" in message
    assert "runpy" not in message


def test_without_java_the_command_says_how_to_find_out_what_is_missing(tmp_path):
    command = [sys.executable, "-m", "weir.cli.main", "run", str(EXAMPLES / "dataframe_in_out.py")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "weir: Spark did not start" in done.stderr
    assert "weir doctor" in done.stderr
    assert "Traceback" not in done.stderr
