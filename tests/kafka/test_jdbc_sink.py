"""JdbcSink against a real PostgreSQL: the contract of commit targets, and batches as they come."""

from __future__ import annotations

import datetime
import decimal
import logging
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests import brokers

from weir.common import Types
from weir.connector.commit_target import CommitSink
from weir.connector.jdbc.database import Database
from weir.connector.jdbc.dialect import dialect_of
from weir.connector.jdbc.sink import _BatchWriter
from weir.connector.sink import WriterContext
from weir.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from weir.errors import StorageError, UsageError
from weir.ids import new_job_id
from weir.testing.clock import ManualClock
from weir.testing.commit_target_conformance import CommitTargetConformance

PAIR = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def options(url: str, **more: str) -> JdbcConnectionOptions:
    made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    made.with_url(url).with_driver_name("org.postgresql.Driver")
    made.with_user_name(more.get("user", "test"))
    return made.with_password(more.get("password", "secret")).build()


class Table:
    """A table of a test, and what a reader sees of it."""

    def __init__(self, address: str) -> None:
        self.url, self.name = f"jdbc:postgresql://{address}", f"t{uuid.uuid4().hex[:10]}"
        self.plain = f"postgresql://test@{address}"
        self.run(f"create table {self.name} (id int, name text)")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.plain, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def rows(self) -> list[tuple[Any, ...]]:
        return self.run(f"select * from {self.name}")

    @property
    def insert(self) -> str:
        return f"insert into {self.name} values (?, ?)"


@pytest.fixture
def table(postgres: str) -> Table:
    return Table(postgres)


def context(**more: Any) -> WriterContext:
    return WriterContext(new_job_id(), "ab" * 16, attempt=0, subtask=0, parallelism=1, **more)


@pytest.mark.postgres
class TestExactlyOnce(CommitTargetConformance):
    @pytest.fixture(autouse=True)
    def _table(self, table: Table) -> None:
        self.table = table

    def make_sink(self) -> CommitSink:
        return JdbcSink.exactly_once_sink(self.table.insert, PAIR, options(self.table.url))

    def visible(self) -> Iterable[Any]:
        return self.table.rows()


@pytest.mark.postgres
def test_a_batch_is_written_when_it_is_full_old_or_a_barrier_comes(table: Table) -> None:
    how = JdbcExecutionOptions.builder().with_batch_size(3).with_batch_interval_ms(1000).build()
    clock = ManualClock()
    sink = JdbcSink.sink(table.insert, PAIR, options(table.url), how)
    writer = sink.create_writer(context(clock=clock))
    writer.write_batch([(1, "a"), (2, "b")], None)
    assert table.rows() == []
    writer.write_batch([(3, "c")], None)
    assert len(table.rows()) == 3
    writer.write_batch([(4, "d")], None)
    clock.advance(1000)
    writer.write_batch([(5, "e")], None)
    assert len(table.rows()) == 5
    writer.write_batch([(6, None)], None)
    assert writer.prepare(1) == []
    assert table.rows()[-1] == (6, None)
    writer.write_batch([(7, "dropped")], None)
    writer.close()
    assert len(table.rows()) == 6


@pytest.mark.postgres
def test_dates_decimals_and_bytes_arrive(table: Table) -> None:
    table.run(f"create table {table.name}_x (d date, n numeric, b bytea)")
    kinds = [Types.SQL_DATE(), Types.BIG_DEC(), Types.PRIMITIVE_ARRAY(Types.BYTE())]
    insert = f"insert into {table.name}_x values (?, ?, ?)"
    sink = JdbcSink.exactly_once_sink(insert, Types.ROW(kinds), options(table.url))
    writer = sink.create_writer(context())
    row = (datetime.date(2024, 2, 29), decimal.Decimal("1.50"), b"\x00\xff")
    writer.write_batch([row], None)
    writer.commit(writer.prepare(1))
    assert table.run(f"select * from {table.name}_x") == [row]
    writer.close()


