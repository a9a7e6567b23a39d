"""The hashmap backend: registration, snapshots and restore over `StateTable`s.

Invariant: a snapshot shows exactly the entries of the moment it was taken, however late it is
written and whatever user code does to objects it reads from state meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from weir.backend.address import split_address
from weir.backend.base import (
    VOID,
    CurrentKey,
    Keep,
    KeyedSnapshot,
    RestoreSource,
    SnapshotKind,
    StateDeclaration,
)
from weir.backend.chain import reusable_layers
from weir.backend.changes import StateChanges
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.hashmap.flat_table import FLAT_FROM, FlatTable, TrackedFlatTable, can_be_flat
from weir.backend.hashmap.incremental import Increments
from weir.backend.hashmap.snapshots import FrozenTables, HashMapSnapshot
from weir.backend.hashmap.sweep import TableSweep
from weir.backend.hashmap.table import StateTable
from weir.backend.hashmap.tracked import TrackedTable, tracked_handle_for
from weir.backend.object_handles import handle_for
from weir.backend.peek import Entries, SeenState, seen_restored
from weir.backend.restored import RestoredState, common_sources, read_states
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, TimerSnapshot
from weir.common.state import State
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange


class HashMapBackend:
    """Keyed state in memory, as objects or flat; see `weir.backend.base.KeyedBackend`."""

    def __init__(
        self,
        key_type: Any,
        key_groups: KeyGroupRange,
        namespace_type: Any = None,
        *,
        tracked: bool = False,
        flat_from: int | None = None,
    ) -> None:
        """Make an empty backend for keys and namespaces of a type (None: any, stored pickled).

        With `tracked` it remembers what changes: for incremental snapshots, or for `drain` (one
        or the other). Without, incremental snapshots are full ones. States of numbers under
        integer keys are kept in flat arrays from so many entries on (None: from `FLAT_FROM`).
        """
        self.current = CurrentKey(key_groups.start)
        self.key_groups = key_groups
        self._address = AddressTypes(key_type, namespace_type)
        self._tables: dict[str, StateTable] = {}
        self._handles: dict[str, State] = {}
        self._restored: dict[str, RestoredState] = {}
        self._sweeps: dict[str, TableSweep] = {}
        self._tracked: dict[str, TrackedTable] = {}
        self._flat: list[FlatTable] = []
        self._flat_from = FLAT_FROM if flat_from is None else flat_from
        self._increments = Increments() if tracked else None
        self._timers = {
            name: TimerQueue(name, key_type, key_groups, namespace_type)
            for name in (EVENT_TIMERS, PROCESSING_TIMERS)
        }

    def timers(self, name: str) -> TimerQueue:
        """Return the timers of a time domain."""
        return self._timers[name]

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state, the same one for the same name.

        Raises:
            UsageError: the name is in use with another kind or other types.
            IncompatibleStateError: the restored state has another kind or other key types, or
                its values do not migrate to the declared type.
        """
        group_format = GroupFormat.of(
            declaration.kind, self._address, declaration.value_type, declaration.key_type
        )
        name = declaration.name
        if name in self._tables:
            self._tables[name].format.check_same(name, group_format)
            return self._handles[name]
        table = self._table(declaration, group_format)
        if isinstance(table, TrackedTable):
            handle = tracked_handle_for(table, self.current, declaration)
        else:
            handle = handle_for(table, self.current, declaration)
        restored = self._restored.get(name)
        if restored is not None:
            now_ms = 0 if declaration.cleanup is None else declaration.cleanup.now_ms()
            reader = restored.reader_format(declaration.kind.name, group_format, now_ms)
            table.fill({group: restored.entries(group, reader) for group in restored.groups})
            if isinstance(table, TrackedTable):
                # Layers are read together only as long as they describe a state alike.
                table.anew = restored.types != group_format.describe()
            del self._restored[name]
        self._tables[name], self._handles[name] = table, handle
        if isinstance(table, TrackedTable):
            self._tracked[name] = table
        if isinstance(table, FlatTable):
            self._flat.append(table)
            table.settle()
        return handle

    def _table(self, declaration: StateDeclaration, group_format: GroupFormat) -> StateTable:
        tracked, groups = self._increments is not None, self.key_groups
        # Where namespaces are declared, windows use them: flat arrays cannot hold such entries.
        if self._address.namespace is None and can_be_flat(declaration, self._address.key):
            made = TrackedFlatTable if tracked else FlatTable
            return made(declaration, group_format, groups, self._flat_from)
        return (TrackedTable if tracked else StateTable)(declaration, group_format, groups)

    def begin_stride(
        self,
        keys: Sequence[Any],
        groups: Sequence[int],
        numbers: tuple[Any, Any] | None = None,
    ) -> None:
        """Look up the keys of the records that come next, where that is faster."""
        for table in self._flat:
            table.begin_stride(keys, groups, numbers)

    def end_stride(self) -> None:
        """Write back what these records changed."""
        for table in self._flat:
            table.end_stride()

    def snapshot(self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.FULL) -> KeyedSnapshot:
        """Freeze the state in time proportional to states, key groups and timers."""
        timers = self._frozen_timers(checkpoint_id)
        if kind is SnapshotKind.INCREMENTAL and self._increments is not None:
            return self._increments.take(checkpoint_id, self._tracked, self._restored, timers)
        tables = FrozenTables(checkpoint_id, self._tables.values(), self._restored, filtered=True)
        return HashMapSnapshot(checkpoint_id, tables, timers)

    def snapshot_states(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze all states, also unregistered ones, but no timers."""
        tables = FrozenTables(checkpoint_id, self._tables.values(), self._restored)
        return HashMapSnapshot(checkpoint_id, tables, [])

    def snapshot_timers(self, checkpoint_id: int) -> KeyedSnapshot:
        """Freeze the timers alone."""
        return HashMapSnapshot(checkpoint_id, None, self._frozen_timers(checkpoint_id))

    def _frozen_timers(self, checkpoint_id: int) -> list[TimerSnapshot]:
        return [queue.snapshot(checkpoint_id) for queue in self._timers.values()]

    def drain(self) -> list[StateChanges]:
        """Return all changes of registered states since the last drain; for a tracked backend."""
        changes = []
        for table in self._tracked.values():
            changed = table.take()
            if changed.anew or changed.groups:
                groups = table.present(changed)
                changes.append(
                    StateChanges(table.name, table.kind, table.format, groups, whole=changed.anew)
                )
        return changes

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty backend with the key groups that it owns.

        Raises:
            UsageError: states are registered already.
            CorruptStateError: a file is damaged; the backend stays empty.
        """
        if self._tables or self._restored:
            msg = "a keyed backend is restored once, before any state is registered"
            raise UsageError(msg)
        sources = common_sources(sources, self.key_groups)
        restored = read_states(sources, self.key_groups)
        for queue in self._timers.values():
            queue.restore(sources)
        self._restored = restored
        if self._increments is not None:
            self._increments.restored(reusable_layers(sources, self.key_groups))

    def end_epoch(self) -> None:
        """Move states that have become large into flat arrays, and small ones back."""
        for table in self._flat:
            table.settle()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Later checkpoints may go on with the layers of this one."""
        if self._increments is not None:
            self._increments.completed(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """The layer of this checkpoint is not to be used; its changes go into the next one."""
        if self._increments is not None:
            self._increments.aborted(checkpoint_id)

    def sweep(self, state_name: str, keep: Keep, limit: int) -> int:
        """Pass up to `limit` entries of a state through a filter; return how many it were."""
        sweep = self._sweeps.get(state_name)
        if sweep is None:
            sweep = self._sweeps[state_name] = TableSweep(self._tables[state_name])
        return sweep.run(keep, limit)

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state (None: outside of namespaces).

        Entries may be changed while iterating; changes need not show.

        Raises:
            UsageError: no state of that name is registered.
        """
        wanted = VOID if namespace is None else namespace
        for _, key, found in self.addresses(state_name):
            if found is wanted or (wanted is not VOID and found == wanted):
                yield key

    def addresses(self, state_name: str) -> Iterator[tuple[int, Any, Any]]:
        """Go through key group, key and namespace of all entries of a state, each once.

        Entries may be changed while iterating; changes need not show.

        Raises:
            UsageError: no state of that name is registered.
        """
        if state_name not in self._tables:
            msg = f"no state {state_name!r} is registered, there are {sorted(self._tables)!r}"
            raise UsageError(msg)
        table = self._tables[state_name]
        for group in self.key_groups:
            for address in list(table.visible(group)):
                yield group, *split_address(address)

    def seen_states(self) -> list[SeenState]:
        """Return the registered states, and those that were restored and not asked for."""
        tables = self._tables.values()
        seen = [SeenState(t.name, t.kind, t.format, t.cleanup) for t in tables]
        return seen + seen_restored(self._restored.values())

    def peek(self, name: str, group: int, keys: Collection[Any], *, spaced: bool) -> Entries:
        """Return the entries of some keys.

        In namespaces, and as long as nobody asked for a restored state, by a look at the whole key
        group.
        """
        table = self._tables.get(name)
        if table is not None and not spaced:
            found = ((key, table.peek(group, key)) for key in keys)
            return [entry for entry in found if entry[1] is not None]
        items = self.peek_group(name, group)
        wanted = set(keys)
        if not spaced:
            return [entry for entry in items if entry[0] in wanted]
        return [entry for entry in items if split_address(entry[0])[0] in wanted]

    def peek_group(self, name: str, group: int) -> Entries:
        """Return all entries of a key group; those of a restored state are decoded each time."""
        table = self._tables.get(name)
        if table is not None:
            return list(table.visible(group).items())
        restored = self._restored[name]
        if group not in restored.groups:
            return []
        return list(restored.entries(group, restored.stored_format()).items())

    def size(self) -> int:
        """Count the entries of all registered states."""
        return sum(table.size() for table in self._tables.values())

    def approximate_size(self) -> int:
        """Count the entries of all registered states."""
        return self.size()

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries from a sample of each state."""
        restored = (p for s in self._restored.values() for g in s.groups.values() for p in g)
        total = sum(len(part.data) for part in restored)
        return total + sum(table.approximate_bytes() for table in self._tables.values())

    def close(self) -> None:
        """Drop the state; the backend cannot be used afterwards."""
        self._tables.clear()
        self._tracked.clear()
        self._flat.clear()
        self._handles.clear()
        self._restored = {}
