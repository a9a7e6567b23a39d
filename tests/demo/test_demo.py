"""The demonstration as a user starts it, with few rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import brokers

WEIR = [sys.executable, "-m", "weir.cli.main"]


@pytest.mark.spark
def test_the_demo_survives_a_kill_and_a_move_to_more_subtasks_and_says_so(tmp_path):
    folder = tmp_path / "kept"
    command = [*WEIR, "demo", "--rows", "120000", "--seed", "3", "--keep", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Killed slot \d \(process \d+\) with SIGKILL", done.stdout)
    assert re.search(r"Recovered \d+\.\d s after the kill: attempt 1 goes on", done.stdout)
    assert "Stopping the job with a savepoint" in done.stdout
    stopped = re.search(r"Stopped after \d+\.\d s with .* \d\.\d MB: file://(\S+)", done.stdout)
    assert stopped is not None, done.stdout
    assert Path(stopped[1]).parent == folder / "savepoints"
    assert (Path(stopped[1]) / "_metadata").exists()
    moved = re.search(r"with parallelism (\d+) instead of (\d+)", done.stdout)
    assert moved is not None, done.stdout
    assert int(moved[1]) == int(moved[2]) + 1
    assert re.search(rf"Job [0-9a-f]{{32}} goes on with {moved[1]} slots behind", done.stdout)
    row = re.search(r"│ +120,000 │ 120,000 │ +(\d+) │ +(\d+) │ +(\d+) │", done.stdout)
    assert row is not None, done.stdout
    assert row.groups() == ("0", "0", "0")
    assert str(folder / "output") in done.stdout
    assert (folder / "logs" / "driver.log").exists()
    assert "Traceback" not in done.stderr


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_the_demo_between_topics_survives_a_dead_slot_and_a_dead_broker(tmp_path):
    command = [*WEIR, "demo", "--kafka", "--rows", "60000", "--seed", "3"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
        env=brokers.with_kafka_jars(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"Killed slot \d \(process \d+\) with SIGKILL", done.stdout)
    died = re.search(r"Killed the broker \(process (\d+)\) with SIGKILL", done.stdout)
    back = re.search(r"The broker is back \(process (\d+)\)", done.stdout)
    assert killed, done.stdout
    assert died, done.stdout
    assert back, done.stdout
    assert re.search(r"Records arrive again \d+\.\d s after the broker's death", done.stdout)
    row = re.search(r"│ +60,000 │ 60,000 │ +(\d+) │ +(\d+) │ +(\d+) │", done.stdout)
    assert row is not None, done.stdout
    assert row.groups() == ("0", "0", "0")
    assert not [pid for pid in (died[1], back[1]) if Path("/proc", pid).exists()]


REFUSED = {
    "no Java": ("java", "a Kafka broker needs Java 17 or newer"),
    "no client": ("confluent_kafka", "pip install 'weir-spark[kafka]'"),
    "no Maven": ("mvn", "its jars come by Maven: install mvn"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_broker_lacks_is_said_in_one_line_and_nothing_is_started(tmp_path, what):
    missing, said = REFUSED[what]
    (tmp_path / "bin").mkdir()
    for name in {"java", "mvn"} - {missing}:
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    if missing == "confluent_kafka":
        (tmp_path / "confluent_kafka.py").write_text("raise ImportError('not here')\n")
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment |= {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*WEIR, "demo", "--kafka"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("weir-demo-*"))
