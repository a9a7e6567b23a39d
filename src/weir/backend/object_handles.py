"""State handles over entries that are objects: a dict, or what can be used like one, per key group.

Hot code: a call touches the current key, one list and one dict, and allocates nothing but the
entry. A key group `table` is used in four ways only, so that a backend may put anything there that
serves them:

* `table.get(address)` returns a value to hand out or None,
* `table[address]` returns a value that may be changed in place, or raises KeyError,
* `table[address] = value` and `table.pop(address, None)` write; what `pop` returns is not used,
* `address in table` tells whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, TypeAlias

from weir.backend.address import address_of
from weir.backend.admission import (
    INT_BOUNDS,
    STRING,
    MapKeys,
    admission,
    admit_elements,
    exact_class,
    null_element,
)
from weir.backend.base import VOID, CurrentKey, StateDeclaration
from weir.backend.kinds import StateKind
from weir.common.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

FoldMany: TypeAlias = Callable[[list[Any], list[int]], Sequence[Any]]


class Groups(Protocol):
    """Where the entries of one state are."""

    groups: list[Any]
    """By key group, see `weir.backend.groups.owned_groups`."""


class _OverObjects:
    """What the handles of all kinds have in common; the kind's own handle comes behind it."""

    __slots__ = ("_admit", "_current", "_groups", "_name")

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        self._groups = table.groups
        self._current = current
        self._name = spec.name
        self._admit = admission(spec.name, spec.value_type)

    def clear(self) -> None:
        """Remove what is stored under the current key."""
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        if address in table:  # unlike `pop`, this hashes the key also when the group is empty
            table.pop(address, None)


class ObjectValueState(_OverObjects, ValueState[Any]):
    """One value per key."""

    __slots__ = ("_exact",)

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)
        self._exact = exact_class(spec.value_type)

    def value(self) -> Any:
        """Return the value of the current key, None when there is none."""
        c = self._current
        if c.namespace is VOID:
            return self._groups[c.group].get(c.key)
        return self._groups[c.group].get(address_of(c.key, c.namespace))

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        if value.__class__ is not self._exact:
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        if c.namespace is VOID:
            self._groups[c.group][c.key] = value
        else:
            self._groups[c.group][address_of(c.key, c.namespace)] = value

    def fold_group(self, group: int, addresses: Sequence[Any], fold: FoldMany) -> list[int]:
        """Set the values at some addresses of a key group, each given once, from what is there.

        `fold` gets the values, None where there is none, and the positions of those; it returns
        admitted values. The positions are returned.
        """
        table = self._groups[group]
        found = list(map(table.get, addresses))
        new = [i for i, held in enumerate(found) if held is None]
        values = fold(found, new)
        if table.__class__ is dict:
            table.update(zip(addresses, values, strict=True))
        else:
            for address, value in zip(addresses, values, strict=True):
                table[address] = value
        return new

    def clear_group(self, group: int, addresses: Iterable[Any]) -> None:
        """Remove the values at some addresses of a key group."""
        table = self._groups[group]
        for address in addresses:
            table.pop(address, None)

    def take_all(self, group: int, addresses: Sequence[Any]) -> list[Any]:
        """Remove the values at addresses of a key group and return them, None where none was."""
        return _taken(self._groups[group], addresses)


class ObjectIntegerState(ObjectValueState):
    """One integer per key, its range checked without a further call."""

    __slots__ = ("_high", "_low")

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)
        self._low, self._high = INT_BOUNDS[spec.value_type]

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        if value.__class__ is not int or not self._low <= value <= self._high:
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        if c.namespace is VOID:
            self._groups[c.group][c.key] = value
        else:
            self._groups[c.group][address_of(c.key, c.namespace)] = value


class ObjectTextState(ObjectValueState):
    """One text per key; ASCII passes without a further call, other text is looked at."""

    __slots__ = ()

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        if value.__class__ is not str or not value.isascii():
            if value is None:
                self.clear()
                return
            value = self._admit(value)
        c = self._current
        if c.namespace is VOID:
            self._groups[c.group][c.key] = value
        else:
            self._groups[c.group][address_of(c.key, c.namespace)] = value


