"""Databases without a server: SQLite by the contract of commit targets, dialects, the source."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.codec.arrow import batch_to_rows
from weir.common import Types
from weir.common.types import row_class
from weir.connector.commit_target import CommitSink
from weir.connector.decoder import Columns, Mark, Records
from weir.connector.jdbc.copying import Copy, plain_insert, plan_copy
from weir.connector.jdbc.dialect import DIALECTS, MySQL, PostgreSQL, SQLite, dialect_of
from weir.connector.jdbc.source import Position
from weir.connector.position import position_text
from weir.connector.sink import WriterContext
from weir.connector.source import Opening, PlannedSplits, Source, SplitRows
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.testing.commit_target_conformance import CommitTargetConformance
from weir.testing.source_conformance import PlannedSourceConformance

PAIR = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


class File:
    """A database in a file of the test, and what a reader sees of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "test.db"
        self.url = f"jdbc:sqlite:{self.path}"
        self.run("create table t (id int, name text)")

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.run("select * from t")

    @property
    def options(self) -> JdbcConnectionOptions:
        return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(self.url).build()


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def context() -> WriterContext:
    return WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=0, parallelism=1)


class TestExactlyOnceInSQLite(CommitTargetConformance):
    @pytest.fixture(autouse=True)
    def _file(self, file: File) -> None:
        self.file = file

    def make_sink(self) -> CommitSink:
        return JdbcSink.exactly_once_sink("insert into t values (?, ?)", PAIR, self.file.options)

    def visible(self) -> Iterable[Any]:
        return self.file.rows()


# ---- dialects ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("jdbc:postgresql://h/db", PostgreSQL),
        ("jdbc:sqlite:/data/x.db", SQLite),
        ("jdbc:mysql://h:3307/db?user=me", MySQL),
        ("jdbc:mariadb://h/db", MySQL),
    ],
)
def test_the_url_chooses_the_dialect(url: str, kind: type) -> None:
    assert type(dialect_of(url)) is kind


def test_every_dialect_says_its_url_and_makes_its_own_statements() -> None:
    sql = "insert into t values (?, 'a?%', \"b?\", `c?`, ?)"
    forms = {d.name: d.statement(sql) for d in DIALECTS}
    assert forms["SQLite"] == sql
    assert forms["MySQL"] == "insert into t values (%s, 'a?%%', \"b?\", `c?`, %s)"
    assert all(d.form.startswith("jdbc:") for d in DIALECTS)


def test_a_database_that_is_not_known_is_refused_without_its_password() -> None:
    made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    with pytest.raises(UsageError, match="other databases are written by foreach_batch") as refused:
        made.with_url("jdbc:oracle:thin:@h?password=secret").build()
    assert "secret" not in str(refused.value)
    shown = JdbcConnectionOptions("jdbc:mysql://h/db?password=secret", "me", "secret")
    assert "secret" not in repr(shown)


def test_values_that_sqlite_has_no_type_for_are_text(file: File) -> None:
    file.run("create table x (d, n, at, b)")
    kinds = [
        Types.SQL_DATE(),
        Types.BIG_DEC(),
        Types.SQL_TIMESTAMP(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ]
    insert = "insert into x values (?, ?, ?, ?)"
    writer = JdbcSink.sink(insert, Types.ROW(kinds), file.options).create_writer(context())
    at = datetime.datetime(2024, 2, 29, 1, 2, 3)
    writer.write_batch([(at.date(), decimal.Decimal("1.50"), at, b"\x00")], None)
    writer.prepare(1)
    writer.close()
    assert file.run("select * from x") == [("2024-02-29", "1.50", "2024-02-29T01:02:03", b"\x00")]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert into nowhere values (?, ?)", "no such table: nowhere"),
        ("insert into t (id, title) values (?, ?)", "has no column named title"),
        ("insert into keyed values (?, ?)", "UNIQUE constraint failed"),
        ("insert into strict values (?, ?)", "cannot store TEXT value in INT column"),
        ("insert int t values (?, ?)", "syntax error"),
    ],
)
def test_mistakes_end_with_the_database_s_own_words(file: File, statement: str, said: str) -> None:
    file.run("create table keyed (id int primary key, name text)")
    file.run("create table strict (id int, name int) strict")
    writer = JdbcSink.exactly_once_sink(statement, PAIR, file.options).create_writer(context())
    writer.write_batch([(1, "a"), (1, "b")], None)
    prepared = writer.prepare(1)
    with pytest.raises(UsageError, match=f"failed while writing checkpoint 1: .*{said}"):
        writer.commit(prepared)
    writer.close()
    tables = file.run("select name from sqlite_master where type = 'table' and name like '%e%'")
    assert all(file.run(f"select count(*) from {name}") == [(0,)] for (name,) in tables
               if name in ("keyed", "strict"))  # fmt: skip


