"""JdbcSource against a real PostgreSQL: the contract of sources, and readers that take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.kafka.test_jdbc_sink import PAIR, Table

from weir.common.types import row_class
from weir.connector.source import Opening, PlannedSplits, Source
from weir.datastream.connectors.jdbc import JdbcSource
from weir.testing.source_conformance import PlannedSourceConformance

pytestmark = pytest.mark.postgres


@pytest.fixture
def table(postgres: str) -> Table:
    made = Table(postgres)
    made.run(f"insert into {made.name} select n, 'n' || n from generate_series(1, 30) n")
    return made


def source(table: Table, parameters: str = "") -> JdbcSource:
    made = JdbcSource.builder().set_db_url(f"{table.url}?user=test{parameters}")
    made.set_sql(f"select id, name from {table.name}").set_split_column("id")
    made.set_type_information(PAIR).set_rows_per_range(4).set_result_set_fetch_size(2)
    return made.build()


class TestRangesInPostgreSQL(PlannedSourceConformance):
    @pytest.fixture(autouse=True)
    def _table(self, table: Table) -> None:
        self.table = table

    def make_source(self, directory: Path) -> Source:
        return source(self.table)

    def records(self) -> list[Any]:
        return [row_class(("id", "name"))._of(row) for row in self.table.rows()]


def test_a_reader_that_takes_long_outlives_the_patience_of_the_server(
    table: Table, tmp_path: Path
) -> None:
    """The server ends who is silent within a transaction; in every attempt, if it was for that."""
    settings = "-c idle_in_transaction_session_timeout=1000"
    made = source(table, f"&application_name={table.name}&options={settings.replace('=', '%3D')}")
    stream = made.open(Opening("rows", tmp_path))
    assert isinstance(stream, PlannedSplits)
    end = stream.planner.advance(stream.planner.begin())
    ((first, *_),) = stream.planner.plan(stream.planner.begin(), end, 1)
    batches = stream.reader.read(first)
    rows = next(batches).num_rows
    with psycopg.connect(table.plain, autocommit=True) as other:
        asked = "select state from pg_stat_activity where application_name = %s"
        assert ("idle in transaction",) not in other.execute(asked, (table.name,)).fetchall()
        other.execute("select pg_sleep(1.2)")
    assert rows + sum(batch.num_rows for batch in batches) == 4
