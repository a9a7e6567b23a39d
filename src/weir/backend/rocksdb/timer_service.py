"""The timers of a backend, in memory or in its database, as the configuration says.

Whatever a checkpoint was taken with can be restored by either.
"""

from __future__ import annotations

from typing import Any

from weir.backend.address import split_address
from weir.backend.base import RestoreSource
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.kinds import TIMER_KIND
from weir.backend.restored import RestoredState, read_states
from weir.backend.rocksdb.database import Database, WriteBatch
from weir.backend.rocksdb.full import FrozenTimers
from weir.backend.rocksdb.options import RocksDBSettings
from weir.backend.rocksdb.restore import Filled, without_native
from weir.backend.rocksdb.store import Sequence
from weir.backend.rocksdb.timers import RocksDBTimers
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue
from weir.common.typeinfo import Types
from weir.config.backend import ROCKSDB_TIMER_CACHE
from weir.keygroup import KeyGroupRange

_NAMES = (EVENT_TIMERS, PROCESSING_TIMERS)


class BackendTimers:
    """Event-time and processing-time timers of one backend."""

    def __init__(
        self, settings: RocksDBSettings, types: AddressTypes, key_groups: KeyGroupRange
    ) -> None:
        self._key_groups = key_groups
        self._format = GroupFormat.of(None, types, Types.LONG())
        cache = int(settings.get(ROCKSDB_TIMER_CACHE))
        self._rows = {name: RocksDBTimers(name, self._format, key_groups, cache) for name in _NAMES}
        self._heap: dict[str, TimerQueue] = {}
        if settings.heap_timers:
            self._heap = {
                name: TimerQueue(name, types.key, key_groups, types.namespace) for name in _NAMES
            }

    def begin(self, database: Database, sequence: Sequence, filled: Filled) -> None:
        """Use a database, with the timers that it has.

        Raises:
            IncompatibleStateError: the timers were stored for keys of another type.
        """
        self._database = database
        for name, rows in self._rows.items():
            counts = filled.timers.get(name, {})
            if any(counts.values()):
                types = filled.timer_types[name]
                RestoredState(name, TIMER_KIND, types).reader_format(TIMER_KIND, self._format)
            rows.attach(database, sequence, counts)
        for name, queue in self._heap.items():
            self._take(self._rows[name], queue)

    def _take(self, rows: RocksDBTimers, queue: TimerQueue) -> None:
        """Bring timers from the database into memory."""
        for group in rows.counts():
            for address, timestamp in rows.read(rows.family.cursor(), group):
                key, namespace = split_address(address)
                queue.register(timestamp, key, group, namespace)
        self._database.drop(rows.name)

    def restore(self, sources: list[RestoreSource]) -> None:
        """Add the timers of snapshots in the common format, a key group at a time."""
        common = without_native(sources)
        if self._heap:
            for queue in self._heap.values():
                if not len(queue):
                    queue.restore(common)
            return
        for group in self._key_groups:
            owned = KeyGroupRange(group, group)
            for name, state in read_states(common, owned, timers=True).items():
                self._register(name, state, group)

    def _register(self, name: str, state: RestoredState, group: int) -> None:
        reader = state.reader_format(TIMER_KIND, self._format)
        for part in state.groups.get(group, []):
            for address, timestamp in reader.decode(part.data, part.origin):
                key, namespace = split_address(address)
                self._rows[name].register(timestamp, key, group, namespace)

    def queue(self, name: str) -> RocksDBTimers | TimerQueue:
        """Return the timers of a time domain."""
        return self._heap[name] if self._heap else self._rows[name]

    def __len__(self) -> int:
        """Count all timers."""
        return sum(len(self.queue(name)) for name in _NAMES)

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed."""
        if not self._heap:
            for rows in self._rows.values():
                rows.flush(batch)

    def heap_snapshots(self, checkpoint_id: int) -> list[Any]:
        """Return snapshots of the timers in memory."""
        return [queue.snapshot(checkpoint_id) for queue in self._heap.values()]

    def frozen(self, checkpoint_id: int) -> list[Any]:
        """Return all timers of this moment."""
        made = set(self._database.names())
        rows = [] if self._heap else [r for r in self._rows.values() if r.name in made]
        return self.heap_snapshots(checkpoint_id) + [
            FrozenTimers(r, r.family.cursor()) for r in rows
        ]

    def facts(self) -> dict[str, Any]:
        """Describe the timers in the database for `weir.backend.rocksdb.native`."""
        if self._heap:
            return {}
        return {
            name: {"type": self._format.describe(), "counts": [list(c) for c in counts.items()]}
            for name, rows in self._rows.items()
            if (counts := rows.counts())
        }
