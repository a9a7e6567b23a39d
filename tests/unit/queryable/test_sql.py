"""SQL over state by Arrow Flight SQL: right results, and nothing else to be reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness.querying import KEYS, expected, job_of, queries_of

from weir.jobmanager.queries import QueryError, QueryLimitError
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer
from weir.queryable.settings import QueryLimits, QuerySettings
from weir.queryable.sql import SqlQueries
from weir.testing.harness import JobHarness

pytest.importorskip("duckdb")
dbapi: Any = pytest.importorskip("adbc_driver_flightsql.dbapi")

TOKEN = "sql"
RUN = range(1, 56)
CHECKPOINTED = range(1, 51)


@pytest.fixture(scope="module")
def job() -> JobHarness:
    made = job_of(60)
    made.run_epoch(take=50, checkpoint=True)
    made.run_epoch(take=5)
    return made


@pytest.fixture(scope="module")
def server(job: JobHarness) -> Iterator[QueryServer]:
    made = QueryServer(QuerySettings(ports=(0,), token=TOKEN, sql=True))
    made.register(job.job_id, queries_of(job))
    yield made
    made.close()


@pytest.fixture
def connected(server: QueryServer) -> Iterator[Any]:
    opened = []

    def connect(token: str = TOKEN, **headers: str) -> Any:
        options = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        options |= {
            f"adbc.flight.sql.rpc.call_header.{name.replace('_', '-')}": value
            for name, value in headers.items()
        }
        connection = dbapi.connect(server.location, db_kwargs=options, autocommit=True)
        opened.append(connection)
        opened.append(connection.cursor())
        return opened[-1]

    yield connect
    for one in reversed(opened):
        one.close()


def rows(cursor: Any, sql: str) -> list[tuple[Any, ...]]:
    cursor.execute(sql)
    return cursor.fetchall()


@pytest.mark.slow
def test_a_driver_reads_keys_joins_and_aggregates(connected: Any) -> None:
    cursor = connected()
    total = expected(CHECKPOINTED, 3)["total"]
    assert rows(cursor, 'select value from "everything"."total" where key = 3') == [(total,)]
    joined = rows(
        cursor,
        'select t.key, t.value, count(s.value) from "everything"."total" t '
        'join "everything"."seen" s on t.key = s.key where t.key < 2 group by all order by 1',
    )
    assert joined == [
        (k, expected(CHECKPOINTED, k)["total"], len(expected(CHECKPOINTED, k)["seen"]))
        for k in (0, 1)
    ]
    assert rows(cursor, 'select sum(value) from "everything"."total"') == [(sum(CHECKPOINTED),)]
    maps = "select map_key, value from everything.parity where key = 1 order by 1"
    assert rows(cursor, maps) == sorted(expected(CHECKPOINTED, 1)["parity"].items())


def test_a_header_asks_for_live_state(connected: Any, job: JobHarness) -> None:
    cursor = connected(weir_level="live", weir_job=str(job.job_id))
    assert rows(cursor, 'select sum(value) from "everything"."total"') == [(sum(RUN),)]
    with pytest.raises(dbapi.Error, match="no level of truth"):
        rows(connected(weir_level="x"), "select 1")
    with pytest.raises(dbapi.Error, match="FlinkJobNotFound"):
        rows(connected(weir_job="x"), "select 1")


def test_tables_are_listed(connected: Any) -> None:
    with connected().connection.adbc_get_objects(depth="tables") as reader:
        catalog = reader.read_all().to_pylist()
    schemas = [s for c in catalog for s in c["catalog_db_schemas"]]
    names = {t["table_name"] for s in schemas for t in s["db_schema_tables"]}
    assert {s["db_schema_name"] for s in schemas} == {"everything"}
    assert names == {"total", "seen", "parity", "sum", "mean", "expiring"}


def test_nobody_is_let_in_without_the_token(connected: Any) -> None:
    with pytest.raises(dbapi.Error, match="bearer token"):
        rows(connected("wrong"), "select 1")


HARMFUL = (
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from glob('/*')",
    "copy (select 1) to '/tmp/weir-never'",
    "copy (select 1) to '/dev/stdout'",
    "attach '/tmp/weir-never.db'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "set lock_configuration = false",
    "reset enable_external_access",
    "pragma enable_profiling",
    "create table t as select 1",
    "drop schema everything cascade",
    "delete from everything.total",
    "select 1; select 2",
    "call pragma_version()",
    "export database '/tmp/weir-never'",
    "select getenv('HOME')",
    "select * from queries",
    "select * from job",
    "",
)


@pytest.mark.matrix
@pytest.mark.parametrize("sql", HARMFUL)
def test_nothing_else_can_be_reached(connected: Any, sql: str) -> None:
    with pytest.raises(dbapi.Error):
        rows(connected(), sql)


@pytest.mark.matrix
@pytest.mark.parametrize("sql", HARMFUL)
def test_nothing_else_can_be_reached_inside_either(job: JobHarness, sql: str) -> None:
    with pytest.raises(QueryError):
        SqlQueries(queries_of(job), "committed", 64 << 20).run(sql)


def test_a_query_that_takes_too_long_is_given_up(job: JobHarness) -> None:
    queries = queries_of(job, timeout_ms=200)
    queries.states()
    slow = "select count(*) from range(100000000) a, range(100000) b where a.range % 7 = b.range"
    with pytest.raises(QueryLimitError, match="took more than 200 ms"):
        SqlQueries(queries, "committed", 64 << 20).run(slow)


def test_a_result_that_is_too_large_is_refused(job: JobHarness) -> None:
    with pytest.raises(QueryLimitError, match="bytes"):
        SqlQueries(queries_of(job, bytes_max=5000), "committed", 64 << 20).run(
            "select * from range(100000)"
        )


class Counted(StateQueries):
    """Counts what is read for SQL."""

    def __init__(self, job: JobHarness) -> None:
        super().__init__(job.supervisor, QueryLimits(), pause=lambda seconds: None)
        self.scans: list[str] = []

    def scan(self, state: str, *how: Any) -> Any:
        self.scans.append(state)
        return super().scan(state, *how)


@pytest.mark.parametrize(
    ("condition", "scanned"),
    [
        ("key = 3", False),
        ("3 = key", False),
        ("value > 0 and key = 3", False),
        ("t.key = 3", False),
        ("key = 3 or key = 4", True),
        ("key > 3", True),
        ("not key = 3", True),
        ("key = 99", False),
        ("key = '3'", True),
        ("key = 3 and value in (select value from everything.total)", True),
    ],
)
def test_only_the_rows_of_a_key_are_read_where_a_query_wants_no_others(
    job: JobHarness, condition: str, scanned: bool
) -> None:
    queries = Counted(job)
    sql = f"select key, value from everything.total t where {condition} order by key"
    found = SqlQueries(queries, "committed", 64 << 20).run(sql).to_pydict()
    totals = {key: expected(CHECKPOINTED, key)["total"] for key in range(KEYS)}
    wanted = {
        "key > 3": range(4, KEYS),
        "not key = 3": [k for k in range(KEYS) if k != 3],
        "key = 3 or key = 4": [3, 4],
        "key = 99": [],
    }.get(condition, [3])
    assert found == {"key": list(wanted), "value": [totals[k] for k in wanted]}
    assert bool(queries.scans) == scanned
