"""A real standalone cluster on loopback: master and two workers on addresses of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from tests.certificates import make_files
from tests.jvm_archive import QUICK_SPARK
from tests.spark.scenario import (
    Scenario,
    command,
    processes,
    python_without_weir,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]
SPARK_HOME = Path(pyspark.__file__).parent
BRINGING = Path(__file__).parent / "programs" / "bringing.py"


class Cluster:
    """A standalone master and two workers, each with one core."""

    def __init__(self, root):
        self.root = root
        self.daemons = []

    def daemon(self, name, host, *arguments):
        log = self.root / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_WORKER_DIR": str(self.root / f"work-{name}"),
        }
        environment.pop("WEIR_FAILPOINTS", None)
        with log.open("w") as out:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.daemons.append(process)
        return log

    def start(self):
        master = "org.apache.spark.deploy.master.Master"
        log = self.daemon(
            "master", "127.0.0.1", master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        found = re.compile(r"spark://127\.0\.0\.1:\d+")
        wait_until(lambda: found.search(log.read_text()), 180, "the master's start")
        self.url = found.search(log.read_text()).group()
        worker = "org.apache.spark.deploy.worker.Worker"
        for number in (2, 3):
            host = f"127.0.0.{number}"
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            self.daemon(f"worker{number}", host, worker, "--host", host, *size, self.url)
        text = "Registering worker 127.0.0."
        wait_until(lambda: log.read_text().count(text) == 2, 180, "both workers registering")

    def executors(self):
        return [
            pid
            for pid in processes(self.url.rpartition(":")[0].removeprefix("spark:"))
            if "CoarseGrainedExecutorBackend" in command(pid)
        ] or [pid for pid in processes("CoarseGrainedExecutorBackend") if self.owns(pid)]

    def owns(self, pid):
        try:
            return str(self.root) in os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return False

    def stop(self):
        for daemon in self.daemons:
            os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    options = " ".join(QUICK_SPARK)
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {options}\n")
    made = Scenario(tmp_path)
    made.write_input()
    return made


def test_weir_run_on_a_cluster_gives_the_same_output_as_one_process(cluster, scenario):
    code, output = scenario.run(master=cluster.url, launcher="weir")
    assert code == 0, output
    scenario.assert_exact()
    hosts = {
        re.search(r'"host": "([^"]+)"', line).group(1)
        for log in scenario.logs.rglob("slot-*.log")
        for line in log.read_text().splitlines()
        if '"host"' in line
    }
    assert len(list(scenario.logs.rglob("slot-*.log"))) == 2, hosts


def test_driver_workers_and_slots_talk_over_tls(cluster, scenario, tmp_path):
    """Epochs with input go through Spark's workers, those without from the driver to the slots."""
    files = make_files(tmp_path / "tls", names=tuple(f"127.0.0.{n}" for n in (1, 2, 3)))
    scenario.configure(
        {
            "security.ssl.internal.enabled": "true",
            "security.ssl.rest.enabled": "true",
            "weir.epoch.direct-size": "100 b",
            **{f"weir.ssl.{name}": path for name, path in vars(files).items()},
        }
    )
    code, output = scenario.run(master=cluster.url)
    assert code == 0, output
    scenario.assert_exact()


def test_what_a_program_brings_reaches_level_0_and_slots(cluster, scenario, tmp_path):
    """In a session of the program's own; workers without Weir are refused before that."""
    brought = tmp_path / "brought"
    brought.mkdir()
    (brought / "brought_along.py").write_text("def word():\n    return 'imported'\n")
    (brought / "requirements.txt").write_text("msgspec\n")
    with zipfile.ZipFile(brought / "data.zip", "w") as archive:
        archive.writestr("word.txt", "unpacked")
    arguments = [brought, python_without_weir(tmp_path), cluster.url, tmp_path / "logs"]
    done = subprocess.run(
        [sys.executable, str(BRINGING), *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused, *rows = done.stdout.splitlines()
    assert "set PYSPARK_PYTHON, or spark.pyspark.python of spark-submit" in refused
    assert sorted(rows) == [
        f"{n} level 0: imported unpacked, slot: imported unpacked" for n in "123"
    ]
    assert "[Stage " not in done.stderr


@pytest.mark.parametrize("size", ["1 mb", "0"], ids=["direct", "by Spark"])
def test_a_killed_executor_costs_nothing_but_time(cluster, scenario, size):
    scenario.configure({"weir.epoch.direct-size": size})
    process = scenario.start(master=cluster.url)
    wait_until(lambda: list(scenario.checkpoints.glob("*/chk-*/_metadata")), 120, "a checkpoint")
    victims = cluster.executors()
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    scenario.assert_exact()
