"""States as answers to queries: what was found, read-only.

They have the methods of the handles that functions use. Every change is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

from weir.backend.kinds import Shape, StateKind
from weir.codec.portable import Portable, portable
from weir.codec.stamped import STAMPED
from weir.common.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, UsageError
from weir.jobmanager.queries import (
    Answer,
    Entries,
    Facts,
    QueryError,
    UnknownKeyOrNamespaceError,
)
from weir.offline.keyed import Layout, StoredKind
from weir.offline.tables import MAP_KEY, POSITION, VALUE, WINDOW
from weir.queryable.gathering import StoredByKey
from weir.queryable.protocol import QueryRequest, ReadBy

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, ReadBy, bool]).decode
_UNDECLARED: Final = Types.PICKLED_BYTE_ARRAY().to_json()
_REFUSAL: Final = "State is read-only. No modifications allowed."


class ReadOnlyStateError(UsageError):
    """The answer to a query was to be changed; Flink's UnsupportedOperationException."""

    def __init__(self) -> None:
        super().__init__(_REFUSAL)


def _refuse(*_: Any) -> NoReturn:
    raise ReadOnlyStateError


class _Immutable:
    """What all answers share; `facts` tell how true the answer is."""

    __slots__ = ("_stored", "facts")

    def __init__(self, stored: Any, facts: Facts) -> None:
        self._stored = stored
        self.facts = facts

    def clear(self) -> None:
        """Refuse."""
        _refuse()


class ImmutableValueState(_Immutable, ValueState[Any]):
    """One value."""

    __slots__ = ()

    def value(self) -> Any:
        """Return the value."""
        return self._stored

    def update(self, value: Any) -> None:
        """Refuse."""
        _refuse()


class _ImmutableAppending(_Immutable):
    """What was folded."""

    __slots__ = ()

    def get(self) -> Any:
        """Return what there is."""
        return self._stored

    def add(self, value: Any) -> None:
        """Refuse."""
        _refuse()


class ImmutableListState(_ImmutableAppending, ListState[Any]):
    """The elements of a list."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """Return the elements."""
        return list(self._stored)

    def add_all(self, values: Iterable[Any]) -> None:
        """Refuse."""
        _refuse()

    def update(self, values: Iterable[Any]) -> None:
        """Refuse."""
        _refuse()


class ImmutableReducingState(_ImmutableAppending, ReducingState[Any]):
    """The reduced value."""

    __slots__ = ()


class ImmutableAggregatingState(_ImmutableAppending, AggregatingState[Any, Any]):
    """The result of an aggregate."""

    __slots__ = ()


class ImmutableMapState(_Immutable, MapState[Any, Any]):
    """The entries of a map."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        """Return the value under a map key, None when there is none."""
        return self._stored.get(key)

    def contains(self, key: Any) -> bool:
        """Tell whether there is a map key."""
        return key in self._stored

    def is_empty(self) -> bool:
        """Tell whether there are no entries."""
        return not self._stored

    def items(self) -> Any:
        """Return the entries."""
        return self._stored.items()

    def keys(self) -> Any:
        """Return the map keys."""
        return self._stored.keys()

    def values(self) -> Any:
        """Return the values."""
        return self._stored.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stored)

    def put(self, key: Any, value: Any) -> None:
        """Refuse."""
        _refuse()

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Refuse."""
        _refuse()

    def remove(self, key: Any) -> None:
        """Refuse."""
        _refuse()


_KINDS: Final[dict[StateKind, Any]] = {
    StateKind.VALUE: ImmutableValueState,
    StateKind.LIST: ImmutableListState,
    StateKind.MAP: ImmutableMapState,
    StateKind.REDUCING: ImmutableReducingState,
    StateKind.AGGREGATING: ImmutableAggregatingState,
}


def state_of(descriptor: Any, answer: Answer, *, unpickle: bool = False) -> State:
    """Return what an answer holds under one key and namespace, as the descriptor's kind of state.

    Raises:
        UnknownKeyOrNamespaceError: there is nothing.
        QueryError: the state is of another kind or type, or holds pickled objects.
    """
    table, kind = answer.table, descriptor.kind
    names = table.schema.names
    shape = Shape.MAP if MAP_KEY in names else Shape.LIST if POSITION in names else Shape.ONE
    if shape is not kind.shape:
        msg = f"state {descriptor.name!r} is {shape.value}, and was asked for as {kind.value}"
        raise QueryError(msg)
    if not table.num_rows:
        raise UnknownKeyOrNamespaceError
    if WINDOW[0] in names and len(set(zip(*(table[w].to_pylist() for w in WINDOW)))) > 1:  # noqa: B905
        msg = f"state {descriptor.name!r} has several windows of the key: name one as namespace"
        raise QueryError(msg)
    values = _values(descriptor.value_type, table, VALUE, unpickle=unpickle)
    stored: Any = values
    if shape is Shape.MAP:
        map_keys = _values(descriptor.key_type, table, MAP_KEY, unpickle=unpickle)
        stored = dict(zip(map_keys, values, strict=True))
    elif shape is Shape.ONE:
        stored = values[0]
    return state_with(descriptor, stored, answer.facts)


def state_with(descriptor: Any, stored: Any, facts: Facts) -> State:
    """Return what is stored under one key, a value, list or dict, as the descriptor's kind."""
    if descriptor.kind is StateKind.AGGREGATING:
        stored = descriptor.function.get_result(stored)
    made: State = _KINDS[descriptor.kind](stored, facts)
    return made


def _values(type_info: Any, table: Any, name: str, *, unpickle: bool) -> list[Any]:
    """Return a column as values of the declared type; what was pickled only if that is allowed."""
    of: Portable = portable(type_info or Types.PICKLED_BYTE_ARRAY(), unpickle, as_text=False)
    column = table[name]
    if column.type != of.arrow:
        msg = f"column {name!r} of the state is {column.type}, expected {of.arrow}: give its type"
        raise QueryError(msg)
    try:
        found: list[Any] = of.values(column.combine_chunks())
    except UsageError as error:
        raise QueryError(str(error)) from error
    return found


def stored_by_key(answer: Entries, request: QueryRequest) -> StoredByKey:
    """Return what entries hold, by the bytes of their keys.

    Raises:
        QueryError: they are not in the format of the types that were asked by.
    """
    values: dict[bytes, Any] = {}
    try:
        layout = _layout(_encode((request.key_type, request.read_by, answer.expires)))
        encode = layout.key.codec.encode
        for part in answer.parts:
            columns = layout.format.columns(part, "an answer")
            if answer.expires:
                columns.values = [value for value, _ in columns.values]
            values.update(zip(map(encode, columns.keys), columns.grouped(), strict=True))
    except (CorruptStateError, UsageError, msgspec.MsgspecError) as error:
        msg = f"what answers is no server of queries: {error}"
        raise QueryError(msg) from error
    return StoredByKey(answer.facts, values)


@lru_cache(maxsize=256)
def _layout(asked: bytes) -> Layout:
    """Return how entries are read by types; these are given as bytes, which can be remembered."""
    key, read_by, expires = _decode(asked)
    value = {"type": STAMPED, "value": read_by.value} if expires else read_by.value
    types = {"key": key, "namespace": _UNDECLARED, "value": value, "map_key": read_by.map_key}
    return Layout.of(StoredKind(read_by.kind, types), unpickle=False, in_windows=False)
