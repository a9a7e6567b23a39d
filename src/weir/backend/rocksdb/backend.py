"""The RocksDB backend: state larger than memory, incremental checkpoints of the database's files.

One database per operator subtask, one column family per state, caches of decoded objects in front.
Invariant: after a flush the database alone is the state, timers included; a snapshot is a flush and
a view of the database at that moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    Timers,
)
from weir.backend.context import BackendContext
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.key_bytes import KEY_FORMAT
from weir.backend.peek import Entries, SeenState, seen_restored
from weir.backend.rocksdb.catalog import PACKED_FAMILY, Catalog, Described, unpack_state
from weir.backend.rocksdb.database import Cursor, Database, require_rocksdict
from weir.backend.rocksdb.expand import with_present_keys
from weir.backend.rocksdb.full import FrozenState, FullSnapshot, whole
from weir.backend.rocksdb.keys import GROUP_BYTES, Addresses, address_end, after, group_start
from weir.backend.rocksdb.localdir import LocalDirectory, choose_base
from weir.backend.rocksdb.native import NativeSnapshot, Placed
from weir.backend.rocksdb.options import RocksDBSettings
from weir.backend.rocksdb.register import Registration, make_store
from weir.backend.rocksdb.restore import Filled, fill
from weir.backend.rocksdb.store import Budget, Sequence, StateFacts, Store, StoreContext
from weir.backend.rocksdb.sweep import DatabaseSweep
from weir.backend.rocksdb.timer_service import BackendTimers
from weir.common.state import State
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange


class RocksDBBackend:
    """Keyed state in a local database; see `weir.backend.base.KeyedBackend`."""

    tracked = False
    """Whether stores remember what changed, see `weir.backend.rocksdb.tracked`."""

    def __init__(
        self,
        context: BackendContext,
        key_type: Any,
        key_groups: KeyGroupRange,
        namespace_type: Any = None,
    ) -> None:
        """Open an empty database for keys and namespaces of a type (None: any, stored pickled).

        Raises:
            UsageError: the package rocksdict is not installed.
            StorageError: there is no place for the database.
        """
        require_rocksdict()
        self.current = CurrentKey(key_groups.start)
        self.key_groups = key_groups
        self._types = AddressTypes(key_type, namespace_type)
        self._settings = RocksDBSettings(context.settings.options)
        options, operator, subtask = context.settings.options, context.operator, context.subtask
        base = choose_base(options, context.local_dir, operator, subtask)
        self._directory = LocalDirectory(base, f"{operator}-{subtask}")
        self._operator_name = context.operator_name
        self._opened = 0
        self._compactions = ThreadPoolExecutor(1, "rocksdb-compaction")
        self._compaction: Future[None] | None = None
        # One for all databases: operators hold on to its queues from before a restore.
        self._timers = BackendTimers(self._settings, self._types, self.key_groups)
        self._begin(self._open(), Filled())

    def _open(self) -> Database:
        self._opened += 1
        return Database(self._directory.path / f"db-{self._opened}", self._settings)

    def _begin(self, database: Database, filled: Filled) -> None:
        """Start over with a database and what is known about its contents."""
        self._database = database
        self._catalog: Catalog = filled.catalog
        self._known: dict[str, Placed] = filled.known
        self._pending: dict[int, NativeSnapshot] = {}
        self._newest = -1
        self._stores: dict[str, Store] = {}
        self._handles: dict[str, State] = {}
        self._sweeps: dict[str, DatabaseSweep] = {}
        key_format = GroupFormat.of(None, self._types, None)
        self._addresses = Addresses(key_format.key, key_format.namespace)
        self._sequence = Sequence(filled.sequence)
        self._budget = Budget(self._settings.object_bytes, self._relieve)
        self._context = StoreContext(
            self._addresses,
            self.key_groups,
            self._budget,
            self._sequence,
            tracked=self.tracked,
            operator=self._operator_name,
        )
        self._timers.begin(database, self._sequence, filled)

    def timers(self, name: str) -> Timers:
        """Return the timers of a time domain."""
        return self._timers.queue(name)

    def state(self, declaration: StateDeclaration) -> State:
        """Return the handle of a state, the same one for the same name.

        Raises:
            UsageError: the name is in use with another kind or other types.
            IncompatibleStateError: the restored state has another kind or other key types, or
                its values do not migrate to the declared type.
        """
        group_format = GroupFormat.of(
            declaration.kind, self._types, declaration.value_type, declaration.key_type
        )
        name = declaration.name
        if name in self._stores:
            self._stores[name].facts.format.check_same(name, group_format)
            return self._handles[name]
        registration = Registration(self._database, self._catalog, self.key_groups, self._sequence)
        family = registration.family_of(declaration, group_format)
        facts = StateFacts(name, declaration.kind, group_format, declaration.cleanup, family=family)
        store, handle = make_store(facts, self._context, self.current, declaration)
        self._stores[name] = store
        self._handles[name] = handle
        return handle

    def flush(self) -> None:
        """Bring everything that changed into the database."""
        batch = self._database.batch()
        for store in self._stores.values():
            store.flush(batch)
        self._timers.flush(batch)
        batch.finish()

    def _relieve(self) -> None:
        """Make room in memory; objects of the current key may be in the hands of user code."""
        self.flush()
        group, key = self.current.group, self.current.key
        for store in self._stores.values():
            cached = store.groups[group] if group in self.key_groups else ()
            store.forget([(group, a) for a in cached if split_address(a)[0] == key])
        self._budget.used = 0

    def snapshot(self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.FULL) -> KeyedSnapshot:
        """Write out what changed since the epoch's end, and freeze a view of the database."""
        self._settle()
        if kind is SnapshotKind.FULL:
            return self._full(checkpoint_id)
        self._opened += 1
        directory = self._directory.path / f"checkpoint-{checkpoint_id}-{self._opened}"
        self._database.checkpoint(directory)
        # A native snapshot is on its own: it refers to nothing, and nothing refers to it.
        own = kind is SnapshotKind.NATIVE
        known = {} if own else dict(self._known)
        snapshot = NativeSnapshot(
            checkpoint_id, directory, known, self._facts(), settings=self._settings
        )
        if not own:
            self._pending[checkpoint_id] = snapshot
        return snapshot.with_timers(self._timers.heap_snapshots(checkpoint_id))

    def _settle(self) -> None:
        """Write everything out; what user code still holds of it is no longer state."""
        self.flush()
        for store in self._stores.values():
            if store.mutable:
                store.forget()

    def _full(self, checkpoint_id: int) -> FullSnapshot:
        filters = {name: s.facts.snapshot_filter() for name, s in self._stores.items()}
        timers = self._timers.frozen(checkpoint_id)
        states = self._frozen_states(filters)
        return FullSnapshot(
            checkpoint_id, self.key_groups, states, self._frozen_packed(), timers=timers
        )

    def _frozen_states(self, filters: dict[str, Keep | None]) -> list[FrozenState]:
        """Freeze all states that have rows, each with what is to be left out of it."""
        frozen = [
            FrozenState(f.name, f.kind, f.format, f.family.cursor(), keep=filters.get(f.name))
            for f in (store.facts for store in self._stores.values())
        ]
        return frozen + [
            FrozenState.of(state, self._database.family(state.family).cursor())
            for state in self._catalog.stored.values()
        ]

    def _frozen_packed(self) -> tuple[Cursor | None, dict[str, Described]]:
        packed = None
        if self._catalog.packed and PACKED_FAMILY in self._database.names():
            packed = self._database.family(PACKED_FAMILY).cursor()
        return packed, dict(self._catalog.packed)

    def _facts(self) -> dict[str, Any]:
        """Describe the database for `weir.backend.rocksdb.native`."""
        facts = [store.facts for store in self._stores.values()]
        stored = [Described(f.name, f.kind.name, f.format.describe(), f.family.name) for f in facts]
        stored += self._catalog.stored.values()
        return {
            "stored": [[s.name, s.kind, s.types, s.family] for s in stored],
            "packed": [[s.name, s.kind, s.types] for s in self._catalog.packed.values()],
            "timers": self._timers.facts(),
            "sequence": self._sequence.last,
            "keys": KEY_FORMAT,
        }

    def restore(self, sources: list[RestoreSource]) -> None:
        """Fill an empty backend with the key groups that it owns.

        Raises:
            UsageError: states are registered or timers set already.
            CorruptStateError: a file is damaged; the backend stays empty.
        """
        if self._stores or self._catalog.stored or self._catalog.packed or len(self._timers):
            msg = "a keyed backend is restored once, before any state is registered"
            raise UsageError(msg)
        sources = with_present_keys(sources, self.key_groups)
        self._close_database()
        try:
            self._opened += 1
            path = self._directory.path / f"db-{self._opened}"
            self._begin(*fill(sources, self.key_groups, path, self._settings))
            self._timers.restore(sources)
        except BaseException:
            self._close_database()
            self._begin(self._open(), Filled())
            raise

    def _close_database(self) -> None:
        self._database.close()
        shutil.rmtree(self._database.path, ignore_errors=True)

    def begin_stride(
        self,
        keys: Collection[Any],
        groups: Collection[int],
        numbers: tuple[Any, Any] | None = None,
    ) -> None:
        """Nothing is looked up ahead."""

    def end_stride(self) -> None:
        """Nothing is written back before the epoch ends."""

    def end_epoch(self) -> None:
        """Write what changed; objects stay cached."""
        self.flush()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint exists: later ones may refer to its files."""
        snapshot = self._pending.pop(checkpoint_id, None)
        if snapshot is None or snapshot.placed is None or checkpoint_id < self._newest:
            return
        self._newest = checkpoint_id
        self._known = snapshot.placed
        self._pending = {n: s for n, s in self._pending.items() if n > checkpoint_id}

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint will never exist; its files are being deleted."""
        self._pending.pop(checkpoint_id, None)

    def sweep(self, state_name: str, keep: Keep, limit: int) -> int:
        """Pass up to `limit` entries of a state through a filter; return how many it were."""
        sweep = self._sweeps.get(state_name)
        if sweep is None:
            store = self._stores[state_name]
            sweep = self._sweeps[state_name] = DatabaseSweep(
                store,
                self._database,
                self._addresses,
                self.key_groups,
                compact=lambda: self._compact(store),
            )
        return sweep.run(keep, limit)

    def _compact(self, store: Store) -> None:
        if self._compaction is None or self._compaction.done():
            self._compaction = self._compactions.submit(store.facts.family.compact)

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        """Go through the keys that have an entry in a state (None: outside of namespaces).

        Entries may be changed while iterating; changes do not show.

        Raises:
            UsageError: no state of that name is registered.
        """
        wanted = VOID if namespace is None else namespace
        for _, key, found in self.addresses(state_name):
            if found is wanted or (wanted is not VOID and found == wanted):
                yield key

    def addresses(self, state_name: str) -> Iterator[tuple[int, Any, Any]]:
        """Go through key group, key and namespace of all entries of a state, each once.

        Entries may be changed while iterating; changes do not show.

        Raises:
            UsageError: no state of that name is registered.
        """
        if state_name not in self._stores:
            msg = f"no state {state_name!r} is registered, there are {sorted(self._stores)!r}"
            raise UsageError(msg)
        self.flush()
        for prefix in self._prefixes(self._stores[state_name]):
            group = int.from_bytes(prefix[:GROUP_BYTES], "big")
            yield group, *split_address(self._addresses.decode(prefix))

    def _prefixes(self, store: Store) -> Iterator[bytes]:
        """Return the addresses of a state as bytes, each once."""
        last = b""
        stop = group_start(self.key_groups.end + 1)
        cursor = store.facts.family.cursor()
        for row in cursor.keys(group_start(self.key_groups.start), stop):
            prefix = row[: address_end(row)]
            if prefix != last:
                last = prefix
                yield prefix

    def seen_states(self) -> list[SeenState]:
        """Return the registered states, and those that were restored and not asked for."""
        facts = [store.facts for store in self._stores.values()]
        seen = [SeenState(f.name, f.kind, f.format, f.cleanup) for f in facts]
        # Of several old subtasks' state some may be stored and some packed.
        waiting = {**self._catalog.packed, **self._catalog.stored}
        return seen + seen_restored(state.restored() for state in waiting.values())

    def peek(self, name: str, group: int, keys: Collection[Any], *, spaced: bool) -> Entries:
        """Return the entries of some keys; in namespaces from the database, after a flush."""
        store = self._stores.get(name)
        if store is not None and not spaced:
            found = [(key, store.peek(group, key)) for key in keys]
            return [entry for entry in found if entry[1] is not None]
        self.flush()
        wanted = set(keys)
        found = [e for e in self._packed_entries(name, group) if split_address(e[0])[0] in wanted]
        start_of = self._addresses.beginning if spaced else self._addresses.encode
        starts = [start_of(group, key) for key in keys]
        rows = (self._rows(name, start, after(start)) for start in starts)
        found += [entry for own in rows for entry in own]
        return found if spaced else [e for e in found if split_address(e[0])[1] is VOID]

    def peek_group(self, name: str, group: int) -> Entries:
        """Return all entries of a key group from the database, after a flush."""
        self.flush()
        yield from self._packed_entries(name, group)
        yield from self._rows(name, group_start(group), group_start(group + 1))

    def _rows(self, name: str, start: bytes, stop: bytes | None) -> Iterator[tuple[Any, Any]]:
        """Return the entries of a range, of a state that has a column family."""
        store, waiting = self._stores.get(name), self._catalog.stored.get(name)
        if store is not None:
            f = store.facts
            frozen = FrozenState(f.name, f.kind, f.format, f.family.cursor())
        elif waiting is not None:
            frozen = FrozenState.of(waiting, self._database.family(waiting.family).cursor())
        else:
            return iter(())
        return whole(frozen.kind.shape, frozen.between(start, stop))

    def _packed_entries(self, name: str, group: int) -> Iterator[tuple[Any, Any]]:
        """Return what a key group has of a state that was read from the common format."""
        waiting = self._catalog.packed.get(name)
        if waiting is None or PACKED_FAMILY not in self._database.names():
            return iter(())
        cursor, state = self._database.family(PACKED_FAMILY).cursor(), waiting.restored()
        parts = [part for _, part in unpack_state(cursor, group, name)]
        if not parts:
            return iter(())
        state.groups[group] = parts
        return iter(state.entries(group, state.stored_format()).items())

    def size(self) -> int:
        """Count the entries of all registered states, one by one."""
        self.flush()
        return sum(1 for store in self._stores.values() for _ in self._prefixes(store))

    def approximate_size(self) -> int:
        """Return RocksDB's estimate; entries of maps and chunks of lists count one by one."""
        families = [store.facts.family for store in self._stores.values()]
        return sum(family.number("rocksdb.estimate-num-keys") for family in families)

    def approximate_bytes(self) -> int:
        """Return the size of the database's files and of what is in memory."""
        return self._database.file_bytes() + self._database.memory_bytes() + self._budget.used

    def close(self) -> None:
        """Close the database and remove its directory; the backend cannot be used afterwards."""
        if not self._directory.remove.alive:
            return
        self._compactions.shutdown(wait=True)
        self._stores.clear()
        self._handles.clear()
        self._sweeps.clear()
        self._database.close()
        self._directory.remove()
