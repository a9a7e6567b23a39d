"""JdbcSink and JdbcSource against a real MariaDB: the dialect of MySQL."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests import brokers

from weir.common import Types
from weir.common.types import row_class
from weir.connector.commit_target import CommitSink
from weir.connector.sink import WriterContext
from weir.connector.source import Source
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from weir.errors import StorageError, UsageError
from weir.ids import new_job_id
from weir.testing.commit_target_conformance import CommitTargetConformance
from weir.testing.source_conformance import PlannedSourceConformance

pytestmark = pytest.mark.mariadb
PAIR = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
TRIPLE = Types.ROW([Types.INT(), Types.STRING(), Types.STRING()])


def options(url: str, password: str = "secret") -> JdbcConnectionOptions:
    made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
    return made.with_user_name("test").with_password(password).build()


class Table:
    """A table of a test, and what a reader sees of it."""

    def __init__(self, server: brokers.MariaDB) -> None:
        self.url, self.name = f"jdbc:mariadb://{server.address}", f"t{uuid.uuid4().hex[:10]}"
        self._port = server.port
        self.run(f"create table {self.name} (id int, name varchar(20)) engine = InnoDB")

    def run(self, statement: str) -> tuple[tuple[Any, ...], ...]:
        place = {"host": "127.0.0.1", "port": self._port, "database": "test"}
        connection = pymysql.connect(**place, user="test", password="secret", autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.run(f"select * from {self.name}"))

    @property
    def insert(self) -> str:
        return f"insert into {self.name} values (?, ?)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.MariaDB]:
    with brokers.own("mariadb", Path(tmp_path_factory.mktemp("mariadb"))) as started:
        yield started


@pytest.fixture
def table(server: brokers.MariaDB) -> Table:
    return Table(server)


def context() -> WriterContext:
    return WriterContext(new_job_id(), "ab" * 16, attempt=0, subtask=0, parallelism=1)


class TestExactlyOnceInMariaDB(CommitTargetConformance):
    @pytest.fixture(autouse=True)
    def _table(self, table: Table) -> None:
        self.table = table

    def make_sink(self) -> CommitSink:
        return JdbcSink.exactly_once_sink(self.table.insert, PAIR, options(self.table.url))

    def visible(self) -> Iterable[Any]:
        return self.table.rows()


def test_values_of_all_kinds_arrive_as_they_are(table: Table) -> None:
    table.run("create table kinds (b boolean, n decimal(9, 2), d date, at datetime(3), x blob)")
    kinds = [
        Types.BOOLEAN(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ]
    insert = "insert into kinds values (?, ?, ?, ?, ?)"
    writer = JdbcSink.sink(insert, Types.ROW(kinds), options(table.url)).create_writer(context())
    at = datetime.datetime(2024, 2, 29, 1, 2, 3, 4_000)
    writer.write_batch([(True, decimal.Decimal("1.50"), at.date(), at, b"\x00%s")], None)
    writer.prepare(1)
    writer.close()
    assert table.run("select * from kinds") == (
        (1, decimal.Decimal("1.50"), at.date(), at, b"\x00%s"),
    )


UPSERTS = [
    "insert into {t} (id, name) values (?, ?) on duplicate key update name = ?, n = n + 1",
    "insert into {t} (id, name) values (?, ?)\n"
    "ON DUPLICATE KEY UPDATE name = values(name), n = n + length(?)",
    "insert into {t} (id, name, n) select ?, ?, 1 on duplicate key update name = ?, n = n + 1",
]


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
@pytest.mark.parametrize("statement", UPSERTS)
def test_an_upsert_may_have_parameters_where_it_updates(
    table: Table, statement: str, make: Any
) -> None:
    keyed = f"{table.name}_keyed"
    table.run(f"create table {keyed} (id int primary key, name varchar(20), n int default 1)")
    rows = [(1, "a", "a"), (2, "50%s", "5"), (1, "c", "c")]
    writer = make(statement.format(t=keyed), TRIPLE, options(table.url)).create_writer(context())
    for checkpoint in (1, 2):
        writer.write_batch(rows, None)
        writer.commit(writer.prepare(checkpoint))
    writer.close()
    updated = "5" if statement is not UPSERTS[1] else "50%s"
    assert table.run(f"select * from {keyed} order by id") == ((1, "c", 4), (2, updated, 2))


def test_an_upsert_by_the_new_values_is_one_statement_of_many_rows(table: Table) -> None:
    keyed = f"{table.name}_keyed"
    table.run(f"create table {keyed} (id int primary key, name varchar(20))")
    statement = f"insert into {keyed} values (?, ?) on duplicate key update name = values(name)"
    writer = JdbcSink.sink(statement, PAIR, options(table.url)).create_writer(context())
    for rows in ([(1, "a"), (2, "b"), (1, "c")], [(2, "d")]):
        writer.write_batch(rows, None)
        writer.prepare(1)
    writer.close()
    assert table.run(f"select * from {keyed} order by id") == ((1, "c"), (2, "d"))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert into nowhere values (?, ?)", "doesn't exist"),
        ("insert into {t} (id, title) values (?, ?)", "Unknown column 'title'"),
        ("insert into {t} (name, id) values (?, ?)", "Incorrect integer value"),
        ("insert int {t} values (?, ?)", "SQL syntax"),
    ],
)
def test_mistakes_end_with_the_database_s_own_words(
    table: Table, statement: str, said: str
) -> None:
    sql = statement.format(t=table.name)
    writer = JdbcSink.exactly_once_sink(sql, PAIR, options(table.url)).create_writer(context())
    writer.write_batch([(1, "a")], None)
    prepared = writer.prepare(1)
    with pytest.raises(UsageError, match=said):
        writer.commit(prepared)
    writer.close()
    assert table.rows() == []


def test_a_wrong_password_is_a_mistake_and_a_server_that_is_down_is_not(
    table: Table, tmp_path: Path
) -> None:
    wrong = JdbcSink.exactly_once_sink(table.insert, PAIR, options(table.url, "other"))
    with pytest.raises(UsageError, match="Access denied") as refused:
        wrong.create_writer(context())
    assert "other" not in str(refused.value)
    with brokers.own("mariadb", tmp_path) as server:
        place = Table(server)
        sink = JdbcSink.exactly_once_sink(place.insert, PAIR, options(place.url))
        writer = sink.create_writer(context())
        writer.write_batch([(1, "a")], None)
        prepared = writer.prepare(1)
        server.kill()
        with pytest.raises(StorageError):
            writer.commit(prepared)
        server.start()
        again = sink.create_writer(context())
        again.commit(prepared)
        again.commit(prepared)
        assert place.rows() == [(1, "a")]
        again.close()


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
def test_a_table_that_knows_no_transactions_is_refused(table: Table, make: Any) -> None:
    table.run(f"create table {table.name}_old (id int, name varchar(20)) engine = MyISAM")
    for name in (f"{table.name}_old", f"`test`.`{table.name}_old`"):
        for statement in (f"insert into {name} values (?, ?)", f"Replace {name} values (?, ?)"):
            sink = make(statement, PAIR, options(table.url))
            with pytest.raises(UsageError, match=r"MyISAM, which knows no transactions.*InnoDB"):
                sink.create_writer(context())
    make(table.insert, PAIR, options(table.url)).create_writer(context()).close()


def test_a_deadlock_is_tried_again(table: Table) -> None:
    """What a table without transactions counts is not rolled back."""
    table.run(f"create table {table.name}_met (n int) engine = MyISAM")
    table.run(f"insert into {table.name}_met values (0)")
    table.run(
        f"create trigger {table.name}_meet before insert on {table.name} for each row begin "
        f"update {table.name}_met set n = n + 1; "
        f"if (select n from {table.name}_met) <= 3 then "
        "signal sqlstate '40001' set mysql_errno = 1213, message_text = 'met'; end if; end"
    )
    sink = JdbcSink.exactly_once_sink(table.insert, PAIR, options(table.url))
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a"), (2, "b")], None)
    writer.commit(writer.prepare(1))
    writer.close()
    assert table.rows() == [(1, "a"), (2, "b")]


def cipher(sink: Any) -> str:
    """Return by what the connection of a sink is encrypted."""
    writer = sink.create_writer(context())
    with writer._database.transaction("looking") as cursor:
        cursor.execute("show session status like 'Ssl_cipher'")
        found: str = cursor.fetchone()[1]
    writer.close()
    return found


def test_a_url_that_demands_tls_gets_it_or_no_connection(table: Table, tmp_path: Path) -> None:
    def sink(url: str) -> Any:
        return JdbcSink.sink("insert into t values (?, ?)", PAIR, options(url))

    for mode in ("sslMode=REQUIRED", "useSSL=true&trustServerCertificate=true"):
        with pytest.raises(UsageError, match=r"TLS|SSL is required"):
            sink(f"{table.url}?{mode}").create_writer(context())
    with brokers.running(lambda: brokers.SecureMariaDB(tmp_path, ("127.0.0.1",))) as server:
        url = f"jdbc:mariadb://{server.address}"
        ca = f"serverSslCert={server.tls.ca}"
        assert cipher(sink(f"{url}?sslMode=DISABLED")) == ""
        for said in ("sslMode=trust", f"sslMode=verify-ca&{ca}", f"useSsl=true&{ca}"):
            assert cipher(sink(f"{url}?{said}")) != ""
        elsewhere = url.replace("127.0.0.1", "localhost")
        assert cipher(sink(f"{elsewhere}?sslMode=VERIFY_CA&{ca}")) != ""
        for said in (f"{url}?sslMode=VERIFY_CA", f"{elsewhere}?sslMode=VERIFY_IDENTITY&{ca}"):
            with pytest.raises(UsageError, match="CERTIFICATE_VERIFY_FAILED"):
                sink(said).create_writer(context())


class TestRangesInMariaDB(PlannedSourceConformance):
    @pytest.fixture(autouse=True)
    def _table(self, table: Table) -> None:
        self.table = table
        table.run(f"insert into {table.name} values {', '.join(map(str, self.pairs()))}")

    def pairs(self) -> list[tuple[int, str]]:
        return [(n, f"n{n}") for n in range(20)]

    def make_source(self, directory: Path) -> Source:
        made = JdbcSource.builder().set_db_url(self.table.url).set_username("test")
        made.set_password("secret").set_sql(f"select id, name from {self.table.name}")
        made.set_split_column("id").set_type_information(PAIR).set_rows_per_range(3)
        return made.set_result_set_fetch_size(2).build()

    def records(self) -> list[Any]:
        return [row_class(("id", "name"))._of(pair) for pair in self.pairs()]