@pytest.mark.postgres
def test_a_batch_is_written_when_the_database_is_back(tmp_path: Path) -> None:
    with brokers.own("postgres", tmp_path) as server:
        table, pauses = Table(server.address), list[float]()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                server.start()

        how = JdbcExecutionOptions.builder().with_max_retries(3).build()
        statement = JdbcSink.sink(table.insert, PAIR, options(table.url))._statement
        database = Database(options(table.url))
        writer = _BatchWriter(statement, database, how, ManualClock(), pause=pause)
        writer.write_batch([(1, "a")], None)
        writer.prepare(1)
        server.kill()
        writer.write_batch([(2, "b")], None)
        writer.prepare(2)
        assert pauses == [1.0, 2.0]
        assert table.rows() == [(1, "a"), (2, "b")]
        server.kill()
        writer.write_batch([(3, "c")], None)
        with pytest.raises(StorageError, match="failed while writing a batch"):
            writer.prepare(3)
        assert pauses[2:] == [1.0, 2.0, 3.0]
        writer.close()


def test_options_without_effect_are_said(caplog: pytest.LogCaptureFixture) -> None:
    given = options("jdbc:postgresql://h/d")
    with caplog.at_level(logging.WARNING, "weir.jdbc"):
        for none in (None, JdbcExecutionOptions.defaults()):
            JdbcSink.exactly_once_sink("insert into t values (?, ?)", PAIR, given, none)
        assert caplog.text == ""
        how = JdbcExecutionOptions.builder().with_batch_size(7).build()
        JdbcSink.exactly_once_sink("insert into t values (?, ?)", PAIR, given, how)
    assert "options of JdbcSink.exactly_once_sink have no effect" in caplog.text


def test_a_database_that_is_down_is_said_and_its_password_is_not() -> None:
    given = options("jdbc:postgresql://127.0.0.1:1/test")
    assert "secret" not in repr(given)
    how = JdbcExecutionOptions.builder().with_max_retries(1).build()
    sink = JdbcSink.sink("insert into t values (?, ?)", PAIR, given, how)
    with pytest.raises(StorageError, match="failed while connecting") as refused:
        sink.create_writer(context())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "kind", "found"),
    [
        ("connect_timeout=2", StorageError, "failed while connecting"),
        ("connect_timeout=soon", UsageError, "bad value for connect_timeout: 'soon'"),
        ("autocommit=true", UsageError, 'invalid connection option "autocommit"'),
        ("prepare_threshold=5", UsageError, 'invalid connection option "prepare_threshold"'),
    ],
)
def test_words_of_a_url_are_those_of_libpq(said: str, kind: type[Exception], found: str) -> None:
    given = options(f"jdbc:postgresql://127.0.0.1:1/test?{said}")
    with pytest.raises(kind, match=found):
        JdbcSink.sink("insert into t values (?, ?)", PAIR, given).create_writer(context())


