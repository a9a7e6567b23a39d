"""The broker that the demonstration starts: it dies with who started it, and keeps its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import brokers
from tests.spark.scenario import wait_until

from weir.clock import SystemClock
from weir.demo.kafka_server import KafkaServer
from weir.demo.payments import InputShape
from weir.demo.topics import expected_totals, fill, read_totals
from weir.errors import StorageError, UsageError

STARTS = """
import sys
from pathlib import Path
from weir.clock import SystemClock
from weir.demo.kafka_server import KafkaServer
server = KafkaServer(Path(sys.argv[1]), SystemClock(), Path(sys.argv[2]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home() -> Path:
    try:
        return brokers.kafka_home()
    except brokers.Unavailable as reason:
        brokers.refuse(reason)
        raise


@pytest.mark.kafka
def test_a_broker_dies_with_a_program_that_is_killed(tmp_path: Path, home: Path) -> None:
    command = [sys.executable, "-c", STARTS, str(tmp_path), str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        os.kill(pid, 0)
        program.send_signal(signal.SIGKILL)
        program.wait()
    wait_until(lambda: not _lives(pid), 20, "the end of the broker")


def _lives(pid: int) -> bool:
    """Tell whether a process runs; whoever inherits it may not have buried it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.kafka
def test_a_killed_broker_comes_back_with_its_topics(tmp_path: Path, home: Path) -> None:
    clock, shape = SystemClock(), InputShape(rows=1_000, files=1, seed=1)
    server = KafkaServer(tmp_path, clock, home)
    server.start()
    try:
        fill(server.address, shape)
        server.kill()
        server.start()
        found = read_totals(server.address, clock)
        assert {len(column) for column in found.values()} == {0}
        assert list(found) == list(expected_totals(shape))
        with pytest.raises(StorageError, match="already exists"):
            fill(server.address, shape)
    finally:
        server.kill()


@pytest.mark.kafka
def test_a_broker_that_cannot_start_is_said_in_one_line(tmp_path: Path, home: Path) -> None:
    jars, folder = tmp_path / "jars", tmp_path / "broker"
    (jars / "formatted").mkdir(parents=True)
    server = KafkaServer(folder, SystemClock(), jars)
    said = r"did not start: Error: .*main class kafka\.Kafka; see .*server\.log$"
    with pytest.raises(UsageError, match=said) as refused:
        server.start()
    assert "\n" not in str(refused.value)
    assert server.pid is None
