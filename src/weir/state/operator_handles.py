"""Handles of operator state: lists, broadcast maps, and the read-only view of a map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from weir.backend.admission import MapKeys, admission, admit_elements
from weir.errors import UsageError
from weir.keys import one_nan
from weir.state.descriptor import StateDescriptor
from weir.state.handles import BroadcastState, ListState, ReadOnlyBroadcastState


class OperatorListState(ListState[Any]):
    """A list of the subtask."""

    __slots__ = ("_admit", "_elements", "_name")

    def __init__(self, descriptor: StateDescriptor) -> None:
        self._name = descriptor.name
        self._admit = admission(descriptor.name, descriptor.value_type)
        self._elements: list[Any] = []

    def elements(self) -> list[Any]:
        """Return a shallow copy of what is stored."""
        return self._elements.copy()

    def fill(self, elements: list[Any]) -> None:
        """Take over restored elements."""
        self._elements = elements

    def get(self) -> list[Any]:
        """Return the elements as a list of the caller's own."""
        return self._elements.copy()

    def add(self, value: Any) -> None:
        """Append an element."""
        self._elements += self._checked([value])

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all values, all or none."""
        self._elements += self._checked(values)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        self._elements = self._checked(values)

    def clear(self) -> None:
        """Remove all elements."""
        self._elements = []

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        return admit_elements(self._name, self._admit, values)


class OperatorBroadcastState(BroadcastState[Any, Any]):
    """A map that all subtasks maintain alike."""

    __slots__ = ("_admit", "_admit_key", "_entries", "_find_key", "_usual")

    def __init__(self, descriptor: StateDescriptor) -> None:
        keys = MapKeys(descriptor.name, descriptor.key_type)
        self._admit_key, self._find_key, self._usual = keys.admit, keys.find, keys.usual
        self._admit = admission(descriptor.name, descriptor.value_type)
        self._entries: dict[Any, Any] = {}

    def elements(self) -> list[Any]:
        """Return a shallow copy of the entries."""
        return list(self._entries.items())

    def fill(self, elements: list[Any]) -> None:
        """Take over restored entries."""
        self._entries = {one_nan(key): value for key, value in elements}

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a map key."""
        self._entries[self._admit_key(key)] = self._admit(value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Put all entries of a mapping, all or none."""
        admit_key, admit = self._admit_key, self._admit
        self._entries.update({admit_key(k): admit(v) for k, v in dict_value.items()})

    def remove(self, key: Any) -> None:
        """Remove a map key; nothing happens when it is absent."""
        self._entries.pop(self._find_key(key), None)

    def contains(self, key: Any) -> bool:
        """Tell whether a map key is present."""
        if key.__class__ not in self._usual:
            key = self._find_key(key)
        return key in self._entries

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries of this moment."""
        return list(self._entries.items())

    def keys(self) -> list[Any]:
        """Return all map keys of this moment."""
        return list(self._entries)

    def values(self) -> list[Any]:
        """Return all values of this moment."""
        return list(self._entries.values())

    def is_empty(self) -> bool:
        """Tell whether there are no entries."""
        return not self._entries

    def clear(self) -> None:
        """Remove all entries."""
        self._entries = {}


class ReadOnlyBroadcastView(ReadOnlyBroadcastState[Any, Any]):
    """Broadcast state as the non-broadcast side sees it: every write is refused."""

    __slots__ = ("_name", "_state")

    def __init__(self, state: BroadcastState[Any, Any], name: str) -> None:
        self._state = state
        self._name = name

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        """Tell whether a map key is present."""
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries of this moment."""
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        """Return all map keys of this moment."""
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        """Return all values of this moment."""
        return self._state.values()

    def is_empty(self) -> bool:
        """Tell whether there are no entries."""
        return self._state.is_empty()

    def put(self, *_: Any) -> NoReturn:
        """Refuse: this side only reads."""
        msg = (
            f"broadcast state {self._name!r} is read-only here: every subtask must hold the "
            f"same entries, so change it where the broadcast side is processed"
        )
        raise UsageError(msg)

    put_all = remove = clear = __setitem__ = __delitem__ = put
