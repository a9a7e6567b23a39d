"""Timers in a column family, with the next ones of every key group in memory.

A database key is the key group, the timestamp (8 bytes, sign bit flipped, so that it sorts), key
and namespace as in `weir.backend.rocksdb.keys`; the value is the number of the registration (8
bytes) and what is kept beside the key. For each key group the timers up to a horizon are in memory,
all of them; those after it are only in the database, or among the changes to write. Invariant: a
timer at or before its group's horizon is in memory if and only if it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from weir.backend.address import address_of, split_address
from weir.backend.base import VOID, Timer
from weir.backend.group_format import GroupFormat
from weir.backend.rocksdb.database import ColumnFamily, Cursor, Database, WriteBatch
from weir.backend.rocksdb.keys import GROUP_BYTES, Addresses, group_start
from weir.backend.rocksdb.store import Sequence
from weir.backend.timers import check_owned, check_timestamp
from weir.keygroup import KeyGroupRange

_LIMIT = 1 << 63
_STAMP = 8
_NUMBER = 8
_REBUILD_FROM = 256
_MAX_CHANGES = 4096


class RocksDBTimers:
    """The timers of one time domain; see `weir.backend.base.Timers`."""

    def __init__(
        self,
        name: str,
        group_format: GroupFormat,
        key_groups: KeyGroupRange,
        cache_size: int = 128,
    ) -> None:
        """Make a queue that `attach` connects to a database."""
        self.name = name
        self.format = group_format
        self.key_groups = key_groups
        self._addresses = Addresses(group_format.key, group_format.namespace)
        self._cache_size = max(1, cache_size)
        self._counts: dict[int, int] = {}
        # By group, (timestamp, address) -> registration number, as far as the horizon.
        self._near: dict[int, dict[tuple[int, Any], int]] = {}
        self._horizons: dict[int, int] = {}
        self._trim_at: dict[int, int] = {}
        self._hungry: set[int] = set()
        self._heap: list[tuple[int, int, int, Any]] = []
        self._rebuild_at = _REBUILD_FROM
        self._changes: dict[bytes, bytes | None] = {}

    def attach(
        self, database: Database, sequence: Sequence, counts: dict[int, int] | None = None
    ) -> None:
        """Use a database, and forget another; `counts` are its timers by key group."""
        for memory in (self._counts, self._near, self._horizons, self._trim_at, self._changes):
            memory.clear()
        self._hungry.clear()
        self._heap.clear()
        self._database = database
        self._sequence = sequence
        for group, count in (counts or {}).items():
            if count:
                self._counts[group] = count
                self._near[group] = {}
                self._horizons[group] = -_LIMIT - 1
                self._hungry.add(group)

    @property
    def family(self) -> ColumnFamily:
        """Return the column family, made when it is first needed."""
        return self._database.family(self.name)

    def __len__(self) -> int:
        """Count the timers."""
        return sum(self._counts.values())

    def counts(self) -> dict[int, int]:
        """Return how many timers each key group has."""
        return {group: count for group, count in self._counts.items() if count}

    def register(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Add a timer; return False when it was there already.

        Raises:
            UsageError: the timestamp is not a 64-bit integer, or there is no key.
        """
        check_timestamp(timestamp)
        address = address_of(key, namespace)
        timer = (timestamp, address)
        near = self._near.get(group)
        if near is None:
            check_owned(self.key_groups, group, key)
            near = self._near[group] = {}
        if timer in near:
            return False
        row = self._row(group, timestamp, address)
        is_near = timestamp <= self._horizons.get(group, _LIMIT)
        if not is_near and self._is_far(row):
            return False
        number = self._sequence.next()
        self._change(row, number.to_bytes(_NUMBER, "big") + self._addresses.original(address))
        self._counts[group] = self._counts.get(group, 0) + 1
        if is_near:
            near[timer] = number
            self._push(timestamp, group, number, address)
            if len(near) > self._trim_at.get(group, 2 * self._cache_size):
                self._trim(group)
        elif not near:
            self._hungry.add(group)
        return True

    def delete(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Remove a timer; return False when there was none."""
        if not self._counts.get(group):
            return False
        address = address_of(key, namespace)
        row = self._row(group, timestamp, address)
        if timestamp <= self._horizons.get(group, _LIMIT):
            if self._near[group].pop((timestamp, address), None) is None:
                return False
        elif not self._is_far(row):
            return False
        self._forget(group, row)
        return True

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next timer, None when there is none."""
        while self._hungry:
            self._feed(self._hungry.pop())
        while self._heap:
            timestamp, group, number, address = self._heap[0]
            if self._near[group].get((timestamp, address)) == number:
                return timestamp
            heappop(self._heap)
        return None

    def pop_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a time, inclusive, one by one.

        Timers that are registered or deleted meanwhile are taken into account.
        """
        while True:
            due = self.next_timestamp()
            if due is None or due > up_to_ms:
                return
            timestamp, group, _, address = heappop(self._heap)
            del self._near[group][timestamp, address]
            self._forget(group, self._row(group, timestamp, address))
            yield Timer(timestamp, group, *split_address(address))

    def register_all(
        self, timestamp: int, keys: Iterable[Any], groups: Iterable[int], namespace: Any = VOID
    ) -> None:
        """Add a timer for each of some keys, where there is none yet."""
        for key, group in zip(keys, groups, strict=True):
            self.register(timestamp, key, group, namespace)

    def register_group(self, timestamp: int, group: int, addresses: Iterable[Any]) -> None:
        """Add a timer for each of some addresses of a key group, where there is none yet."""
        for address in addresses:
            key, namespace = split_address(address)
            self.register(timestamp, key, group, namespace)

    def pop_buckets(self, up_to_ms: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Remove and yield all timers up to a time: a time and key group, and all addresses."""
        while True:
            due = self.next_timestamp()
            if due is None or due > up_to_ms:
                return
            when = self._heap[0][:2]
            addresses = []
            while self.next_timestamp() is not None and self._heap[0][:2] == when:
                timestamp, group, _, address = heappop(self._heap)
                del self._near[group][timestamp, address]
                self._forget(group, self._row(group, timestamp, address))
                addresses.append(address)
            yield (*when, addresses)

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed."""
        for row, number in self._changes.items():
            if number is None:
                batch.delete(self.family, row)
            else:
                batch.put(self.family, row, number)
        self._changes.clear()

    def read(self, cursor: Cursor, group: int) -> list[tuple[Any, int]]:
        """Return address and timestamp of a group's timers in the order of registration."""
        rows = cursor.scan(group_start(group), group_start(group + 1))
        found = [(_number(data), self._address(row, data), _timestamp(row)) for row, data in rows]
        found.sort(key=lambda timer: timer[0])
        return [(address, timestamp) for _, address, timestamp in found]

    def _address(self, row: bytes, data: bytes) -> Any:
        prefix = row[:GROUP_BYTES] + row[GROUP_BYTES + _STAMP :]
        return self._addresses.decode_original(prefix, data[_NUMBER:])

    def _row(self, group: int, timestamp: int, address: Any) -> bytes:
        rest = self._addresses.encode(group, address)
        stamp = (timestamp + _LIMIT).to_bytes(_STAMP, "big")
        return rest[:GROUP_BYTES] + stamp + rest[GROUP_BYTES:]

    def _is_far(self, row: bytes) -> bool:
        """Tell whether a timer beyond the horizon exists."""
        if row in self._changes:
            return self._changes[row] is not None
        return self.family.get(row) is not None

    def _change(self, row: bytes, number: bytes | None) -> None:
        self._changes[row] = number
        if len(self._changes) >= _MAX_CHANGES:
            self._write()

    def _write(self) -> None:
        batch = self._database.batch()
        self.flush(batch)
        batch.finish()

    def _forget(self, group: int, row: bytes) -> None:
        self._change(row, None)
        self._counts[group] -= 1
        if self._counts[group] and not self._near[group]:
            self._hungry.add(group)

    def _feed(self, group: int) -> None:
        """Bring the next timers of a group into memory; whole timestamps, for their order."""
        near = self._near[group]
        if near or not self._counts.get(group):
            return
        self._write()
        found: list[tuple[int, int, Any]] = []
        start = self._horizons.get(group, -_LIMIT - 1) + 1
        horizon = _LIMIT
        if start < _LIMIT:
            first = group_start(group) + (start + _LIMIT).to_bytes(_STAMP, "big")
            for row, data in self.family.cursor().scan(first, group_start(group + 1)):
                timestamp = _timestamp(row)
                if len(found) >= self._cache_size and timestamp != found[-1][0]:
                    horizon = found[-1][0]
                    break
                found.append((timestamp, _number(data), self._address(row, data)))
        self._horizons[group] = horizon
        self._trim_at[group] = 2 * max(self._cache_size, len(found))
        for timestamp, registration, address in found:
            near[timestamp, address] = registration
            self._push(timestamp, group, registration, address)

    def _trim(self, group: int) -> None:
        """Leave the later timers of a group to the database."""
        near = self._near[group]
        last = sorted(timestamp for timestamp, _ in near)[self._cache_size - 1]
        kept = {timer: number for timer, number in near.items() if timer[0] <= last}
        self._trim_at[group] = 2 * max(self._cache_size, len(kept))
        if len(kept) == len(near):
            return
        near.clear()
        near.update(kept)
        self._horizons[group] = last

    def _push(self, timestamp: int, group: int, number: int, address: Any) -> None:
        """Put a timer into the heap, which is made anew when most of it may be left over."""
        heappush(self._heap, (timestamp, group, number, address))
        if len(self._heap) > self._rebuild_at:
            self._heap = [
                (timestamp, group, number, address)
                for group, near in self._near.items()
                for (timestamp, address), number in near.items()
            ]
            heapify(self._heap)
            self._rebuild_at = _REBUILD_FROM + 2 * len(self._heap)


def _number(data: bytes) -> int:
    return int.from_bytes(data[:_NUMBER], "big")


def _timestamp(row: bytes) -> int:
    return int.from_bytes(row[GROUP_BYTES : GROUP_BYTES + _STAMP], "big") - _LIMIT
