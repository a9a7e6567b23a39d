"""List state: rows of appended elements, numbered in the order they were written.

A database key is the address and a number of 8 bytes, big-endian, from a counter of the whole
database; the value is a chunk of elements. Appending writes a new chunk and never reads. A list
that has come to consist of many chunks is written as one when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.backend.address import address_of
from weir.backend.admission import admission, admit_elements
from weir.backend.base import CurrentKey, Keep, StateDeclaration
from weir.backend.delta import GroupDelta
from weir.backend.groups import owned_groups
from weir.backend.rocksdb.database import Row, WriteBatch
from weir.backend.rocksdb.keys import after
from weir.backend.rocksdb.store import StateFacts, StoreContext, may_change
from weir.common.state import ListState

_MANY_CHUNKS = 64


class _Chunk:
    """One row: its key, how many elements it has, and its bytes where elements may change."""

    __slots__ = ("count", "data", "key")

    def __init__(self, key: bytes, count: int, data: bytes | None) -> None:
        self.key = key
        self.count = count
        self.data = data


class _Entry:
    """What is known of one list.

    `elements` and `chunks` are what the database holds, None while that was not read. `tail` was
    appended since. With `replaced` the database's rows are to go first.
    """

    __slots__ = ("chunks", "elements", "replaced", "shown", "tail")

    def __init__(self) -> None:
        self.elements: list[Any] | None = None
        self.chunks: list[_Chunk] | None = None
        self.tail: list[Any] = []
        self.replaced = False
        self.shown = False


class ListStore:
    """All lists of one state."""

    def __init__(self, facts: StateFacts, context: StoreContext, value_type: Any) -> None:
        self.facts = facts
        self._context = context
        self.mutable = may_change(value_type)
        self._size = 0
        self._dirty: dict[tuple[int, Any], _Entry] = {}
        # What was appended, or None where a list is to be drained as a whole.
        self._touched: dict[tuple[int, Any], list[bytes] | None] | None = None
        if context.tracked:
            self._touched = {}
        self.groups: list[Any] = owned_groups(context.key_groups, lambda _: {})

    def append(self, group: int, address: Any, values: list[Any]) -> None:
        """Add elements without reading the others."""
        entry = self._entry(group, address)
        entry.tail.extend(values)
        self._dirty[group, address] = entry
        self._context.budget.charge(self._size * len(values))

    def replace(self, group: int, address: Any, values: list[Any]) -> None:
        """Set the whole list."""
        entry = self._entry(group, address)
        entry.elements, entry.tail, entry.replaced = [], values, True
        entry.shown = False
        self._dirty[group, address] = entry
        self._context.budget.charge(self._size * len(values))

    def read(self, group: int, address: Any) -> list[Any]:
        """Return the elements as a new list."""
        entry = self._entry(group, address)
        if entry.elements is None:
            self._load(entry, group, address)
        # Loading may have led to a flush, after which the tail is part of the elements.
        elements = entry.elements or []
        if self.mutable and elements:
            entry.shown = True
            self._dirty[group, address] = entry
        return elements + entry.tail

    def _entry(self, group: int, address: Any) -> _Entry:
        entry: _Entry | None = self.groups[group].get(address)
        if entry is None:
            entry = self.groups[group][address] = _Entry()
            self._context.budget.charge(0)
        return entry

    def _load(self, entry: _Entry, group: int, address: Any) -> None:
        prefix = self._context.addresses.encode(group, address)
        decode, size = self.facts.format.value.decode_many, 0
        elements: list[Any] = []
        chunks: list[_Chunk] = []
        for key, data in self.facts.family.cursor().scan(prefix, after(prefix)):
            found = decode(data)
            chunks.append(_Chunk(key, len(found), data if self.mutable else None))
            elements += found
            size += len(data)
        entry.elements, entry.chunks = elements, chunks
        if len(chunks) > _MANY_CHUNKS:
            entry.tail = elements + entry.tail
            entry.elements = []
            entry.replaced = True
            self._dirty[group, address] = entry
        self._context.budget.charge(4 * size)

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed, also elements that were handed out and changed in place."""
        for (group, address), entry in self._dirty.items():
            prefix = self._context.addresses.encode(group, address)
            whole, tail = False, b""
            if entry.replaced:
                whole = True
                self._delete(batch, entry, prefix)
            elif entry.shown:
                whole = self._rewrite(batch, entry)
            if entry.tail:
                tail = self._append(batch, entry, prefix)
            if self._touched is not None and (whole or tail):
                self._touch(group, address, None if whole else tail)
        self._dirty.clear()

    def _touch(self, group: int, address: Any, tail: bytes | None) -> None:
        if self._touched is None:
            return
        known = self._touched.setdefault((group, address), [])
        if tail is None:
            self._touched[group, address] = None
        elif known is not None:
            known.append(tail)

    def _delete(self, batch: WriteBatch, entry: _Entry, prefix: bytes) -> None:
        family = self.facts.family
        if entry.chunks is None:
            keys = list(family.cursor().keys(prefix, after(prefix)))
        else:
            keys = [chunk.key for chunk in entry.chunks]
        for key in keys:
            batch.delete(family, key)
        entry.chunks, entry.elements, entry.replaced = [], [], False

    def _rewrite(self, batch: WriteBatch, entry: _Entry) -> bool:
        """Write the chunks that changed in place; tell whether there were any."""
        at, elements, changed = 0, entry.elements or [], False
        for chunk in entry.chunks or []:
            data = self.facts.format.value.encode_many(elements[at : at + chunk.count])
            if data != chunk.data:
                batch.put(self.facts.family, chunk.key, data)
                chunk.data = data
                changed = True
            at += chunk.count
        entry.shown = False
        return changed

    def _append(self, batch: WriteBatch, entry: _Entry, prefix: bytes) -> bytes:
        key = prefix + self._context.sequence.next().to_bytes(8, "big")
        data = self.facts.format.value.encode_many(entry.tail)
        batch.put(self.facts.family, key, data)
        self._size = 4 * len(data) // len(entry.tail)
        if entry.elements is not None and entry.chunks is not None:
            entry.elements += entry.tail
            entry.chunks.append(_Chunk(key, len(entry.tail), data if self.mutable else None))
        entry.tail = []
        return data

    def forget(self, keep: Iterable[tuple[int, Any]] = ()) -> None:
        """Drop all flushed entries but those of some addresses."""
        kept = [(g, a, self.groups[g][a]) for g, a in keep if a in self.groups[g]]
        for group in self._context.key_groups:
            self.groups[group].clear()
        for group, address, entry in kept:
            self.groups[group][address] = entry
            if self.mutable and entry.elements:
                entry.shown = True
                self._dirty[group, address] = entry

    def peek(self, group: int, address: Any) -> Any:
        """Return the elements, None for none; they are not kept in memory."""
        entry: _Entry | None = self.groups[group].get(address)
        if entry is None:
            return self._elements(group, address) or None
        stored = [] if entry.replaced else self._elements(group, address)
        return [*stored, *entry.tail] or None

    def is_settled(self, group: int, address: Any) -> bool:
        """Tell whether the database has all there is of an address."""
        return (group, address) not in self._dirty

    def filter(self, batch: WriteBatch, rows: list[Row], keep: Keep) -> list[bytes]:
        """Remove the elements that are not kept."""
        codec, family = self.facts.format.value, self.facts.family
        hit: list[bytes] = []
        for key, data in rows:
            elements = codec.decode_many(data)
            left = [element for element in elements if keep(element)]
            if not left:
                batch.delete(family, key)
            elif len(left) < len(elements):
                batch.put(family, key, codec.encode_many(left))
            if len(left) < len(elements):
                hit.append(key)
        return hit

    def discard(self, group: int, address: Any, hit: list[bytes]) -> None:
        """Drop a settled entry, because its rows change."""
        self.groups[group].pop(address, None)
        self._touch(group, address, None)

    def drain(self) -> dict[int, GroupDelta]:
        """Return all changes since the last drain; everything is flushed."""
        deltas: dict[int, GroupDelta] = {}
        touched, self._touched = self._touched or {}, {}
        for (group, address), tails in touched.items():
            delta = deltas.setdefault(group, GroupDelta())
            if tails is None:
                delta.cleared.append(address)
                elements = self._elements(group, address)
            else:
                decode = self.facts.format.value.decode_many
                elements = [element for tail in tails for element in decode(tail)]
            if elements:
                delta.put[address] = elements
        return deltas

    def _elements(self, group: int, address: Any) -> list[Any]:
        """Return a flushed list; it does not stay in memory."""
        entry: _Entry | None = self.groups[group].get(address)
        if entry is not None and entry.elements is not None:
            return entry.elements
        prefix = self._context.addresses.encode(group, address)
        decode = self.facts.format.value.decode_many
        rows = self.facts.family.cursor().scan(prefix, after(prefix))
        return [element for _, data in rows for element in decode(data)]


