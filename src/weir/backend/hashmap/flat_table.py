"""A table that moves into flat arrays once it is large: plain numbers under integer keys.

Small states stay dicts, which are faster as long as they fit into the caches. A large one is used
stride by stride: the keys of some records are looked up together, a plain dict with what was found
stands for all groups while the records are handled, and what changed is written back together.
Between strides, for timers and queries, a group is a view of the arrays that is used like a dict.

Invariant: whatever the form, handles and snapshots see the same entries. What the arrays cannot
hold (namespaces, keys that are no 64-bit integers) takes the table back to dicts, for good.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weir.backend.admission import INT_BOUNDS
from weir.backend.base import Keep, StateDeclaration
from weir.backend.delta import GroupDelta
from weir.backend.group_format import GroupFormat
from weir.backend.hashmap.flat import EMPTY, REMOVED, FlatEntries, Shadow, SparseError
from weir.backend.hashmap.marks import Changed, Marks
from weir.backend.hashmap.overlay import count
from weir.backend.hashmap.table import StateTable
from weir.backend.hashmap.tracked import TrackedTable
from weir.backend.kinds import StateKind
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange

FLAT_FROM: Final = 250_000
"""Entries from which on a table is flat."""
STRIDE_MIN: Final = 16
"""Records from which on their keys are looked up together."""
_INT_MAX: Final = (1 << 63) - 1
_NOTHING: Final[dict[Any, Any]] = {}
_NEVER: Final = 1 << 62
_FEW: Final = 8
"""A flat table is dicts again with fewer entries than this part of those that made it flat."""
_GROUPS: Final = 4000
"""So many key groups take as many entries more to be flat: every group has a cost of its own."""


def can_be_flat(declaration: StateDeclaration, key_type: Any) -> bool:
    """Tell whether all entries of a state are numbers under integer keys and do not expire."""
    return (
        declaration.kind in (StateKind.VALUE, StateKind.REDUCING)
        and declaration.cleanup is None
        and key_type is not None
        and key_type in INT_BOUNDS
        and declaration.value_type is not None
        and (declaration.value_type in INT_BOUNDS or declaration.value_type == Types.DOUBLE())
    )


class Frozen(dict[int, Any]):
    """What `freeze` returned, and the form that the table had then."""

    __slots__ = ("form",)

    def __init__(self, layers: dict[int, Any], form: int) -> None:
        super().__init__(layers)
        self.form = form


@dataclass(frozen=True)
class FlatLayer:
    """A key group of a frozen flat table."""

    shadow: Shadow
    row: int


@dataclass(frozen=True)
class Stride:
    """The keys of some records, and what was found under them."""

    keys: Sequence[Any]
    numbers: Any
    rows: Any
    cells: Any
    stored: Any
    values: list[Any]
    front: dict[Any, Any]


class FlatGroup:
    """A key group of a flat table, used like a dict as `overlay` says, one key at a time."""

    __slots__ = ("_group", "_row", "_table")

    def __init__(self, table: FlatTable, group: int, row: int) -> None:
        self._table = table
        self._group = group
        self._row = row

    def _entries(self, address: Any) -> FlatEntries | None:
        """Return the arrays; None when the table is dicts, or has to be for this address."""
        table = self._table
        plain = address.__class__ is int and table.low <= address <= table.high
        if not plain and address not in _NOTHING:  # which raises when there is no key
            table.spill()
        return table.entries

    def get(self, address: Any, default: Any = None) -> Any:
        """Return the value, or the default."""
        entries = self._entries(address)
        if entries is None:
            return self._table.groups[self._group].get(address, default)
        value = entries.get(address, self._row)
        return default if value is None else value

    def __getitem__(self, address: Any) -> Any:
        value = self.get(address)
        if value is None:
            raise KeyError(address)
        return value

    def __contains__(self, address: object) -> bool:
        return self.get(address) is not None

    def __setitem__(self, address: Any, value: Any) -> None:
        entries = self._entries(address)
        if entries is None:
            self._table.groups[self._group][address] = value
        else:
            try:
                with self._table.lock:
                    entries.set(address, self._row, value)
            except SparseError:
                self._table.spill()
                self._table.groups[self._group][address] = value

    def pop(self, address: Any, default: Any = None) -> Any:
        """Remove an entry if it is there."""
        entries = self._entries(address)
        if entries is None:
            self._table.groups[self._group].pop(address, None)
        else:
            with self._table.lock:
                entries.drop(address, self._row)
        return default


class FlatTable(StateTable):
    """A table of dicts as long as it is small, of arrays when it is large."""

    def __init__(
        self,
        declaration: StateDeclaration,
        group_format: GroupFormat,
        key_groups: KeyGroupRange,
        flat_from: int = FLAT_FROM,
    ) -> None:
        """Make an empty table; `can_be_flat` holds for its declaration."""
        super().__init__(declaration, group_format, key_groups)
        self.entries: FlatEntries | None = None
        self._flat_from = flat_from
        low, self.high = INT_BOUNDS[group_format.key.type_info]
        self.low = max(low, REMOVED + 1)
        """From here on keys can be told from cells without one; others have to be in dicts."""
        self._code = "d" if declaration.value_type == Types.DOUBLE() else "q"
        self._views: list[Any] = [FlatGroup(self, g, row) for row, g in enumerate(key_groups)]
        self._form = 0
        self._stride: Stride | None = None

    @property
    def lock(self) -> Any:
        """Held while entries are written, or read by another thread."""
        return self._lock

    def settle(self) -> None:
        """Become flat if there are enough entries by now, and dicts again if there are few.

        Snapshots in flight keep what they have.
        """
        size = self.size()
        if self.entries is not None:
            if size < self._flat_from // _FEW:
                self._leave_arrays()
        elif size >= self._flat_from and size >= len(self._views) * self._flat_from // _GROUPS:
            try:
                self._take_form(self._flattened(), self._views)
            except (SparseError, TypeError):
                self._flat_from = _NEVER

    def _flattened(self) -> FlatEntries:
        """Return the entries in arrays; TypeError when arrays cannot hold the keys."""
        entries = FlatEntries(len(self._views), self._values([]).dtype)
        entries.reserve([count(self.groups[group]) for group in self.key_groups])
        for row, group in enumerate(self.key_groups):
            found = self.visible(group)
            entries.fill(row, self._numbers(list(found)), self._values(list(found.values())))
        return entries

    def spill(self) -> None:
        """Go back to dicts, for good."""
        if self.entries is not None:
            self._leave_arrays()
            self._flat_from = _NEVER

    def _leave_arrays(self) -> None:
        self._take_form(None, [self.visible(group) for group in self.key_groups])

    def _take_form(self, entries: FlatEntries | None, groups: list[Any]) -> None:
        self.entries = entries
        self.groups[self.key_groups.start :] = groups
        self._chains = {}
        self._form += 1

    def begin_stride(
        self, keys: Sequence[Any], groups: Sequence[int], arrays: tuple[Any, Any] | None
    ) -> None:
        """Look up the keys of the records that come next."""
        entries = self.entries
        if entries is None or len(keys) < STRIDE_MIN:
            return
        try:
            numbers = self._numbers(keys, None if arrays is None else arrays[0])
        except TypeError:
            return  # the view of a group knows what to do with each of them
        rows = np.asarray(groups if arrays is None else arrays[1]).astype(np.int64)
        rows -= self.key_groups.start
        if int(rows.min()) < 0 or int(rows.max()) >= len(self._views):
            return
        cells = entries.find(numbers, rows)
        stored = entries.values.take(cells, mode="clip")
        values = stored.tolist()
        missing = np.flatnonzero(cells < 0).tolist()
        for i in missing:
            values[i] = None
        front = dict(zip(keys, values, strict=True))
        for i in missing:
            front.pop(keys[i], None)
        self._stride = Stride(keys, numbers, rows, cells, stored=stored, values=values, front=front)
        self.groups[self.key_groups.start :] = [front] * len(self._views)

    def end_stride(self) -> None:
        """Write back what changed since the stride began."""
        stride, entries = self._stride, self.entries
        if stride is None or entries is None:
            return
        self._stride = None
        self.groups[self.key_groups.start :] = self._views
        values = list(map(stride.front.get, stride.keys))
        if values == stride.values and self._code == "q":  # -0.0 and 0.0 are equal
            return
        with self._lock:
            new = self._write_back(entries, stride, values)
        self._add(entries, stride, new)

    def _write_back(self, entries: FlatEntries, stride: Stride, values: list[Any]) -> Any:
        """Change what is there; return values by position in the stride for what is not."""
        there = stride.cells >= 0
        try:
            stored, present = self._values(values), None
        except TypeError:
            present = np.array([value is not None for value in values])
            stored = self._values([0 if value is None else value for value in values])
            gone = there & ~present
            if gone.any():
                entries.remove(np.unique(stride.cells[gone]))
            there &= present
        changed = np.flatnonzero(there & (stored.view(np.int64) != stride.stored.view(np.int64)))
        entries.write(stride.cells[changed], stored[changed])
        new = stride.cells < 0
        if present is not None:
            new &= present
        return np.flatnonzero(new), stored

    def _add(self, entries: FlatEntries, stride: Stride, given: tuple[Any, Any]) -> None:
        """Put new entries; the cells that were found are of no use any more when it makes room."""
        new, stored = given
        if not len(new):
            return
        keys, one = np.unique(stride.numbers[new], return_index=True)
        one = new[one]
        try:
            with self._lock:
                entries.insert(keys, stride.rows[one], stored[one], ~stride.cells[one])
        except SparseError:
            self.spill()
            rows = (stride.rows[one] + self.key_groups.start).tolist()
            for group, key, value in zip(rows, keys.tolist(), stored[one].tolist(), strict=True):
                self.groups[group][key] = value

    def _numbers(self, keys: Sequence[Any], array_: Any = None) -> Any:
        """Return keys as an array; TypeError when arrays cannot hold them all."""
        if array_ is None:
            # Nothing but integers: others that are equal to them would be marked as others.
            if not set(map(type, keys)) <= {int}:
                raise TypeError
            try:
                array_ = np.frombuffer(array("q", keys), np.int64)
            except OverflowError:
                raise TypeError from None
        numbers = array_.astype(np.int64, copy=False)
        if len(numbers) and not (
            self.low <= int(numbers.min()) and int(numbers.max()) <= self.high
        ):
            raise TypeError
        return numbers

    def _values(self, values: list[Any]) -> Any:
        packed = array(self._code, values)
        return np.frombuffer(packed, np.float64 if self._code == "d" else np.int64)

    def freeze(self, groups: Iterable[int] | None = None) -> dict[int, Any]:
        """Freeze every group that has entries (of some) and return its layer by group."""
        if self.entries is None:
            return Frozen(super().freeze(groups), self._form)
        start = self.key_groups.start
        wanted = list(self.key_groups if groups is None else groups)
        if not wanted:
            return Frozen({}, self._form)
        with self._lock:
            shadow = self.entries.shadow()
        return Frozen({g: FlatLayer(shadow, g - start) for g in wanted}, self._form)

    def thaw(self, frozen: dict[int, Any]) -> None:
        """Take back what `freeze` returned."""
        if not isinstance(frozen, Frozen) or frozen.form != self._form:
            return  # the table has left that form, and with it the layers
        if self.entries is None:
            super().thaw(frozen)
            return
        with self._lock:
            for shadow in {layer.shadow for layer in frozen.values()}:
                self.entries.forget(shadow)

    def collect(self, layer: Any) -> tuple[list[Any], list[Any]]:
        """Return addresses and values that are visible at a frozen layer; on any thread."""
        if not isinstance(layer, FlatLayer):
            return super().collect(layer)
        keys, values = self._arrays(layer)
        return keys.tolist(), values.tolist()

    def encode(self, layer: Any, keep: Keep | None) -> tuple[int, bytes]:
        """Return how many entries are visible at a frozen layer, and their bytes."""
        if not isinstance(layer, FlatLayer):
            return super().encode(layer, keep)
        keys, values = self._arrays(layer)
        return len(keys), self.format.encode_numbers(keys, values)

    def _arrays(self, layer: FlatLayer) -> tuple[Any, Any]:
        with self._lock:
            return layer.shadow.group(layer.row)

    def size(self) -> int:
        """Count the present entries, without looking at them."""
        return super().size() if self.entries is None else self.entries.count

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries."""
        return super().approximate_bytes() if self.entries is None else self.entries.nbytes

    def visible(self, group: int) -> dict[Any, Any]:
        """Return the present entries of a group; do not change the result."""
        if self.entries is None:
            return super().visible(group)
        keys, values = self.entries.group(group - self.key_groups.start)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))

    def peek(self, group: int, address: Any) -> Any:
        """Return what is stored under an address, None for nothing; the form stays what it is."""
        if self.entries is None:
            return super().peek(group, address)
        if address.__class__ is not int or not self.low <= address <= self.high:
            return None  # such an entry would have let the table leave its arrays
        return self.entries.get(address, group - self.key_groups.start)


