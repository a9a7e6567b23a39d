"""Real servers for the tests of connectors: Kafka, PostgreSQL and MariaDB, on loopback.

Kafka's jars come by Maven, once, into the user's cache. The databases are the system's packages;
PostgreSQL does not run as root, so then it runs as the user `postgres`. What cannot be had is a
skip with the reason, and a failure where `CI` is `true`.

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

from weir.demo import kafka_server
from weir.errors import UsageError

_START_S = 90
_PR_SET_PDEATHSIG = 1


class Unavailable(Exception):
    """A server cannot be had here, for the reason that is said."""


def refuse(reason: object) -> None:
    """Skip what needs a server that cannot be had; where CI runs, fail instead.

    CI names the packages that it tried to install in vain.
    """
    in_vain = os.environ.get("WEIR_CANNOT_INSTALL", "").split()
    if os.environ.get("CI") == "true" and not any(name in str(reason) for name in in_vain):
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


def kafka_home() -> Path:
    """Return the folder with Kafka's jars and a formatted log directory."""
    try:
        return kafka_server.find_kafka(CACHE)
    except UsageError as error:
        raise Unavailable(str(error)) from error


def with_kafka_jars(folder: Path) -> dict[str, str]:
    """Return variables with which a command of its own finds the jars that the tests have."""
    try:
        kafka_home()
    except Unavailable as reason:
        refuse(reason)
    (folder / "weir").symlink_to(CACHE)
    return {**os.environ, "XDG_CACHE_HOME": str(folder)}


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
        text = kafka_server.PROPERTIES.format(
            port=self.port, control=free_port(), folder=self.folder
        )
        (self.folder / "server.properties").write_text(text)

    def _command(self) -> list[str]:
        return kafka_server.java_command(
            self._home, "kafka.Kafka", str(self.folder / "server.properties")
        )

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


