"""From a declaration to a store: new state, and state that was restored before it was asked for.

Restored rows are adopted as they are when the types are the same. Otherwise every value is read by
its stored type and written in the declared one, into a column family of its own, so that a value
that does not fit leaves what was restored as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.backend.base import CurrentKey, StateDeclaration
from weir.backend.group_format import GroupFormat
from weir.backend.key_bytes import key_codec
from weir.backend.kinds import Shape
from weir.backend.object_handles import handle_for
from weir.backend.rocksdb.catalog import PACKED_FAMILY, Catalog, Described, unpack_state
from weir.backend.rocksdb.database import ColumnFamily, Database, WriteBatch
from weir.backend.rocksdb.keys import Addresses
from weir.backend.rocksdb.lists import ListStore, RocksDBListState
from weir.backend.rocksdb.maps import (
    MapStore,
    RocksDBMapState,
    decode_value,
    encode_value,
    original_of,
)
from weir.backend.rocksdb.store import Sequence, StateFacts, Store, StoreContext
from weir.backend.rocksdb.values import ValueStore
from weir.common.state import State
from weir.keygroup import KeyGroupRange

_FAMILY = "state."


def make_store(
    facts: StateFacts, context: StoreContext, current: CurrentKey, spec: StateDeclaration
) -> tuple[Store, State]:
    """Return the cache of a state and its handle."""
    shape = spec.kind.shape
    if shape is Shape.LIST:
        lists = ListStore(facts, context, spec.value_type)
        return lists, RocksDBListState(lists, current, spec)
    if shape is Shape.MAP:
        maps = MapStore(facts, context, spec.value_type)
        return maps, RocksDBMapState(maps, current, spec)
    values = ValueStore(facts, context, spec.value_type)
    return values, handle_for(values, current, spec)


class Registration:
    """Finds or makes the rows of declared states."""

    def __init__(
        self, database: Database, catalog: Catalog, key_groups: KeyGroupRange, sequence: Sequence
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._key_groups = key_groups
        self._sequence = sequence

    def family_of(self, spec: StateDeclaration, declared: GroupFormat) -> ColumnFamily:
        """Return the column family of a state, with what was restored in the declared types.

        Raises:
            IncompatibleStateError: the restored state has another kind or other key types, or its
                values do not migrate to the declared type.
        """
        now_ms = 0 if spec.cleanup is None else spec.cleanup.now_ms()
        restored = [
            (state, state.restored().reader_format(spec.kind.name, declared, now_ms))
            for table in (self._catalog.stored, self._catalog.packed)
            if (state := table.get(spec.name)) is not None
        ]
        as_it_is = next((s for s, reader in restored if s.is_stored and reader is declared), None)
        family = self._database.family(as_it_is.family if as_it_is else self._unused(spec.name))
        try:
            for state, reader in restored:
                if state is not as_it_is:
                    self._fill(family, state, reader, declared)
        except BaseException:
            if as_it_is is None:
                self._database.drop(family.name)
            raise
        self._forget(spec.name, family)
        return family

    def _unused(self, name: str) -> str:
        taken = set(self._database.names())
        number = 0
        while f"{_FAMILY}{number}.{name}" in taken:
            number += 1
        return f"{_FAMILY}{number}.{name}"

    def _fill(
        self, family: ColumnFamily, state: Described, reader: GroupFormat, declared: GroupFormat
    ) -> None:
        batch = self._database.batch()
        if state.is_stored:
            change = _migrated(reader, declared)
            for key, data in self._database.family(state.family).cursor().scan(b""):
                batch.put(family, key, change(data))
        else:
            self._unpack(batch, family, state, reader, declared=declared)
        batch.finish()

    def _unpack(
        self,
        batch: WriteBatch,
        family: ColumnFamily,
        state: Described,
        reader: GroupFormat,
        declared: GroupFormat,
    ) -> None:
        addresses = Addresses(declared.key, declared.namespace)
        write = _entry_writer(batch, family, declared, self._sequence)
        cursor = self._database.family(PACKED_FAMILY).cursor()
        for group in self._key_groups:
            found = state.restored()
            parts = [part for _, part in unpack_state(cursor, group, state.name)]
            if parts:
                found.groups[group] = parts
                for address, value in found.entries(group, reader).items():
                    write(addresses.encode(group, address), value)

    def _forget(self, name: str, family: ColumnFamily) -> None:
        """Remove what was restored, now that it is in the state's own column family."""
        stored = self._catalog.stored.pop(name, None)
        if stored is not None and stored.family != family.name:
            self._database.drop(stored.family)
        if self._catalog.packed.pop(name, None) is None:
            return
        if not self._catalog.packed:
            self._database.drop(PACKED_FAMILY)
            return
        batch = self._database.batch()
        packed = self._database.family(PACKED_FAMILY)
        cursor = packed.cursor()
        for group in self._key_groups:
            for key, _ in unpack_state(cursor, group, name):
                batch.delete(packed, key)
        batch.finish()


def _migrated(reader: GroupFormat, declared: GroupFormat) -> Callable[[bytes], bytes]:
    """Return how the bytes of a row change."""
    old, new = reader.value, declared.value
    if declared.shape is Shape.LIST:
        return lambda data: new.encode_many(old.decode_many(data))
    if declared.shape is Shape.MAP:
        return lambda data: encode_value(new, decode_value(old, data), original_of(data))
    return lambda data: new.encode(old.decode(data))


def _entry_writer(
    batch: WriteBatch, family: ColumnFamily, declared: GroupFormat, sequence: Sequence
) -> Callable[[bytes, Any], None]:
    """Return how an entry becomes rows."""
    value = declared.value

    def write_value(prefix: bytes, stored: Any) -> None:
        batch.put(family, prefix, value.encode(stored))

    def write_list(prefix: bytes, stored: list[Any]) -> None:
        batch.put(family, prefix + sequence.next().to_bytes(8, "big"), value.encode_many(stored))

    if declared.shape is Shape.LIST:
        return write_list
    if declared.map_key is None:
        return write_value
    map_key = key_codec(declared.map_key)

    def write_map(prefix: bytes, stored: dict[Any, Any]) -> None:
        for key, entry in stored.items():
            data = encode_value(value, entry, map_key.original(key))
            batch.put(family, prefix + map_key.encode(key), data)

    return write_map