class ObjectListState(_OverObjects, ListState[Any]):
    """A list per key."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """Return the elements as a list of the caller's own."""
        c = self._current
        elements = self._groups[c.group].get(address_of(c.key, c.namespace))
        return [] if elements is None else elements.copy()

    def add(self, value: Any) -> None:
        """Append an element."""
        if value is None:
            raise null_element(self._name)
        value = self._admit(value)
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        try:
            elements = table[address]
        except KeyError:
            table[address] = [value]
        else:
            elements.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all values, all or none."""
        elements = self._checked(values)
        if not elements:
            return
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        try:
            present = table[address]
        except KeyError:
            table[address] = elements
        else:
            present.extend(elements)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list; an empty one clears the state."""
        elements = self._checked(values)
        if not elements:
            self.clear()
            return
        c = self._current
        self._groups[c.group][address_of(c.key, c.namespace)] = elements

    def extend_all(
        self, keys: Sequence[Any], groups: Sequence[int], lists: Sequence[list[Any]]
    ) -> list[int]:
        """Append admitted elements for each of some keys, in the current namespace.

        The lists are the state's from now on. Return the positions of keys that had none.
        """
        tables, namespace = self._groups, self._current.namespace
        new: list[int] = []
        for i, (key, group, elements) in enumerate(zip(keys, groups, lists, strict=True)):
            table, address = tables[group], address_of(key, namespace)
            if address in table:
                table[address].extend(elements)
            else:
                table[address] = elements
                new.append(i)
        return new

    def extend_group(
        self, group: int, addresses: Sequence[Any], lists: Sequence[list[Any]]
    ) -> list[int]:
        """Append admitted elements at each of some addresses of a key group, each given once.

        The lists are the state's from now on. Return the positions of addresses that had none.
        """
        table = self._groups[group]
        new = [i for i, address in enumerate(addresses) if address not in table]
        if len(new) == len(addresses) and table.__class__ is dict:
            table.update(zip(addresses, lists, strict=True))
            return new
        fresh = set(new)
        for i, (address, elements) in enumerate(zip(addresses, lists, strict=True)):
            if i in fresh:
                table[address] = elements
            else:
                table[address].extend(elements)
        return new

    def take_all(self, group: int, addresses: Sequence[Any]) -> list[Any]:
        """Remove the lists at addresses of a key group and return them, None where none was.

        They are the caller's own from now on.
        """
        table = self._groups[group]
        found = _taken(table, addresses)
        if table.__class__ is dict:
            return found
        return [None if elements is None else elements.copy() for elements in found]

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the sources to that of the target."""
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, target)
        merged: list[Any] = []
        for source in _others(target, sources):
            old = address_of(c.key, source)
            elements = table.get(old)
            if elements is not None:
                merged.extend(elements)
                table.pop(old, None)
        if merged:
            table[address] = (table.get(address) or []) + merged

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        return admit_elements(self._name, self._admit, values)


class ObjectMapState(_OverObjects, MapState[Any, Any]):
    """A map per key."""

    __slots__ = ("_admit_key", "_find_key", "_usual")

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)
        keys = MapKeys(spec.name, spec.key_type)
        self._admit_key, self._find_key, self._usual = keys.admit, keys.find, keys.usual

    def _map(self) -> dict[Any, Any]:
        """Return the map of the current key to read from, not to keep."""
        c = self._current
        entries: dict[Any, Any] | None = self._groups[c.group].get(address_of(c.key, c.namespace))
        return _EMPTY if entries is None else entries

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        return self._map().get(key)

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a map key."""
        key, value = self._admit_key(key), self._admit(value)
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        try:
            entries = table[address]
        except KeyError:
            table[address] = {key: value}
        else:
            entries[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Put all entries of a mapping, all or none."""
        admit_key, admit = self._admit_key, self._admit
        self.put_admitted({admit_key(k): admit(v) for k, v in dict_value.items()})

    def put_admitted(self, new: dict[Any, Any]) -> None:
        """Put entries that were admitted; the dict is the state's from now on."""
        if not new:
            return
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        try:
            entries = table[address]
        except KeyError:
            table[address] = new
        else:
            entries.update(new)

    def remove(self, key: Any) -> None:
        """Remove a map key; with the last one the state is cleared."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        if key not in self._map():
            return
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        entries = table[address]
        del entries[key]
        if not entries:
            table.pop(address, None)

    def contains(self, key: Any) -> bool:
        """Tell whether a map key is present, also with a None value."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        return key in self._map()

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries of this moment."""
        return list(self._map().items())

    def keys(self) -> list[Any]:
        """Return all map keys of this moment."""
        return list(self._map())

    def values(self) -> list[Any]:
        """Return all values of this moment."""
        return list(self._map().values())

    def is_empty(self) -> bool:
        """Tell whether there are no entries."""
        return not self._map()


class ObjectReducingState(_OverObjects, ReducingState[Any]):
    """One folded value per key."""

    __slots__ = ("_reduce",)

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)
        self._reduce = spec.function

    def get(self) -> Any:
        """Return the folded value, None when nothing was added."""
        c = self._current
        return self._groups[c.group].get(address_of(c.key, c.namespace))

    def add(self, value: Any) -> None:
        """Fold a value in; None clears."""
        if value is None:
            self.clear()
            return
        value = self._admit(value)
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        old = table.get(address)
        if old is not None:
            value = self._admit(self._reduce(old, value))
        _store(table, address, value)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the sources into that of the target."""
        _merge(self, target, sources, self._reduce)


class ObjectAggregatingState(_OverObjects, AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_function",)

    def __init__(self, table: Groups, current: CurrentKey, spec: StateDeclaration) -> None:
        super().__init__(table, current, spec)
        self._function = spec.function

    def get(self) -> Any:
        """Return the result of the accumulator, None when nothing was added."""
        c = self._current
        accumulator = self._groups[c.group].get(address_of(c.key, c.namespace))
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Fold a value into the accumulator; None clears."""
        if value is None:
            self.clear()
            return
        c = self._current
        table, address = self._groups[c.group], address_of(c.key, c.namespace)
        accumulator = table.get(address)
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        _store(table, address, self._admit(self._function.add(value, accumulator)))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of the sources into that of the target."""
        _merge(self, target, sources, self._function.merge)


_EMPTY: dict[Any, Any] = {}


def _taken(table: Any, addresses: Sequence[Any]) -> list[Any]:
    """Remove what is at addresses and return it, None where nothing was."""
    if table.__class__ is dict:
        return list(map(table.pop, addresses, repeat(None)))
    found = list(map(table.get, addresses))
    for address, value in zip(addresses, found, strict=True):
        if value is not None:
            table.pop(address, None)
    return found


def _store(table: dict[Any, Any], address: Any, value: Any) -> None:
    if value is None:
        table.pop(address, None)
    else:
        table[address] = value


def _others(target: Any, sources: Iterable[Any]) -> list[Any]:
    return [s for s in dict.fromkeys(sources) if s != target]


def _merge(handle: Any, target: Any, sources: Iterable[Any], combine: Any) -> None:
    c = handle._current
    table = handle._groups[c.group]
    merged = None
    for source in _others(target, sources):
        address = address_of(c.key, source)
        value = table.get(address)
        if value is not None:
            merged = value if merged is None else combine(merged, value)
            table.pop(address, None)
    if merged is not None:
        address = address_of(c.key, target)
        old = table.get(address)
        value = merged if old is None else combine(old, merged)
        _store(table, address, handle._admit(value))


_HANDLES: dict[StateKind, Any] = {
    StateKind.VALUE: ObjectValueState,
    StateKind.LIST: ObjectListState,
    StateKind.MAP: ObjectMapState,
    StateKind.REDUCING: ObjectReducingState,
    StateKind.AGGREGATING: ObjectAggregatingState,
}


def handle_for(table: Groups, current: CurrentKey, spec: StateDeclaration) -> State:
    """Return the handle of a state over its entries."""
    made = _HANDLES[spec.kind]
    if made is ObjectValueState and spec.value_type is not None:
        if spec.value_type in INT_BOUNDS:
            made = ObjectIntegerState
        elif spec.value_type == STRING:
            made = ObjectTextState
    handle: State = made(table, current, spec)
    return handle
