"""`JdbcSink` by PyFlink's names, for PostgreSQL (extra `postgres`): no driver of Java is needed.

`sink` writes batches as they come, again after a failure: at least once, so its statement should
replace what it finds (`ON CONFLICT … DO UPDATE`). `exactly_once_sink` writes the rows of a
checkpoint and a marker in one transaction when the checkpoint is complete; the marker is a row of
the table `weir_commits`, which is lock, fence and answer in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from weir.clock import Clock
from weir.codec import pickled
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.connector.commit_target import CommitSink, CommitTarget
from weir.connector.sink import Sink, SinkWriter, WriterContext, blame
from weir.errors import StorageError, UsageError, WeirError

TABLE = "weir_commits"
_URL = re.compile(r"jdbc:postgresql://([^/:?]+)(?::(\d+))?/([^?]*)(?:\?(.*))?")
_CREATE = (
    f"create table if not exists {TABLE} (identity text primary key, checkpoint bigint not null, "
    "fence bigint not null, changed timestamptz not null default now())"
)
_FENCE = (
    f"insert into {TABLE} (identity, checkpoint, fence) values (%s, 0, 1) on conflict (identity) "
    f"do update set fence = {TABLE}.fence + 1 returning fence"
)
_ASK = f"select checkpoint from {TABLE} where identity = %s"
_MARK = (
    f"update {TABLE} set checkpoint = %s, changed = now() "
    "where identity = %s and fence = %s and checkpoint < %s"
)
# A process that sleeps in the middle of a transaction must not keep the others waiting for ever.
_OPTIONS = "-c idle_in_transaction_session_timeout=60000"


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Where the database is, and who asks; the password is shown nowhere.

    Example:
        options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        options = options.with_url("jdbc:postgresql://host/shop").with_user_name("weir").build()
    """

    url: str
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)
    driver_name: str | None = None

    def get_db_url(self) -> str:
        """Return the URL of the database."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return the name of the Java driver, which is not used."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return the name of the user."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    class JdbcConnectionOptionsBuilder:
        """PyFlink's builder; every method returns the builder."""

        def __init__(self) -> None:
            """Begin with nothing set."""
            self._url: str | None = None
            self._user: str | None = None
            self._password: str | None = None
            self._driver: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Say where: `jdbc:postgresql://host:port/database`."""
            self._url = url
            return self

        def with_driver_name(
            self, driver_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Take the name of Java's driver, which is not used."""
            self._driver = driver_name
            return self

        def with_user_name(
            self, user_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Say who asks."""
            self._user = user_name
            return self

        def with_password(
            self, password: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Give the password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """Return the options; `UsageError` for a database that is not known here."""
            options = JdbcConnectionOptions(
                self._url or "", self._user, self._password, self._driver
            )
            connection_arguments(options)
            return options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """When a batch is written, and how often it is tried again.

    Example:
        JdbcExecutionOptions.builder().with_batch_size(500).with_max_retries(5).build()
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3
    Builder: ClassVar[type[JdbcExecutionOptionsBuilder]]

    def get_batch_interval_ms(self) -> int:
        """Return after how many milliseconds a batch is written."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return after how many records a batch is written."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a failed batch is tried again."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return the options that hold where none are given."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptionsBuilder:
        """Begin with the defaults."""
        return JdbcExecutionOptionsBuilder()


class JdbcExecutionOptionsBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = JdbcExecutionOptions.builder()  # a JdbcExecutionOptionsBuilder
        builder.with_batch_interval_ms(200).build()
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        self._made = {"batch_interval_ms": 0, "batch_size": 5000, "max_retries": 3}

    def _set(self, name: str, value: int, least: int) -> JdbcExecutionOptionsBuilder:
        if not isinstance(value, int) or value < least:
            msg = f"with_{name}: {value!r}, expected a number >= {least}"
            raise UsageError(msg)
        self._made[name] = value
        return self

    def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptionsBuilder:
        """Write a batch when it is this old; 0 for never. Looked at when records come."""
        return self._set("batch_interval_ms", interval_ms, 0)

    def with_batch_size(self, size: int) -> JdbcExecutionOptionsBuilder:
        """Write a batch when it has so many rows."""
        return self._set("batch_size", size, 1)

    def with_max_retries(self, max_retries: int) -> JdbcExecutionOptionsBuilder:
        """Try a batch again so often, on a new connection, before the job fails."""
        return self._set("max_retries", max_retries, 0)

    def build(self) -> JdbcExecutionOptions:
        """Return the options."""
        return JdbcExecutionOptions(**self._made)


JdbcExecutionOptions.Builder = JdbcExecutionOptionsBuilder


def connection_arguments(options: JdbcConnectionOptions) -> dict[str, str]:
    """Return what psycopg is called with.

    Raises:
        UsageError: the URL is of another database, or of none.
    """
    match = _URL.fullmatch(options.url)
    if match is None:
        shown = re.sub(r"(password=)[^&]*", r"\1…", options.url)
        msg = (
            f"with_url: {shown!r}, expected 'jdbc:postgresql://host:port/database'; other "
            "databases are written by foreach_batch and Spark's JDBC writer"
        )
        raise UsageError(msg)
    host, port, name, rest = match.groups()
    given = {"host": host, "port": port or "5432", "dbname": name, **dict(parse_qsl(rest or ""))}
    user = options.user_name or given.pop("user", None)
    password = options.password or given.pop("password", None)
    found = {k: v for k, v in given.items() if k not in ("user", "password")}
    return found | ({"user": user} if user else {}) | ({"password": password} if password else {})


def statement_of(sql: str) -> str:
    """Return a statement of JDBC as psycopg wants it: `?` are parameters, outside of quotes."""
    parts = re.split(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")", sql)
    return "".join(
        part.replace("%", "%%") if i % 2 else part.replace("%", "%%").replace("?", "%s")
        for i, part in enumerate(parts)
    )


class _Database:
    """One connection, made when it is needed and again after it broke."""

    def __init__(self, options: JdbcConnectionOptions) -> None:
        self._options = options
        self._connection: Any = None

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Any]:
        """Give a cursor; what is raised rolls back, and names the database."""
        psycopg = import_psycopg()
        try:
            with self._connected().transaction(), self._connection.cursor() as cursor:
                yield cursor
        except psycopg.Error as error:
            self.close()
            raise self._error(doing, error) from error

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            given = {"options": _OPTIONS, **connection_arguments(self._options)}
            self._connection = import_psycopg().connect(
                autocommit=True, connect_timeout=10, **given
            )
        return self._connection

    def _error(self, doing: str, error: Any) -> WeirError:
        psycopg = import_psycopg()
        text = f"{type(error).__name__}: {str(error).strip()}"
        msg = f"PostgreSQL at {self._options.url.partition('?')[0]!r} failed while {doing}: {text}"
        wrong = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)
        return UsageError(msg) if isinstance(error, wrong) else StorageError(msg)

    def close(self) -> None:
        """Close the connection; what is open is rolled back."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def import_psycopg() -> Any:
    """Return the module `psycopg`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        msg = "PostgreSQL needs the package psycopg: pip install 'weir-spark[postgres]'"
        raise UsageError(msg) from error
    return psycopg


class PostgresTarget(CommitTarget):
    """PostgreSQL as a commit target."""

    def __init__(self, options: JdbcConnectionOptions, statement: str) -> None:
        """Connect to nobody yet."""
        self._database = _Database(options)
        self._statement = statement
        self._fences: dict[str, int] = {}

    def fence(self, identities: Sequence[str]) -> None:
        """Take the identities over; a transaction that is writing under one is waited for."""
        with self._database.transaction("making the table of commits") as cursor:
            # Two processes that make it at once would refuse each other.
            cursor.execute("select pg_advisory_xact_lock(hashtext(%s))", (TABLE,))
            cursor.execute(_CREATE)
        for identity in identities:
            with self._database.transaction("fencing") as cursor:
                self._fences[identity] = cursor.execute(_FENCE, (identity,)).fetchone()[0]

    def committed(self, identity: str) -> int | None:
        """Return the marker."""
        with self._database.transaction("asking what was committed") as cursor:
            found = cursor.execute(_ASK, (identity,)).fetchone()
        return None if found is None or not found[0] else int(found[0])

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        """Write the marker, then the rows, in one transaction."""
        fence = self._fences.get(identity, 0)
        with self._database.transaction(f"writing checkpoint {checkpoint}") as cursor:
            cursor.execute(_MARK, (checkpoint, identity, fence, checkpoint))
            if cursor.rowcount != 1:
                msg = f"{identity!r} was taken over by a later attempt: it writes nothing more"
                raise StorageError(msg)
            cursor.executemany(self._statement, rows)

    def encode(self, rows: list[Any]) -> bytes:
        """Keep dates and decimals as they are."""
        return pickled.dumps(rows)

    def decode(self, data: bytes) -> list[Any]:
        """Return the rows."""
        found: list[Any] = pickled.loads(data)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


@dataclass(frozen=True)
class _Statement:
    """A statement and the type whose fields are its parameters."""

    sql: str
    type_info: Any

    def __post_init__(self) -> None:
        """Refuse a statement whose parameters are not the fields of the rows."""
        if not isinstance(self.type_info, (RowTypeInfo, TupleTypeInfo)):
            msg = f"JdbcSink needs rows: the type is {self.type_info!r}, expected Types.ROW(...)"
            raise UsageError(msg)
        fields, marks = len(self.type_info.get_field_types()), self.text.count("%s")
        if fields != marks:
            msg = f"JdbcSink: {self.sql!r} has {marks} parameters, and rows have {fields} fields"
            raise UsageError(msg)

    @property
    def text(self) -> str:
        return statement_of(self.sql)

    def parameters(self, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        check = self.type_info.check
        for value in values:
            try:
                yield tuple(check(value))
            except BaseException as error:  # noqa: PERF203 - it names the record
                blame(error, value)
                raise


class JdbcSink(Sink):
    """Writes batches as they come: at least once.

    Example:
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        connection = connection.with_url("jdbc:postgresql://host/shop").build()
        sql = "INSERT INTO payments VALUES (?, ?)"
        row = Types.ROW([Types.STRING(), Types.LONG()])
        JdbcSink.sink(sql, row, connection)
    """

    def __init__(
        self,
        statement: _Statement,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
    ) -> None:
        """Use `JdbcSink.sink`."""
        self._statement = statement
        self._connection = connection
        self._execution = execution

    @staticmethod
    def sink(
        sql: str,
        type_info: Any,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Write each row by a statement whose `?` are the row's fields; at least once."""
        execution = jdbc_execution_options or JdbcExecutionOptions()
        return JdbcSink(_Statement(sql, type_info), jdbc_connection_options, execution)

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: Any,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> ExactlyOnceJdbcSink:
        """Write the rows of a checkpoint in one transaction with a marker, when it is complete."""
        return ExactlyOnceJdbcSink(_Statement(sql, type_info), jdbc_connection_options)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer of one subtask."""
        database = _Database(self._connection)
        return _BatchWriter(self._statement, database, self._execution, context.clock)


class ExactlyOnceJdbcSink(CommitSink):
    """Writes every row once; see `JdbcSink.exactly_once_sink`."""

    def __init__(self, statement: _Statement, connection: JdbcConnectionOptions) -> None:
        """Use `JdbcSink.exactly_once_sink`."""
        self._statement = statement
        self._connection = connection

    def open_target(self, context: WriterContext) -> CommitTarget:
        """Return a target for one subtask."""
        return PostgresTarget(self._connection, self._statement.text)

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> Iterable[Any]:
        """Return the parameters of every row."""
        return self._statement.parameters(values)


class _BatchWriter(SinkWriter):
    def __init__(
        self,
        statement: _Statement,
        database: _Database,
        execution: JdbcExecutionOptions,
        clock: Clock,
    ) -> None:
        self._statement = statement
        self._database = database
        self._execution = execution
        self._clock = clock
        self._rows: list[tuple[Any, ...]] = []
        self._since_ms = clock.monotonic_ms()

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        self._rows.extend(self._statement.parameters(values))
        now, how = self._clock.monotonic_ms(), self._execution
        is_old = 0 < how.batch_interval_ms <= now - self._since_ms
        if is_old or len(self._rows) >= how.batch_size:
            self._flush()

    def _flush(self) -> None:
        size = self._execution.batch_size
        while self._rows:
            self._write(self._rows[:size])
            del self._rows[:size]
        self._since_ms = self._clock.monotonic_ms()

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        for left in range(self._execution.max_retries, -1, -1):
            try:
                with self._database.transaction("writing a batch") as cursor:
                    cursor.executemany(self._statement.text, rows)
            except StorageError:  # noqa: PERF203 - it is tried again
                if not left:
                    raise
            else:
                return

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        self._flush()
        return []

    def commit(self, committables: list[bytes]) -> None:
        """Nothing is prepared, so nothing is left to do."""

    def finish(self) -> None:
        self._flush()

    def abort(self) -> None:
        self._rows = []

    def close(self) -> None:
        self.abort()
        self._database.close()
