"""The independent recount: what the output has to be, computed from the input without Weir.

Sorting and cumulative sums over whole columns; shares no code and no state with the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("seq", "card", "total_cents", "merchants", "flagged", "rule")
Columns = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Expected and found output, counted by sequence number."""

    expected: int
    got: int
    lost: int
    duplicated: int
    different: int

    @property
    def exact(self) -> bool:
        """Whether every row is there once and right."""
        wrong = self.lost + self.duplicated + self.different
        return wrong == 0 and self.got == self.expected


def expected_output(source: Path) -> Columns:
    """Compute the output from the input folders, in order of sequence numbers."""
    paid = _columns(_read(source / "payments"))
    rules = _columns(_read(source / "rules"))
    order = np.lexsort((paid["seq"], paid["card"]))
    card, merchant = paid["card"][order], paid["merchant"][order]
    first_of_card = np.r_[True, card[1:] != card[:-1]] if len(card) else np.zeros(0, bool)
    pair = card * (int(merchant.max(initial=0)) + 1) + merchant
    new_merchant = np.zeros(len(pair), np.int64)
    new_merchant[np.unique(pair, return_index=True)[1]] = 1
    totals = running_sum(paid["amount_cents"][order], first_of_card)
    merchants = running_sum(new_merchant, first_of_card)
    by_start = np.argsort(rules["from_ms"])
    rule = np.searchsorted(rules["from_ms"][by_start], paid["event_time_ms"][order], side="right")
    in_force = by_start[rule - 1]
    result = {
        "seq": paid["seq"][order],
        "card": card,
        "total_cents": totals,
        "merchants": merchants,
        "flagged": paid["amount_cents"][order] > rules["limit_cents"][in_force],
        "rule": rules["version"][in_force].astype(np.int64),
    }
    back = np.argsort(result["seq"], kind="stable")
    return {name: column[back] for name, column in result.items()}


def running_sum(values: Any, starts: Any) -> Any:
    """Return the sums so far, beginning anew where `starts` is true."""
    sums = np.cumsum(values)
    base = (sums - values)[starts]
    return sums - base[np.cumsum(starts) - 1]


def read_output(target: Path) -> Columns:
    """Read the committed output files, whatever order their rows are in."""
    return _columns(_read(target))


def compare(expected: Columns, got: Columns) -> Comparison:
    """Match rows by sequence number; rows that nobody expected count as different."""
    seq, first = np.unique(got["seq"], return_index=True)
    known = expected["seq"]
    place = np.searchsorted(known, seq)
    matches = np.zeros(len(seq), bool)
    inside = place < len(known)
    matches[inside] = known[place[inside]] == seq[inside]
    here, there = first[matches], place[matches]
    same = np.ones(len(here), bool)
    for name in expected:
        same &= np.asarray(got[name])[here] == expected[name][there]
    return Comparison(
        expected=len(known),
        got=len(got["seq"]),
        lost=len(known) - len(here),
        duplicated=len(got["seq"]) - len(seq),
        different=int((~same).sum() + (~matches).sum()),
    )


def _read(folder: Path) -> pa.Table:
    files = sorted(p for p in folder.glob("*.parquet") if not p.name.startswith("."))
    if not files:
        empty = {name: pa.array([], pa.int64()) for name in COLUMNS}
        return pa.table(empty)
    return pa.concat_tables([pq.read_table(path) for path in files])


def _columns(table: pa.Table) -> Columns:
    return {name: table.column(name).to_numpy() for name in table.column_names}
