"""The hashmap backend: registration, snapshots and restore over `StateTable`s.

Invariant: a snapshot shows exactly the entries of the moment it was taken, however late it is
written and whatever user code does to objects it reads from state meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from weir.backend.address import split_address
from weir.backend.base import (
    VOID,
    CurrentKey,
    Keep,
    KeyedPart,
    RestoreSource,
    SnapshotKind,
    SnapshotOutput,
    StateDeclaration,
)
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.handles import State
from weir.backend.hashmap.states import handle_for
from weir.backend.hashmap.sweep import Sweep
from weir.backend.hashmap.table import StateTable, kept
from weir.backend.restored import RestoredState, read_states
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, TimerSnapshot
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter

_SAMPLE = 64
_ENTRY_OVERHEAD = 100


class HashMapBackend:
    """Keyed state as Python objects in memory; see `weir.backend.base.KeyedBackend`."""

    def __init__(
        self, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any = None
    ) -> None:
        """Make an empty backend for keys and namespaces of a type (None: any, stored pickled)."""
        self.current = CurrentKey(key_groups.start)
        self.key_groups = key_groups
        self._address = AddressTypes(key_type, namespace_type)
        self._tables: dict[str, StateTable] = {}
        self._handles: dict[str, State] = {}
        self._restored: dict[str, RestoredState] = {}
        self._sweeps: dict[str, Sweep] = {}
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
            _check_same(self._tables[name], declaration, group_format)
            return self._handles[name]
        table = StateTable(declaration, group_format, self.key_groups)
        restored = self._restored.get(name)
        if restored is not None:
            now_ms = 0 if declaration.cleanup is None else declaration.cleanup.now_ms()
            reader = restored.reader_format(declaration.kind.name, group_format, now_ms)
            for group in restored.groups:
                table.groups[group].update(restored.entries(group, reader))
            del self._restored[name]
        self._tables[name] = table
        self._handles[name] = handle_for(table, self.current, declaration)
        return self._handles[name]

    def snapshot(
        self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.FULL
    ) -> HashMapSnapshot:
        """Freeze the state in time proportional to states, key groups and timers."""
        timers = [queue.snapshot(checkpoint_id) for queue in self._timers.values()]
        return HashMapSnapshot(checkpoint_id, list(self._tables.values()), self._restored, timers)

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty backend with the key groups that it owns.

        Raises:
            UsageError: states are registered already.
            CorruptStateError: a file is damaged; the backend stays empty.
        """
        if self._tables or self._restored:
            msg = "a keyed backend is restored once, before any state is registered"
            raise UsageError(msg)
        restored = read_states(sources, self.key_groups)
        for queue in self._timers.values():
            queue.restore(sources)
        self._restored = restored

    def end_epoch(self) -> None:
        """Nothing is put off."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Every snapshot stands for itself."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Every snapshot stands for itself."""

    def sweep(self, state_name: str, keep: Keep, limit: int) -> int:
        """Pass up to `limit` entries of a state through a filter; return how many it were."""
        sweep = self._sweeps.get(state_name)
        if sweep is None:
            sweep = self._sweeps[state_name] = Sweep(self._tables[state_name])
        return sweep.run(keep, limit)

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state (None: outside of namespaces).

        Entries may be changed while iterating; changes need not show.

        Raises:
            UsageError: no state of that name is registered.
        """
        if state_name not in self._tables:
            msg = f"no state {state_name!r} is registered, there are {sorted(self._tables)!r}"
            raise UsageError(msg)
        wanted = VOID if namespace is None else namespace
        table = self._tables[state_name]
        for group in self.key_groups:
            for address in list(table.visible(group)):
                key, found = split_address(address)
                if found is wanted or (wanted is not VOID and found == wanted):
                    yield key

    def size(self) -> int:
        """Count the entries of all registered states."""
        tables = self._tables.values()
        return sum(len(t.visible(group)) for t in tables for group in self.key_groups)

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries from a sample of each state."""
        restored = (p for s in self._restored.values() for g in s.groups.values() for p in g)
        total = sum(len(part.data) for part in restored)
        for table in self._tables.values():
            count, sampled, size = 0, 0, 0
            for group in self.key_groups:
                entries = table.visible(group)
                count += len(entries)
                for address, value in islice(entries.items(), _SAMPLE - sampled):
                    sampled += 1
                    size += sys.getsizeof(address) + _size_of(value) + _ENTRY_OVERHEAD
            total += size * count // max(1, sampled)
        return total

    def close(self) -> None:
        """Drop the state; the backend cannot be used afterwards."""
        self._tables.clear()
        self._handles.clear()
        self._restored = {}