@pytest.mark.parametrize("make", [JdbcSink.sink, JdbcSink.exactly_once_sink])
def test_an_upsert_meets_its_own_rows_and_those_of_a_batch_before(file: File, make: Any) -> None:
    file.run("create table keyed (id int primary key, name text, n int)")
    statement = (
        "insert into keyed values (?, ?, 1) on conflict (id) do update set name = ?, n = n + 1"
    )
    kind = Types.ROW([Types.INT(), Types.STRING(), Types.STRING()])
    writer = make(statement, kind, file.options).create_writer(context())
    for checkpoint in (1, 2):
        writer.write_batch([(1, "a", "a"), (2, "b", "b2"), (1, "c", "c")], None)
        writer.commit(writer.prepare(checkpoint))
    writer.close()
    assert file.run("select * from keyed order by id") == [(1, "c", 4), (2, "b2", 2)]


def test_a_database_that_is_gone_for_a_while_is_tried_again_on_a_new_connection(
    file: File,
) -> None:
    sink = JdbcSink.exactly_once_sink("insert into t values (?, ?)", PAIR, file.options)
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a")], None)
    writer.commit(writer.prepare(1))
    # Whatever ended the connection: the next transaction begins on another one.
    writer._target._database._connection.close()
    writer.write_batch([(2, "b")], None)
    writer.commit(writer.prepare(2))
    writer.close()
    assert file.rows() == [(1, "a"), (2, "b")]


def test_a_transaction_that_failed_holds_no_lock_while_its_error_is_kept(file: File) -> None:
    file.run("create table keyed (id int primary key, name text)")
    sink = JdbcSink.exactly_once_sink("insert into keyed values (?, ?)", PAIR, file.options)
    writer = sink.create_writer(context())
    writer.write_batch([(1, "a"), (1, "b")], None)
    prepared = writer.prepare(1)
    with pytest.raises(UsageError, match="--drop-transactions OPERATOR 1'") as kept:
        writer.commit(prepared)
    other = sqlite3.connect(file.path, timeout=0, isolation_level=None)
    other.execute("insert into keyed values (2, 'c')")
    other.close()
    assert kept.value is not None
    writer.close()


def test_a_full_database_is_worth_another_try_and_leaves_nothing(file: File) -> None:
    file.run("create table filler (x)")
    sink = JdbcSink.exactly_once_sink("insert into t values (?, ?)", PAIR, file.options)
    writer = sink.create_writer(context())
    writer.write_batch([(1, "x" * 100_000)], None)
    prepared = writer.prepare(1)
    target = writer._target
    target.fence([writer._identity])
    (pages,) = target._database._connection.execute("pragma page_count").fetchone()
    target._database._connection.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StorageError, match="database or disk is full"):
        writer.commit(prepared)
    assert file.rows() == []
    writer.commit(prepared)  # the disk has room again
    writer.close()
    assert len(file.rows()) == 1


# ---- source ------------------------------------------------------------------------------------


class TestRanges(PlannedSourceConformance):
    @pytest.fixture(autouse=True)
    def _file(self, file: File) -> None:
        self.file = file
        for row in self.records():
            file.run("insert into t values (?, ?)", *row)

    def make_source(self, directory: Path) -> Source:
        return source(self.file)

    def records(self) -> list[Any]:
        return [row_class(("id", "name"))._of((n * 7 % 40, f"n{n}")) for n in range(30)]


def source(file: File, rows: int = 3, sql: str = "select id, name from t") -> JdbcSource:
    made = JdbcSource.builder().set_db_url(file.url).set_sql(sql).set_split_column("id")
    return made.set_type_information(PAIR).set_rows_per_range(rows).build()


