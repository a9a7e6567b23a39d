"""Tables and handles that remember what was changed; see `weir.backend.hashmap.marks`.

Marks are set before or after a change, never in between two that can fail apart. What was handed
out and can be changed counts as changed, because objects changed in place are state here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weir.backend.address import address_of
from weir.backend.admission import INT_BOUNDS, STRING, holds_only_immutable
from weir.backend.base import VOID, CurrentKey, StateDeclaration
from weir.backend.delta import GroupDelta
from weir.backend.group_format import GroupFormat
from weir.backend.groups import owned_groups
from weir.backend.hashmap.marks import WHOLE, Changed, Marks, delta_of
from weir.backend.hashmap.table import StateTable
from weir.backend.isolation import IMMUTABLE, is_immutable
from weir.backend.kinds import Shape, StateKind
from weir.backend.object_handles import (
    FoldMany,
    ObjectAggregatingState,
    ObjectIntegerState,
    ObjectListState,
    ObjectMapState,
    ObjectReducingState,
    ObjectTextState,
    ObjectValueState,
)
from weir.common.state import State
from weir.keygroup import KeyGroupRange


class TrackedTable(StateTable):
    """A table with marks beside it, indexed by key group like the entries."""

    def __init__(
        self, declaration: StateDeclaration, group_format: GroupFormat, key_groups: KeyGroupRange
    ) -> None:
        super().__init__(declaration, group_format, key_groups)
        self.marks: list[Marks] = owned_groups(key_groups, lambda _: {})
        self.anew = False
        """The entries are not in any older checkpoint in this table's types."""

    def take(self) -> Changed:
        """Return the marks and begin anew."""
        marks, taken = self.marks, {}
        for group in self.key_groups:
            if marks[group]:
                taken[group] = marks[group]
                marks[group] = {}
        changed = Changed(taken, self.anew)
        self.anew = False
        return changed

    def present(self, changed: Changed) -> dict[int, GroupDelta]:
        """Return what marks amount to at this moment; the values are the table's own."""
        if changed.anew:
            whole = {group: self.visible(group) for group in self.key_groups}
            return {g: GroupDelta(put=entries) for g, entries in whole.items() if entries}
        return {
            group: delta_of(self.kind.shape, marks, self.groups[group])
            for group, marks in changed.groups.items()
        }

    def swept(self, group: int, address: Any, stored: Any, left: Any) -> None:
        """Mark what a sweep removed."""
        marks = self.marks[group]
        if self.kind.shape is Shape.MAP and left is not None:
            mark = marks.setdefault(address, {})
            if mark.__class__ is dict:
                mark.update(dict.fromkeys(k for k in stored if k not in left))
        else:
            marks[address] = WHOLE


def _mark(handle: Any) -> None:
    c = handle._current
    handle._marks[c.group][address_of(c.key, c.namespace)] = WHOLE


class _Tracked:
    """What handles that mark have in common; the kind's own handle comes behind it."""

    __slots__ = ()

    _current: CurrentKey
    _fixed: bool
    _groups: list[Any]
    _marks: list[Marks]

    def __init__(self, table: TrackedTable, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)  # type: ignore[call-arg]
        handle: Any = self  # the slots are those of the kinds
        handle._marks = table.marks
        handle._fixed = holds_only_immutable(spec.value_type)

    def clear(self) -> None:
        """Remove the entry of the current key; what is not there needs no mark."""
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        if address in table:
            self._marks[c.group][address] = WHOLE
            table.pop(address, None)


def _mark_merged(handle: Any, target: Any, sources: Iterable[Any]) -> list[Any]:
    c = handle._current
    marks, spaces = handle._marks[c.group], list(sources)
    for namespace in (target, *spaces):
        marks[address_of(c.key, namespace)] = WHOLE
    return spaces


def _can_change(value: Any) -> bool:
    return value.__class__ not in IMMUTABLE and not is_immutable(value)


class _TrackedValue(_Tracked):
    """What handles of one value have in common, whatever its type."""

    __slots__ = ()

    def fold_group(self, group: int, addresses: Sequence[Any], fold: FoldMany) -> list[int]:
        handle: Any = self
        self._marks[group].update(dict.fromkeys(addresses, WHOLE))
        return ObjectValueState.fold_group(handle, group, addresses, fold)

    def clear_group(self, group: int, addresses: Iterable[Any]) -> None:
        handle: Any = self
        gone = list(addresses)
        self._marks[group].update(dict.fromkeys(gone, WHOLE))
        ObjectValueState.clear_group(handle, group, gone)

    def take_all(self, group: int, addresses: Sequence[Any]) -> list[Any]:
        handle: Any = self
        self._marks[group].update(dict.fromkeys(addresses, WHOLE))
        return ObjectValueState.take_all(handle, group, addresses)


class _Value(_TrackedValue, ObjectValueState):
    __slots__ = ("_fixed", "_marks")

    def value(self) -> Any:
        found = ObjectValueState.value(self)
        if not self._fixed and _can_change(found):
            _mark(self)
        return found

    def update(self, value: Any) -> None:
        if value.__class__ is not self._exact:
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        group = c.group
        address = c.key if c.namespace is VOID else address_of(c.key, c.namespace)
        self._groups[group][address] = value
        self._marks[group][address] = WHOLE


class _Integer(_TrackedValue, ObjectIntegerState):
    __slots__ = ("_fixed", "_marks")

    def update(self, value: Any) -> None:
        if value.__class__ is not int or not self._low <= value <= self._high:
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        group = c.group
        address = c.key if c.namespace is VOID else address_of(c.key, c.namespace)
        self._groups[group][address] = value
        self._marks[group][address] = WHOLE


