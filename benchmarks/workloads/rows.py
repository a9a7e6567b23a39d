"""Seeded input: the same rows for everybody, made in blocks.

Block *i* depends on the seed, the workload and *i* only, so that a contender with fewer rows gets
the beginning of what a faster one gets. Rows are dealt to two partitions by their key, as a Kafka
topic would: the order of a key's rows is the same whatever reads the partitions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from benchmarks.workloads.catalogue import (
    AUCTION,
    CLOSING_KEY,
    CLOSING_MS,
    PERSON,
    ROWS_PER_KEY,
    ROWS_PER_MS,
    RULES,
    START_MS,
    TUMBLE_MS,
    USERS_PER_SITE,
    Workload,
)
from benchmarks.workloads.checksum import mix

SEED = 7
BLOCK = 5_000
PARTITIONS = 2
VALUE_MAX = 1_000_000_000
BLOCKS_PER_DAY = 100
# Nexmark: of 50 events one is a person, 3 are auctions, 46 are bids.
BIDS_PER_AUCTION = 15
BIDS_PER_PERSON = 50
EVENTS_PER_PERSON = 4
HOT_EVERY = 100
Columns = list[np.ndarray]


def block(workload: Workload, number: int, keys: int, warm: bool) -> tuple[Columns, np.ndarray]:
    """Return the columns of one block, and the partition of each of its rows."""
    rng = np.random.default_rng([SEED, zlib.crc32(workload.kind.encode()), number])
    if workload.letter == "n":
        columns = _nexmark(workload, rng, number, keys)
    else:
        key = rng.integers(0, keys, BLOCK)
        columns = _columns(workload, rng, key, number, warm)
        if workload.is_windowed:
            columns.append(timestamps(number, keys))
    first = columns[0] if workload.kind != "wide" else key
    return columns, partition_of(first)


def partition_of(key: np.ndarray) -> np.ndarray:
    """Return the partition of each key."""
    return (mix(key.astype(np.int64).view(np.uint64)) % np.uint64(PARTITIONS)).astype(np.int64)


def _columns(
    workload: Workload, rng: np.random.Generator, key: np.ndarray, number: int, warm: bool
) -> Columns:
    if workload.kind == "distinct":
        day = np.full(BLOCK, number // BLOCKS_PER_DAY)
        return [key, rng.integers(0, USERS_PER_SITE, BLOCK), day]
    if workload.kind == "timers":
        return [key, START_MS + (number * BLOCK + np.arange(BLOCK)) // ROWS_PER_MS]
    value = rng.integers(0, VALUE_MAX, BLOCK)
    if workload.kind == "rules":
        # No rule matches a negative value: whether rules are there yet does not matter.
        return [key, -1 - value if warm else value]
    if workload.kind == "wide":
        return _wide(rng, key, value)
    return [key, value]


def timestamps(number: int, keys: int) -> np.ndarray:
    """Return event times such that a key has a few rows in a window, however many keys there are.

    A contender with fewer rows has fewer keys, and as many windows as one with more.
    """
    row = number * BLOCK + np.arange(BLOCK)
    return START_MS + row * TUMBLE_MS // (ROWS_PER_KEY * keys)


def _nexmark(workload: Workload, rng: np.random.Generator, number: int, keys: int) -> Columns:
    """Return bids, or persons and auctions: those that are open, or sell, move on with time."""
    row = number * BLOCK + np.arange(BLOCK)
    ts = timestamps(number, keys)
    if workload.kind == "new-users":
        newest = keys + row // EVENTS_PER_PERSON
        is_person = row % EVENTS_PER_PERSON == 0
        who = np.where(is_person, newest, newest - rng.integers(0, keys, BLOCK))
        return [who, np.where(is_person, PERSON, AUCTION), ts]
    newest = row // BIDS_PER_AUCTION
    hot = newest // HOT_EVERY * HOT_EVERY
    auction = np.where(rng.random(BLOCK) < 0.5, hot, newest + rng.integers(0, keys, BLOCK))
    # Four times as many bidders as auctions: they pause long enough for sessions to end.
    bidder = row // BIDS_PER_PERSON + rng.integers(0, 4 * keys, BLOCK)
    # No two bids have one price, so that the highest one is one bid.
    price = (rng.integers(0, VALUE_MAX, BLOCK) << 24) + row
    found = {"auction": auction, "bidder": bidder, "price": price, "ts": ts}
    return [found[name] for name, _ in workload.columns]


def _wide(rng: np.random.Generator, key: np.ndarray, value: np.ndarray) -> Columns:
    names = np.array([f"user-{k:012d}" for k in key.tolist()])
    cities = np.array([f"city-{n}" for n in range(50)])
    notes = rng.integers(0, 1 << 62, BLOCK)
    return [
        names,
        value,
        np.array([f"name of {k}" for k in key.tolist()]),
        cities[rng.integers(0, len(cities), BLOCK)],
        np.array([f"{n:040x}" for n in notes.tolist()]),
        rng.random(BLOCK),
        rng.random(BLOCK),
        rng.integers(0, VALUE_MAX, BLOCK),
        rng.integers(0, VALUE_MAX, BLOCK),
    ]


def epoch(workload: Workload, number: int, rows: int, keys: int, warm: bool) -> list[Columns]:
    """Return an epoch's rows as columns, one entry for each partition."""
    blocks = rows // BLOCK
    parts = [block(workload, number * blocks + i, keys, warm) for i in range(blocks)]
    columns = [np.concatenate(found) for found in zip(*(p[0] for p in parts), strict=True)]
    where = np.concatenate([p[1] for p in parts])
    return [[column[where == p] for column in columns] for p in range(PARTITIONS)]


def closing(workload: Workload) -> list[Columns]:
    """Return the last rows of event time, one for each partition."""
    between = [np.array([0])] * (len(workload.columns) - 2)
    row = [np.array([CLOSING_KEY]), *between, np.array([CLOSING_MS])]
    return [row for _ in range(PARTITIONS)]


def rules() -> list[tuple[int, int]]:
    """Return the rules of workload (e): a number, and the least value that it matches."""
    rng = np.random.default_rng([SEED, RULES])
    return list(enumerate(rng.integers(0, VALUE_MAX, RULES).tolist()))


def in_order(epochs: list[list[Columns]]) -> Iterator[Columns]:
    """Yield everything in an order that keeps each key's rows in theirs."""
    for partitions in epochs:
        yield from partitions
