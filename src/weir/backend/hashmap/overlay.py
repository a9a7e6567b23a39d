"""Layers of a key group while snapshots are in flight: frozen below, changes on top.

With no snapshot in flight a key group is one plain dict. Freezing it puts an `Overlay` on top,
which handles use exactly like the dict, in the ways that `weir.backend.object_handles` lists.

Invariant: a frozen layer and everything inside its values never changes. An overlay hands out a
copy of whatever below it could be changed, and keeps the copy as a change of its own.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from weir.backend.isolation import IMMUTABLE, isolate

_MISSING: Final = object()
_REMOVED: Final = object()


class Overlay(dict[Any, Any]):
    """Changes since a key group was frozen; removed entries are kept as marks."""

    __slots__ = ("below", "grown", "shareable")

    def __init__(self, below: dict[Any, Any], shareable: bool) -> None:
        """Lay an empty overlay over a layer.

        `shareable` says that `get` may hand out containers of the frozen layer, because their
        elements cannot change and the handle keeps the container to itself.
        """
        super().__init__()
        self.below = below
        self.shareable = shareable
        self.grown = 0  # how many more entries are visible here than below

    def get(self, address: Any, default: Any = None) -> Any:
        """Return a value that may be handed out."""
        value = dict.get(self, address, _MISSING)
        if value is _MISSING:
            below = self.below
            if below.__class__ is dict:
                value = below.get(address, _MISSING)
            else:
                value = self._from_below(address)
            if value is _MISSING:
                return default
            if self.shareable or value.__class__ in IMMUTABLE:
                return value
            return self._own(address, value)
        return default if value is _REMOVED else value

    def __getitem__(self, address: Any) -> Any:
        value = dict.get(self, address, _MISSING)
        if value is _MISSING:
            value = self._from_below(address)
            if value is not _MISSING:
                return self._own(address, value)
        if value is _MISSING or value is _REMOVED:
            raise KeyError(address)
        return value

    def __setitem__(self, address: Any, value: Any) -> None:
        found = dict.get(self, address, _MISSING)
        if found is _MISSING:
            below = self.below
            if below.__class__ is dict:
                if address not in below:
                    self.grown += 1
            elif self._from_below(address) is _MISSING:
                self.grown += 1
        elif found is _REMOVED:
            self.grown += 1
        dict.__setitem__(self, address, value)

    def __contains__(self, address: object) -> bool:
        value = dict.get(self, address, _MISSING)
        if value is _MISSING:
            return self._from_below(address) is not _MISSING
        return value is not _REMOVED

    def pop(self, address: Any, default: Any = None) -> Any:
        """Remove an entry, also from sight of the layers below."""
        if address in self:
            dict.__setitem__(self, address, _REMOVED)
            self.grown -= 1
        return default

    def _from_below(self, address: Any) -> Any:
        layer = self.below
        while isinstance(layer, Overlay):
            value = dict.get(layer, address, _MISSING)
            if value is not _MISSING:
                return _MISSING if value is _REMOVED else value
            layer = layer.below
        return layer.get(address, _MISSING)

    def _own(self, address: Any, value: Any) -> Any:
        mine = isolate(value)
        if mine is not value:
            dict.__setitem__(self, address, mine)
        return mine


def contents(layer: dict[Any, Any]) -> dict[Any, Any]:
    """Return all entries that are visible at a layer; do not change the result."""
    overlays = []
    while isinstance(layer, Overlay):
        overlays.append(layer)
        layer = layer.below
    if not any(map(dict.__len__, overlays)):
        return layer
    merged = dict(layer)
    for overlay in reversed(overlays):
        _apply(overlay, merged)
    return merged


def find(layer: dict[Any, Any], address: Any) -> Any:
    """Return what is visible at a layer under an address, None for nothing; do not change it."""
    while isinstance(layer, Overlay):
        value = dict.get(layer, address, _MISSING)
        if value is not _MISSING:
            return None if value is _REMOVED else value
        layer = layer.below
    return layer.get(address)


def count(layer: dict[Any, Any]) -> int:
    """Count the entries that are visible at a layer, without looking at them."""
    grown = 0
    while isinstance(layer, Overlay):
        grown += layer.grown
        layer = layer.below
    return grown + len(layer)


def sample(layer: dict[Any, Any], limit: int) -> list[tuple[Any, Any]]:
    """Return up to `limit` entries that are or were visible at a layer, newest layer first."""
    found: list[tuple[Any, Any]] = []
    while isinstance(layer, Overlay):
        changed = islice(dict.items(layer), limit - len(found))
        found += [(a, v) for a, v in changed if v is not _REMOVED]
        layer = layer.below
    return found + list(islice(layer.items(), limit - len(found)))


def merge_into(lower: dict[Any, Any], upper: Overlay) -> None:
    """Apply an overlay's changes to the layer below it and empty the overlay.

    The overlay stays usable as a view of `lower`, for snapshots that hold on to it. Costs time
    proportional to the changes.
    """
    if isinstance(lower, Overlay):
        dict.update(lower, dict.items(upper))
        lower.grown += upper.grown
    else:
        _apply(upper, lower)
    upper.clear()
    upper.grown = 0
    upper.below = lower


def _apply(overlay: Overlay, target: dict[Any, Any]) -> None:
    for address, value in overlay.items():
        if value is _REMOVED:
            target.pop(address, None)
        else:
            target[address] = value
