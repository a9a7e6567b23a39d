"""What databases do differently: drivers, the table of markers, and what their errors mean.

A dialect is chosen by the URL. It says how to connect, how a marker is written and which errors are
the program's fault. Every statement here has `?` for its parameters.

Exactly once needs three things of a database, and each of these has them: transactions over several
tables, an update that tells how many rows it has changed, and locks that a dying client lets go.
"""

from __future__ import annotations

import datetime
import decimal
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qsl

from weir.connector.jdbc.copying import find_copy, plain_insert
from weir.connector.jdbc.mysql_url import Tls, read_parameters
from weir.errors import UsageError

TABLE = "weir_commits"
MARK = (
    f"update {TABLE} set checkpoint = ?, changed = current_timestamp "
    "where identity = ? and fence = ? and checkpoint < ?"
)
ASK = f"select checkpoint from {TABLE} where identity = ?"
LOOK = f"select identity from {TABLE} where 1 = 0"
ASK_FENCE = f"select fence from {TABLE} where identity = ?"
_FENCE = f"insert into {TABLE} (identity, checkpoint, fence) values (?, 0, 1) "
_QUOTED = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)")
_NAME = r"(?:`[^`]+`|[\w$]+)"
_WRITTEN = re.compile(
    rf"\s*(?:(?:insert|replace)\s+(?:ignore\s+)?(?:into\s+)?|update\s+)({_NAME}(?:\.{_NAME})?)",
    re.IGNORECASE,
)
_ON_DUPLICATE = re.compile(r"\bon\s+duplicate\b", re.IGNORECASE)
_ENGINE = (
    "select t.engine from information_schema.tables t join information_schema.engines e "
    "on e.engine = t.engine where t.table_schema = coalesce(%s, database()) and t.table_name = %s "
    "and e.transactions <> 'YES'"
)
_CONNECT_S = 10
_WAIT_S = 60
# A process that sleeps in the middle of a transaction must not keep the others waiting for ever.
_IDLE = f"-c idle_in_transaction_session_timeout={_WAIT_S * 1000}"


class Place(Protocol):
    """Where the database is, and who asks."""

    @property
    def url(self) -> str:
        """The URL of the database."""

    @property
    def user_name(self) -> str | None:
        """Who asks."""

    @property
    def password(self) -> str | None:
        """What proves it."""


