"""Going through the rows of a state a few addresses at a time, removing what is not kept.

A round begins with a flush, so that every entry of that moment is looked at; entries that changed
since are left for the next round. After a round that removed something the column family is
compacted in a thread, because only that takes deleted rows off the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from weir.backend.base import Keep
from weir.backend.rocksdb.database import Database, Row, WriteBatch
from weir.backend.rocksdb.keys import GROUP_BYTES, Addresses, address_end, after, group_start
from weir.backend.rocksdb.store import Store
from weir.keygroup import KeyGroupRange


class DatabaseSweep:
    """One place in a state that goes round and round."""

    def __init__(
        self,
        store: Store,
        database: Database,
        addresses: Addresses,
        key_groups: KeyGroupRange,
        compact: Callable[[], None],
    ) -> None:
        """Start at the first key group; `compact` is called after rounds that removed rows."""
        self._store = store
        self._database = database
        self._addresses = addresses
        self._first = group_start(key_groups.start)
        self._end = group_start(key_groups.end + 1)
        self._compact = compact
        self._position = self._first
        self._removed = False

    def run(self, keep: Keep, limit: int) -> int:
        """Look at up to `limit` addresses, each at most once; return how many."""
        start = self._position
        looked = self._pass(keep, limit, self._end)
        if looked < limit:
            self._finish_round()
            if start != self._first:
                looked += self._pass(keep, limit - looked, start)
        return looked

    def _finish_round(self) -> None:
        self._position = self._first
        if self._removed:
            self._removed = False
            self._compact()

    def _pass(self, keep: Keep, limit: int, stop: bytes) -> int:
        if self._position == self._first:
            batch = self._database.batch()
            self._store.flush(batch)
            batch.finish()
        batch = self._database.batch()
        looked = 0
        rows = self._store.facts.family.cursor().scan(self._position, stop)
        for prefix, found in groupby(rows, key=_prefix):
            if looked >= limit:
                break
            looked += 1
            self._look(prefix, list(found), keep, batch)
            self._position = after(prefix) or self._end
        batch.finish()
        return looked

    def _look(self, prefix: bytes, rows: list[Row], keep: Keep, batch: WriteBatch) -> None:
        address = self._addresses.decode(prefix)
        group = int.from_bytes(prefix[:GROUP_BYTES], "big")
        if not self._store.is_settled(group, address):
            return
        hit = self._store.filter(batch, rows, keep)
        if hit:
            self._store.discard(group, address, hit)
            self._removed = True


def _prefix(row: Row) -> bytes:
    return row[0][: address_end(row[0])]
