"""The demo's input: seeded card payments and the rules that change among them, as Parquet files.

The same seed gives the same rows on every machine. File *i* of the rules lies beside file *i* of
the payments, and a rule never applies to payments of an earlier file than its own, so a stream
that reads both folders file by file knows every rule before the payments that it is for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CARDS = 100_000
MERCHANTS = 5_000
MERCHANTS_PER_CARD = 6
RULES = 6
FIRST_EVENT_MS = 1_700_000_000_000
EVENT_STEP_MS = 7

PAYMENTS_DDL = "seq bigint, card bigint, merchant int, amount_cents bigint, event_time_ms bigint"
RULES_DDL = "version int, from_ms bigint, limit_cents bigint"
_RULES_SCHEMA = pa.schema(
    [("version", pa.int32()), ("from_ms", pa.int64()), ("limit_cents", pa.int64())]
)
_U64 = np.uint64


@dataclass(frozen=True)
class Rule:
    """Payments from `from_ms` on are flagged above `limit_cents`, until the next version."""

    version: int
    from_ms: int
    limit_cents: int


@dataclass(frozen=True)
class InputShape:
    """How much input there is and how it is cut into files; an epoch reads one file."""

    rows: int
    files: int
    seed: int

    def bounds(self, file: int) -> tuple[int, int]:
        """Return the first sequence number of a file and that of the next one."""
        return self.rows * file // self.files, self.rows * (file + 1) // self.files


def rules_of(shape: InputShape) -> list[Rule]:
    """Return all rules, in order: one from the start, the others in the middle of files."""
    count = min(RULES, shape.files)
    rules = []
    for number in range(count):
        start, end = shape.bounds(shape.files * number // count)
        first = 0 if number == 0 else (start + end) // 2
        limit = 20_000 + int(_noise(shape.seed, 9, np.array([number], _U64))[0] * 25_000)
        rules.append(Rule(number + 1, event_time_ms(first), limit))
    return rules


def event_time_ms(seq: int) -> int:
    """Return when the payment with a sequence number happened."""
    return FIRST_EVENT_MS + EVENT_STEP_MS * seq


def payments(shape: InputShape, start: int, end: int) -> dict[str, Any]:
    """Return the columns of the payments with sequence numbers from `start` to before `end`."""
    seq = np.arange(start, end, dtype=np.int64)
    counter = seq.astype(_U64)
    # The third power makes a few cards very busy and leaves most of them quiet.
    index = (CARDS * _noise(shape.seed, 1, counter) ** 3).astype(np.int64)
    choice = (MERCHANTS_PER_CARD * _noise(shape.seed, 2, counter)).astype(np.int64)
    amount = 100 + (50_000 * _noise(shape.seed, 3, counter) ** 2).astype(np.int64)
    return {
        "seq": seq,
        "card": 4_000_000_000_000_000 + index * 7_919,
        "merchant": ((index * 31 + choice * 7) % MERCHANTS).astype(np.int32),
        "amount_cents": amount,
        "event_time_ms": FIRST_EVENT_MS + EVENT_STEP_MS * seq,
    }


def write_input(shape: InputShape, folder: Path) -> None:
    """Write the folders `payments` and `rules`, whose files sort by modification time."""
    (folder / "payments").mkdir(parents=True)
    (folder / "rules").mkdir()
    rules = rules_of(shape)
    for number in range(shape.files):
        start, end = shape.bounds(number)
        table = pa.table(payments(shape, start, end))
        here = [r for r in rules if event_time_ms(start) <= r.from_ms < event_time_ms(end)]
        _write(table, folder / "payments", number)
        columns = [[getattr(r, f.name) for r in here] for f in _RULES_SCHEMA]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _RULES_SCHEMA, strict=True)]
        _write(pa.Table.from_arrays(arrays, schema=_RULES_SCHEMA), folder / "rules", number)


def _write(table: pa.Table, folder: Path, number: int) -> None:
    """Write a file as one row group; Spark streams files in order of their time."""
    path = folder / f"{number:05d}.parquet"
    pq.write_table(table, path, row_group_size=max(1, table.num_rows), compression="snappy")
    moment = FIRST_EVENT_MS // 1000 + number
    os.utime(path, (moment, moment))


def _noise(seed: int, stream: int, counter: Any) -> Any:
    """Return numbers in [0, 1) that depend on seed, stream and counter only (splitmix64)."""
    with np.errstate(over="ignore"):
        z = counter * _U64(8) + _U64(stream) + _U64(seed) * _U64(0xD1342543DE82EF95)
        z = z * _U64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
        z = z ^ (z >> _U64(31))
    return (z >> _U64(11)).astype(np.float64) / float(1 << 53)
