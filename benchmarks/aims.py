"""The aims, as data, and whether the figures meet them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.contenders.protocol import WORKLOAD_EPOCH
from benchmarks.runner import Cell

Cells = Mapping[tuple[str, str], Cell]
Figure = Callable[[Cells], "list[float]"]
"""A ratio, once for each round; nothing where a part of it was not measured."""


def speeds(cells: Cells, contender: str, workload: str) -> list[float]:
    """Return rows/s of each round, nothing if there is no time that counts."""
    cell = cells.get((contender, workload))
    if cell is None or not cell.counts:
        return []
    return [run.rows / run.seconds for run in cell.runs if run.seconds]


def rate(cells: Cells, contender: str, workload: str) -> float | None:
    """Return the median of rows/s, None if there is no time that counts."""
    found = speeds(cells, contender, workload)
    return statistics.median(found) if found else None


def epoch_times(cells: Cells, contender: str) -> list[float]:
    """Return the median time of an epoch of one row in each round."""
    cell = cells.get((contender, WORKLOAD_EPOCH))
    runs = [run.epochs for run in cell.runs if run.epochs] if cell is not None else []
    return [statistics.median(epochs) for epochs in runs]


def epoch_seconds(cells: Cells, contender: str) -> float | None:
    """Return the median time of an epoch of one row."""
    times = epoch_times(cells, contender)
    return statistics.median(times) if times else None


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the quotient, None if a part of it is missing."""
    return above / below if above is not None and below else None


def by_round(above: list[float], below: list[float]) -> list[float]:
    """Return the quotients of rounds that stood beside each other in time.

    What the machine did to the one in some minute it did to the other as well, so these vary less
    than the times do. Where the numbers of rounds differ, it is the quotient of the medians.
    """
    if len(above) == len(below):
        return [one / other for one, other in zip(above, below, strict=True)]
    return [statistics.median(above) / statistics.median(below)] if above and below else []


def relative(cells: Cells, above: str, below: str, workload: str) -> float | None:
    """Return the median ratio of two contenders in a workload, None if one was not measured."""
    found = by_round(speeds(cells, above, workload), speeds(cells, below, workload))
    return statistics.median(found) if found else None


def rates(workload: str, above: str, *below: str) -> Figure:
    """Return the ratio of a contender to the fastest of others."""

    def figure(cells: Cells) -> list[float]:
        others = [speeds(cells, name, workload) for name in below]
        there = [found for found in others if found]
        fastest = max(there, key=statistics.median, default=[])
        return by_round(speeds(cells, above, workload), fastest)

    return figure


def growth(contender: str) -> Figure:
    """Return how the cost per row grows from 10,000 to 5 million keys."""

    def figure(cells: Cells) -> list[float]:
        few, many = (speeds(cells, contender, name) for name in ("a-10k", "a-5m"))
        return by_round(few, many)

    return figure


def one_row(cells: Cells) -> list[float]:
    """Return an epoch of one row by the stricter of the two floors."""
    floors = [epoch_times(cells, name) for name in ("empty-same", "empty-default")]
    there = [times for times in floors if times]
    strictest = min(there, key=statistics.median, default=[])
    return by_round(epoch_times(cells, "weir-hashmap"), strictest)


@dataclass(frozen=True)
class Aim:
    """A bound on a figure; without a bound, a figure that is shown beside the others."""

    text: str
    figure: Figure
    bound: float | None = None
    at_least: bool = True

    def verdict(self, cells: Cells) -> tuple[float | None, str]:
        """Return the median over the rounds, and what it says of the aim."""
        rounds = self.figure(cells)
        if not rounds:
            return None, "not measured"
        found = statistics.median(rounds)
        if self.bound is None:
            return found, "for comparison"
        met = found >= self.bound if self.at_least else found <= self.bound
        return found, "met" if met else "not met"

    @property
    def limit(self) -> str:
        """The bound in words."""
        if self.bound is None:
            return ""
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}"


AIMS = (
    Aim(
        "(a) 100,000 keys, hashmap, to the identity floor",
        rates("a-100k", "weir-hashmap", "identity"),
        0.75,
    ),
    Aim(
        "(a) 100,000 keys, RocksDB, to the identity floor",
        rates("a-100k", "weir-rocksdb", "identity"),
        0.4,
    ),
    Aim(
        "(a) 100,000 keys, hashmap, to transformWithState (Row)",
        rates("a-100k", "weir-hashmap", "tws-row"),
        40,
    ),
    Aim(
        "(a) 100,000 keys, hashmap, to PyFlink in thread mode, the faster backend",
        rates("a-100k", "weir-hashmap", "pyflink-thread-hashmap", "pyflink-thread-rocksdb"),
        40,
    ),
    Aim(
        "(a) 100,000 keys, hashmap, to Bytewax given the same cores",
        rates("a-100k", "weir-hashmap", "bytewax-1", "bytewax-2"),
        2,
    ),
    Aim(
        "(c) by sum on a column key, hashmap, to the identity floor",
        rates("c-sum", "weir-hashmap", "identity"),
        0.9,
    ),
    Aim(
        "(a) 100,000 keys, checkpoints every second to none",
        rates("a-100k", "weir-hashmap", "weir-hashmap-unchecked"),
        0.9,
    ),
    Aim("(a) cost per row, 5 million keys to 10,000", growth("weir-hashmap"), 1.5, at_least=False),
    Aim("an epoch of one row, to foreachBatch with an empty Python stage", one_row, 1.5, False),
    Aim(
        "(w) sum in tumbling windows, 100,000 keys, to the identity floor",
        rates("w-sum", "weir-hashmap", "identity"),
        0.7,
    ),
    Aim(
        "(w) sum in tumbling windows, 100,000 keys, to Spark's windows on the JVM",
        rates("w-sum", "weir-hashmap", "jvm"),
        0.7,
    ),
    Aim(
        "(w) process function over windows, to PyFlink in thread mode",
        rates("w-process", "weir-hashmap", "pyflink-thread-hashmap"),
        50,
    ),
    Aim(
        "(a) cost per row, 5 million keys to 10,000, incremental checkpoints",
        growth("weir-hashmap-incremental"),
    ),
    Aim(
        "(a) cost per row, 5 million keys to 10,000, no checkpoints",
        growth("weir-hashmap-unchecked"),
    ),
    Aim(
        "(a) 100,000 keys, hashmap, files read by workers, to the identity floor",
        rates("a-100k", "weir-hashmap-files", "identity"),
    ),
    Aim(
        "(c) by sum on a column key, hashmap, files read by workers, to the identity floor",
        rates("c-sum", "weir-hashmap-files", "identity"),
    ),
    Aim(
        "(w) sum in tumbling windows, 100,000 keys, files read by workers, to the identity floor",
        rates("w-sum", "weir-hashmap-files", "identity"),
    ),
    Aim(
        "(a) 100,000 keys, hashmap, to the identity floor with batches also bounded by bytes",
        rates("a-100k", "weir-hashmap", "identity-bounded"),
    ),
    Aim(
        "(c) by sum on a column key, hashmap, to the identity floor with batches also bounded "
        "by bytes",
        rates("c-sum", "weir-hashmap", "identity-bounded"),
    ),
)
