"""Rows of a checkpoint that a database will never take: who goes on without them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.harness.programs import environment
from tests.harness.state_programs import restore_point, run_job

from weir.cli.main import cli
from weir.common import Types
from weir.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from weir.errors import WeirError


def numbers_to(database: Path):
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    connection = builder.with_url(f"jdbc:sqlite:{database}").build()
    row = Types.ROW([Types.LONG()])
    env = environment()
    numbers = env.from_sequence(1, 12).uid("numbers").map(lambda n: (n,), row).uid("rows")
    numbers.add_sink(JdbcSink.exactly_once_sink("insert into t values (?)", row, connection)).uid(
        "table"
    )
    return env


def test_a_job_goes_on_without_rows_that_its_database_never_takes(tmp_path: Path) -> None:
    database = tmp_path / "test.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table t (n integer primary key)")
        connection.execute("insert into t values (6)")
    job = run_job(numbers_to(database), tmp_path, 1)
    job.run_epoch(take=4, checkpoint=True)
    with pytest.raises(WeirError, match="--drop-transactions OPERATOR 2'"):
        job.run_epoch(take=4, checkpoint=True)
    job.end_slots()
    place = tmp_path / job.job_id / "chk-2"
    with pytest.raises(WeirError, match="--drop-transactions OPERATOR 2'"):
        run_job(numbers_to(database), tmp_path, 1, restore_point(tmp_path, place))
    words = ["edit", str(place), "--to", str(tmp_path / "savepoint-left")]
    edited = CliRunner().invoke(cli, ["state", *words, "--drop-transactions", "table", "2"])
    assert edited.exit_code == 0, edited.output
    heir = run_job(
        numbers_to(database), tmp_path, 1, restore_point(tmp_path, tmp_path / "savepoint-left")
    )
    heir.run()
    with sqlite3.connect(database) as connection:
        found = [n for (n,) in connection.execute("select n from t order by n")]
    assert found == [1, 2, 3, 4, 6, 9, 10, 11, 12]
