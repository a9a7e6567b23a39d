"""A run of tests that leaves a process behind fails, and names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.left_behind import RUN, with_variable

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = """
from tests.left_behind import LeftBehind

def pytest_configure(config):
    config.pluginmanager.register(LeftBehind(patience_s=%s))
"""
START = """
import subprocess, sys

def start(seconds):
    command = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    return subprocess.Popen(command, start_new_session=True)
"""
TEST = "\ndef test_of_something():\n    start(%s)\n"


def run(folder: Path, *words: str, patience_s: float = 0.3, **files: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(PLUGIN % patience_s)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(START + text)
    own = {name: value for name, value in os.environ.items() if name != RUN}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "ignore", *words]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", str(folder), *options, str(folder)],
        cwd=folder,
        env={**own, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "LEFT_BY": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    # The nested run ended what it found.
    assert with_variable("LEFT_BY", str(folder)) == []
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", [(), ("-n", "1", "--dist", "loadfile")])
def test_a_file_that_leaves_a_process_behind_fails_with_its_command(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    code, said = run(
        tmp_path,
        *processes,
        test_good="\ndef test_of_nothing():\n    start(0).wait()\n",
        test_left=TEST % "77.5",
    )
    assert code == 1, said
    assert "tests of test_left.py left processes behind" in said
    assert "time.sleep(77.5)" in said
    assert "2 passed, 1 error" in said


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    code, said = run(tmp_path, patience_s=60, test_short=TEST % "0.5")
    assert code == 0, said


def test_what_is_started_when_all_tests_are_over_fails_the_run(tmp_path: Path) -> None:
    late = "\ndef pytest_sessionfinish(session):\n    start(77.5)\n"
    (tmp_path / "test_none.py").write_text("def test_of_nothing(): pass\n")
    code, said = run(tmp_path, "-p", "late", late=late)
    assert code == 1, said
    assert "this run left processes behind" in said
    assert "time.sleep(77.5)" in said