class Job:
    """A source that is read epoch by epoch, as an engine does."""

    def __init__(self, stream: PlannedSplits, position: Any = None) -> None:
        self.planner = pickle.loads(pickle.dumps(stream.planner))
        self.rows = pickle.loads(pickle.dumps(SplitRows(stream.reader, stream.decoder)))
        self.position = position or self.planner.begin()
        self.ended = False

    def epoch(self, tasks: int = 2) -> list[Any]:
        end = self.planner.advance(self.position)
        planned = self.planner.plan(self.position, end, tasks)
        assert len(planned) <= tasks
        assert planned == self.planner.plan(self.position, end, tasks)
        self.position = json.loads(json.dumps(end))
        return [record for task in planned for record in self.read(list(task))]

    def read(self, splits: list[str]) -> list[Any]:
        found: list[Any] = []
        for piece in self.rows.decode(pa.record_batch({"split": pa.array(splits, pa.string())})):
            if isinstance(piece, Columns):
                found += map(tuple, batch_to_rows(piece.batch, piece.type_info))
            elif isinstance(piece, Records):
                found += map(tuple, piece.values)
            elif isinstance(piece, Mark):
                self.ended = self.ended or piece.last
        return found

    def all(self) -> list[Any]:
        found: list[Any] = []
        while not self.ended:
            found += self.epoch()
        return found


def opened(made: JdbcSource, tmp_path: Path, position: Any = None) -> PlannedSplits:
    text = None if position is None else json.dumps(position)
    return made.open(Opening("rows", tmp_path, position=text))


def test_rows_are_read_once_and_those_of_later_not_at_all(file: File, tmp_path: Path) -> None:
    for i in range(20):
        file.run("insert into t values (?, ?)", i * 7 % 20, f"n{i}")
    job = Job(opened(source(file), tmp_path))
    first = job.epoch()
    assert len(first) == 12
    file.run("insert into t values (100, 'late')")
    found = [*first, *job.all()]
    assert sorted(found) == sorted(file.rows()[:-1])
    assert position_text(json.dumps(job.position)) == "rows up to id=19 (ends at 19)"
    assert job.epoch() == []


def test_another_job_goes_on_from_the_position(file: File, tmp_path: Path) -> None:
    for i in range(30):
        file.run("insert into t values (?, 'x')", i)
    job = Job(opened(source(file), tmp_path))
    first = job.epoch()
    file.run("insert into t values (100, 'late')")
    resumed = opened(source(file, rows=5), tmp_path, job.position)
    rest = Job(resumed, resumed.planner.begin()).all()
    assert sorted(id for id, _ in [*first, *rest]) == list(range(30))


def test_rows_with_equal_values_are_read_once_too(tmp_path: Path) -> None:
    made = 0

    @given(ids=st.lists(st.integers(-5, 30), min_size=1, max_size=40), rows=st.integers(1, 7))
    def check(ids: list[int], rows: int) -> None:
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        folder.mkdir()
        file = File(folder)
        connection = sqlite3.connect(file.path)
        connection.executemany("insert into t values (?, ?)", [(n, f"{i}") for i, n in
                                                               enumerate(ids)])  # fmt: skip
        connection.commit()
        connection.close()
        assert sorted(Job(opened(source(file, rows), folder)).all()) == sorted(file.rows())

    settings(max_examples=examples(30))(check)()


def test_no_rows_and_types_without_columns(file: File, tmp_path: Path) -> None:
    job = Job(opened(source(file), tmp_path))
    assert job.epoch() == []
    assert job.ended  # or it would hold the event time of others back for ever
    assert position_text(json.dumps(job.position)) == "no rows"
    file.run("insert into t values (1, '1.5')")
    made = JdbcSource.builder().set_db_url(file.url).set_split_column("id")
    made.set_sql("select id, name from t;")
    row = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    assert Job(opened(made.set_type_information(row).build(), tmp_path)).all() == [(1, "1.5")]


