"""JdbcSink against a real PostgreSQL: the contract of commit targets, and batches as they come."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable
from typing import Any

import psycopg
import pytest

from weir.common import Types
from weir.connector.commit_target import CommitSink
from weir.connector.jdbc import connection_arguments, statement_of
from weir.connector.sink import WriterContext
from weir.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from weir.errors import StorageError, UsageError
from weir.testing.clock import ManualClock
from weir.testing.commit_target_conformance import CommitTargetConformance

PAIR = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def options(url: str, **more: str) -> JdbcConnectionOptions:
    made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    made.with_url(url).with_driver_name("org.postgresql.Driver").with_user_name("test")
    return made.with_password(more.get("password", "secret")).build()


class Table:
    """A table of a test, and what a reader sees of it."""

    def __init__(self, address: str) -> None:
        self.url, self.name = f"jdbc:postgresql://{address}", f"t{uuid.uuid4().hex[:10]}"
        self._plain = f"postgresql://test@{address}"
        self.run(f"create table {self.name} (id int, name text)")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._plain, autocommit=True) as connection:
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
    return WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1, **more)


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
def test_mistakes_are_named_and_leave_nothing_behind(table: Table) -> None:
    table.run(f"alter table {table.name} add primary key (id)")
    sink = JdbcSink.exactly_once_sink(table.insert, PAIR, options(table.url))
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a"), (1, "again")], None)
    prepared = writer.prepare(1)
    with pytest.raises(UsageError, match="UniqueViolation"):
        writer.commit(prepared)
    writer.close()
    assert table.rows() == []
    missing = JdbcSink.sink("insert into nowhere values (?, ?)", PAIR, options(table.url))
    writer = missing.create_writer(context())
    writer.write_batch([(1, "a")], None)
    with pytest.raises(UsageError, match='relation "nowhere" does not exist'):
        writer.prepare(1)


def test_a_database_that_is_down_is_said_and_its_password_is_not() -> None:
    given = options("jdbc:postgresql://127.0.0.1:1/test")
    assert "secret" not in repr(given)
    how = JdbcExecutionOptions.builder().with_max_retries(1).build()
    writer = JdbcSink.sink("insert into t values (?, ?)", PAIR, given, how).create_writer(context())
    writer.write_batch([(1, "a")], None)
    with pytest.raises(StorageError, match="failed while writing a batch") as refused:
        writer.prepare(1)
    assert "secret" not in str(refused.value)


def test_statements_and_urls_of_jdbc_are_understood() -> None:
    assert statement_of("insert into t values (?, '?%', \"?\", ?)") == (
        "insert into t values (%s, '?%%', \"?\", %s)"
    )
    found = connection_arguments(options("jdbc:postgresql://h:7/db?sslmode=require&user=x"))
    assert found == {
        "host": "h",
        "port": "7",
        "dbname": "db",
        "sslmode": "require",
        "user": "test",
        "password": "secret",
    }
    with pytest.raises(UsageError, match="expected 'jdbc:postgresql") as refused:
        options("jdbc:mysql://h/db?password=secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="has 1 parameters, and rows have 2 fields"):
        JdbcSink.sink("insert into t values (?)", PAIR, options("jdbc:postgresql://h/d"))
    with pytest.raises(UsageError, match="needs rows"):
        JdbcSink.sink("insert into t values (?)", Types.INT(), options("jdbc:postgresql://h/d"))