class Dialect(ABC):
    """One kind of database; stateless, so that it need not travel."""

    name: ClassVar[str]
    form: ClassVar[str]
    """How its URLs look."""
    pattern: ClassVar[re.Pattern[str]]
    placeholder: ClassVar[str] = "%s"
    create: ClassVar[tuple[str, ...]]
    """What makes the table of markers, where there is none; the table itself comes last."""
    fence: ClassVar[str] = (
        _FENCE + f"on conflict (identity) do update set fence = {TABLE}.fence + 1"
    )
    begin: ClassVar[str] = "begin"

    @abstractmethod
    def driver(self) -> Any:
        """Return the module of the driver; `UsageError` says how to install it."""

    @abstractmethod
    def arguments(self, place: Place) -> dict[str, Any]:
        """Return what the driver is called with."""

    @abstractmethod
    def connect(self, place: Place) -> Any:
        """Return a connection without a transaction."""

    def close(self, connection: Any) -> None:
        """Close a connection; what is open is rolled back."""
        connection.close()

    @abstractmethod
    def is_mistake(self, error: Exception) -> bool:
        """Tell whether trying again cannot help: statement, values or password are wrong."""

    def is_conflict(self, error: Exception) -> bool:
        """Tell whether the transaction gave way to another one: it is rolled back for certain."""
        return False

    def check(self, cursor: Any, sql: str) -> None:  # noqa: B027
        """Refuse a statement for which transactions mean nothing; by default none.

        Raises:
            UsageError: it says why.
        """

    def adapt(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Return rows with values that the driver takes."""
        return rows

    def write(
        self, cursor: Any, sql: str, rows: Sequence[tuple[Any, ...]], types: Sequence[Any]
    ) -> None:
        """Run a statement for every row, whose fields have the declared types."""
        cursor.executemany(self.statement(sql), self.adapt(rows))

    def statement(self, sql: str) -> str:
        """Return a statement as the driver wants it: `?` outside of quotes are parameters."""
        if self.placeholder == "?":
            return sql
        parts = [part.replace("%", "%%") for part in _QUOTED.split(sql)]
        parts[::2] = [part.replace("?", self.placeholder) for part in parts[::2]]
        return "".join(parts)


def parameters_of(sql: str) -> int:
    """Return how many parameters a statement has."""
    return _unquoted(sql).count("?")


def _unquoted(sql: str) -> str:
    """Return a statement without what it quotes."""
    return " ".join(_QUOTED.split(sql)[::2])


def _server(match: re.Match[str], place: Place, port: str) -> dict[str, str]:
    """Return host, port, database, user and password, and what else the URL says."""
    host, given, name, rest = match.groups()
    said = dict(parse_qsl(rest or ""))
    user, password = said.pop("user", None), said.pop("password", None)
    found = {"host": host, "port": given or port, "database": name, **said}
    who = {"user": place.user_name or user, "password": place.password or password}
    return {**found, **{key: value for key, value in who.items() if value}}


def _url(*schemes: str) -> re.Pattern[str]:
    return re.compile(rf"jdbc:(?:{'|'.join(schemes)})://([^/:?]+)(?::(\d+))?/([^?]*)(?:\?(.*))?")


class PostgreSQL(Dialect):
    """By psycopg. A sleeping client is thrown out after a minute, so nobody waits longer for it."""

    name = "PostgreSQL"
    form = "jdbc:postgresql://host:port/database"
    pattern = _url("postgresql")
    create = (
        # Two processes that make it at once would refuse each other.
        f"select pg_advisory_xact_lock(hashtext('{TABLE}'))",
        f"create table if not exists {TABLE} (identity text primary key, checkpoint bigint not "
        "null, fence bigint not null, changed timestamptz not null default now())",
    )
    # A server that does not wait for its disk could forget what it has said to be committed.
    begin = (
        "begin; select set_config('synchronous_commit', 'on', true) "
        "where current_setting('synchronous_commit') = 'off'"
    )
    # Not serialisable, deadlock.
    _CONFLICTS = frozenset({"40001", "40P01"})

    def driver(self) -> Any:
        """Return psycopg."""
        try:
            import psycopg
        except ImportError as error:
            msg = "PostgreSQL needs the package psycopg: pip install 'weir-spark[postgres]'"
            raise UsageError(msg) from error
        return psycopg

    def arguments(self, place: Place) -> dict[str, Any]:
        """Return the words of a connection string."""
        found = _server(_match(self, place.url), place, "5432")
        found["dbname"] = found.pop("database")
        return found

    def connect(self, place: Place) -> Any:
        """Connect; what the URL says counts more, setting by setting."""
        given = {"connect_timeout": str(_CONNECT_S), **self.arguments(place)}
        # The server takes the last one of two values, so a URL adds to this, or overrides it.
        given["options"] = f"{_IDLE} {given.get('options', '')}"
        driver = self.driver()
        # Words of a URL are no arguments of the driver, which has some of its own.
        return driver.connect(driver.conninfo.make_conninfo(**given), autocommit=True)

    def write(
        self, cursor: Any, sql: str, rows: Sequence[tuple[Any, ...]], types: Sequence[Any]
    ) -> None:
        """Copy rows where that leaves the same behind as the statement; see `copying`."""
        insert = plain_insert(sql, types)
        copy = None if insert is None else find_copy(cursor, insert)
        if copy is None:
            super().write(cursor, sql, rows, types)
        else:
            copy.write(cursor, rows)

    def is_mistake(self, error: Exception) -> bool:
        """Go by the kind of error; while it connects there is only a text."""
        driver = self.driver()
        if isinstance(error, (driver.DataError, driver.IntegrityError, driver.ProgrammingError)):
            return True
        text = r"authentication failed|no password supplied|no pg_hba.conf|FATAL:.*does not exist"
        return getattr(error, "sqlstate", None) is None and bool(re.search(text, str(error)))

    def is_conflict(self, error: Exception) -> bool:
        """Go by the code of the error."""
        return getattr(error, "sqlstate", None) in self._CONFLICTS


class SQLite(Dialect):
    """A file on one host. Dates and decimals become text; one transaction at a time."""

    name = "SQLite"
    form = "jdbc:sqlite:/path/of/file.db"
    pattern = re.compile(r"jdbc:sqlite:([^?]+)")
    placeholder = "?"
    create = (
        f"create table if not exists {TABLE} (identity text primary key, checkpoint integer not "
        "null, fence integer not null, changed text not null default current_timestamp)",
    )
    # A transaction that begins to write later could be refused then.
    begin = "begin immediate"

    def driver(self) -> Any:
        """Return the driver of the standard library."""
        return sqlite3

    def arguments(self, place: Place) -> dict[str, Any]:
        """Return the path."""
        return {"database": _match(self, place.url)[1]}

    def connect(self, place: Place) -> Any:
        """Open the file; who finds it locked waits for a minute."""
        # Checkpoints are committed by one thread after the other.
        return sqlite3.connect(
            **self.arguments(place), timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )

    def close(self, connection: Any) -> None:
        """Roll back first: a statement that an error still holds would keep file and lock."""
        connection.rollback()
        connection.close()

    def is_mistake(self, error: Exception) -> bool:
        """Go by the kind of error, and by its text where one kind has both."""
        if isinstance(error, sqlite3.OperationalError):
            text = r"no such|syntax error|has no column|near \"|unable to open"
            return re.search(text, str(error)) is not None
        return isinstance(error, sqlite3.Error)

    def adapt(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Write dates and decimals as text: SQLite has no types for them."""
        return [tuple(map(_as_text, row)) for row in rows]


def _as_text(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal) else value


class MySQL(Dialect):
    """MySQL and MariaDB by PyMySQL. Tables have to be of InnoDB: others know no transactions."""

    name = "MySQL"
    form = "jdbc:mysql://host:port/database or jdbc:mariadb://host:port/database"
    pattern = _url("mysql", "mariadb")
    create = (
        f"create table if not exists {TABLE} (identity varchar(255) character set ascii primary "
        "key, checkpoint bigint not null, fence bigint not null, changed timestamp not null "
        "default current_timestamp) engine = InnoDB",
    )
    fence = _FENCE + "on duplicate key update fence = fence + 1"
    # Access denied, unknown database, unknown column, wrong value, no default, no right; no TLS.
    _MISTAKES = frozenset({1044, 1045, 1049, 1054, 1366, 1364, 1142, 2026})
    _DEADLOCK = 1213

    def driver(self) -> Any:
        """Return PyMySQL."""
        try:
            import pymysql
        except ImportError as error:
            msg = "MySQL and MariaDB need the package PyMySQL: pip install 'weir-spark[mysql]'"
            raise UsageError(msg) from error
        return pymysql

    def arguments(self, place: Place) -> dict[str, Any]:
        """Return the arguments of PyMySQL; under `tls` lies how to encrypt, if the URL says it."""
        match = _match(self, place.url)
        host, port, name, rest = match.groups()
        who = _server(match, place, "3306")
        said = dict(parse_qsl(rest or "", keep_blank_values=True))
        others = {key: said[key] for key in said if key not in ("user", "password")}
        tls, more = read_parameters(others, mariadb=place.url.startswith("jdbc:mariadb"))
        found = {"host": host, "port": int(port or 3306), "database": name, **more}
        found |= {key: who[key] for key in ("user", "password") if key in who}
        return found if tls is None else {**found, "tls": tls}

    def connect(self, place: Place) -> Any:
        """Connect; who is silent for a minute is thrown out, and with it a sleeping transaction."""
        given: dict[str, Any] = {"connect_timeout": _CONNECT_S, **self.arguments(place)}
        tls: Tls | None = given.pop("tls", None)
        connection = self.driver().connect(
            **given,
            **({} if tls is None else tls.arguments()),
            autocommit=True,
            charset="utf8mb4",
            init_command=f"set session wait_timeout = {_WAIT_S}",
        )
        if tls is not None and tls.is_demanded:
            self._refuse_plain(connection, place.url)
        return connection

    @staticmethod
    def _refuse_plain(connection: Any, url: str) -> None:
        """Refuse a connection without TLS: older drivers take one from a server that has none."""
        with connection.cursor() as cursor:
            cursor.execute("show session status like 'Ssl_cipher'")
            found = cursor.fetchone()
        if not found or not found[1]:
            connection.close()
            msg = f"the server of {shown_url(url)!r} offers no TLS, which the URL demands"
            raise UsageError(msg)

    def write(
        self, cursor: Any, sql: str, rows: Sequence[tuple[Any, ...]], types: Sequence[Any]
    ) -> None:
        """Run a statement for every row; many at once where parameters are values alone.

        PyMySQL makes one statement of many rows, in which what follows ON DUPLICATE is there once.
        """
        if "?" not in "".join(_ON_DUPLICATE.split(_unquoted(sql), maxsplit=1)[1:]):
            super().write(cursor, sql, rows, types)
            return
        statement = self.statement(sql)
        for row in self.adapt(rows):
            cursor.execute(statement, row)

    def is_mistake(self, error: Exception) -> bool:
        """Go by the kind of error, and by its number where one kind has both."""
        kinds = self.driver().err
        if isinstance(error, (kinds.DataError, kinds.IntegrityError, kinds.ProgrammingError)):
            return True
        # A certificate that is not trusted is one more reason why nobody could connect.
        untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)
        return untrusted or (bool(error.args) and error.args[0] in self._MISTAKES)

    def is_conflict(self, error: Exception) -> bool:
        """Go by the number of the error."""
        return bool(error.args) and error.args[0] == self._DEADLOCK

    def check(self, cursor: Any, sql: str) -> None:
        """Refuse a table whose engine keeps rows although the transaction is rolled back."""
        named = _WRITTEN.match(sql)
        if named is None:
            return
        schema, _, table = named[1].replace("`", "").rpartition(".")
        cursor.execute(_ENGINE, (schema or None, table))
        found = cursor.fetchone()
        if found is not None:
            msg = (
                f"MySQL writes to the table {table!r} by the engine {found[0]}, which knows no "
                "transactions: rows could be there twice, or in part; let somebody run: "
                f"alter table {table} engine = InnoDB"
            )
            raise UsageError(msg)


DIALECTS: tuple[Dialect, ...] = (PostgreSQL(), SQLite(), MySQL())


def shown_url(url: str) -> str:
    """Return a URL as messages show it: parameters, and what is before `@`, can be secret."""
    return re.sub(r"//[^/]*@", "//…@", url.partition("?")[0])


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a URL.

    Raises:
        UsageError: no database that is known here has such URLs.
    """
    found = next((dialect for dialect in DIALECTS if dialect.pattern.fullmatch(url)), None)
    if found is None:
        shown = shown_url(url)
        forms = ", ".join(repr(dialect.form) for dialect in DIALECTS)
        msg = (
            f"with_url: {shown!r}, expected one of {forms}; other databases are written by "
            "foreach_batch and Spark's JDBC writer"
        )
        raise UsageError(msg)
    return found


def _match(dialect: Dialect, url: str) -> re.Match[str]:
    match = dialect.pattern.fullmatch(url)
    if match is None:
        msg = f"{shown_url(url)!r} is no URL of {dialect.name}"
        raise UsageError(msg)
    return match
