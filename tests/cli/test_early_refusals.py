"""What is refused is refused by the real command before Java starts, and soon."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from weir.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).key_by(lambda v: v).reduce(lambda a, b: a + b).uid("sum").print()
try:
    env.execute("early")
finally:
    print("pyspark" in sys.modules)
"""
CPU_SECONDS_MAX = 3.0


@pytest.fixture
def host(tmp_path):
    """A program, and an environment whose Java tells that somebody started it."""
    job = tmp_path / "job.py"
    job.write_text(PROGRAM)
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    java.chmod(0o755)
    environment = {
        **os.environ,
        "JAVA_HOME": str(tmp_path / "java"),
        "WEIR_RUN_DIR": str(tmp_path / "run"),
    }
    return job, environment


def weir_run(host, *options):
    job, environment = host
    command = [sys.executable, "-m", "weir.cli.main", "run", *options, str(job)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_missing_savepoint_is_refused_without_java_in_less_than_three_seconds(host, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = weir_run(host, "-s", "/nope")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2
    assert "weir: there is no checkpoint or savepoint at 'file:///nope'" in done.stderr
    assert done.stdout == "False\n"
    assert not (tmp_path / "started").exists()
    # Of the processor: what else runs on the machine does not count.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < CPU_SECONDS_MAX


def test_what_nothing_refuses_comes_to_java(host, tmp_path):
    done = weir_run(host, "-D", "execution.checkpointing.interval=1s")
    assert done.returncode != 0
    assert (tmp_path / "started").exists()