def test_statements_and_urls_of_jdbc_are_understood() -> None:
    url = "jdbc:postgresql://h:7/db?sslmode=require&user=x"
    dialect = dialect_of(url)
    assert dialect.statement("insert into t values (?, '?%', \"?\", ?)") == (
        "insert into t values (%s, '?%%', \"?\", %s)"
    )
    assert dialect.arguments(options(url)) == {
        "host": "h",
        "port": "7",
        "dbname": "db",
        "sslmode": "require",
        "user": "test",
        "password": "secret",
    }
    with pytest.raises(UsageError, match="expected one of 'jdbc:postgresql") as refused:
        options("jdbc:oracle://h/db?password=secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="has 1 parameters, and rows have 2 fields"):
        JdbcSink.sink("insert into t values (?)", PAIR, options("jdbc:postgresql://h/d"))
    with pytest.raises(UsageError, match="needs rows"):
        JdbcSink.sink("insert into t values (?)", Types.INT(), options("jdbc:postgresql://h/d"))


BAD = {
    "table missing": ("insert into nowhere values (?, ?)", 'relation "nowhere" does not exist'),
    "column missing": ("insert into {t} (id, title) values (?, ?)", 'column "title"'),
    "syntax": ("insert int {t} values (?, ?)", "syntax error"),
    "type mismatch": ("insert into {t} (name, id) values (?, ?)", "invalid input syntax for"),
    "duplicate key": ("insert into {t}_keyed values (?, ?)", "UniqueViolation"),
    "not null": ("insert into {t}_full (id) values (?::int + length(?))", "null value in column"),
    "value too long": ("insert into {t}_short values (?, ?)", "too long"),
    "no right": ("insert into pg_catalog.pg_am values (?, ?, 0, 'i')", "pg_am"),
}


@pytest.mark.postgres
@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("what", BAD)
def test_mistakes_end_with_the_database_s_words_and_leave_nothing(
    table: Table, what: str, exactly_once: bool
) -> None:
    table.run(f"create table {table.name}_keyed (id int primary key, name text)")
    table.run(f"create table {table.name}_full (id int, name text not null)")
    table.run(f"create table {table.name}_short (id int, name varchar(2))")
    statement, said = BAD[what]
    make = JdbcSink.exactly_once_sink if exactly_once else JdbcSink.sink
    sink = make(statement.format(t=table.name), PAIR, options(table.url))
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a"), (1, "again")], None)
    with pytest.raises(UsageError, match=said) as refused:
        writer.commit(writer.prepare(1))
    assert f"'{table.url}' failed while writing" in str(refused.value)
    assert "start again from the newest checkpoint" in str(refused.value)
    writer.close()
    for end in ("", "_keyed", "_full", "_short"):
        assert table.run(f"select count(*) from {table.name}{end}") == [(0,)]


@pytest.mark.postgres
def test_a_value_that_is_not_of_the_declared_type_is_refused_before_the_barrier(
    table: Table,
) -> None:
    writer = JdbcSink.exactly_once_sink(table.insert, PAIR, options(table.url)).create_writer(
        context()
    )
    with pytest.raises(UsageError, match="cannot hold 'one' of type str"):
        writer.write_batch([("one", "a")], None)
    writer.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: Any) -> Any:
    """A PostgreSQL that asks for passwords, and has a small disk for one table."""
    folder = tmp_path_factory.mktemp("guarded")
    with brokers.own("postgres", folder) as server:
        plain = f"postgresql://test@{server.address}"
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("create role weir login superuser password 'right-canary'")
        server.require_passwords()
        yield server


@pytest.mark.postgres
def test_a_wrong_password_and_a_missing_database_are_said_and_the_right_one_works(
    guarded: Any,
) -> None:
    def writer(password: str, address: str = guarded.address) -> Any:
        made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_user_name("weir")
        made.with_url(f"jdbc:postgresql://{address}").with_password(password)
        sql = "insert into pg_temp.t values (?, ?)"
        sink = JdbcSink.sink(sql, PAIR, made.build())
        found = sink.create_writer(context())
        found.write_batch([(1, "a")], None)
        return found

    with pytest.raises(UsageError, match="password authentication failed") as refused:
        writer("wrong-canary")
    assert "wrong-canary" not in str(refused.value)
    with pytest.raises(UsageError, match='database "nowhere" does not exist'):
        writer("right-canary", guarded.address.replace("/test", "/nowhere"))
    made = writer("right-canary")
    with pytest.raises(UsageError, match="does not exist"):
        made.prepare(1)
    made.close()


@pytest.mark.postgres
def test_a_full_disk_is_worth_another_try_and_nothing_is_half_written(
    guarded: Any, tmp_path: Any
) -> None:
    url = f"jdbc:postgresql://{guarded.address}"
    given = options(url, user="weir", password="right-canary")
    plain = f"postgresql://weir:right-canary@{guarded.address}"
    with guarded.small_disk() as place, psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"create tablespace small location '{place}'")
        connection.execute("create table narrow (id int, name text) tablespace small")
        connection.execute("alter table narrow alter column name set storage external")
        sink = JdbcSink.exactly_once_sink("insert into narrow values (?, ?)", PAIR, given)
        writer = sink.create_writer(context())
        writer.write_batch([(n, "x" * 200_000) for n in range(40)], None)
        prepared = writer.prepare(1)
        with pytest.raises(StorageError, match="DiskFull"):
            writer.commit(prepared)
        assert connection.execute("select count(*) from narrow").fetchone() == (0,)
        guarded.grow_disk(place)
        connection.execute("vacuum narrow")
        writer.commit(prepared)
        assert connection.execute("select count(*) from narrow").fetchone() == (40,)
        writer.close()
        connection.execute("drop table narrow")
        connection.execute("drop tablespace small")
