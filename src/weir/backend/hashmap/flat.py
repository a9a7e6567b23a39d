"""Entries of integers to 64-bit values in two arrays, for states too large for the caches.

A dict of Python objects costs several cache misses for a look and some 100 bytes for an entry. Here
a key group is a run of buckets of eight cells, one cache line of keys each: a look is one miss for
the key and one for the value, many keys are looked up at once, and a snapshot is a few copies.

Invariants: a key is in the first bucket of its path (its own, then the following ones, round the
group) that has or had an empty cell when it came, so a look ends at a bucket with an empty cell;
every group keeps empty cells. A shadow shows the entries of the moment it was made, whatever is
written later. Only the methods of this module write.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

EMPTY: Final = -(1 << 63)
REMOVED: Final = EMPTY + 1
CELLS: Final = 8
"""Cells of a bucket."""
_CELL_BITS: Final = 3
_BUCKET: Final = np.dtype((np.void, CELLS * 8))
_FULL: Final = 0.75
_ROOM: Final = 1.25
_SPARSE: Final = 8
_unpack = struct.Struct(f"{CELLS}q").unpack_from
_MIX: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1


class SparseError(Exception):
    """The keys are spread so unevenly over the groups that arrays would waste memory."""


def _any_of_eight(cells: Any) -> Any:
    """Tell for each row of eight booleans whether one of them is true: their bytes as a number."""
    return cells.view(np.uint64).ravel() != 0


class Shadow:
    """The entries of a moment: cells are kept aside before they are written again."""

    __slots__ = ("_keys", "_old_keys", "_old_values", "_saved", "_values", "_width")

    def __init__(self, entries: FlatEntries) -> None:
        """Take the entries as they are; costs next to nothing until they change."""
        self._keys, self._values = entries.keys, entries.values
        self._width = entries.width
        # Memory is used where something is saved, not before.
        self._saved = np.zeros(len(self._keys), np.bool_)
        self._old_keys = np.empty(len(self._keys), np.int64)
        self._old_values = np.empty(len(self._keys), self._values.dtype)

    def save(self, cells: Any) -> None:
        """Keep cells that are about to be written for the first time."""
        cells = cells[~self._saved[cells]]
        self._old_keys[cells] = self._keys[cells]
        self._old_values[cells] = self._values[cells]
        self._saved[cells] = True

    def save_one(self, cell: int) -> None:
        """Keep a cell that is about to be written."""
        if not self._saved[cell]:
            self._old_keys[cell] = self._keys[cell]
            self._old_values[cell] = self._values[cell]
            self._saved[cell] = True

    def group(self, row: int) -> tuple[Any, Any]:
        """Return keys and values of a group as they were; changes the caller's arrays only."""
        part = slice(row * self._width, (row + 1) * self._width)
        saved = self._saved[part]
        keys = np.where(saved, self._old_keys[part], self._keys[part])
        values = np.where(saved, self._old_values[part], self._values[part])
        used = np.flatnonzero(keys > REMOVED)
        return keys[used], values[used]


