"""Map state: a row per map entry, so that one entry of a big map is read without the others.

A database key is the address and the encoded map key. The value begins with a byte: 0 for None, 1
before the encoded value, 2 before what is kept beside the map key (4 bytes of length, and that),
which one of the others follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from weir.backend.address import address_of
from weir.backend.admission import MapKeys, admission
from weir.backend.base import CurrentKey, Keep, StateDeclaration
from weir.backend.delta import GroupDelta
from weir.backend.groups import owned_groups
from weir.backend.key_bytes import KeyCodec, key_codec
from weir.backend.rocksdb.database import Row, WriteBatch
from weir.backend.rocksdb.keys import address_end, after
from weir.backend.rocksdb.store import (
    ABSENT,
    StateFacts,
    StoreContext,
    is_fixed,
    may_change,
)
from weir.codec import Codec
from weir.common.state import MapState
from weir.errors import UsageError

NULL = b"\0"
_KEYED = b"\2"
_LENGTH = struct.Struct(">I")


def encode_value(codec: Codec, value: Any, original: bytes | None = None) -> bytes:
    """Return the bytes of a map value, with what is to be kept beside its map key."""
    data = NULL if value is None else b"\1" + codec.encode(value)
    return data if original is None else _KEYED + _LENGTH.pack(len(original)) + original + data


def decode_value(codec: Codec, data: bytes) -> Any:
    """Return a map value."""
    if data[:1] == _KEYED:
        data = data[5 + _LENGTH.unpack_from(data, 1)[0] :]
    return None if data == NULL else codec.decode(data[1:])


def original_of(data: bytes) -> bytes | None:
    """Return what is kept beside the map key of a map value."""
    return data[5 : 5 + _LENGTH.unpack_from(data, 1)[0]] if data[:1] == _KEYED else None


def map_key_of(keys: KeyCodec, row: bytes, data: bytes) -> Any:
    """Return the map key of a row, as it was put, from the end of its key and its value."""
    original = original_of(data)
    return keys.decode(row) if original is None else keys.read_original(original)


class _Entry:
    """What is known of one map.

    `known` are values by map key, `ABSENT` where there is none; with `complete` there are no
    others. With `cleared` the database's rows are to go first.
    """

    __slots__ = ("changed", "cleared", "complete", "known", "shown")

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.changed: set[Any] = set()
        self.shown: set[Any] = set()
        self.complete = False
        self.cleared = False


class _Touched:
    """What flushes wrote of one map: maybe all rows went first, then those of some map keys."""

    __slots__ = ("cleared", "keys")

    def __init__(self) -> None:
        self.cleared = False
        self.keys: set[Any] = set()


class MapStore:
    """All maps of one state."""

    def __init__(self, facts: StateFacts, context: StoreContext, value_type: Any) -> None:
        map_key = facts.format.map_key
        if map_key is None:
            msg = f"state {facts.name!r} is kept as a map, but its format has no map keys"
            raise UsageError(msg)
        self.facts = facts
        self._context = context
        self._map_key = key_codec(map_key)
        self._value = facts.format.value
        self.mutable = may_change(value_type)
        self._size = 0
        self._dirty: dict[tuple[int, Any], _Entry] = {}
        self._touched: dict[tuple[int, Any], _Touched] | None = {} if context.tracked else None
        self.groups: list[Any] = owned_groups(context.key_groups, lambda _: {})

    def entry(self, group: int, address: Any) -> _Entry:
        """Return what is known of a map."""
        found: _Entry | None = self.groups[group].get(address)
        if found is None:
            found = self.groups[group][address] = _Entry()
            self._context.budget.charge(0)
        return found

    def get(self, group: int, address: Any, key: Any) -> Any:
        """Return the value of a map key to hand out, `ABSENT` when there is none."""
        entry = self.entry(group, address)
        value = entry.known.get(key, entry)
        if value is entry:
            if entry.complete:
                return ABSENT
            data = self._row(group, address, key)
            value = ABSENT if data is None else decode_value(self._value, data)
            entry.known[key] = value
            self._context.budget.charge(0 if data is None else 4 * len(data))
        if self.mutable and value is not ABSENT and not is_fixed(value):
            entry.shown.add(key)
            self._dirty[group, address] = entry
        return value

    def _row(self, group: int, address: Any, key: Any) -> bytes | None:
        try:
            row = self._map_key.encode(key)
        except UsageError:
            return None  # what the declared type cannot hold was never put
        found: bytes | None = self.facts.family.get(
            self._context.addresses.encode(group, address) + row
        )
        return found

    def put(self, group: int, address: Any, values: dict[Any, Any]) -> None:
        """Set the values of map keys, `ABSENT` to remove them."""
        entry = self.entry(group, address)
        entry.known.update(values)
        entry.changed.update(values)
        self._dirty[group, address] = entry
        self._context.budget.charge((self._size + 100) * len(values))

    def remove(self, group: int, address: Any, key: Any) -> None:
        """Remove a map key; its value is not looked at."""
        entry = self.entry(group, address)
        value = entry.known.get(key, entry)
        if value is entry and (entry.complete or self._row(group, address, key) is None):
            return
        if value is not ABSENT:
            self.put(group, address, {key: ABSENT})

    def clear(self, group: int, address: Any) -> None:
        """Remove a map."""
        entry = self.entry(group, address)
        entry.known, entry.changed, entry.shown = {}, set(), set()
        entry.complete = entry.cleared = True
        self._dirty[group, address] = entry

    def keys(self, group: int, address: Any) -> list[Any]:
        """Return all map keys; no value is handed out."""
        known = self._completed(group, address).known
        return [key for key, value in known.items() if value is not ABSENT]

    def items(self, group: int, address: Any) -> list[tuple[Any, Any]]:
        """Return all entries to hand out."""
        entry = self._completed(group, address)
        found = [item for item in entry.known.items() if item[1] is not ABSENT]
        if self.mutable and found:
            entry.shown.update(key for key, value in found if not is_fixed(value))
            self._dirty[group, address] = entry
        return found

    def is_empty(self, group: int, address: Any) -> bool:
        """Tell whether a map has no entries, without reading them all."""
        entry = self.entry(group, address)
        if any(value is not ABSENT for value in entry.known.values()):
            return False
        if entry.complete:
            return True
        prefix = self._context.addresses.encode(group, address)
        rows = self.facts.family.cursor().keys(prefix, after(prefix))
        return all(self._map_key.decode(row[len(prefix) :]) in entry.known for row in rows)

    def _completed(self, group: int, address: Any) -> _Entry:
        """Return a map of which everything is known."""
        entry = self.entry(group, address)
        if entry.complete:
            return entry
        prefix = self._context.addresses.encode(group, address)
        size = 0
        for row, data in self.facts.family.cursor().scan(prefix, after(prefix)):
            key = map_key_of(self._map_key, row[len(prefix) :], data)
            if key not in entry.known:
                entry.known[key] = decode_value(self._value, data)
                size += 4 * len(data) + 200
        entry.complete = True
        self._context.budget.charge(size)
        return entry

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed, also values that were handed out and changed in place."""
        family = self.facts.family
        for (group, address), entry in self._dirty.items():
            prefix = self._context.addresses.encode(group, address)
            if self._touched is not None and (entry.cleared or entry.changed):
                self._touch(group, address, entry.changed, cleared=entry.cleared)
            if entry.cleared:
                for row in family.cursor().keys(prefix, after(prefix)):
                    batch.delete(family, row)
                entry.cleared = False
            if entry.shown:
                shown = self._flush_shown(batch, entry, prefix)
                if self._touched is not None and shown:
                    self._touch(group, address, shown)
            for key in entry.changed:
                value, row = entry.known[key], prefix + self._map_key.encode(key)
                if value is ABSENT:
                    batch.delete(family, row)
                else:
                    data = self._data(key, value)
                    self._size = 4 * len(data)
                    batch.put(family, row, data)
            entry.changed.clear()
        self._dirty.clear()

    def _data(self, key: Any, value: Any) -> bytes:
        return encode_value(self._value, value, self._map_key.original(key))

    def _touch(
        self, group: int, address: Any, keys: Iterable[Any], *, cleared: bool = False
    ) -> None:
        if self._touched is None:
            return
        touched = self._touched.setdefault((group, address), _Touched())
        if cleared:
            touched.cleared = True
            touched.keys.clear()
        touched.keys.update(keys)

    def _flush_shown(self, batch: WriteBatch, entry: _Entry, prefix: bytes) -> list[Any]:
        """Write the values that changed in place; return their map keys."""
        changed = []
        keys = list(entry.shown - entry.changed)
        entry.shown.clear()
        rows = [prefix + self._map_key.encode(key) for key in keys]
        for key, row, old in zip(keys, rows, self.facts.family.get_many(rows), strict=True):
            data = self._data(key, entry.known[key])
            if data != old:
                batch.put(self.facts.family, row, data)
                changed.append(key)
        return changed

    def forget(self, keep: Iterable[tuple[int, Any]] = ()) -> None:
        """Drop all flushed entries but those of some addresses."""
        kept = [(g, a, self.groups[g][a]) for g, a in keep if a in self.groups[g]]
        for group in self._context.key_groups:
            self.groups[group].clear()
        for group, address, entry in kept:
            self.groups[group][address] = entry
            if self.mutable:
                entry.shown.update(k for k, v in entry.known.items() if v is not ABSENT)
                self._dirty[group, address] = entry

    def peek(self, group: int, address: Any) -> Any:
        """Return the entries, None for none; they are not kept in memory."""
        entry: _Entry | None = self.groups[group].get(address)
        known = {} if entry is None else entry.known
        found = {key: value for key, value in known.items() if value is not ABSENT}
        if entry is None or not entry.complete:
            prefix = self._context.addresses.encode(group, address)
            for row, data in self.facts.family.cursor().scan(prefix, after(prefix)):
                key = map_key_of(self._map_key, row[len(prefix) :], data)
                if key not in known:
                    found[key] = decode_value(self._value, data)
        return found or None

    def is_settled(self, group: int, address: Any) -> bool:
        """Tell whether the database has all there is of an address."""
        return (group, address) not in self._dirty

    def filter(self, batch: WriteBatch, rows: list[Row], keep: Keep) -> list[bytes]:
        """Remove the map entries whose values are not kept."""
        removed = [row for row, data in rows if not keep(decode_value(self._value, data))]
        for row in removed:
            batch.delete(self.facts.family, row)
        return removed

    def discard(self, group: int, address: Any, hit: list[bytes]) -> None:
        """Drop a settled entry, because rows of it are gone."""
        self.groups[group].pop(address, None)
        self._touch(group, address, (self._map_key.decode(row[address_end(row) :]) for row in hit))

    def drain(self) -> dict[int, GroupDelta]:
        """Return all changes since the last drain; everything is flushed."""
        deltas: dict[int, GroupDelta] = {}
        touched, self._touched = self._touched or {}, {}
        for (group, address), what in touched.items():
            delta = deltas.setdefault(group, GroupDelta())
            values = self._values(group, address, what.keys)
            left = {key: value for key, value in values.items() if value is not ABSENT}
            if what.cleared:
                delta.cleared.append(address)
            elif len(left) < len(values):
                delta.removed[address] = [key for key in values if key not in left]
            if left:
                delta.put[address] = left
        return deltas

    def _values(self, group: int, address: Any, keys: set[Any]) -> dict[Any, Any]:
        """Return flushed values of a map, `ABSENT` where there is none; they are not kept."""
        entry: _Entry | None = self.groups[group].get(address)
        known = {} if entry is None else entry.known
        unknown = [key for key in keys if key not in known]
        prefix = self._context.addresses.encode(group, address)
        rows = self.facts.family.get_many([prefix + self._map_key.encode(k) for k in unknown])
        read = {
            key: ABSENT if data is None else decode_value(self._value, data)
            for key, data in zip(unknown, rows, strict=True)
        }
        return {key: read[key] if key in read else known[key] for key in keys}