class HashMapSnapshot:
    """Frozen layers of all tables; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self,
        checkpoint_id: int,
        tables: list[StateTable],
        restored: dict[str, RestoredState],
        timers: list[TimerSnapshot],
    ) -> None:
        """Freeze the tables and keep what is not registered yet."""
        self.checkpoint_id = checkpoint_id
        self._frozen = [(table, table.freeze()) for table in tables]
        self._filters = [table.snapshot_filter() for table in tables]
        self._restored = list(restored.values())
        self._timers = timers
        self._released = False

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write the frozen state into the checkpoint's own file.

        Raises:
            UsageError: the snapshot was released.
        """
        writer = out.writer
        footer: dict[str, Any] = {}
        for (table, frozen), keep in zip(self._frozen, self._filters, strict=True):
            footer[table.name] = self._write_table(writer, table, frozen, keep)
        for state in self._restored:
            footer[state.name] = state.write(writer)
        for timers in self._timers:
            footer.update(timers.write(out).states)
        return KeyedPart(footer)

    def _write_table(
        self,
        writer: SnapshotWriter,
        table: StateTable,
        frozen: dict[int, dict[Any, Any]],
        keep: Keep | None,
    ) -> dict[str, Any]:
        groups = {}
        for group, layer in frozen.items():
            addresses, values = table.collect(layer)
            if self._released:
                msg = f"snapshot {self.checkpoint_id} was released before it was written"
                raise UsageError(msg)
            if keep is not None:
                left = {
                    address: value
                    for address, stored in zip(addresses, values, strict=True)
                    if (value := kept(table.kind, stored, keep)) is not None
                }
                addresses, values = list(left), list(left.values())
            if addresses:
                data = table.format.encode(addresses, values)
                groups[str(group)] = [[*writer.section(data), len(addresses), 0]]
        return {"kind": table.kind.name, "type": table.format.describe(), "groups": groups}

    def release(self) -> None:
        """Merge the layers back; costs time proportional to the keys that changed meanwhile."""
        if self._released:
            return
        self._released = True
        for table, frozen in self._frozen:
            table.thaw(frozen)


def _check_same(table: StateTable, spec: StateDeclaration, group_format: GroupFormat) -> None:
    if table.kind is not spec.kind:
        msg = f"The state name '{table.name}' is already in use and not a {spec.kind.value}."
        raise UsageError(msg)
    found, wanted = table.format.describe(), group_format.describe()
    if found != wanted:
        msg = (
            f"The state name '{table.name}' is already in use with type {found!r}, "
            f"which is not {wanted!r}: use the same type, or another name"
        )
        raise UsageError(msg)


def _size_of(value: Any) -> int:
    size = sys.getsizeof(value)
    if isinstance(value, (list, tuple)):
        inside = list(islice(value, _SAMPLE))
    elif isinstance(value, dict):
        inside = [x for item in islice(value.items(), _SAMPLE // 2) for x in item]
    else:
        return size
    scale = len(value) * (2 if isinstance(value, dict) else 1)
    return size + sum(map(sys.getsizeof, inside)) * scale // max(1, len(inside))
