"""What changed since some moment, by address, and what that amounts to.

A mark says as little as is needed to find the change in the entries later: `WHOLE` for an entry
that was set, removed or handed out; for a map the map keys that were touched; for a list the
length from which on it was only appended to.

Invariant: a mark may say too much, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_
from typing import Any, Final, TypeAlias

from weir.backend.delta import GroupDelta
from weir.backend.hashmap.overlay import find
from weir.backend.kinds import Shape

WHOLE: Final = -1
Marks: TypeAlias = dict[Any, Any]
"""Address -> WHOLE, a dict with the touched map keys, or the length before the first append."""


@dataclass(frozen=True)
class Changed:
    """The marks of one state between two snapshots; `anew` when it has to be written as a whole."""

    groups: dict[int, Marks] = field(default_factory=dict)
    anew: bool = False


def union(changes: Iterable[Changed]) -> Changed:
    """Return marks that cover consecutive intervals; the given ones stay as they are."""
    groups: dict[int, Marks] = {}
    copied: set[int] = set()
    anew = False
    for changed in changes:
        anew |= changed.anew
        for group, marks in changed.groups.items():
            if group not in groups:
                groups[group] = marks
                continue
            if group not in copied:
                copied.add(group)
                groups[group] = dict(groups[group])
            _add(groups[group], marks)
    return Changed(groups, anew)


def _add(target: Marks, marks: Marks) -> None:
    for address, mark in marks.items():
        found = target.get(address)
        if found is None:
            target[address] = mark
        elif found.__class__ is dict and mark.__class__ is dict:
            target[address] = {**found, **mark}
        elif found.__class__ is dict or mark.__class__ is dict:
            target[address] = WHOLE
        else:
            target[address] = min(found, mark)


def delta_of(shape: Shape, marks: Marks, layer: dict[Any, Any]) -> GroupDelta:
    """Return the changes of marked entries of a key group, with the values visible at a layer."""
    if shape is Shape.ONE and layer.__class__ is dict:
        values = list(map(layer.get, marks))
        if not any(map(is_, values, repeat(None))):
            return GroupDelta(put=dict(zip(marks, values, strict=True)))
    delta = GroupDelta()
    for address, mark in marks.items():
        value = find(layer, address)
        if value is None:
            delta.cleared.append(address)
        elif mark.__class__ is dict:
            gone = [k for k in mark if k not in value]
            if gone:
                delta.removed[address] = gone
            if len(gone) < len(mark):
                delta.put[address] = {k: value[k] for k in mark if k in value}
        elif shape is Shape.LIST and mark >= 0:
            if mark < len(value):
                delta.put[address] = value[mark:]
        else:
            if shape is not Shape.ONE:
                delta.cleared.append(address)
            delta.put[address] = value
    return delta
