"""RocksDB with a record of what changes, for a log of changes over it.

What a flush or a sweep writes is what changed: stores remember it until `drain`, also through
flushes that happen because the cache is full. So it is the addresses and map keys of one epoch's
changes, and the elements that it appended to lists, that have to fit into memory; and at the drain
their values.
"""

from __future__ import annotations

from typing import Any

from weir.backend.base import KeyedSnapshot, StateDeclaration
from weir.backend.changes import StateChanges
from weir.backend.rocksdb.backend import RocksDBBackend
from weir.backend.rocksdb.full import FullSnapshot
from weir.common.state import State


class TrackedRocksDBBackend(RocksDBBackend):
    """Keyed state in a local database; see `weir.backend.changes.ChangeSource`."""

    tracked = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Open an empty database; see the plain backend."""
        super().__init__(*args, **kwargs)
        self._anew = False

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state; notice when it was restored with other types."""
        stored = [
            table[declaration.name].types
            for table in (self._catalog.stored, self._catalog.packed)
            if declaration.name in table
        ]
        handle = super().state(declaration)
        declared = self._stores[declaration.name].facts.format.describe()
        # Layers are read together only as long as they describe a state alike.
        self._anew = self._anew or any(types != declared for types in stored)
        return handle

    def drain(self) -> list[StateChanges] | None:
        """Return all changes of registered states since the last drain.

        None after a state was registered with other types than it was restored with: it may be
        bigger than memory.
        """
        self.flush()
        drained = {name: store.drain() for name, store in self._stores.items()}
        if self._anew:
            self._anew = False
            return None
        return [
            StateChanges(name, facts.kind, facts.format, groups)
            for name, groups in drained.items()
            if groups and (facts := self._stores[name].facts)
        ]

    def snapshot_states(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze all states, also unregistered ones, but no timers."""
        self._settle()
        states, packed = self._frozen_states({}), self._frozen_packed()
        return FullSnapshot(checkpoint_id, self.key_groups, states, packed, timers=[])

    def snapshot_timers(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze the timers alone."""
        self.flush()
        timers = self._timers.frozen(checkpoint_id)
        return FullSnapshot(checkpoint_id, self.key_groups, [], (None, {}), timers=timers)
