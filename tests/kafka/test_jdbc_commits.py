"""What others do to a database while it is written to, and what its settings would give away."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from tests.kafka.test_jdbc_sink import PAIR, Table, context, options

from weir.common import Types
from weir.connector.jdbc.database import Database
from weir.datastream.connectors.jdbc import JdbcSink
from weir.errors import StorageError, UsageError

pytestmark = pytest.mark.postgres
PASSWORD = "canary"


@pytest.fixture
def table(postgres: str) -> Table:
    return Table(postgres)


def committed(sink: Any, *rows: tuple[Any, ...], checkpoint: int = 1) -> None:
    writer = sink.create_writer(context())
    writer.write_batch(list(rows), None)
    writer.commit(writer.prepare(checkpoint))
    writer.close()


def give_way(table: Table, code: str, times: int) -> None:
    """Let the first rows meet other transactions: what a sequence counts is not rolled back."""
    name = table.name
    table.run(f"create sequence {name}_met")
    table.run(
        f"create function {name}_meet() returns trigger language plpgsql as $$ begin "
        f"if nextval('{name}_met') <= {times} then raise exception 'met' using errcode = '{code}'; "
        "end if; return new; end $$"
    )
    table.run(
        f"create trigger meet before insert on {name} for each row execute function {name}_meet()"
    )


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_a_deadlock_and_what_cannot_be_serialised_are_tried_again(
    table: Table, make: Any, code: str
) -> None:
    give_way(table, code, times=5)
    committed(make(table.insert, PAIR, options(table.url)), (1, "a"), (2, "b"))
    assert table.rows() == [(1, "a"), (2, "b")]


def test_what_meets_others_again_and_again_fails_the_attempt(table: Table, monkeypatch) -> None:
    monkeypatch.setattr("weir.connector.jdbc.database._PAUSE_S", 0.0)
    give_way(table, "40001", times=10)
    sink = JdbcSink.exactly_once_sink(table.insert, PAIR, options(table.url))
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a")], None)
    prepared = writer.prepare(1)
    with pytest.raises(StorageError, match="failed while writing checkpoint 1: SerializationFai"):
        writer.commit(prepared)
    assert table.rows() == []
    writer.commit(prepared)
    assert table.rows() == [(1, "a")]
    writer.close()


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
def test_a_commit_is_durable_where_the_server_would_not_wait_for_its_disk(
    table: Table, make: Any
) -> None:
    statement = f"insert into {table.name} values (?, ? || current_setting('synchronous_commit'))"
    for number, (given, kept) in enumerate({"off": "on", "remote_write": "remote_write"}.items()):
        setting = f"options=-c%20synchronous_commit%3D{given}"
        sink = make(statement, PAIR, options(f"{table.url}?{setting}"))
        committed(sink, (number, ""), checkpoint=number + 1)
        assert table.rows()[-1] == (number, kept)


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
def test_an_upsert_meets_its_own_rows_and_those_of_a_batch_before(table: Table, make: Any) -> None:
    table.run(f"create table {table.name}_keyed (id int primary key, name text, n int)")
    sink = make(
        f"insert into {table.name}_keyed as t values (?, ?, 1) on conflict (id) do update "
        "set name = ?, n = t.n + 1",
        Types.ROW([Types.INT(), Types.STRING(), Types.STRING()]),
        options(table.url),
    )
    for _ in range(2):
        committed(sink, (1, "a", "a"), (2, "b", "50%s"), (1, "c", "c"))
    found = table.run(f"select * from {table.name}_keyed order by id")
    assert found == [(1, "c", 4), (2, "50%s", 2)]


@pytest.mark.parametrize(
    ("said", "idle", "name"),
    [
        ("connect_timeout=5", "1min", ""),
        ("options=-c%20application_name%3Dshop", "1min", "shop"),
        ("options=-c%20idle_in_transaction_session_timeout%3D5000", "5s", ""),
    ],
)
def test_who_sleeps_in_a_transaction_is_thrown_out_whatever_else_a_url_says(
    table: Table, said: str, idle: str, name: str
) -> None:
    asked = ("idle_in_transaction_session_timeout", "application_name")
    database = Database(options(f"{table.url}?{said}"))
    with database.transaction("looking") as cursor:
        cursor.execute("select current_setting(%s), current_setting(%s)", asked)
        assert cursor.fetchone() == (idle, name)
    database.close()


@pytest.fixture
def small_user(table: Table) -> Any:
    """A user who may write to the table of the test, and make none."""
    name = f"u{uuid.uuid4().hex[:10]}"
    schema = f"s{uuid.uuid4().hex[:10]}"
    table.run(f"create role {name} login password '{PASSWORD}'")
    table.run(f"create schema {schema}")
    table.run(f"grant usage on schema {schema} to {name}")
    table.run(f"grant insert, select on {table.name} to {name}")
    table.run(f"alter role {name} set search_path = {schema}, public")
    table.run("revoke create on schema public from public")
    yield name, schema
    table.run(f"drop owned by {name}")
    table.run(f"drop schema {schema} cascade")
    table.run(f"drop role {name}")


def test_who_may_make_no_table_is_told_what_to_make_and_writes_when_it_is_there(
    table: Table, small_user: tuple[str, str]
) -> None:
    user, schema = small_user
    given = options(f"{table.url}?options=-c%20search_path%3D{schema}", user=user)
    insert = f"insert into public.{table.name} values (?, ?)"
    sink = JdbcSink.exactly_once_sink(insert, PAIR, given)
    with pytest.raises(UsageError, match="permission denied for schema") as refused:
        committed(sink, (1, "a"))
    told = re.search(r"let somebody who may run: (create table .*)", str(refused.value))
    assert told is not None
    table.run(f"set search_path = {schema}; {told[1]}")
    table.run(f"grant select, insert, update on {schema}.weir_commits to {user}")
    committed(sink, (1, "a"))
    assert table.rows() == [(1, "a")]


def test_a_server_that_is_away_or_refuses_is_found_before_the_first_record(table: Table) -> None:
    for make in (JdbcSink.sink, JdbcSink.exactly_once_sink):
        nowhere = options(table.url.replace("/test", "/nowhere"))
        with pytest.raises(UsageError, match=r"failed while connecting.*check the URL, the user"):
            make(table.insert, PAIR, nowhere).create_writer(context())
