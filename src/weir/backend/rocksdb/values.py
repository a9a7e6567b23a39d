"""The cache of value, reducing and aggregating state: one row per address, the value encoded.

Each key group is a dict that reads through to the database, used in the ways that
`weir.backend.object_handles` lists. A value that user code got hold of and that may have changed in
place is encoded again at the next flush and written when its bytes differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.backend.base import Keep
from weir.backend.delta import GroupDelta
from weir.backend.groups import owned_groups
from weir.backend.rocksdb.advice import LARGE_BYTES, advise_on_large
from weir.backend.rocksdb.database import Row, WriteBatch
from weir.backend.rocksdb.store import (
    ABSENT,
    StateFacts,
    StoreContext,
    is_fixed,
    may_change,
)

_UNKNOWN = object()


class ValueGroup(dict[Any, Any]):
    """The cached values of one key group by address, with `ABSENT` where there is none."""

    __slots__ = ("_group", "_mutable", "_store", "changed", "shown")

    def __init__(self, store: ValueStore, group: int) -> None:
        """Begin empty: nothing is known yet."""
        super().__init__()
        self._store = store
        self._group = group
        self._mutable = store.mutable
        self.changed: set[Any] = set()
        self.shown: set[Any] = set()

    def get(self, address: Any, default: Any = None) -> Any:
        """Return a value to hand out."""
        value = dict.get(self, address, _UNKNOWN)
        if value is _UNKNOWN:
            value = self._store.load(self, self._group, address)
        if value is ABSENT:
            return default
        if self._mutable and not is_fixed(value):
            self.shown.add(address)
        return value

    def __getitem__(self, address: Any) -> Any:
        value = self.get(address, ABSENT)
        if value is ABSENT:
            raise KeyError(address)
        return value

    def __contains__(self, address: object) -> bool:
        return self.get(address, ABSENT) is not ABSENT

    def __setitem__(self, address: Any, value: Any) -> None:
        if not dict.__contains__(self, address):
            self._store.charge()
        dict.__setitem__(self, address, value)
        self.changed.add(address)

    def pop(self, address: Any, default: Any = None) -> Any:
        """Remove a value; what is returned is of no use."""
        self[address] = ABSENT
        return default


class ValueStore:
    """All values of one state."""

    def __init__(self, facts: StateFacts, context: StoreContext, value_type: Any) -> None:
        self.facts = facts
        self._context = context
        self._encode = facts.format.value.encode
        self._decode = facts.format.value.decode
        self._size = 0
        self.mutable = may_change(value_type)
        self._touched: dict[int, set[Any]] | None = {} if context.tracked else None
        self.groups: list[Any] = owned_groups(context.key_groups, lambda g: ValueGroup(self, g))

    def charge(self) -> None:
        """Count an entry of about the size of the last ones."""
        self._context.budget.charge(self._size)

    def load(self, cache: ValueGroup, group: int, address: Any) -> Any:
        """Bring a value from the database into its cache."""
        data = self.facts.family.get(self._context.addresses.encode(group, address))
        value = ABSENT if data is None else self._decode(data)
        self._context.budget.charge(0 if data is None else 4 * len(data))
        dict.__setitem__(cache, address, value)
        return value

    def flush(self, batch: WriteBatch) -> None:
        """Write what changed, also values that were handed out and changed in place."""
        family, key_of = self.facts.family, self._context.addresses.encode
        for group in self._context.key_groups:
            cache = self.groups[group]
            if cache.shown:
                self._flush_shown(batch, cache, group)
            if not cache.changed:
                continue
            for address in cache.changed:
                value = dict.__getitem__(cache, address)
                if value is ABSENT:
                    batch.delete(family, key_of(group, address))
                else:
                    data = self._encode(value)
                    self._size = 4 * len(data)
                    if len(data) > LARGE_BYTES:
                        self._advise(value, data)
                    batch.put(family, key_of(group, address), data)
            if self._touched is not None:
                self._touched.setdefault(group, set()).update(cache.changed)
            cache.changed.clear()

    def _flush_shown(self, batch: WriteBatch, cache: ValueGroup, group: int) -> None:
        addresses = list(cache.shown - cache.changed)
        cache.shown.clear()
        keys = [self._context.addresses.encode(group, address) for address in addresses]
        stored = self.facts.family.get_many(keys)
        for address, key, old in zip(addresses, keys, stored, strict=True):
            data = self._encode(dict.__getitem__(cache, address))
            if data != old:
                if len(data) > LARGE_BYTES:
                    self._advise(dict.__getitem__(cache, address), data)
                batch.put(self.facts.family, key, data)
                if self._touched is not None:
                    self._touched.setdefault(group, set()).add(address)

    def _advise(self, value: Any, data: bytes) -> None:
        advise_on_large(self._context.operator, self.facts.name, value, len(data))

    def forget(self, keep: Iterable[tuple[int, Any]] = ()) -> None:
        """Drop all flushed entries but those of some addresses."""
        kept = [
            (group, address, dict.__getitem__(self.groups[group], address))
            for group, address in keep
            if dict.__contains__(self.groups[group], address)
        ]
        for group in self._context.key_groups:
            self.groups[group].clear()
        for group, address, value in kept:
            dict.__setitem__(self.groups[group], address, value)
            if self.mutable and value is not ABSENT:
                self.groups[group].shown.add(address)

    def peek(self, group: int, address: Any) -> Any:
        """Return a value, None for nothing; it is not kept in memory."""
        value = dict.get(self.groups[group], address, _UNKNOWN)
        if value is not _UNKNOWN:
            return None if value is ABSENT else value
        data = self.facts.family.get(self._context.addresses.encode(group, address))
        return None if data is None else self._decode(data)

    def is_settled(self, group: int, address: Any) -> bool:
        """Tell whether the database has all there is of an address."""
        cache = self.groups[group]
        return address not in cache.changed and address not in cache.shown

    def filter(self, batch: WriteBatch, rows: list[Row], keep: Keep) -> list[bytes]:
        """Remove the row of an address when its value is not kept."""
        removed = [key for key, data in rows if not keep(self._decode(data))]
        for key in removed:
            batch.delete(self.facts.family, key)
        return removed

    def discard(self, group: int, address: Any, hit: list[bytes]) -> None:
        """Drop a settled entry, because its row is gone."""
        dict.pop(self.groups[group], address, None)
        if self._touched is not None:
            self._touched.setdefault(group, set()).add(address)

    def drain(self) -> dict[int, GroupDelta]:
        """Return all changes since the last drain; everything is flushed."""
        touched, self._touched = self._touched or {}, {}
        return {group: self._delta(group, addresses) for group, addresses in touched.items()}

    def _delta(self, group: int, addresses: set[Any]) -> GroupDelta:
        cache, delta = self.groups[group], GroupDelta()
        uncached = [a for a in addresses if not dict.__contains__(cache, a)]
        keys = [self._context.addresses.encode(group, address) for address in uncached]
        stored = zip(uncached, self.facts.family.get_many(keys), strict=True)
        read = {a: ABSENT if data is None else self._decode(data) for a, data in stored}
        for address in addresses:
            value = dict.get(cache, address, _UNKNOWN)
            if value is _UNKNOWN:
                value = read[address]
            if value is ABSENT:
                delta.cleared.append(address)
            else:
                delta.put[address] = value
        return delta
