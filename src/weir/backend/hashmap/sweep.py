"""Going through the entries of a table a few at a time, removing what a filter does not keep.

A sweep copies the addresses of one key group at a time, so entries may come and go between two
steps; an entry that was there for a whole round has been looked at.
"""

from __future__ import annotations

from typing import Any

from weir.backend.base import Keep
from weir.backend.groups import kept
from weir.backend.hashmap.table import StateTable


class TableSweep:
    """One place in the table that goes round and round."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._group = table.key_groups.start
        self._rest: list[Any] = []

    def run(self, keep: Keep, limit: int) -> int:
        """Look at up to `limit` entries, each at most once per call; return how many."""
        looked = 0
        for _ in range(len(self._table.key_groups) + 1):
            looked += self._step(keep, limit - looked)
            if looked >= limit:
                break
            self._next_group()
        return looked

    def _step(self, keep: Keep, limit: int) -> int:
        table, shape, group = self._table, self._table.kind.shape, self._table.groups[self._group]
        looked = 0
        while self._rest and looked < limit:
            address = self._rest.pop()
            # Reading may copy an entry out of a frozen layer; it stays as it was there.
            stored = group.get(address)
            if stored is None:
                continue
            looked += 1
            left = kept(shape, stored, keep)
            if left is None:
                group.pop(address, None)
                table.swept(self._group, address, stored, left)
            elif left is not stored:
                group[address] = left
                table.swept(self._group, address, stored, left)
        return looked

    def _next_group(self) -> None:
        groups = self._table.key_groups
        self._group = self._group + 1 if self._group < groups.end else groups.start
        self._rest = list(self._table.visible(self._group))