class SecureBroker(Broker):
    """A broker that also listens for passwords, for passwords over TLS, and for certificates.

    The user is `weir`, who may do everything, and so may those with certificates; `scram` has to be
    told the password once it runs. The user `narrow` has the same password and, unless told by
    `allow`, no right to anything.
    """

    def __init__(self, folder: Path, password: str) -> None:
        from tests.certificates import make_files

        self.password = password
        self.tls = make_files(folder / "tls")
        ports = {name: free_port() for name in ("SASL", "SECURE", "CERTIFIED")}
        self.listeners = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        super().__init__(folder)

    def _prepare(self) -> None:
        super()._prepare()
        path = self.folder / "server.properties"
        lines = path.read_text().splitlines()
        for place, line in enumerate(lines):
            if line.startswith(("listeners=", "advertised.listeners=")):
                lines[place] += "".join(f",{n}://{a}" for n, a in self.listeners.items())
            if line.startswith("listener.security.protocol.map="):
                lines[place] += ",SASL:SASL_PLAINTEXT,SECURE:SASL_SSL,CERTIFIED:SSL"
        store = self.folder / "server.pem"
        store.write_text(Path(self.tls.key).read_text() + Path(self.tls.certificate).read_text())
        module = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{self.password}"' for name in ("weir", "narrow"))
        plain = f"{module}.plain.PlainLoginModule required {users};"
        scram = f"{module}.scram.ScramLoginModule required;"
        for name in ("sasl", "secure"):
            lines += [
                f"listener.name.{name}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
                f"listener.name.{name}.plain.sasl.jaas.config={plain}",
                f"listener.name.{name}.scram-sha-256.sasl.jaas.config={scram}",
            ]
        lines += [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={store}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.tls.ca}",
            "listener.name.certified.ssl.client.auth=required",
            "ssl.principal.mapping.rules=RULE:^.*$/weir/",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS;User:weir",
        ]
        path.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        super().start()
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        user = UserScramCredentialUpsertion("weir", how, self.password.encode())
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result()

    def allow(self, kind: str, name: str, *operations: str) -> None:
        """Let `narrow` do something to topics, groups or ids whose names begin like this."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            AdminClient,
            ResourcePatternType,
            ResourceType,
        )

        place = (ResourceType[kind], name, ResourcePatternType.PREFIXED, "User:narrow", "*")
        given = [
            AclBinding(*place, AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for future in admin.create_acls(given).values():
            future.result()


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

    def require_passwords(self) -> None:
        """Ask everybody but the user `test` for a password from now on."""
        rules = "host all test 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (self._data / "pg_hba.conf").write_text(rules)
        self._reload()

    def _reload(self) -> None:
        import psycopg

        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute("select pg_reload_conf()")

    @contextlib.contextmanager
    def small_disk(self) -> Iterator[Path]:
        """Give a disk of a few megabytes that the server may write to; only root can."""
        place = Path(tempfile.mkdtemp(prefix="weir-small-disk-"))
        size = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
        if os.geteuid() != 0 or subprocess.run(size, capture_output=True).returncode != 0:
            place.rmdir()
            refuse("a small disk is a tmpfs, which only root may mount")
        self._own(place)
        place.chmod(0o700)
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=False)
            place.rmdir()

    @staticmethod
    def grow_disk(place: Path) -> None:
        """Give the small disk room."""
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)

    def remove(self) -> None:
        """Remove the data."""
        shutil.rmtree(self._data, ignore_errors=True)


class MariaDB(Server):
    """A MariaDB with the database `test` and the user `test`, whose password is `secret`."""

    name = "MariaDB"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}/test"

    def _prepare(self) -> None:
        if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
            msg = "MariaDB needs mariadbd: install the package mariadb-server"
            raise Unavailable(msg)
        self._data = Path(tempfile.mkdtemp(prefix="weir-mariadb-"))
        self._data.chmod(0o755)
        words = ["mariadb-install-db", "--no-defaults", f"--datadir={self._data}/data"]
        words += ["--skip-test-db", "--auth-root-authentication-method=normal"]
        try:
            subprocess.run([*words, *self._as()], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            msg = f"{error}: {getattr(error, 'stderr', b'')!r:.500}"
            raise Unavailable(msg) from error
        (self._data / "init.sql").write_text(
            "create database if not exists test;\n"
            "create user if not exists test@'%' identified by 'secret';\n"
            "grant all on test.* to test@'%';\n"
        )

    @staticmethod
    def _as() -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def _command(self) -> list[str]:
        return [
            *("mariadbd", "--no-defaults", f"--datadir={self._data}/data", *self._as()),
            *("--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self._data}/socket"),
            *(f"--init-file={self._data}/init.sql", "--innodb-flush-log-at-trx-commit=0"),
            *("--innodb-buffer-pool-size=16M", "--skip-log-bin", "--skip-name-resolve"),
            *self._encryption(),
        ]

    def _encryption(self) -> list[str]:
        # Newer ones would make a certificate by themselves.
        return ["--skip-ssl"]

    def answers(self) -> bool:
        if not _listens(self.port):
            return False
        import pymysql

        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="test", password="secret", database="test"
            ).close()
        except pymysql.err.Error:
            return False
        return True

    def remove(self) -> None:
        """Remove the data."""
        shutil.rmtree(self._data, ignore_errors=True)


class SecureMariaDB(MariaDB):
    """A MariaDB that also speaks TLS, with a certificate of an authority of its own."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("localhost", "127.0.0.1")) -> None:
        from tests.certificates import make_files

        self.tls = make_files(folder / "tls", names)
        super().__init__(folder)

    def _encryption(self) -> list[str]:
        return [f"--ssl-cert={self.tls.certificate}", f"--ssl-key={self.tls.key}"]


_guardians: list[subprocess.Popen[bytes]] = []
KINDS: dict[str, type[Server]] = {"kafka": Broker, "postgres": Postgres, "mariadb": MariaDB}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def own(kind: str, folder: Path) -> Iterator[Any]:
    """Run a server that is this test's alone."""
    with running(lambda: KINDS[kind](folder)) as server:
        yield server


@contextlib.contextmanager
def running(make: Callable[[], Any]) -> Iterator[Any]:
    """Run a server that is made for this test."""
    try:
        server = make()
        server.start()
    except Unavailable as reason:
        refuse(reason)
    try:
        yield server
    finally:
        server.kill()
        if isinstance(server, Postgres | MariaDB):
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