class TrackedFlatTable(FlatTable, TrackedTable):
    """The same with marks, which are by address in either form."""

    def present(self, changed: Changed) -> dict[int, GroupDelta]:
        """Return what marks amount to at this moment, in time proportional to them."""
        if self.entries is None or changed.anew:
            return super().present(changed)
        entries = self.entries
        return {g: self._now(entries, g, marks) for g, marks in changed.groups.items()}

    def _now(self, entries: FlatEntries, group: int, marks: Marks) -> GroupDelta:
        keys, row = _marked(marks), group - self.key_groups.start
        cells = entries.find(keys, np.full(len(keys), row))
        there = cells >= 0
        return _delta(marks, keys[there], entries.values[cells[there]])

    def deltas(
        self, frozen: dict[int, Any], marked: Mapping[int, Marks]
    ) -> Iterator[tuple[int, GroupDelta]]:
        """Go through what marks amount to at frozen layers, by group; on any thread."""
        for group, marks in marked.items():
            layer = frozen.get(group)
            if isinstance(layer, FlatLayer):
                yield group, _delta_of(marks, *self._arrays(layer))
            else:
                yield from super().deltas(frozen, {group: marks})


def _delta_of(marks: Marks, keys: Any, values: Any) -> GroupDelta:
    """Return the changes of marked entries of a key group that is given as arrays."""
    wanted = np.append(np.sort(_marked(marks)), EMPTY)
    marked = wanted[np.searchsorted(wanted[:-1], keys)] == keys
    return _delta(marks, keys[marked], values[marked])


def _marked(marks: Marks) -> Any:
    """Return the marked keys; what arrays cannot hold was removed when the table was dicts."""
    plain = [a for a in marks if a.__class__ is int and REMOVED < a <= _INT_MAX]
    return np.array(plain, np.int64)


def _delta(marks: Marks, keys: Any, values: Any) -> GroupDelta:
    put = dict(zip(keys.tolist(), values.tolist(), strict=True))
    gone = [address for address in marks if address not in put] if len(put) < len(marks) else []
    return GroupDelta(cleared=gone, put=put)