class RocksDBListState(ListState[Any]):
    """A list per key."""

    __slots__ = ("_admit", "_current", "_name", "_store")

    def __init__(self, store: ListStore, current: CurrentKey, spec: StateDeclaration) -> None:
        self._store = store
        self._current = current
        self._name = spec.name
        self._admit = admission(spec.name, spec.value_type)

    def get(self) -> list[Any]:
        """Return the elements as a list of the caller's own."""
        c = self._current
        return self._store.read(c.group, address_of(c.key, c.namespace))

    def add(self, value: Any) -> None:
        """Append an element."""
        self._add(self._checked((value,)))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all values, all or none."""
        self._add(self._checked(values))

    def _add(self, elements: list[Any]) -> None:
        if elements:
            c = self._current
            self._store.append(c.group, address_of(c.key, c.namespace), elements)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; an empty one clears the state."""
        c = self._current
        self._store.replace(c.group, address_of(c.key, c.namespace), self._checked(values))

    def clear(self) -> None:
        """Remove the list of the current key."""
        c = self._current
        self._store.replace(c.group, address_of(c.key, c.namespace), [])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the sources to that of the target."""
        c = self._current
        merged: list[Any] = []
        for source in dict.fromkeys(sources):
            if source != target:
                address = address_of(c.key, source)
                elements = self._store.read(c.group, address)
                if elements:
                    merged += elements
                    self._store.replace(c.group, address, [])
        if merged:
            self._store.append(c.group, address_of(c.key, target), merged)

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        return admit_elements(self._name, self._admit, values)
