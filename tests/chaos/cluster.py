"""A Spark cluster of two hosts: network namespaces of this run, with a link that can be cut.

The hub has the master and the driver, and a bridge to which each host is linked. Addresses exist in
these namespaces only, so nothing of the machine's own network is touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pyspark
from tests.chaos.faults import forked_workers
from tests.chaos.places import quiet
from tests.spark.scenario import command, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = (1, 2)
CORES = 2
_START_S = 60.0
_LEAVE_S = 20.0


@dataclass(frozen=True)
class Network:
    """Names and addresses of the hub, number 0, and of the hosts; `mark` is the run's own."""

    mark: str

    def namespace(self, host: int) -> str:
        """Return the name of a host's namespace."""
        return f"{self.mark}-{'hub' if host == 0 else f'h{host}'}"

    @staticmethod
    def address(host: int) -> str:
        """Return the address of a host."""
        return f"10.231.0.{10 + host}"

    def inside(self, host: int) -> list[str]:
        """Return what goes before a command that runs on a host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def link(self, host: int, *, up: bool) -> list[str]:
        """Return the command that cuts a host off, or links it again."""
        state = "up" if up else "down"
        return ["ip", "-n", self.namespace(0), "link", "set", f"up{host}", state]

    def setup(self) -> list[list[str]]:
        """Return the commands that make everything."""
        hub = self.namespace(0)
        lines = [f"ip netns add {self.namespace(host)}" for host in (0, *HOSTS)]
        lines += [
            f"ip -n {hub} link add br0 type bridge stp_state 0 forward_delay 0",
            f"ip -n {hub} addr add {self.address(0)}/24 dev br0",
            f"ip -n {hub} link set br0 up",
            f"ip -n {hub} link set lo up",
        ]
        for host in HOSTS:
            there = self.namespace(host)
            lines += [
                f"ip -n {hub} link add up{host} type veth peer name eth0 netns {there}",
                f"ip -n {hub} link set up{host} master br0",
                f"ip -n {hub} link set up{host} up",
                f"ip -n {there} addr add {self.address(host)}/24 dev eth0",
                f"ip -n {there} link set eth0 up",
                f"ip -n {there} link set lo up",
            ]
        return [line.split() for line in lines]

    def teardown(self) -> list[list[str]]:
        """Return the commands that take everything away; links go with their namespaces."""
        return [["ip", "netns", "del", self.namespace(host)] for host in (*HOSTS, 0)]


def without_namespaces() -> str:
    """Say why there can be no cluster here; "" if there can."""
    if shutil.which("ip") is None:
        return "namespaces need the command ip (iproute2)"
    if os.getuid() != 0:
        return "namespaces need root"
    probe = Network(f"wp{os.getpid()}")
    made = all(quiet(*words) for words in probe.setup())
    for words in probe.teardown():
        quiet(*words)
    return "" if made else "this system lets nobody make namespaces with a bridge"


class Cluster:
    """A standalone master in the hub and a worker on each of two hosts."""

    def __init__(self, root: Path, environment: dict[str, str], patience: float = 1.0) -> None:
        self.network = Network(f"wc{os.getpid()}")
        self.url = ""
        self._root = root / "cluster"
        self._root.mkdir(parents=True)
        self._environment = environment
        self._daemons: dict[int, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self._start_s = _START_S * patience

    def start(self) -> None:
        """Make the hosts and start Spark on them."""
        for words in self.network.setup():
            subprocess.run(words, check=True, capture_output=True)
        host = self.network.address(0)
        log = self._daemon(0, "master.Master", "--host", host, "--port", "0")
        found = re.compile(rf"spark://{re.escape(host)}:\d+")
        wait_until(lambda: found.search(log.read_text()), self._start_s, "the master's start")
        self.url = found.search(log.read_text()).group()  # type: ignore[union-attr]
        for number in HOSTS:
            self.start_worker(number)
        text = "Registering worker "
        registered = lambda: log.read_text().count(text) >= len(HOSTS)  # noqa: E731
        wait_until(registered, self._start_s, "workers registering")

    def start_worker(self, host: int) -> None:
        """Start Spark's worker of a host."""
        size = ("--cores", str(CORES), "--memory", "1g")
        place = ("--host", self.network.address(host))
        self._daemon(host, "worker.Worker", *place, *size, self.url)

    def _daemon(self, host: int, name: str, *arguments: str) -> Path:
        self._starts += 1
        log = self._root / f"{self._starts}-{name}-{host}.log"
        environment = {
            **self._environment,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": self.network.address(host),
            "SPARK_WORKER_DIR": str(self._root / f"work-{host}"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        program = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        with log.open("wb") as out:
            self._daemons[host] = subprocess.Popen(
                [*self.network.inside(host), *program, "--webui-port", "0", *arguments],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return log

    def processes(self, host: int) -> list[int]:
        """Return everything that runs on a host."""
        words = ["ip", "netns", "pids", self.network.namespace(host)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return sorted(map(int, done.stdout.split()))

    def executors(self) -> list[int]:
        """Return the executors of both hosts."""
        everything = [pid for host in HOSTS for pid in self.processes(host)]
        return [pid for pid in everything if "CoarseGrainedExecutorBackend" in command(pid)]

    def workers(self) -> list[int]:
        """Return the Python workers of both hosts."""
        return forked_workers([pid for host in HOSTS for pid in self.processes(host)])

    def link(self, host: int, *, up: bool) -> None:
        """Cut a host off, or link it again."""
        subprocess.run(self.network.link(host, up=up), check=True, capture_output=True)

    def lose_power(self, host: int) -> None:
        """End everything on a host at once; nobody else is told, because its link is down."""
        self.link(host, up=False)
        kill_all(self.processes(host))
        self._daemons[host].wait()

    def stop(self) -> list[str]:
        """End Spark and take the hosts away; returns what did not leave by itself."""
        for daemon in self._daemons.values():
            daemon.terminate()
        left = self._await_empty()
        names = [f"process {pid} of the cluster: {short(pid)}" for pid in left]
        kill_all(left)
        for words in self.network.teardown():
            quiet(*words)
        return names

    def _await_empty(self) -> list[int]:
        """Return what is on the hosts after a while in which all of it may leave."""
        pause, deadline = threading.Event(), time.monotonic() + _LEAVE_S
        while True:
            for daemon in self._daemons.values():
                daemon.poll()
            left = [pid for host in (*HOSTS, 0) for pid in self.processes(host)]
            if not left or time.monotonic() > deadline:
                return left
            pause.wait(0.2)


def kill_all(pids: list[int]) -> None:
    """Kill processes that were just found; some may be gone by now."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def short(pid: int) -> str:
    """Return the beginning of the command line of a process."""
    return command(pid).replace("\0", " ")[:80]
