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

# Windows: a key has so many rows in each, whatever the number of keys; see `timestamps` in rows.py.
TUMBLE_MS = 10_000
SLIDE_MS = 2_000
GAP_MS = 10_000
ROWS_PER_KEY = 6
PERSON, AUCTION = 1, 2

TWO_LONGS = (("key", "bigint"), ("value", "bigint"))
TIMED = (*TWO_LONGS, ("ts", "bigint"))
BIDS = (("auction", "bigint"), ("bidder", "bigint"), ("price", "bigint"), ("ts", "bigint"))
BIDS_OF_BIDDERS = (BIDS[1], BIDS[0], *BIDS[2:])
EVENTS = (("id", "bigint"), ("kind", "bigint"), ("ts", "bigint"))
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
        epoch_rows: at most so many rows in an epoch, for work that takes long.
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
    epoch_rows: int | None = None

    @property
    def has_event_time(self) -> bool:
        """Whether the last column is the time of a row, and results come when time has passed."""
        return self.kind in END_OF

    @property
    def is_windowed(self) -> bool:
        """Whether the work is done in windows."""
        return self.letter in WINDOWED

    @property
    def spark_schema(self) -> str:
        """The input's schema as Spark writes it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)


# Kinds of work whose results come at a time of their own, and which of their fields that is.
END_OF = {
    "timers": 1,
    "window-sum": 2,
    "window-process": 3,
    "hot-items": 2,
    "highest-bid": 3,
    "new-users": 1,
    "sessions": 3,
}
WINDOWED = ("w", "n")


def _least(name: str, keys: int, prefill: int = 0) -> Workload:
    title = f"least value so far, ValueState, {keys:,} keys"
    return Workload(name, "a", "least", title, TWO_LONGS, ((0, 1, 2),), keys, prefill)


def _nexmark(
    name: str, kind: str, title: str, columns: tuple[tuple[str, str], ...], width: int
) -> Workload:
    return Workload(
        name,
        "n",
        kind,
        f"Nexmark query {name[1:]}: {title}",
        columns,
        (tuple(range(width)),),
        10_000,
        epoch_rows=400_000,
    )


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
    Workload(
        "w-sum",
        "w",
        "window-sum",
        "sum in tumbling windows, 100,000 keys",
        TIMED,
        ((0, 1, 2),),
        100_000,
    ),
    Workload(
        "w-process",
        "w",
        "window-process",
        "process function over tumbling windows, 40,000 keys",
        TIMED,
        ((0, 1, 2, 3),),
        40_000,
        epoch_rows=400_000,
    ),
    _nexmark("n5", "hot-items", "hot items, sliding windows", BIDS, 3),
    _nexmark("n7", "highest-bid", "highest bid, tumbling windows", BIDS, 4),
    _nexmark("n8", "new-users", "new users who sell, tumbling windows", EVENTS, 2),
    _nexmark("n11", "sessions", "bids by session", BIDS_OF_BIDDERS, 4),
    _nexmark("n12", "processing-time", "bids by processing time", BIDS_OF_BIDDERS, 1),
)
BY_NAME = {workload.name: workload for workload in ALL}
LETTERS = tuple(dict.fromkeys(workload.letter for workload in ALL))
