"""The result that every contender has to reach, in plain Python: the specification of the work.

A function takes the input as an iterator of rows, each key's rows in order, and yields output rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.workloads import windows
from benchmarks.workloads.catalogue import CLOSING_KEY, FLUSH_AT, REGIONS, RULES, WINDOW_MS
from benchmarks.workloads.rows import rules

Rows = Iterable[tuple[Any, ...]]


def least(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Every row with the least value of its key so far."""
    found: dict[int, int] = {}
    for key, value in rows:
        before = found.get(key)
        if before is None or value < before:
            found[key] = before = value
        yield key, value, before


def distinct(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """A user of a site, the first time on a day."""
    seen = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


def running_sum(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The sum of each key so far."""
    found: dict[int, int] = {}
    for key, value in rows:
        found[key] = total = found.get(key, 0) + value
        yield key, total


def flush(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The whole-number average of every so many values of a key."""
    found: dict[int, list[int]] = {}
    for key, value in rows:
        values = found.setdefault(key, [])
        values.append(value)
        if len(values) == FLUSH_AT:
            yield key, sum(values) // FLUSH_AT
            del found[key]


def matches(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """A match of a row's rule, with the number of matches of its key so far."""
    thresholds = dict(rules())
    found: dict[int, int] = {}
    for key, value in rows:
        rule = value % RULES
        if value >= thresholds[rule]:
            found[key] = count = found.get(key, 0) + 1
            yield key, rule, count


def stages(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The least value of each key so far, then counted by region."""
    found: dict[int, int] = {}
    for key, value, low in least(rows):
        region = value % REGIONS
        found[region] = count = found.get(region, 0) + 1
        yield region, count, key, low


def wide(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Every wide row with the least value of its key so far."""
    found: dict[str, int] = {}
    for row in rows:
        before = found.get(row[0])
        if before is None or row[1] < before:
            found[row[0]] = before = row[1]
        yield (*row, before)


def timers(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The number of rows of each key in each window, when the window has ended."""
    found: dict[tuple[int, int], int] = {}
    for key, ts in rows:
        if key != CLOSING_KEY:
            end = ts - ts % WINDOW_MS + WINDOW_MS
            found[key, end] = found.get((key, end), 0) + 1
    for (key, end), count in found.items():
        yield key, end, count


BY_KIND: dict[str, Callable[[Rows], Iterator[tuple[Any, ...]]]] = {
    "least": least,
    "distinct": distinct,
    "reduce": running_sum,
    "sum": running_sum,
    "flush": flush,
    "rules": matches,
    "stages": stages,
    "wide": wide,
    "timers": timers,
    **windows.BY_KIND,
}
