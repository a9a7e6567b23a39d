"""States whose operators, or they themselves, have the same name, or all but the case of it."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow import flight
from tests.harness.programs import environment, started
from tests.harness.querying import queries_of

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.jobmanager.queries import KeyRange, QueryError, Terms
from weir.queryable.flight_sql import FlightSql
from weir.queryable.protobuf import message
from weir.queryable.queries import StateQueries
from weir.queryable.sql import SqlQueries
from weir.testing.harness import JobHarness, collect

pytest.importorskip("duckdb")

LEVELS = ("live", "committed")


class Keeps(KeyedProcessFunction):
    """Keeps the number under each state, times its factor."""

    def __init__(self, factor: int, **states: str | None) -> None:
        self.factor = factor
        self.states = states

    def open(self, runtime_context: Any) -> None:
        self.made = []
        for state, name in self.states.items():
            descriptor = ValueStateDescriptor(state, Types.LONG())
            if name is not None:
                descriptor.set_queryable(name)
            self.made.append(runtime_context.get_state(descriptor))

    def process_element(self, value: Any, ctx: Any) -> Any:
        for state in self.made:
            state.update(value * self.factor)
        yield value


def job_of(*operators: tuple[str | None, Keeps]) -> JobHarness:
    env = environment()
    keyed = env.from_sequence(1, 3).uid("numbers").key_by(lambda n: n, Types.LONG())
    for name, keeps in operators:
        made = keyed.process(keeps)
        collect(made if name is None else made.name(name))
    job = started(env)
    job.run_epoch(checkpoint=True)
    return job


def values(queries: StateQueries, name: str, level: Any) -> list[int]:
    found = queries.scan(name, KeyRange(), Terms(level)).table["value"].to_pylist()
    assert queries.get(name, [3], Terms(level)).table["value"].to_pylist() == found[2:]
    return found


def sums(queries: StateQueries, sql: str) -> list[int]:
    found = [SqlQueries(queries, level, 64 << 20).run(sql) for level in LEVELS]  # type: ignore[arg-type]
    assert found[0] == found[1]
    assert SqlQueries(queries, "live", 64 << 20).schema(sql) == found[0].schema
    return found[0][0].to_pylist()


@pytest.mark.parametrize("level", LEVELS)
def test_names_for_queries_tell_states_of_operators_of_one_name_apart(level: str) -> None:
    job = job_of((None, Keeps(1, count="ones")), (None, Keeps(10, count="tens")))
    queries = queries_of(job)
    assert {view.name for view in queries.states()} == {"ones", "tens"}
    assert values(queries, "ones", level) == [1, 2, 3]
    assert values(queries, "tens", level) == [10, 20, 30]
    for name in ("KEYED PROCESS.count", "count"):
        several = r"several states, '(ones|tens)' of operator 'KEYED PROCESS' and '(ones|tens)' of"
        with pytest.raises(QueryError, match=several):
            values(queries, name, level)


def test_every_listed_name_is_good_for_queries_and_for_sql() -> None:
    job = job_of((None, Keeps(1, count=None)), (None, Keeps(10, count=None)))
    queries = queries_of(job, states="all")
    names = {view.name for view in queries.states()}
    assert len(names) == 2
    found = []
    for name in names:
        operator, _, state = name.partition(".")
        assert values(queries, name, "live") == values(queries, name, "committed")
        (total,) = sums(queries, f'select sum(value) from "{operator}"."{state}"')
        assert total == sum(values(queries, name, "live"))
        found.append(total)
    assert sorted(found) == [6, 60]
    with pytest.raises(QueryError, match=r"'KEYED PROCESS\.count' is the name of several states"):
        values(queries, "KEYED PROCESS.count", "live")
    with pytest.raises(QueryError, match=r"KEYED PROCESS.count would be of several states"):
        sums(queries, 'select count(*) from "KEYED PROCESS"."count"')


APART = (
    ((("Count", Keeps(1, a="q-a")), ("count", Keeps(10, b="q-b"))), '"Count"."a"', '"count"."b"'),
    (
        ((None, Keeps(1, a="q-a")), (None, Keeps(10, b="q-b"))),
        '"KEYED PROCESS".a',
        '"KEYED PROCESS".b',
    ),
)


@pytest.mark.parametrize(("operators", "one", "other"), APART)
def test_states_of_other_names_keep_those_of_their_operators(
    operators: Any, one: str, other: str
) -> None:
    queries = queries_of(job_of(*operators))
    assert sums(queries, f"select sum(value) from {one}") == [6]
    assert sums(queries, f"select sum(value) from {other}") == [60]


def test_names_that_differ_in_case_break_no_other_query() -> None:
    job = job_of(
        ("Count", Keeps(1, n="q-1")),
        ("count", Keeps(10, N="q-2")),
        ("twice", Keeps(100, Some="q-3", some="q-4")),
        ("information_schema", Keeps(1000, tables="q-5")),
        ("fine", Keeps(10_000, n="q-6")),
    )
    queries = queries_of(job)
    assert sums(queries, "select sum(value) from fine.n") == [60_000]
    ids = {state.described.queryable_name: state.operator.id for state in queries.catalog.states()}
    for name, state, total in (("q-1", "n", 6), ("q-2", "N", 60), ("q-5", "tables", 6000)):
        assert sums(queries, f'select sum(value) from "{ids[name]}"."{state}"') == [total]
        keyed = f'select value from "{ids[name]}"."{state}" where key = 3'
        assert sums(queries, keyed) == [total // 2]
    for name in ("q-3", "q-4"):
        assert sums(queries, f'select sum(value) from "{ids[name]}"."{name}"') == [600]
    for shared in ('"count"."n"', '"twice"."some"'):
        with pytest.raises(QueryError, match="would be of several states"):
            sums(queries, f"select key, value from {shared}")
    tables = FlightSql(queries, "live", 64 << 20).result(message("CommandGetTables", b""))
    assert isinstance(tables, flight.RecordBatchStream)
