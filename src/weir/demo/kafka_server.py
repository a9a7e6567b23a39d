"""A Kafka broker of one's own: jars that Maven fetches once, and one process that dies with us.

The jars and a formatted log directory are kept in a cache. Every broker has a folder of its own,
and keeps its port and its data when it is killed and started again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.clock import Clock
from weir.connector.kafka.client import Connection, import_kafka
from weir.errors import UsageError

# Not 4.3.0 and 4.3.1: where a partition has no leader for a moment, as when its only broker died,
# they take it for deleted, and do not write the end of a transaction (KAFKA-20734).
VERSION = "4.2.1"
_CLUSTER = "WeirTestsWeirTestsWeiQ"
_FETCH_S, _FORMAT_S, _START_S = 280, 60, 90
_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>weir</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>
"""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.bytes=16777216
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=1
num.io.threads=2
auto.create.topics.enable=false
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
"""
# Whoever starts a broker may be killed at any moment: then the kernel kills the broker.
_DIES_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "if sys.platform == 'linux':\n"
    "    ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"
    "if os.getppid() == int(sys.argv[1]):\n"
    "    os.execv(sys.argv[2], sys.argv[2:])\n"
)


def cache_directory() -> Path:
    """Return where the user's programs keep what they can fetch again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weir"


def require_kafka(say: Callable[[str], None]) -> Path:
    """Return what `find_kafka` does, if everything that a broker and its clients need is here.

    Raises:
        UsageError: it names what is missing, in one line.
    """
    import_kafka()
    java_command(Path())
    return find_kafka(cache_directory(), say)


def find_kafka(cache: Path, say: Callable[[str], None] = lambda text: None) -> Path:
    """Return the folder with Kafka's jars (`libs`) and a formatted log directory (`formatted`).

    Raises:
        UsageError: they are not there, and cannot be fetched.
    """
    home = cache / f"kafka-{VERSION}"
    with _locked(cache / "kafka.lock"):
        if not home.is_dir():
            say(f"Fetching Kafka {VERSION} by Maven, once …")
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                made = Path(scratch) / "kafka"
                _fetch(made)
                _format(made)
                made.rename(home)
    return home


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(made: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        msg = f"Kafka {VERSION} is not in the cache, and its jars come by Maven: install mvn"
        raise UsageError(msg)
    made.mkdir()
    (made / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "-f", str(made / "pom.xml"), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={made / 'libs'}"]
    _run(command, made / "maven.log", _FETCH_S)


def _format(made: Path) -> None:
    text = PROPERTIES.format(port=1, control=2, folder=made).replace("/data", "/formatted")
    made.joinpath("server.properties").write_text(text)
    tool = java_command(made, "kafka.tools.StorageTool")
    words = ["format", "-t", _CLUSTER, "-c", str(made / "server.properties")]
    _run([*tool, *words], made / "format.log", _FORMAT_S)


def _run(command: list[str], log: Path, seconds: int) -> None:
    try:
        with log.open("wb") as out:
            subprocess.run(command, check=True, stdout=out, stderr=out, timeout=seconds)
    except (OSError, subprocess.SubprocessError) as error:
        said = _brief(log) or str(error)
        msg = f"Kafka {VERSION} cannot be fetched: {Path(command[0]).name} failed: {said}"
        raise UsageError(msg) from error


def _brief(log: Path) -> str:
    """Return the one line of a log that says most: the first error, else the last line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    # Kafka's jars come without a logger, which is all that they say at their start.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("SLF4J")]
    errors = [line for line in lines if re.search(r"\bERROR\b|Error:|Exception:", line)]
    return [*errors, *lines[-1:], ""][0][:500]


def java_command(home: Path, *words: str) -> list[str]:
    """Return a command that runs a class of Kafka's jars.

    Raises:
        UsageError: there is no Java.
    """
    own = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{own}/bin/java" if own else "java")
    if java is None:
        found = f"JAVA_HOME is {own!r}, which has no bin/java" if own else "there is none"
        msg = f"a Kafka broker needs Java 17 or newer, and {found}: install it, or set JAVA_HOME"
        raise UsageError(msg)
    options = ["-Xmx256m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *options, "-cp", str(home / "libs" / "*"), *words]


def free_port() -> int:
    """Return a port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KafkaServer:
    """One broker that is its own controller; start it in the main thread, with which it dies."""

    def __init__(self, folder: Path, clock: Clock, home: Path) -> None:
        """Prepare the folder, which is this broker's alone, with jars in `home`; nothing runs."""
        self._home = home
        self._folder = folder
        self._clock = clock
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(self._home / "formatted", folder / "data")
        text = PROPERTIES.format(port=self._port, control=free_port(), folder=folder)
        (folder / "server.properties").write_text(text)

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start and wait until clients are served.

        Raises:
            UsageError: it does not start.
        """
        words = java_command(self._home, "kafka.Kafka", str(self._folder / "server.properties"))
        log = self._folder / "server.log"
        starter = [sys.executable, "-c", _DIES_WITH_PARENT, str(os.getpid())]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*starter, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        pause, deadline = threading.Event(), self._clock.monotonic_ms() + _START_S * 1000
        while not self._answers():
            if self._process.poll() is not None or self._clock.monotonic_ms() > deadline:
                self.kill()
                said = _brief(log) or "it said nothing"
                msg = f"the Kafka broker at {self.address} did not start: {said}; see {log}"
                raise UsageError(msg)
            pause.wait(0.1)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 0.5).close()
        except OSError:
            return False
        admin = Connection({"bootstrap.servers": self.address}).admin()
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except import_kafka().KafkaException:
            return False

    def kill(self) -> None:
        """Let it die like a machine that loses its power, as far as its process is concerned."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