class RocksDBMapState(MapState[Any, Any]):
    """A map per key."""

    __slots__ = ("_admit", "_admit_key", "_current", "_find_key", "_store", "_usual")

    def __init__(self, store: MapStore, current: CurrentKey, spec: StateDeclaration) -> None:
        self._store = store
        self._current = current
        self._admit = admission(spec.name, spec.value_type)
        keys = MapKeys(spec.name, spec.key_type)
        self._admit_key, self._find_key, self._usual = keys.admit, keys.find, keys.usual

    def _at(self) -> tuple[int, Any]:
        c = self._current
        return c.group, address_of(c.key, c.namespace)

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        value = self._store.get(*self._at(), key)
        return None if value is ABSENT else value

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a map key."""
        self._store.put(*self._at(), {self._admit_key(key): self._admit(value)})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Put all entries of a mapping, all or none."""
        admit_key, admit = self._admit_key, self._admit
        new = {admit_key(k): admit(v) for k, v in dict_value.items()}
        if new:
            self._store.put(*self._at(), new)

    def remove(self, key: Any) -> None:
        """Remove a map key; nothing happens when it is absent."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        self._store.remove(*self._at(), key)

    def contains(self, key: Any) -> bool:
        """Tell whether a map key is present, also with a None value."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        return self._store.get(*self._at(), key) is not ABSENT

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries of this moment."""
        return self._store.items(*self._at())

    def keys(self) -> list[Any]:
        """Return all map keys of this moment."""
        return self._store.keys(*self._at())

    def values(self) -> list[Any]:
        """Return all values of this moment."""
        return [value for _, value in self._store.items(*self._at())]

    def is_empty(self) -> bool:
        """Tell whether there are no entries."""
        return self._store.is_empty(*self._at())

    def clear(self) -> None:
        """Remove the map of the current key."""
        self._store.clear(*self._at())