class _Text(_TrackedValue, ObjectTextState):
    __slots__ = ("_fixed", "_marks")

    def update(self, value: Any) -> None:
        if value.__class__ is not str or not value.isascii():
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        group = c.group
        address = c.key if c.namespace is VOID else address_of(c.key, c.namespace)
        self._groups[group][address] = value
        self._marks[group][address] = WHOLE


class _List(_Tracked, ObjectListState):
    __slots__ = ("_fixed", "_marks")

    def get(self) -> list[Any]:
        elements = ObjectListState.get(self)
        if not self._fixed and any(map(_can_change, elements)):
            _mark(self)
        return elements

    def _mark_tail(self) -> None:
        c = self._current
        marks, address = self._marks[c.group], address_of(c.key, c.namespace)
        if address not in marks:
            elements = self._groups[c.group].get(address)
            marks[address] = 0 if elements is None else len(elements)

    def add(self, value: Any) -> None:
        self._mark_tail()
        ObjectListState.add(self, value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._mark_tail()
        ObjectListState.add_all(self, values)

    def extend_all(
        self, keys: Sequence[Any], groups: Sequence[int], lists: Sequence[list[Any]]
    ) -> list[int]:
        namespace = self._current.namespace
        for key, group in zip(keys, groups, strict=True):
            marks, address = self._marks[group], address_of(key, namespace)
            if address not in marks:
                marks[address] = len(self._groups[group].get(address) or ())
        return ObjectListState.extend_all(self, keys, groups, lists)

    def extend_group(
        self, group: int, addresses: Sequence[Any], lists: Sequence[list[Any]]
    ) -> list[int]:
        marks, table = self._marks[group], self._groups[group]
        for address in addresses:
            if address not in marks:
                marks[address] = len(table.get(address) or ())
        return ObjectListState.extend_group(self, group, addresses, lists)

    def take_all(self, group: int, addresses: Sequence[Any]) -> list[Any]:
        self._marks[group].update(dict.fromkeys(addresses, WHOLE))
        return ObjectListState.take_all(self, group, addresses)

    def update(self, values: Iterable[Any]) -> None:
        _mark(self)
        ObjectListState.update(self, values)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        ObjectListState.merge_namespaces(self, target, _mark_merged(self, target, sources))


class _Map(_Tracked, ObjectMapState):
    __slots__ = ("_fixed", "_marks")

    def _touch(self, keys: Iterable[Any]) -> None:
        c = self._current
        marks, address = self._marks[c.group], address_of(c.key, c.namespace)
        mark = marks.get(address)
        if mark is None:
            marks[address] = dict.fromkeys(keys)
        elif mark.__class__ is dict:
            mark.update(dict.fromkeys(keys))

    def get(self, key: Any) -> Any:
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        found = self._map().get(key)
        if not self._fixed and _can_change(found):
            self._touch((key,))
        return found

    def items(self) -> list[tuple[Any, Any]]:
        found = ObjectMapState.items(self)
        if not self._fixed:
            changing = [k for k, v in found if _can_change(v)]
            if changing:
                self._touch(changing)
        return found

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def put(self, key: Any, value: Any) -> None:
        key, value = self._admit_key(key), self._admit(value)
        c = self._current
        group, address = c.group, address_of(c.key, c.namespace)
        table = self._groups[group]
        try:
            entries = table[address]
        except KeyError:
            table[address] = {key: value}
        else:
            entries[key] = value
        marks = self._marks[group]
        mark = marks.get(address)
        if mark is None:
            marks[address] = {key: None}
        elif mark.__class__ is dict:
            mark[key] = None

    def put_admitted(self, new: dict[Any, Any]) -> None:
        if new:
            touched = list(new)  # what is the state's may get more entries
            ObjectMapState.put_admitted(self, new)
            self._touch(touched)

    def remove(self, key: Any) -> None:
        key = self._find_key(key)
        if ObjectMapState.contains(self, key):
            self._touch((key,))
            ObjectMapState.remove(self, key)


class _Reducing(_Tracked, ObjectReducingState):
    __slots__ = ("_fixed", "_marks")

    def get(self) -> Any:
        found = ObjectReducingState.get(self)
        if not self._fixed and _can_change(found):
            _mark(self)
        return found

    def add(self, value: Any) -> None:
        _mark(self)
        ObjectReducingState.add(self, value)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        ObjectReducingState.merge_namespaces(self, target, _mark_merged(self, target, sources))


class _Aggregating(_Tracked, ObjectAggregatingState):
    __slots__ = ("_fixed", "_marks")

    def get(self) -> Any:
        # The result may be the accumulator itself or share parts of it.
        if not self._fixed:
            c = self._current
            if _can_change(self._groups[c.group].get(address_of(c.key, c.namespace))):
                _mark(self)
        return ObjectAggregatingState.get(self)

    def add(self, value: Any) -> None:
        _mark(self)
        ObjectAggregatingState.add(self, value)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        ObjectAggregatingState.merge_namespaces(self, target, _mark_merged(self, target, sources))


_HANDLES: dict[StateKind, Any] = {
    StateKind.VALUE: _Value,
    StateKind.LIST: _List,
    StateKind.MAP: _Map,
    StateKind.REDUCING: _Reducing,
    StateKind.AGGREGATING: _Aggregating,
}


def tracked_handle_for(table: TrackedTable, current: CurrentKey, spec: StateDeclaration) -> State:
    """Return the handle of a state over its table that marks what it changes."""
    made = _HANDLES[spec.kind]
    if made is _Value and spec.value_type is not None:
        if spec.value_type in INT_BOUNDS:
            made = _Integer
        elif spec.value_type == STRING:
            made = _Text
    handle: State = made(table, current, spec)
    return handle
