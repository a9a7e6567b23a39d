"""Every example runs by itself and prints what it promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PRINTED = {
    "dataframe_in_out.py": ["rows: 1000", "account 0: 125500", "account 3: 125250"],
    "resume_after_crash.py": [
        "first job: ['a,1', 'a,2', 'b,1']",
        "after the second job: ['a,1', 'a,2', 'a,3', 'b,1', 'b,2', 'c,1']",
    ],
}
# These run in one Spark session: starting it is most of the cost.
PRINTED_TOGETHER = {
    "broadcast_rules.py": (
        "MATCH: red square 1 - red circle 4\nMATCH: blue square 2 - blue circle 5\n"
    ),
    "buffering_sink.py": "sent: ['a,1', 'b,2', 'c,3', 'd,4', 'e,5']\n",
    "count_window_average.py": "(1, 4)\n(1, 5)\n",
    "checkpoint_count.py": "(1, 1, 1)\n(2, 1, 2)\n(1, 2, 3)\n(1, 3, 4)\n(2, 2, 5)\n",
    "daily_users.py": ("(shop,1,1)\n(shop,1,2)\n(blog,1,1)\n(shop,2,1)\n(shop,2,2)\n(shop,3,1)\n"),
    "history_lookup.py": (
        "ann pays 20 for pot, before that [4]\nbob bought tea 0 times, last prices [7]\n"
        "ann pays 90 for cup, before that [4, 20, 6]\n"
        "ann bought tea 2 times, last prices [20, 6, 90]\n"
    ),
    "hourly_counts.py": (
        "(/start,09:00,3)\n(/help,09:00,1)\n(/start,10:00,1)\n"
        "(/help,10:00,1)\ntoo late> (/help,09:50)\n(/start,11:00,1)\n"
    ),
    "map_with_state.py": (
        "(to,1)\n(be,1)\n(or,1)\n(not,1)\n(to,2)\n(be,2)\n(that,1)\n(is,1)\n(the,1)\n(question,1)\n"
    ),
    "number_records_count.py": "('a', 1)\n('b', 2)\n('a', 3)\n",
    "paid_orders.py": "Ann paid o1 after 2000 ms\nEve paid o3 after 60000 ms\n",
    "online_learning.py": "".join(
        f"{shop}: {share} % of the last 500 were predicted\n"
        for shop, shares in (("south", (95, 97, 97)), ("north", (95, 97, 98)))
        for share in shares
    ),
    "rising_by_hand.py": "rack 1 rises: [91.0, 97.5, 104.0]\n",
    "rising_temperature.py": (
        "rack 1 rises: [91.0, 97.5, 104.0]\nrack 2 is silent\nrack 3 is silent\n"
    ),
}


def test_every_example_is_known():
    known = set(PRINTED) | set(PRINTED_TOGETHER)
    assert {path.name for path in EXAMPLES.glob("*.py")} == known


def lines(text):
    """Return what was printed by whichever subtask; their order depends on the cores."""
    return sorted(re.sub(r"^\d+> ", "", line) for line in text.splitlines())


@pytest.mark.spark
def test_the_examples_that_only_print_print_their_results(tmp_path):
    programs, outputs = tmp_path / "programs.json", tmp_path / "outputs.json"
    sources = {name: (EXAMPLES / name).read_text("utf-8") for name in PRINTED_TOGETHER}
    programs.write_text(json.dumps(sources), "utf-8")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "docs" / "run_programs.py"), programs, outputs],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = json.loads(outputs.read_text("utf-8"))
    assert {name: lines(text) for name, text in printed.items()} == {
        name: lines(text) for name, text in PRINTED_TOGETHER.items()
    }


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
