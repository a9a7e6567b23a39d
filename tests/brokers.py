"""Real servers for the tests of connectors: a Kafka broker and a PostgreSQL, on loopback.

Kafka's jars come by Maven, once, into the user's cache. PostgreSQL is the system's package; it does
not run as root, so then it runs as the user `postgres`. What cannot be had is a skip with the
reason, and a failure where `CI` is `true`.

A server that tests share is kept by `tests.guardian`, and ends with the last test process that uses
it, however that ends. A server that a test kills is the test's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.servers import CACHE, free_port

KAFKA = "4.3.1"
CLUSTER = "WeirTestsWeirTestsWeiQ"
_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{KAFKA}</version></dependency></dependencies></project>
"""
_PROPERTIES = """process.roles=broker,controller
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
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=1
num.io.threads=2
auto.create.topics.enable=false
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
"""
_START_S = 90
_PR_SET_PDEATHSIG = 1


class Unavailable(Exception):
    """A server cannot be had here, for the reason that is said."""


def refuse(reason: object) -> None:
    """Skip what needs a server that cannot be had; where CI runs, fail instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"the server cannot be had: {reason}")
    pytest.skip(str(reason))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None:
        msg = "Kafka needs java"
        raise Unavailable(msg)
    return found


def kafka_home() -> Path:
    """Return the folder with Kafka's jars (`libs`) and a formatted log directory (`formatted`)."""
    home = CACHE / f"kafka-{KAFKA}"
    with locked(CACHE / "kafka.lock"):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                made = Path(scratch) / "kafka"
                _fetch(made)
                _format(made)
                made.rename(home)
    return home


