"""Flink SQL: the queries on the JVM, in the cluster of the PyFlink contenders, without Python.

A measured run gives its results to Flink's `blackhole` and is timed as a whole, from the moment the
job was submitted to its end: nothing of it can be noted from inside without Python.
"""

from __future__ import annotations

import time
from calendar import timegm
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.contenders.protocol import Outcome, Task
from benchmarks.workloads.catalogue import (
    AUCTION,
    CLOSING_KEY,
    GAP_MS,
    PERSON,
    SLIDE_MS,
    TUMBLE_MS,
    Workload,
)
from benchmarks.workloads.checksum import of_rows
from benchmarks.workloads.rows import PARTITIONS


def seconds(ms: int) -> str:
    """Return a length of time."""
    return f"INTERVAL '{ms / 1000:g}' SECOND"


def windows(table: str) -> str:
    """Return the rows of a table with the tumbling windows that they are in."""
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(`at`), {seconds(TUMBLE_MS)}))"


SLIDING = f"TABLE(HOP(TABLE input, DESCRIPTOR(`at`), {seconds(SLIDE_MS)}, {seconds(TUMBLE_MS)}))"
SESSIONS = f"TABLE(SESSION(TABLE input PARTITION BY bidder, DESCRIPTOR(`at`), {seconds(GAP_MS)}))"
WINDOW = "window_start, window_end"
COUNTS = f"SELECT auction, COUNT(*) AS num, {WINDOW} FROM {SLIDING} GROUP BY auction, {WINDOW}"
SELLING = f"SELECT id, {WINDOW} FROM {windows('auctions')} GROUP BY id, {WINDOW}"
QUERIES = {
    "window-sum": (
        f"SELECT `key`, SUM(`value`), window_end FROM {windows('input')} GROUP BY `key`, {WINDOW}"
    ),
    "hot-items": (
        f"SELECT a.auction, a.num, a.window_end FROM ({COUNTS}) a JOIN "
        f"(SELECT MAX(num) AS most, {WINDOW} FROM ({COUNTS}) GROUP BY {WINDOW}) b "
        "ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.num = b.most"
    ),
    "highest-bid": (
        "SELECT auction, bidder, price, window_end FROM (SELECT *, ROW_NUMBER() OVER "
        f"(PARTITION BY {WINDOW} ORDER BY price DESC) AS place FROM {windows('input')}) "
        "WHERE place <= 1"
    ),
    "new-users": (
        "SELECT p.id, p.window_end FROM "
        f"(SELECT id, {WINDOW} FROM {windows('persons')} GROUP BY id, {WINDOW}) p "
        f"JOIN ({SELLING}) a ON p.id = a.id "
        "AND p.window_start = a.window_start AND p.window_end = a.window_end"
    ),
    "sessions": (f"SELECT bidder, COUNT(*), {WINDOW} FROM {SESSIONS} GROUP BY bidder, {WINDOW}"),
}


def run(tables: Any, task: Task) -> Outcome:
    """Run the query of a workload."""
    dataset = task.input
    workload = dataset.workload
    tables.get_config().set("table.local-time-zone", "UTC")
    declare(tables, workload, dataset.csv)
    query = QUERIES[workload.kind]
    outcome = Outcome(task.contender, task.workload, dataset.size.epochs * dataset.size.epoch_rows)
    if task.verify:
        with tables.execute_sql(query).collect() as results:
            rows = [tuple(plain(value) for value in row) for row in results]
        real = [row for row in rows if row[0] != CLOSING_KEY]
        outcome.checksum = of_rows(real, workload.groups).to_json()
        return outcome
    schema = tables.sql_query(query).get_schema()
    columns = ", ".join(
        f"c{n} {schema.get_field_data_type(n)}" for n in range(schema.get_field_count())
    )
    tables.execute_sql(f"CREATE TEMPORARY TABLE gone ({columns}) WITH ('connector' = 'blackhole')")
    job = tables.execute_sql(f"INSERT INTO gone {query}")
    begun = time.monotonic()
    job.wait()
    outcome.seconds = time.monotonic() - begun
    outcome.startup = begun - task.started
    return outcome


def plain(value: Any) -> Any:
    """Return a time as milliseconds, anything else as it is."""
    if isinstance(value, datetime):
        return timegm(value.timetuple()) * 1000 + value.microsecond // 1000
    return value


def declare(tables: Any, workload: Workload, directory: Path) -> None:
    """Name the input, in event time, and its parts.

    Each file is a table of its own: were one reader to get both of them, one after the other, all
    rows of the second would be late.
    """
    columns = ", ".join(f"`{name}` {kind}" for name, kind in workload.columns)
    for part in range(PARTITIONS):
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE input{part} ({columns}, "
            "`at` AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR `at` AS `at` - INTERVAL '0.001' SECOND"
            f") WITH ('connector' = 'filesystem', 'path' = '{(directory / f'{part}.csv').as_uri()}'"
            ", 'format' = 'csv')"
        )
    union = " UNION ALL ".join(f"SELECT * FROM input{part}" for part in range(PARTITIONS))
    tables.execute_sql(f"CREATE TEMPORARY VIEW input AS {union}")
    if workload.kind == "new-users":
        for name, kind in (("persons", PERSON), ("auctions", AUCTION)):
            tables.execute_sql(
                f"CREATE TEMPORARY VIEW {name} AS SELECT * FROM input WHERE kind = {kind}"
            )
