"""The entries of one state: a dict per key group, frozen and merged around snapshots.

`groups` is indexed by key group; see `weir.backend.groups.owned_groups`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from weir.backend.admission import holds_only_immutable
from weir.backend.base import Keep, StateDeclaration
from weir.backend.delta import GroupDelta
from weir.backend.group_format import GroupFormat
from weir.backend.groups import kept, owned_groups
from weir.backend.hashmap.marks import Marks, delta_of
from weir.backend.hashmap.overlay import Overlay, contents, count, find, merge_into, sample
from weir.keygroup import KeyGroupRange

_EMPTY: dict[Any, Any] = {}
_SAMPLE = 64
_ENTRY_OVERHEAD = 100


class _Chain:
    """The layers of one key group, bottom first, and how many snapshots end at each."""

    __slots__ = ("layers", "pins")

    def __init__(self, base: dict[Any, Any]) -> None:
        self.layers = [base]
        self.pins = [0]


class StateTable:
    """All entries of one state in one subtask."""

    def __init__(
        self, declaration: StateDeclaration, group_format: GroupFormat, key_groups: KeyGroupRange
    ) -> None:
        self.name = declaration.name
        self.kind = declaration.kind
        self.format = group_format
        self.key_groups = key_groups
        self.cleanup = declaration.cleanup
        self.groups: list[dict[Any, Any]] = owned_groups(key_groups, lambda _: {})
        self._shareable = holds_only_immutable(declaration.value_type)
        self._chains: dict[int, _Chain] = {}
        # Held by the writing thread while it collects a group's entries and by the backend's
        # thread while it merges layers that another snapshot may be reading through.
        self._lock = threading.Lock()

    def fill(self, groups: Mapping[int, dict[Any, Any]]) -> None:
        """Put restored entries into an empty table."""
        for group, entries in groups.items():
            self.groups[group].update(entries)

    def freeze(self, groups: Iterable[int] | None = None) -> dict[int, dict[Any, Any]]:
        """Freeze every group that has entries (of some) and return its layer by group."""
        frozen = {}
        for group in self.key_groups if groups is None else groups:
            top = self.groups[group]
            if not top and top.__class__ is dict:
                continue
            chain = self._chains.get(group)
            if chain is None:
                chain = self._chains[group] = _Chain(top)
            if not top:
                frozen[group] = chain.layers[-2]
                chain.pins[-2] += 1
                continue
            frozen[group] = top
            chain.pins[-1] += 1
            overlay = Overlay(top, self._shareable)
            chain.layers.append(overlay)
            chain.pins.append(0)
            self.groups[group] = overlay
        return frozen

    def collect(self, layer: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        """Return addresses and values that are visible at a frozen layer; on any thread."""
        with self._lock:
            entries = contents(layer)
            return list(entries), list(entries.values())

    def encode(self, layer: dict[Any, Any], keep: Keep | None) -> tuple[int, bytes]:
        """Return how many entries are visible at a frozen layer, of those kept, and their bytes."""
        addresses, values = self.collect(layer)
        if keep is not None:
            shape = self.kind.shape
            left = {
                address: value
                for address, stored in zip(addresses, values, strict=True)
                if (value := kept(shape, stored, keep)) is not None
            }
            addresses, values = list(left), list(left.values())
        return len(addresses), self.format.encode(addresses, values)

    def deltas(
        self, frozen: dict[int, dict[Any, Any]], marked: Mapping[int, Marks]
    ) -> Iterator[tuple[int, GroupDelta]]:
        """Go through what marks amount to at frozen layers, by group; on any thread."""
        for group, marks in marked.items():
            layer = frozen.get(group, _EMPTY)
            with self._lock:
                delta = delta_of(self.kind.shape, marks, layer)
            yield group, delta

    def thaw(self, frozen: dict[int, dict[Any, Any]]) -> None:
        """Take back what `freeze` returned and merge the layers that nobody needs apart."""
        with self._lock:
            for group, layer in frozen.items():
                self._unpin(group, layer)

    def _unpin(self, group: int, layer: dict[Any, Any]) -> None:
        chain = self._chains[group]
        layers, pins = chain.layers, chain.pins
        position = _position(layers, layer)
        while position < 0 and isinstance(layer, Overlay):  # merged into the layer below it
            layer = layer.below
            position = _position(layers, layer)
        pins[position] -= 1
        i = 0
        while i + 1 < len(layers):
            upper = layers[i + 1]
            if pins[i] or not isinstance(upper, Overlay):
                i += 1
                continue
            merge_into(layers[i], upper)
            pins[i] = pins.pop(i + 1)
            del layers[i + 1]
            above = layers[i + 1] if i + 1 < len(layers) else None
            if isinstance(above, Overlay):
                above.below = layers[i]
        self.groups[group] = layers[-1]
        if len(layers) == 1:
            del self._chains[group]

    def snapshot_filter(self) -> Keep | None:
        """Return what full snapshots taken now leave out, None for nothing."""
        cleanup = self.cleanup
        return cleanup.keep() if cleanup is not None and cleanup.full_snapshot else None

    def swept(self, group: int, address: Any, stored: Any, left: Any) -> None:
        """Learn that a sweep removed an entry, or a part of it, and what is left of it."""

    def size(self) -> int:
        """Count the present entries, without looking at them."""
        owned = self.groups[self.key_groups.start : self.key_groups.end + 1]
        # Asked after every epoch: without snapshots in flight all groups are plain dicts.
        return sum(map(count if self._chains else len, owned))

    def approximate_bytes(self) -> int:
        """Estimate the memory of all entries from a sample."""
        found: list[tuple[Any, Any]] = []
        for group in self.key_groups:
            found += sample(self.groups[group], _SAMPLE - len(found))
            if len(found) >= _SAMPLE:
                break
        size = sum(sys.getsizeof(a) + _size_of(v) + _ENTRY_OVERHEAD for a, v in found)
        return size * self.size() // max(1, len(found))

    def visible(self, group: int) -> dict[Any, Any]:
        """Return the present entries of a group; do not change the result."""
        return contents(self.groups[group])

    def peek(self, group: int, address: Any) -> Any:
        """Return what is stored under an address, None for nothing; do not change it."""
        return find(self.groups[group], address)


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


def _position(layers: list[dict[Any, Any]], layer: dict[Any, Any]) -> int:
    return next((i for i, candidate in enumerate(layers) if candidate is layer), -1)