def _fetch(made: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        msg = "Kafka's jars come by Maven, and there is no mvn"
        raise Unavailable(msg)
    made.mkdir()
    (made / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "-f", str(made / "pom.xml"), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={made / 'libs'}"]
    _run(command, made / "maven.log", seconds=280)


def _format(made: Path) -> None:
    made.joinpath("server.properties").write_text(
        _PROPERTIES.format(port=1, control=2, folder=made).replace("/data", "/formatted")
    )
    command = _java(made, "kafka.tools.StorageTool", "format", "-t", CLUSTER)
    _run([*command, "-c", str(made / "server.properties")], made / "format.log", seconds=60)


def _run(command: list[str], log: Path, seconds: int) -> None:
    try:
        with log.open("wb") as out:
            subprocess.run(command, check=True, stdout=out, stderr=out, timeout=seconds)
    except (OSError, subprocess.SubprocessError) as error:
        msg = f"{error}: {log.read_text(errors='replace')[-500:]}"
        raise Unavailable(msg) from error


def _java(home: Path, *words: str) -> list[str]:
    options = ["-Xmx256m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java(), *options, "-cp", str(home / "libs" / "*"), *words]


class Server:
    """A server in a folder of its own; it keeps its port and its data when it is started again."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._prepare()

    @property
    def address(self) -> str:
        """Where clients find it."""
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _user(self) -> str | None:
        return None

    def answers(self) -> bool:
        """Tell whether clients are served."""
        raise NotImplementedError

    def start(self) -> None:
        """Start and wait until clients are served."""
        log = self.folder / "server.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command(),
                stdout=out,
                stderr=out,
                user=self._user(),
                cwd=self.folder,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                text = log.read_text(errors="replace")[-1000:]
                msg = f"the {self.name} did not start: {text}"
                raise Unavailable(msg)
            time.sleep(0.05)

    def kill(self) -> None:
        """Let it die like a machine that lost its power, as far as its process is concerned."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Broker(Server):
    """One Kafka broker that is its own controller."""

    name = "Kafka broker"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        self._home = kafka_home()
        shutil.copytree(self._home / "formatted", self.folder / "data")
        text = _PROPERTIES.format(port=self.port, control=free_port(), folder=self.folder)
        (self.folder / "server.properties").write_text(text)

    def _command(self) -> list[str]:
        return _java(self._home, "kafka.Kafka", str(self.folder / "server.properties"))

    def answers(self) -> bool:
        if not _listens(self.port):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


class Postgres(Server):
    """A PostgreSQL with the user and the database `test`, who needs no password."""

    name = "PostgreSQL"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}/test"

    def _prepare(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        initdb = found[-1] if found else shutil.which("initdb")
        if initdb is None:
            msg = "PostgreSQL needs initdb: install the package postgresql"
            raise Unavailable(msg)
        self._bin = Path(os.path.realpath(initdb)).parent
        # Its user may not look into the folders of tests.
        self._data = Path(tempfile.mkdtemp(prefix="weir-postgres-"))
        self._own(self._data)
        words = ["-A", "trust", "-U", "test", "--no-sync", "--no-locale", "-E", "UTF8"]
        self._as_user(["initdb", "-D", str(self._data), *words])
        settings = (
            f"listen_addresses='127.0.0.1'\nport={self.port}\nfsync=off\n"
            f"unix_socket_directories=''\nmax_connections=50\nshared_buffers=16MB\n"
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(settings)

    def _user(self) -> str | None:
        return "postgres" if os.geteuid() == 0 else None

    def _own(self, folder: Path) -> None:
        if self._user() is not None:
            try:
                account = pwd.getpwnam("postgres")
            except KeyError as error:
                msg = "PostgreSQL does not run as root, and there is no user postgres"
                raise Unavailable(msg) from error
            os.chown(folder, account.pw_uid, account.pw_gid)

    def _as_user(self, words: list[str]) -> None:
        command = [str(self._bin / words[0]), *words[1:]]
        try:
            subprocess.run(
                command, check=True, capture_output=True, user=self._user(), cwd=self._data
            )
        except (OSError, subprocess.SubprocessError) as error:
            msg = f"{error}: {getattr(error, 'stderr', b'')!r:.500}"
            raise Unavailable(msg) from error

    def start(self) -> None:
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        super().start()
        import psycopg

        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            there = connection.execute("select 1 from pg_database where datname = 'test'")
            if there.fetchone() is None:
                connection.execute("create database test")

    def admin_url(self) -> str:
        return f"postgresql://test@127.0.0.1:{self.port}/postgres"

    def _command(self) -> list[str]:
        return [str(self._bin / "postgres"), "-D", str(self._data)]

    def answers(self) -> bool:
        if not _listens(self.port):
            return False
        import psycopg

        try:
            psycopg.connect(self.admin_url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def remove(self) -> None:
        """Remove the data."""
        shutil.rmtree(self._data, ignore_errors=True)


_guardians: list[subprocess.Popen[bytes]] = []
KINDS: dict[str, type[Server]] = {"kafka": Broker, "postgres": Postgres}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def own(kind: str, folder: Path) -> Iterator[Any]:
    """Run a server that is this test's alone."""
    try:
        server = KINDS[kind](folder)
        server.start()
    except Unavailable as reason:
        refuse(reason)
    try:
        yield server
    finally:
        server.kill()
        if isinstance(server, Postgres):
            server.remove()


@contextlib.contextmanager
def shared(kind: str, folder: Path) -> Iterator[str]:
    """Use the server that all processes of a test run share below a folder; returns its address."""
    place = folder / kind
    with locked(folder / f"{kind}.lock"):
        connection = _join(place)
        if connection is None:
            connection = _begin(kind, place)
    with connection:
        yield json.loads((place / "address").read_text())
    for process in _guardians:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)


def _join(place: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place / "guardian"))
        if connection.recv(1):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _begin(kind: str, place: Path) -> socket.socket:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with (place / "guardian.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.guardian", kind, str(place)],
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
    _guardians.append(process)  # Nobody waits for it: it outlives this process if others need it.
    connection = _await(lambda: _join(place), process)
    if connection is None:
        refuse((place / "guardian.log").read_text(errors="replace")[-2000:])
    return connection


def _await(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    while process.poll() is None:
        if (value := found()) is not None:
            return value
        time.sleep(0.05)
    return None
