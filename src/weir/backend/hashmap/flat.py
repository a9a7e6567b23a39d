"""Entries of integers to 64-bit values in two arrays, for states too large for the caches.

A dict of Python objects costs several cache misses for a look and some 150 bytes for an entry. Here
a key group is a run of buckets of eight cells, one cache line of keys each: a look is one miss for
the key and one for the value, many keys are looked up at once, and a snapshot is a few copies.

Invariants: a key is in the first bucket of its path (its own, then the following ones, round the
group) that has or had an empty cell when it came, so a look ends at a bucket with an empty cell;
every group keeps empty cells. A shadow shows the entries of the moment it was made, whatever is
written later. Only the methods of this module write.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

EMPTY: Final = -(1 << 63)
REMOVED: Final = EMPTY + 1
CELLS: Final = 8
"""Cells of a bucket."""
_CELL_BITS: Final = 3
_FULL: Final = 0.75
_ROOM: Final = 1.25
_SPARSE: Final = 32
_MIX: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1


def can_hold(keys: Any) -> bool:
    """Tell whether keys can be told from cells without one."""
    return not len(keys) or int(keys.min()) > REMOVED


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
        self._buckets = self.keys.reshape(-1, CELLS)
        # Single items of these are read and written faster than those of arrays.
        self._key_items: Any = self.keys.data
        self._value_items: Any = self.values.data
        self._taken = np.zeros(self._groups, np.int64)

    @property
    def nbytes(self) -> int:
        """The memory of the entries."""
        return int(self.keys.nbytes + self.values.nbytes)

    @property
    def is_sparse(self) -> bool:
        """Tell whether the keys are spread so unevenly over the groups that memory is wasted."""
        return self._bits > 2 and self.count * _SPARSE < len(self.keys)

    def find(self, keys: Any, rows: Any) -> Any:
        """Return the cell of every key, -1 for those that are not there."""
        first, base = self._first(keys), rows << self._bits
        found = np.full(len(keys), -1, np.int64)
        going = self._look(keys, base + first, found)
        if not going.any():
            return found
        rest = np.flatnonzero(going)
        keys, first, base = keys[rest], first[rest], base[rest]
        while len(rest):
            first = (first + 1) & self._mask
            cells = np.full(len(rest), -1, np.int64)
            going = self._look(keys, base + first, cells)
            found[rest] = cells
            rest, keys, first, base = rest[going], keys[going], first[going], base[going]
        return found

    def _look(self, keys: Any, buckets: Any, found: Any) -> Any:
        """Set the cells of keys that are in their buckets; return who has to look further."""
        block = self._buckets[buckets]
        hit = np.flatnonzero(block == keys[:, None])
        which = hit >> _CELL_BITS
        found[which] = (buckets[which] << _CELL_BITS) + (hit & (CELLS - 1))
        if len(hit) == len(keys):
            return np.zeros(len(keys), np.bool_)
        # Where a bucket has an empty cell, eight booleans make a number that is not zero.
        going = (block == EMPTY).view(np.uint64).ravel() == 0
        going[which] = False
        return going

    def get(self, key: int, row: int) -> Any:
        """Return the value of one key, None when it is not there."""
        cell, _ = self._seek(key, row)
        return None if cell < 0 else self._value_items[cell]

    def set(self, key: int, row: int, value: Any) -> None:
        """Set the value of one key, whether it is there or not."""
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
            bucket = self._key_items[at : at + CELLS].tolist()
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

    def insert(self, keys: Any, rows: Any, values: Any) -> None:
        """Add entries under keys that are not there, each given once."""
        more = np.bincount(rows, minlength=self._groups)
        if (self._taken + more).max() > self.width * _FULL:
            self._rebuild(slice(None), more)
        self._taken += more
        self.count += len(keys)
        self._place(keys, rows, values)

    def _place(self, keys: Any, rows: Any, values: Any) -> None:
        first, base = self._first(keys), rows << self._bits
        rest = np.arange(len(keys))
        while len(rest):
            at = base[rest] + first[rest]
            free = self._buckets[at] == EMPTY
            cell = free.argmax(axis=1)
            room = free[np.arange(len(rest)), cell]
            # Of those that want the same cell one gets it, the others look again.
            wanted = np.flatnonzero(room)
            cells, one = np.unique((at[wanted] << _CELL_BITS) + cell[wanted], return_index=True)
            won = rest[wanted[one]]
            self._put(cells, keys[won], values[won])
            moved = rest[~room]
            first[moved] = (first[moved] + 1) & self._mask
            left = np.ones(len(rest), np.bool_)
            left[wanted[one]] = False
            rest = rest[left]

    def remove(self, cells: Any) -> None:
        """Drop entries, each given once."""
        for shadow in self._shadows:
            shadow.save(cells)
        at = cells >> _CELL_BITS
        # No path goes on behind a bucket with an empty cell, so there another one does no harm.
        ends = (self._buckets[at] == EMPTY).any(axis=1)
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

    def fill(self, row: int, keys: Any, values: Any) -> None:
        """Put many entries into a group that has none."""
        if len(keys) > self.width * _FULL:
            self._rebuild(row, len(keys))
        self.count += len(keys)
        self._fill(row, keys, values)

    def _fill(self, row: int, keys: Any, values: Any) -> None:
        first = self._first(keys)
        order = np.argsort(first, kind="stable")
        first, keys, values = first[order], keys[order], values[order]
        rank = np.arange(len(keys)) - np.searchsorted(first, first)
        fits = rank < CELLS
        at = (row << self._bits) + first[fits]
        self._put((at << _CELL_BITS) + rank[fits], keys[fits], values[fits])
        self._taken[row] = len(keys)
        over = ~fits
        self._place(keys[over], np.full(np.count_nonzero(over), row), values[over])

    def _put(self, cells: Any, keys: Any, values: Any) -> None:
        for shadow in self._shadows:
            shadow.save(cells)
        self.keys[cells] = keys
        self.values[cells] = values

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
        self._shadows = []
        self._make(bits)
        for row, (keys, values) in enumerate(groups):
            self._fill(row, keys, values)