@pytest.mark.parametrize(
    ("sql", "column", "said"),
    [
        ("select id, name from nowhere", "id", "no such table"),
        ("select id from t", "id", "has the columns \\['id'\\], and its type"),
        ("select id, name from t", "name_", "is none of the query's columns"),
        ("select id, name from t", "id", "is empty in 1 rows"),
        ("select id + 0.5 as id, name from t where id = 1", "id", "of the type float"),
    ],
)
def test_a_query_that_cannot_be_read_by_its_column_is_refused(
    file: File, tmp_path: Path, sql: str, column: str, said: str
) -> None:
    file.run("insert into t values (1, 'a'), (null, 'b')")
    made = JdbcSource.builder().set_db_url(file.url).set_sql(sql).set_split_column(column)
    with pytest.raises(UsageError, match=said):
        opened(made.set_type_information(PAIR).build(), tmp_path)


def test_what_a_source_needs_is_said(file: File, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs set_db_url, set_sql, set_split_column, set_type"):
        JdbcSource.builder().build()
    made = JdbcSource.builder().set_db_url(file.url).set_sql("select 1").set_type_information(PAIR)
    with pytest.raises(UsageError, match="expected the name of a column"):
        made.set_split_column("id; drop table t").build()
    with pytest.raises(UsageError, match="expected a number >= 1"):
        made.set_rows_per_range(0)
    with pytest.raises(CorruptStateError, match="is not the position of a JDBC source"):
        opened(source(file), tmp_path, {"offsets": {}})
    with pytest.raises(UsageError, match="was read by the column 'name'"):
        opened(source(file), tmp_path, {"jdbc": "name", "after": "x", "until": "y"})


NOT_PLAIN = [
    "insert into t values (?, ?) on conflict do nothing",
    "insert into t values (?, ?) returning id",
    "insert into t values (?, upper(?))",
    "insert into t values (?, ?), (?, ?)",
    "insert into t values (?, 'x')",
    "insert into t select ?, ?",
    "insert into t as u values (?, ?)",
    "insert into t (id, name[1]) values (?, ?)",
    "insert into t overriding system value values (?, ?)",
    "with x as (select 1) insert into t values (?, ?)",
    "update t set name = ? where id = ?",
]


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_a_statement_that_does_more_than_insert_is_never_a_copy(sql: str) -> None:
    assert plain_insert(sql, PAIR.get_field_types()) is None


def test_a_plain_insert_is_a_copy_of_the_columns_that_it_names() -> None:
    types = PAIR.get_field_types()
    first = plain_insert("INSERT INTO shop.t VALUES (?,?);", types)
    named = plain_insert('insert into "My T" ("a""b", Id) values ( ? , ? )', types[::-1])
    assert first is not None
    assert named is not None
    found = [("id", "int4", True), ('a"b', "text", True), ("n", "uuid", True)]
    copy = "copy {} ({}) from stdin (format binary)"
    listed = '"id", "a""b"'
    assert plan_copy(first, found) == Copy(copy.format("shop.t", listed), ("int4", "text"))
    listed = '"a""b", Id'
    assert plan_copy(named, found) == Copy(copy.format('"My T"', listed), ("text", "int4"))
    twice = plain_insert("insert into t (id, ID) values (?, ?)", [Types.INT(), Types.INT()])
    assert twice is not None
    assert plan_copy(twice, found) is None
    assert plan_copy(first, [*found[:2], ("n", "int4", False)]) is None
    assert plan_copy(first, []) is None
    assert plain_insert("insert into t values (?)", [Types.LIST(Types.INT())]) is None


@pytest.mark.parametrize(
    "url", ["jdbc:postgresql://me:canary@h/db", "jdbc:oracle://me:canary@h?password=canary"]
)
def test_a_password_in_a_url_that_is_refused_is_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match=r"//…@h") as refused:
        dialect_of(url)
    assert "canary" not in str(refused.value)
    assert "canary" not in repr(JdbcConnectionOptions(url))


@pytest.mark.parametrize(
    "data", [None, [], {"jdbc": 3}, {"jdbc": "\ud800"}, {"jdbc": "id", "after": []}]
)
def test_what_is_no_position_is_corrupt_state(data: Any) -> None:
    with pytest.raises(CorruptStateError, match="JDBC source"):
        Position.of(data)
