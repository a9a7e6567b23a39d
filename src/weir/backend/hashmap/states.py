"""State handles over the dicts of a `StateTable`.

Hot code: a call touches the current key, one list and one dict, and allocates nothing but the
entry. Tables are used only in the four ways that `overlay` documents, so that the same code runs
with and without snapshots in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weir.backend.address import address_of
from weir.backend.admission import INT_BOUNDS, admission, admit_elements, exact_class, null_element
from weir.backend.base import VOID, CurrentKey, StateDeclaration, StateKind
from weir.backend.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from weir.backend.hashmap.table import StateTable


def _slots(handle: Any, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
    handle._groups = table.groups
    handle._current = current
    handle._name = spec.name
    handle._admit = admission(spec.name, spec.value_type)


def _clear(handle: Any) -> None:
    c = handle._current
    table, address = handle._groups[c.group], address_of(c.key, c.namespace)
    if address in table:  # unlike `pop`, this hashes the key also when the group is empty
        table.pop(address, None)


class HashMapValueState(ValueState[Any]):
    """One value per key."""

    __slots__ = ("_admit", "_current", "_exact", "_groups", "_name")

    _admit: Any
    _current: CurrentKey
    _groups: list[dict[Any, Any]]

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle to its table and to the backend's current key."""
        _slots(self, table, current, spec)
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

    def clear(self) -> None:
        """Remove the value of the current key."""
        _clear(self)


class HashMapIntegerState(HashMapValueState):
    """One integer per key, its range checked without a further call."""

    __slots__ = ("_high", "_low")

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle and look up the bounds of the declared type."""
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


class HashMapListState(ListState[Any]):
    """A list per key."""

    __slots__ = ("_admit", "_current", "_groups", "_name")

    _admit: Any
    _current: CurrentKey
    _groups: list[dict[Any, Any]]
    _name: str

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle to its table and to the backend's current key."""
        _slots(self, table, current, spec)

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

    def clear(self) -> None:
        """Remove the list of the current key."""
        _clear(self)

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


class HashMapMapState(MapState[Any, Any]):
    """A map per key."""

    __slots__ = ("_admit", "_admit_key", "_current", "_groups", "_name")

    _admit: Any
    _current: CurrentKey
    _groups: list[dict[Any, Any]]

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle to its table and to the backend's current key."""
        _slots(self, table, current, spec)
        self._admit_key = admission(spec.name, spec.key_type)

    def _map(self) -> dict[Any, Any]:
        """Return the map of the current key to read from, not to keep."""
        c = self._current
        entries: dict[Any, Any] | None = self._groups[c.group].get(address_of(c.key, c.namespace))
        return _EMPTY if entries is None else entries

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
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
        new = {admit_key(k): admit(v) for k, v in dict_value.items()}
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

    def clear(self) -> None:
        """Remove the map of the current key."""
        _clear(self)


class HashMapReducingState(ReducingState[Any]):
    """One folded value per key."""

    __slots__ = ("_admit", "_current", "_groups", "_name", "_reduce")

    _admit: Any
    _current: CurrentKey
    _groups: list[dict[Any, Any]]

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle to its table and to the backend's current key."""
        _slots(self, table, current, spec)
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

    def clear(self) -> None:
        """Remove the value of the current key."""
        _clear(self)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the sources into that of the target."""
        _merge(self, target, sources, self._reduce)


class HashMapAggregatingState(AggregatingState[Any, Any]):
    """One accumulator per key."""

    __slots__ = ("_admit", "_current", "_function", "_groups", "_name")

    _admit: Any
    _current: CurrentKey
    _groups: list[dict[Any, Any]]

    def __init__(self, table: StateTable, current: CurrentKey, spec: StateDeclaration) -> None:
        """Bind the handle to its table and to the backend's current key."""
        _slots(self, table, current, spec)
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

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        _clear(self)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of the sources into that of the target."""
        _merge(self, target, sources, self._function.merge)


_EMPTY: dict[Any, Any] = {}


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
    StateKind.VALUE: HashMapValueState,
    StateKind.LIST: HashMapListState,
    StateKind.MAP: HashMapMapState,
    StateKind.REDUCING: HashMapReducingState,
    StateKind.AGGREGATING: HashMapAggregatingState,
}


def handle_for(table: StateTable, current: CurrentKey, spec: StateDeclaration) -> State:
    """Return the handle of a state over its table."""
    made = _HANDLES[spec.kind]
    if made is HashMapValueState and spec.value_type is not None and spec.value_type in INT_BOUNDS:
        made = HashMapIntegerState
    handle: State = made(table, current, spec)
    return handle
