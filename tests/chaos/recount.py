"""Input for the attacked job, and what has to come of it, counted without any of its code."""

from __future__ import annotations

import ast
import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.chaos.program import LAST_ROWS, REGIONS, STEP_MS, WINDOW_MS

KEYS = 23
ROWS = 60
# Files are read in the order of their times, which count up from here.
_FIRST_TIME = 1_600_000_000


@dataclass
class Feed:
    """Files of rows that appear one after the other; `names` is added to the names of all."""

    root: Path
    seed: int
    names: str = ""
    rows: list[dict[str, int]] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        (self.root / "input").mkdir(parents=True, exist_ok=True)

    def add(self) -> int:
        """Let one more file appear, whole; returns the number of its last row."""
        rng = np.random.default_rng([self.seed, self.files])
        first = len(self.rows)
        table = pa.table(
            {
                # Every key is in every file: what waits for a timer of its key does not wait long.
                "key": np.concatenate([rng.permutation(KEYS), rng.integers(0, KEYS, ROWS - KEYS)]),
                "amount": rng.integers(1, 50, ROWS),
                "seq": np.arange(first, first + ROWS),
            }
        )
        hidden = self.root / "next.parquet"
        pq.write_table(table, hidden)
        os.utime(hidden, (_FIRST_TIME + self.files, _FIRST_TIME + self.files))
        hidden.replace(self.root / "input" / f"{self.files:06d}{self.names}.parquet")
        self.rows += table.to_pylist()
        self.files += 1
        return len(self.rows) - 1


def expected(rows: list[dict[str, int]]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the lines of both sinks after a drain."""
    totals: dict[int, int] = defaultdict(int)
    amounts: dict[int, set[int]] = defaultdict(set)
    windows: Counter[tuple[int, int]] = Counter()
    results: list[tuple[Any, ...]] = []
    for row in rows:
        key, seq = row["key"], row["seq"]
        totals[key] += row["amount"]
        amounts[key].add(row["amount"])
        windows[(seq * STEP_MS // WINDOW_MS + 1) * WINDOW_MS, key] += 1
        results.append(("total", seq, key, totals[key], len(amounts[key])))
        results.append(("fired", seq, key, 0, 0))
    results += [("window", end, key, count, 0) for (end, key), count in windows.items()]
    return Counter(results), Counter(_transactions(results))


def _transactions(results: list[tuple[Any, ...]]) -> list[str]:
    sums: Counter[int] = Counter()
    kinds: dict[int, Counter[str]] = defaultdict(Counter)
    last: dict[int, list[int]] = defaultdict(list)
    for kind, number, key, *_ in results:
        region = key % REGIONS
        sums[region] += number
        kinds[region][kind] += 1
        if kind == "total" and number % LAST_ROWS == 0:
            last[region].append(number)
    lines = [json.dumps([kind, number, key]) for kind, number, key, *_ in results]
    for region, counted in kinds.items():
        ends = [sums[region], sorted(last[region]), sorted(map(list, counted.items()))]
        lines.append(json.dumps(["end", region, ends]))
    return lines


class Reader:
    """What readers of the output see; files never change once they are visible."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: set[Path] = set()
        self.files: Counter[Any] = Counter()
        self.transactions: Counter[Any] = Counter()
        self.shown: set[int] = set()

    def look(self) -> None:
        """Read what has become visible since the last look."""
        for path in self._new(self._root / "output"):
            lines = [ast.literal_eval(line) for line in path.read_text("utf-8").splitlines()]
            self.files.update(lines)
            self.shown.update(line[1] for line in lines if line[0] == "total")
        for path in self._new(self._root / "transactions" / "done"):
            self.transactions.update(path.read_text("utf-8").splitlines())

    def has_all(self, rows: int) -> bool:
        """Tell whether all rows have come out, also those that wait for a timer."""
        fired = {line[1] for line in self.files if line[0] == "fired"}
        return len(self.shown) == rows and len(fired) >= rows

    def _new(self, folder: Path) -> list[Path]:
        found = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
        fresh = [path for path in found if path not in self._read]
        self._read.update(fresh)
        return fresh


@dataclass(frozen=True)
class Verdict:
    """How far the output is from the right answer: records of both sinks; `places` has each.

    Where only at least once is promised, what came twice is counted, and no fault.
    """

    right: int
    lost: int
    duplicated: int
    wrong: int
    complaints: int
    examples: tuple[str, ...]
    places: tuple[str, ...] = ()
    exactly_once: bool = True

    @property
    def exact(self) -> bool:
        """Tell that nothing is lost or wrong, or duplicated where that was promised."""
        twice = self.duplicated if self.exactly_once else 0
        return not (self.lost or twice or self.wrong or self.complaints)


def identity(line: Any) -> Any:
    """Return which record a line of a sink is, without what was counted up to it.

    Who processes a record twice has counted it twice: only that it is there can be demanded.
    """
    found = json.loads(line) if isinstance(line, str) else line
    return tuple(found[:2]) if found[0] == "end" else tuple(found[:3])


def _identities(lines: Counter[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for line, count in lines.items():
        found[identity(line)] += count
    return found


def judge(root: Path, rows: list[dict[str, int]], *, exactly_once: bool = True) -> Verdict:
    """Compare everything that is visible with the recount."""
    reader = Reader(root)
    reader.look()
    right = lost = duplicated = wrong = 0
    examples: list[str] = []
    pairs = zip(expected(rows), (reader.files, reader.transactions), strict=True)
    for wanted, found in pairs:
        if not exactly_once:
            wanted, found = _identities(wanted), _identities(found)
        right += (wanted & found).total()
        lost += (wanted - found).total()
        surplus = found - wanted
        duplicated += sum(n for line, n in surplus.items() if line in wanted)
        wrong += sum(n for line, n in surplus.items() if line not in wanted)
        examples += [f"lost {line}" for line in list(wanted - found)[:3]]
        examples += [f"too often or wrong {line}" for line in list(surplus)[:3]]
    ledger = root / "transactions" / "ledger"
    complaints = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
    examples += complaints[:3]
    return Verdict(
        right,
        lost,
        duplicated,
        wrong,
        len(complaints),
        examples=tuple(examples),
        exactly_once=exactly_once,
    )
