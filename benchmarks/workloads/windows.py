"""What windows have to give, in plain Python; rows of the closing key are nobody's result.

Results have the end of their window, but for those in processing time: when a row is counted there
depends on the machine, so the result is that every row was counted, once, for its bidder.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.workloads.catalogue import (
    AUCTION,
    CLOSING_KEY,
    GAP_MS,
    PERSON,
    SLIDE_MS,
    TUMBLE_MS,
)

Rows = Iterable[tuple[Any, ...]]


def end_of(ts: int, size: int = TUMBLE_MS) -> int:
    """Return the end of the tumbling window of a time."""
    return ts - ts % size + size


def real(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Leave out the rows that only take event time to its end."""
    return (row for row in rows if row[0] != CLOSING_KEY)


def sums(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The sum of each key in each window."""
    found: dict[tuple[int, int], int] = {}
    for key, value, ts in real(rows):
        window = key, end_of(ts)
        found[window] = found.get(window, 0) + value
    for (key, end), total in found.items():
        yield key, total, end


def spreads(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """How many values each key has in each window, and how far they lie apart."""
    found = defaultdict(list)
    for key, value, ts in real(rows):
        found[key, end_of(ts)].append(value)
    for (key, end), values in found.items():
        yield key, len(values), max(values) - min(values), end


def hot_items(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The auctions with the most bids in each sliding window, all of them if several have."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for auction, _, _, ts in real(rows):
        first = end_of(ts, SLIDE_MS)
        for end in range(first, first + TUMBLE_MS, SLIDE_MS):
            counts[end][auction] += 1
    for end, found in counts.items():
        most = max(found.values())
        yield from ((auction, n, end) for auction, n in found.items() if n == most)


def highest_bids(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The bid with the highest price in each window."""
    found: dict[int, tuple[int, int, int]] = {}
    for auction, bidder, price, ts in real(rows):
        end = end_of(ts)
        if end not in found or price > found[end][2]:
            found[end] = auction, bidder, price
    for end, bid in found.items():
        yield *bid, end


def new_users(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Who is new in a window and sells something in it."""
    found: dict[tuple[int, int], int] = {}
    for who, kind, ts in real(rows):
        window = who, end_of(ts)
        found[window] = found.get(window, 0) | kind
    for (who, end), kinds in found.items():
        if kinds == PERSON | AUCTION:
            yield who, end


def sessions(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """How many bids a bidder makes without a pause that is longer than the gap."""
    times = defaultdict(list)
    for bidder, _, _, ts in real(rows):
        times[bidder].append(ts)
    for bidder, found in times.items():
        found.sort()
        start, count = found[0], 0
        last = start
        for ts in found:
            if ts - last > GAP_MS:
                yield bidder, count, start, last + GAP_MS
                start, count = ts, 0
            last = ts
            count += 1
        yield bidder, count, start, last + GAP_MS


def bidders(rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The bidder of every bid."""
    for row in rows:
        yield (row[0],)


BY_KIND: dict[str, Callable[[Rows], Iterator[tuple[Any, ...]]]] = {
    "window-sum": sums,
    "window-process": spreads,
    "hot-items": hot_items,
    "highest-bid": highest_bids,
    "new-users": new_users,
    "sessions": sessions,
    "processing-time": bidders,
}
