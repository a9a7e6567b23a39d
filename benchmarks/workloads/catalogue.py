"""The workloads by name: their columns, their key, how many keys, what the checksum covers."""

from __future__ import annotations

from dataclasses import dataclass

RULES = 64
REGIONS = 1_000
FLUSH_AT = 10
WINDOW_MS = 1_000
# Event time begins well behind the epoch: to Spark, what is at it is late from the start.
START_MS = 1_600_000_000_000
ROWS_PER_MS = 10
USERS_PER_SITE = 300
TTL_MS = 86_400_000
# Behind everything else in event time, so that every timer of a real key fires.
CLOSING_KEY = -1
CLOSING_MS = 2_000_000_000_000

TWO_LONGS = (("key", "bigint"), ("value", "bigint"))
WIDE = (
    ("id", "string"),
    ("value", "bigint"),
    ("name", "string"),
    ("city", "string"),
    ("note", "string"),
    ("x", "double"),
    ("y", "double"),
    ("n1", "bigint"),
    ("n2", "bigint"),
)


@dataclass(frozen=True)
class Workload:
    """One kind of work.

    Attributes:
        letter: the group that `--only` selects.
        kind: which program runs it; several workloads differ only in their keys.
        columns: of the input, as names and Spark types; the first one is the key.
        groups: columns of an output row that are fingerprinted together.
        keys: distinct keys of the input at full size.
        prefill: epochs that only fill the state before the measured part begins, beyond the first.
        files: whether results are written to files and committed, and the time ends only then.
    """

    name: str
    letter: str
    kind: str
    title: str
    columns: tuple[tuple[str, str], ...]
    groups: tuple[tuple[int, ...], ...]
    keys: int
    prefill: int = 0
    files: bool = False

    @property
    def spark_schema(self) -> str:
        """The input's schema as Spark writes it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)


def _least(name: str, keys: int, prefill: int = 0) -> Workload:
    title = f"least value so far, ValueState, {keys:,} keys"
    return Workload(name, "a", "least", title, TWO_LONGS, ((0, 1, 2),), keys, prefill)


ALL = (
    _least("a-100k", 100_000),
    _least("a-1k", 1_000),
    _least("a-10k", 10_000),
    _least("a-5m", 5_000_000, prefill=5),
    Workload(
        "b",
        "b",
        "distinct",
        "distinct daily users, MapState with TTL",
        (("site", "bigint"), ("user", "bigint"), ("day", "bigint")),
        ((0, 1, 2),),
        10_000,
    ),
    Workload("c-reduce", "c", "reduce", "running sum by reduce", TWO_LONGS, ((0, 1),), 100_000),
    Workload("c-sum", "c", "sum", "running sum by sum", TWO_LONGS, ((0, 1),), 100_000),
    Workload("d", "d", "flush", "list append and flush, ListState", TWO_LONGS, ((0, 1),), 100_000),
    Workload(
        "e",
        "e",
        "rules",
        "broadcast rules over a keyed stream",
        TWO_LONGS,
        ((0, 1, 2),),
        100_000,
    ),
    Workload(
        "f",
        "f",
        "stages",
        "two keyed stages in a row",
        TWO_LONGS,
        ((0, 1), (2, 3)),
        100_000,
    ),
    Workload(
        "g",
        "g",
        "wide",
        "string keys and wide rows",
        WIDE,
        ((0, 1, 4, 7, 9),),
        100_000,
    ),
    Workload(
        "h",
        "h",
        "timers",
        "event-time timers that fire",
        (("key", "bigint"), ("ts", "bigint")),
        ((0, 1, 2),),
        1_000,
    ),
    Workload(
        "i",
        "i",
        "least",
        "(a) with 100,000 keys, results committed to Parquet files",
        TWO_LONGS,
        ((0, 1, 2),),
        100_000,
        files=True,
    ),
)
BY_NAME = {workload.name: workload for workload in ALL}
LETTERS = tuple(dict.fromkeys(workload.letter for workload in ALL))
