"""SQL over state by Arrow Flight SQL: right results, and nothing else to be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.harness.programs import environment, started
from tests.harness.querying import KEYS, expected, job_of, queries_of

from weir.common.typeinfo import Types
from weir.jobmanager.queries import (
    Facts,
    KeyRange,
    QueryError,
    QueryLimitError,
    StateTooOldError,
    Terms,
)
from weir.queryable.protobuf import field, message
from weir.queryable.protocol import facts_of
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer
from weir.queryable.settings import SQL_AT_ONCE, QueryLimits, QuerySettings
from weir.queryable.sql import SqlQueries
from weir.queryable.sql_views import Views, unread
from weir.testing.harness import JobHarness
from weir.version import __version__

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

    connect.location = server.location  # type: ignore[attr-defined]
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


def test_tools_learn_what_the_server_can_do(connected: Any) -> None:
    """State is read-only, names are quoted, and there are no transactions."""
    connection = connected().connection
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Weir"
    assert info["vendor_version"] == __version__
    assert info["vendor_arrow_version"] == pa.__version__
    assert connection.adbc_get_table_types() == ["VIEW"]
    with pytest.warns(Warning, match="autocommit"):
        dbapi.connect(
            connected.location, {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
        ).close()


def objects(connection: Any, **how: Any) -> dict[str, list[str]]:
    with connection.adbc_get_objects(depth="all", **how) as reader:
        found = reader.read_all().to_pylist()
    return {
        table["table_name"]: [column["column_name"] for column in table["table_columns"]]
        for catalog in found
        for schema in catalog["catalog_db_schemas"] or ()
        for table in schema["db_schema_tables"] or ()
    }


def test_tables_are_filtered_by_catalog_name_and_type(connected: Any) -> None:
    connection = connected().connection
    assert objects(connection)["parity"] == ["key_group", "key", "map_key", "value"]
    assert set(objects(connection, table_name_filter="s%")) == {"seen", "sum"}
    assert set(objects(connection, table_types_filter=["VIEW"])) == set(objects(connection))
    assert objects(connection, table_types_filter=["TABLE"]) == {}
    assert objects(connection, catalog_filter="other") == {}
    assert objects(connection, db_schema_filter="nothing") == {}
    schema = connection.adbc_get_table_schema("total", db_schema_filter="everything")
    assert schema.names == ["key_group", "key", "value"]
    cursor = connection.cursor()
    assert cursor.adbc_execute_schema("select key from everything.total").names == ["key"]
    cursor.close()


def sql_command(name: str, *fields: bytes) -> Any:
    return flight.FlightDescriptor.for_command(message(name, b"".join(fields)))


def test_what_other_drivers_ask_is_answered(server: QueryServer) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer sql")])
    with flight.connect(server.location) as client:

        def ask(name: str, *fields: bytes) -> Any:
            command = sql_command(name, *fields)
            info = client.get_flight_info(command, options)
            assert client.get_schema(command, options).schema == info.schema
            found = client.do_get(info.endpoints[0].ticket, options).read_all()
            assert found.schema == info.schema
            return found

        some = ask("CommandGetSqlInfo", field(1, b"\x03\x08\xf8\x03\xe7\x07")).to_pylist()
        assert some == [
            {"info_name": 3, "value": True},
            {"info_name": 8, "value": 0},
            {"info_name": 504, "value": '"'},
        ]
        every = {row["info_name"]: row["value"] for row in ask("CommandGetSqlInfo").to_pylist()}
        assert every[0] == "Weir"
        assert every[100] == 10_000
        for kind in ("PrimaryKeys", "ExportedKeys", "ImportedKeys", "CrossReference"):
            assert ask(f"CommandGet{kind}", field(3, b"total")).num_rows == 0
        assert ask("CommandGetTables", field(4, b"TABLE")).num_rows == 0
        assert ask("CommandGetTables", field(4, b"TABLE"), field(4, b"VIEW")).num_rows == 6
        assert ask("CommandGetTables", field(1, b"")).num_rows == 0
        assert ask("CommandGetDbSchemas", field(1, b"memory")).num_rows == 1
        assert ask("CommandGetDbSchemas", field(1, b"other")).num_rows == 0
        sql = field(1, b"select count(*) n from everything.total")
        found = client.do_get(
            client.get_flight_info(sql_command("CommandStatementQuery", sql), options)
            .endpoints[0]
            .ticket,
            options,
        ).read_all()
        assert found.to_pylist() == [{"n": KEYS}]
        assert facts_of(found.schema).checkpoint_id == 1


def test_nobody_is_let_in_without_the_token(connected: Any) -> None:
    with pytest.raises(dbapi.Error, match="bearer token"):
        rows(connected("wrong"), "select 1")


HARMFUL = (
    "select * from read_csv('/etc/passwd')",
    "select * from read_csv_auto('/etc/passwd')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from read_parquet('/etc/passwd')",
    "select * from parquet_schema('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from read_json_objects('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select read_text('/etc/passwd')",
    "select (select content from read_text('/etc/passwd'))",
    "with t as materialized (from read_text('/etc/passwd')) from t",
    "select * from query('from read_text(''/etc/passwd'')')",
    "select * from query('from everything.total')",
    "select * from query_table('everything.total')",
    "select * from QUERY_TABLE(['everything.total', 'everything.sum'])",
    "select * from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from pragma_table_info('everything.total')",
    "select * from test_all_types()",
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
    "create view everything.v as from everything.total",
    "create macro f() as table from everything.total",
    "create temp macro f(x) as x + 1",
    "prepare p as select 1",
    "explain analyze select 1",
    "use everything",
    "detach memory",
    "vacuum",
    "checkpoint",
    "begin",
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


@pytest.mark.parametrize(
    "sql",
    [
        "select sum(range) from range(4)",
        "select sum(g) from generate_series(1, 3) t(g)",
        "select sum(u) from (select unnest([1, 2, 3]) u)",
        "select sum(u) from unnest([1, 2, 3]) t(u)",
    ],
)
def test_tables_of_numbers_need_no_state(job: JobHarness, sql: str) -> None:
    found = SqlQueries(queries_of(job), "committed", 64 << 20).run(sql)
    assert found[0].to_pylist() == [6]


def test_settings_tell_nothing_about_the_process(job: JobHarness) -> None:
    asked = SqlQueries(queries_of(job), "committed", 64 << 20)
    for name in ("secret_directory", "home_directory", "extension_directory", "temp_directory"):
        (found,) = asked.run(f"select current_setting('{name}') as s")["s"].to_pylist()
        assert not found


def test_a_state_that_was_not_read_is_never_found_empty(job: JobHarness) -> None:
    """Whatever way leads to it that the tree of the query does not show."""
    asked = SqlQueries(queries_of(job), "committed", 64 << 20)
    views = Views.of(asked.queries.catalog.states()).states
    with asked._engine({at: unread(at, state) for at, state in views.items()}) as engine:
        for at, state in views.items():
            name = f'"{at[0]}"."{at[1]}"'
            assert engine.sql(f"from {name}").columns == state.layout.schema.names
            refused = pytest.raises(QueryError, match="was not read for this query")
            with refused, asked._in_time(engine):
                engine.sql(f"select count(*) from {name}").fetchall()


@pytest.mark.parametrize("depth", [500, 5000])
def test_a_query_that_is_nested_too_deeply_is_refused(job: JobHarness, depth: int) -> None:
    asked = SqlQueries(queries_of(job), "committed", 64 << 20)
    with pytest.raises(QueryError):
        asked.run("select " + "+".join(["1"] * depth))


BOMBS = (
    "with recursive t(x) as (select 1 union all select x + 1 from t) select * from t",
    "with recursive t(x) as (select 1 union all select x + 1 from t) select count(*) from t",
    "select sleep_ms(100000)",
)


@pytest.mark.parametrize("sql", BOMBS)
def test_a_query_that_has_no_end_is_given_up(job: JobHarness, sql: str) -> None:
    with pytest.raises(QueryLimitError):
        SqlQueries(queries_of(job, timeout_ms=200), "committed", 64 << 20).run(sql)


def test_no_more_of_a_result_is_made_than_may_be_answered(job: JobHarness) -> None:
    """A result of eighty gigabytes is refused behind its first megabytes."""
    asked = SqlQueries(queries_of(job, bytes_max=8 << 20), "committed", 64 << 20)
    before = pa.total_allocated_bytes()
    with pytest.raises(QueryLimitError, match=r"the result, as far as it was made, has 8\d{6} "):
        asked.run("select * from range(10000000000)")
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("level", ["live", "committed"])
def test_aggregates_read_as_much_state_as_memory_for_sql_allows(level: Any) -> None:
    """Also where that is more than an answer may have; several states count together."""
    env = environment()
    keyed = env.from_sequence(1, 80_000).uid("numbers").key_by(lambda n: n, Types.LONG())
    for name in ("one", "two"):
        keyed.as_queryable_state(name).uid(name)
    job = started(env)
    job.run_epoch(checkpoint=True)
    queries = queries_of(job, bytes_max=100_000)
    for name in ("one", "two"):
        with pytest.raises(QueryLimitError, match="max-answer-size"):
            queries.scan(name, KeyRange(), Terms(level))
    view = {state.described.queryable_name: state for state in queries.catalog.states()}
    first, second = (f'"{name}"."{view[name].described.name}"' for name in ("one", "two"))
    count = f"select (select count(*) from {first}) + count(*) as n from "
    for memory, both in ((2 << 20, False), (4 << 20, True)):
        asked = SqlQueries(queries, level, memory)
        assert asked.run(f"select sum(value) s from {first}")["s"].to_pylist() == [3_200_040_000]
        if both:
            assert asked.run(count + second)["n"].to_pylist() == [160_000]
        else:
            with pytest.raises(QueryLimitError, match=r"at most 2097152: raise .*sql-memory"):
                asked.run(count + second)


def test_the_columns_of_a_result_are_known_without_running_it(job: JobHarness) -> None:
    asked = SqlQueries(queries_of(job, timeout_ms=2000), "committed", 64 << 20)
    endless = "with recursive t(x) as (select 1 union all select x + 1 from t) "
    assert asked.schema(f"{endless} select count(*) c, x from t group by x").names == ["c", "x"]
    twice = (
        "select 1 as a, 2 as a, *, {'b': key} s, [value] l, map([key], ['x']) m, now() n, "
        "1.5::decimal(4, 2) d, current_date t from everything.total"
    )
    assert asked.schema(twice) == asked.run(twice).schema


def test_no_more_engines_run_at_the_same_time_than_there_is_memory_for(job: JobHarness) -> None:
    queries = queries_of(job)
    asked = SqlQueries(queries, "committed", 64 << 20)
    with ExitStack() as stack:
        for _ in range(SQL_AT_ONCE):
            stack.enter_context(queries.limits.admitted_sql())
        for ask in (asked.run, asked.schema):
            with pytest.raises(QueryLimitError, match="4 queries in SQL are being answered"):
                ask("select 1")
        assert queries.get("q-total", [1], Terms("committed")).table.num_rows == 1
    assert asked.run("select 1 as one")["one"].to_pylist() == [1]


def test_a_result_tells_how_true_it_is_and_may_be_asked_to_be_younger() -> None:
    job = job_of(60)
    job.run_epoch(take=10, checkpoint=True)
    job.clock.advance(250)
    queries = queries_of(job)
    sql = "select count(*) from everything.total, everything.sum"
    facts = facts_of(SqlQueries(queries, "committed", 64 << 20).run(sql).schema)
    assert facts == Facts("committed", facts.attempt, 1, facts.epoch, 250)
    live = facts_of(SqlQueries(queries, "live", 64 << 20).run(sql).schema)
    assert (live.level, live.checkpoint_id, live.epoch) == ("live", 1, job.epoch)
    assert facts_of(SqlQueries(queries, "committed", 64 << 20).run("select 1").schema) is None
    with pytest.raises(StateTooOldError, match="250 ms old, and at most 249 ms"):
        SqlQueries(queries, "committed", 64 << 20, max_age_ms=249).run(sql)
    assert SqlQueries(queries, "committed", 64 << 20, max_age_ms=250).run(sql).num_rows == 1


def test_a_header_asks_for_young_state(connected: Any) -> None:
    assert rows(connected(weir_max_age_ms="3600000"), "select count(*) from everything.total")
    with pytest.raises(dbapi.Error, match="expected a number of milliseconds"):
        rows(connected(weir_max_age_ms="soon"), "select count(*) from everything.total")


class Slow(StateQueries):
    """Each scan takes a second."""

    def __init__(self, job: JobHarness) -> None:
        super().__init__(job.supervisor, QueryLimits(), pause=lambda seconds: None)
        self.job = job

    def scan(self, state: Any, *how: Any, **more: Any) -> Any:
        found = super().scan(state, *how, **more)
        self.job.clock.advance(1000)
        return found


def test_a_live_result_is_as_old_as_the_table_that_was_read_first() -> None:
    job = job_of(60)
    job.run_epoch(take=10)
    sql = "select count(*) from everything.total, everything.sum"
    facts = facts_of(SqlQueries(Slow(job), "live", 64 << 20).run(sql).schema)
    assert facts.age_ms == 2000
    with pytest.raises(StateTooOldError, match="2000 ms old, and at most 1999 ms"):
        SqlQueries(Slow(job), "live", 64 << 20, max_age_ms=1999).run(sql)


class Interrupted(StateQueries):
    """Behind each scan the job goes on, and completes another checkpoint."""

    def __init__(self, job: JobHarness) -> None:
        super().__init__(job.supervisor, QueryLimits(), pause=lambda seconds: None)
        self.job = job

    def scan(self, state: Any, *how: Any, **more: Any) -> Any:
        found = super().scan(state, *how, **more)
        self.job.run_epoch(take=5, checkpoint=True)
        return found


def test_all_tables_of_a_query_are_of_one_checkpoint() -> None:
    """One checkpoint is retained: newer ones do not take its files away either."""
    job = job_of(60)
    job.run_epoch(take=10, checkpoint=True)
    queries = Interrupted(job)
    names = ("total", "seen", "sum", "parity")
    sums = ", ".join(f"(select sum(value) from everything.{name}) as {name}" for name in names)
    found = SqlQueries(queries, "committed", 64 << 20).run(f"select {sums}")
    total = sum(range(1, 11))
    assert found.to_pylist() == [{"total": total, "seen": total, "sum": total, "parity": 10}]
    assert facts_of(found.schema).checkpoint_id == 1
    (again,) = SqlQueries(queries_of(job), "committed", 64 << 20).run(f"select {sums}").to_pylist()
    assert again["total"] == again["seen"] == sum(range(1, 31))


KEYED = (
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"user", b"abcd", b"\x00\xff"], "'user'", b"user"),
    (Types.STRING(), ["user", "abcd"], "'user'", "user"),
    (Types.DOUBLE(), [0.5, -0.0, 3.0], "3", 3.0),
    (Types.DOUBLE(), [0.5, -0.0, 3.0], "0", -0.0),
    (Types.LONG(), [1, 2, 3], "'3'", 3),
    (Types.LONG(), [1, 2, 3], "3", 3),
    (Types.BOOLEAN(), [True, False], "1", True),
)


@pytest.mark.parametrize(("key_type", "keys", "constant", "key"), KEYED)
def test_a_key_of_any_type_is_found_by_what_the_engine_takes_for_it(
    key_type: Any, keys: list[Any], constant: str, key: Any
) -> None:
    env = environment()
    stream = env.from_collection(keys, key_type).uid("keys")
    stream.key_by(lambda found: found, key_type).as_queryable_state("last").uid("last")
    job = started(env)
    job.run_epoch(checkpoint=True)
    queries = queries_of(job)
    (state,) = queries.states()
    sql = f'select key from "{state.operator}"."{state.state}" where key = {constant}'
    found = SqlQueries(queries, "committed", 64 << 20).run(sql)["key"].to_pylist()
    assert found == [key]


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

    def scan(self, state: Any, *how: Any, **more: Any) -> Any:
        self.scans.append(state)
        return super().scan(state, *how, **more)


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