class FlatEntries:
    """The entries of some key groups; a group is a row, counted from 0."""

    def __init__(self, groups: int, value_type: Any = np.int64) -> None:
        """Make little room in each group, for integers or floats of 64 bits."""
        self._groups = groups
        self._value_type = value_type
        self._shadows: list[Shadow] = []
        self.count = 0
        self._make(1)

    def _make(self, bits: int) -> None:
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._shift = 64 - bits
        self.width = CELLS << bits
        self.keys = np.full(self._groups * self.width, EMPTY, np.int64)
        self.values = np.zeros(self._groups * self.width, self._value_type)
        # As items of 64 bytes, because numpy copies those several times faster than rows.
        self._buckets = self.keys.view(_BUCKET)
        # Single items of these are read and written faster than those of arrays.
        self._bytes = self.keys.view(np.uint8).data
        self._key_items: Any = self.keys.data
        self._value_items: Any = self.values.data
        self._taken = np.zeros(self._groups, np.int64)

    @property
    def nbytes(self) -> int:
        """The memory of the entries."""
        return int(self.keys.nbytes + self.values.nbytes)

    def find(self, keys: Any, rows: Any) -> Any:
        """Return the cell of every key; for those that are not there, `~` the bucket to put it."""
        first, base = self._first(keys), rows << self._bits
        found, going = self._look(keys, base + first)
        rest = np.flatnonzero(going)
        keys, first, base = keys[rest], first[rest], base[rest]
        while len(rest):
            first = (first + 1) & self._mask
            found[rest], going = self._look(keys, base + first)
            rest, keys, first, base = rest[going], keys[going], first[going], base[going]
        return found

    def _look(self, keys: Any, buckets: Any) -> tuple[Any, Any]:
        """Return what `find` says, for one bucket of every key, and who has to look further."""
        block = self._block(buckets)
        hit = np.flatnonzero(block == keys[:, None])
        which = hit >> _CELL_BITS
        found = ~buckets
        found[which] = (buckets[which] << _CELL_BITS) + (hit & (CELLS - 1))
        going = ~_any_of_eight(block == EMPTY)
        going[which] = False
        return found, going

    def _block(self, buckets: Any) -> Any:
        """Return the keys of some buckets, a row for each."""
        return self._buckets.take(buckets, mode="clip").view(np.int64).reshape(-1, CELLS)

    def get(self, key: int, row: int) -> Any:
        """Return the value of one key, None when it is not there."""
        cell, _ = self._seek(key, row)
        return None if cell < 0 else self._value_items[cell]

    def set(self, key: int, row: int, value: Any) -> None:
        """Set the value of one key, whether it is there or not; see `insert`."""
        cell, free = self._seek(key, row)
        if cell < 0:
            if self._taken[row] + 1 > self.width * _FULL:
                self._rebuild(row, 1)
                _, free = self._seek(key, row)
            cell = free
            self._taken[row] += 1
            self.count += 1
        for shadow in self._shadows:
            shadow.save_one(cell)
        self._key_items[cell] = key
        self._value_items[cell] = value

    def drop(self, key: int, row: int) -> None:
        """Remove one key if it is there."""
        cell, _ = self._seek(key, row)
        if cell >= 0:
            self.remove(np.array([cell]))

    def _seek(self, key: int, row: int) -> tuple[int, int]:
        """Return the cell of a key, or -1 and the cell where it would have to be put."""
        first = ((key ^ (key >> 32)) * _MIX & _WORD) >> self._shift
        base = row << self._bits
        while True:
            at = (base + first) << _CELL_BITS
            bucket = _unpack(self._bytes, at << 3)
            if key in bucket:
                return at + bucket.index(key), -1
            if EMPTY in bucket:
                return -1, at + bucket.index(EMPTY)
            first = (first + 1) & self._mask

    def write(self, cells: Any, values: Any) -> None:
        """Set the values of entries."""
        for shadow in self._shadows:
            shadow.save(cells)
        self.values[cells] = values

    def insert(self, keys: Any, rows: Any, values: Any, buckets: Any) -> None:
        """Add entries under keys that are not there, each given once, where `find` has said.

        Raises:
            SparseError: there is no room for them, and nothing has changed.
        """
        more = np.bincount(rows, minlength=self._groups)
        if (self._taken + more).max() > self.width * _FULL:
            self._rebuild(slice(None), more)
            buckets = (rows << self._bits) + self._first(keys)
        self._taken += more
        self.count += len(keys)
        self._place(keys, values, buckets)

    def _place(self, keys: Any, values: Any, buckets: Any) -> None:
        """Put new entries into the first buckets with room, from these on."""
        while len(keys):
            free = self._block(buckets) == EMPTY
            cells = (buckets << _CELL_BITS) + free.argmax(axis=1)
            room = np.flatnonzero(_any_of_eight(free))
            wanted = cells[room]
            for shadow in self._shadows:
                shadow.save(wanted)
            # Of those that want the same cell the last one gets it, the others look again.
            self.keys[wanted] = keys[room]
            got = self.keys[wanted] == keys[room]
            self.values[wanted[got]] = values[room[got]]
            left = np.ones(len(keys), np.bool_)
            left[room[got]] = False
            full = np.ones(len(keys), np.bool_)
            full[room] = False
            following = (buckets & ~self._mask) | ((buckets + 1) & self._mask)
            buckets = np.where(full, following, buckets)[left]
            keys, values = keys[left], values[left]

    def remove(self, cells: Any) -> None:
        """Drop entries, each given once."""
        for shadow in self._shadows:
            shadow.save(cells)
        at = cells >> _CELL_BITS
        # No path goes on behind a bucket with an empty cell, so there another one does no harm.
        ends = _any_of_eight(self._block(at) == EMPTY)
        self.keys[cells] = np.where(ends, EMPTY, REMOVED)
        self._taken -= np.bincount(cells[ends] // self.width, minlength=self._groups)
        self.count -= len(cells)

    def shadow(self) -> Shadow:
        """Return the entries of this moment."""
        shadow = Shadow(self)
        self._shadows.append(shadow)
        return shadow

    def forget(self, shadow: Shadow) -> None:
        """Save nothing more for a shadow."""
        self._shadows = [other for other in self._shadows if other is not shadow]

    def group(self, row: int) -> tuple[Any, Any]:
        """Return keys and values of a group."""
        part = slice(row * self.width, (row + 1) * self.width)
        used = np.flatnonzero(self.keys[part] > REMOVED)
        return self.keys[part][used], self.values[part][used]

    def reserve(self, counts: list[int]) -> None:
        """Make room for so many entries in each group.

        Raises:
            SparseError: most of the room would stay empty.
        """
        self._rebuild(slice(None), np.array(counts, np.int64))

    def fill(self, row: int, keys: Any, values: Any) -> None:
        """Put many entries into a group that has none, and room for them."""
        self.count += len(keys)
        self._fill(row, keys, values)

    def _fill(self, row: int, keys: Any, values: Any) -> None:
        first = self._first(keys)
        # Numbers of 16 bits are sorted by radix, many times faster.
        order = np.argsort(first.astype(np.uint16) if self._bits <= 16 else first, kind="stable")
        first, keys, values = first[order], keys[order], values[order]
        counts = np.bincount(first, minlength=1 << self._bits)
        rank = np.arange(len(keys)) - (np.cumsum(counts) - counts)[first]
        fits = rank < CELLS
        base = row << self._bits
        cells = ((base + first[fits]) << _CELL_BITS) + rank[fits]
        for shadow in self._shadows:
            shadow.save(cells)
        self.keys[cells] = keys[fits]
        self.values[cells] = values[fits]
        self._taken[row] = len(keys)
        over = ~fits
        self._place(keys[over], values[over], base + first[over])

    def _first(self, keys: Any) -> Any:
        """Return each key's own bucket within its group."""
        mixed = (keys ^ (keys >> 32)).view(np.uint64) * np.uint64(_MIX)
        return (mixed >> np.uint64(self._shift)).view(np.int64)

    def _rebuild(self, where: Any, more: Any) -> None:
        """Move to arrays with room for more entries in some rows; shadows keep the old ones."""
        groups = [self.group(row) for row in range(self._groups)]
        needed = np.array([len(keys) for keys, _ in groups])
        needed[where] += more
        bits = 1
        while (CELLS << bits) * _FULL < needed.max() * _ROOM:
            bits += 1
        if bits > 2 and self._groups * (CELLS << bits) > needed.sum() * _SPARSE:
            raise SparseError
        self._shadows = []
        self._make(bits)
        for row, (keys, values) in enumerate(groups):
            self._fill(row, keys, values)
