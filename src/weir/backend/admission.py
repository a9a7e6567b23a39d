"""Checks of values against the declared type of a state, at the moment they are stored.

A value that the type cannot hold would otherwise fail much later, in a checkpoint, far from the
line that stored it. The common types are checked by class identity and range, the rest by
`TypeInformation.check`. Undeclared types admit everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from weir.codec.declared_key import DeclaredKey
from weir.codec.stamped import StampedTypeInfo
from weir.common.typeinfo import ListTypeInfo, TupleTypeInfo, TypeInformation, Types
from weir.errors import UsageError
from weir.keys import one_nan

Admit = Callable[[Any], Any]

INT_BOUNDS: dict[Any, tuple[int, int]] = {
    Types.BYTE(): (-(1 << 7), (1 << 7) - 1),
    Types.SHORT(): (-(1 << 15), (1 << 15) - 1),
    Types.INT(): (-(1 << 31), (1 << 31) - 1),
    Types.LONG(): (-(1 << 63), (1 << 63) - 1),
}
STRING = Types.STRING()
_EXACT: dict[Any, type] = {
    Types.BOOLEAN(): bool,
    Types.DOUBLE(): float,
    Types.BIG_INT(): int,
}


def is_undeclared(type_info: Any) -> bool:
    """Tell whether a type admits every value."""
    return type_info is None or bool(type_info == Types.PICKLED_BYTE_ARRAY())


def exact_class(type_info: Any) -> type | None:
    """Return the class whose instances the type holds without any further check."""
    return None if type_info is None else _EXACT.get(type_info)


class FixedListTypeInfo(ListTypeInfo[Any]):
    """Lists that nobody changes who stores or reads them; otherwise the type of such lists."""

    __slots__ = ()


def list_that_stays(element: TypeInformation) -> TypeInformation:
    """Return the type of lists that only somebody who changes an element in place can change."""
    return FixedListTypeInfo(element) if _cannot_change(element) else Types.LIST(element)


def _cannot_change(type_info: TypeInformation) -> bool:
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_cannot_change, type_info.get_field_types()))
    return holds_only_immutable(type_info)


def holds_only_immutable(type_info: Any) -> bool:
    """Tell whether the declared type guarantees that its values cannot change."""
    if isinstance(type_info, StampedTypeInfo):
        type_info = type_info.value_type
    if type_info is None:
        return False
    if isinstance(type_info, FixedListTypeInfo):
        return True
    return type_info in INT_BOUNDS or type_info in _EXACT or type_info == STRING


def admission(state_name: str, type_info: Any) -> Admit:
    """Return the function that checks a value and returns it as it is to be stored.

    It raises `UsageError` naming the state, the type and the value. None passes: each state kind
    has its own rule for it.
    """
    if is_undeclared(type_info):
        return _anything
    if isinstance(type_info, StampedTypeInfo):
        return _stamped(state_name, type_info.value_type)
    checked = _by_type(state_name, type_info)
    bounds = INT_BOUNDS.get(type_info)
    if bounds is not None:
        return _by_range(*bounds, checked)
    if type_info == STRING:
        return _by_text(checked)
    exact = exact_class(type_info)
    return checked if exact is None else _by_class(exact, checked)


class MapKeys:
    """How one map state sees the map keys that a program gives it: on every backend alike.

    Keys that are equal are one key, and so are all NaNs. A declared type makes them its own.
    """

    __slots__ = ("_declared", "admit", "usual")

    admit: Admit
    """Checks a key and returns it as it is to be put."""
    usual: frozenset[type]
    """Classes of keys that are looked up as they are."""

    def __init__(self, state_name: str, type_info: Any) -> None:
        """Take the declared type of the map keys, None for any."""
        self._declared = DeclaredKey.of(type_info)
        if self._declared is None:
            self.usual, self.admit = _USUAL, one_nan
            return
        exact = int if type_info in INT_BOUNDS else exact_class(type_info)
        self.usual = _USUAL & {str if type_info == STRING else exact}
        admit = admission(state_name, type_info)
        self.admit = admit if self.usual else lambda key: one_nan(admit(key))

    def find(self, key: Any) -> Any:
        """Return a key to look up, which is in no map if the declared type cannot hold it."""
        if self._declared is None:
            return one_nan(key)
        try:
            return one_nan(self._declared.convert(key))
        except UsageError:
            return NOWHERE


NOWHERE: Final = object()
"""A map key that is in no map."""
_USUAL: Final = frozenset({int, str, bytes, bool})


def admit_elements(state_name: str, admit: Admit, values: Iterable[Any]) -> list[Any]:
    """Return the checked elements of a list state; None is neither a list nor an element.

    Raises:
        UsageError: there is a None, or the type cannot hold an element.
    """
    elements = None if values is None else [admit(v) for v in values]
    if elements is None or any(e is None for e in elements):
        raise null_element(state_name)
    return elements


def null_element(state_name: str) -> UsageError:
    """Return the refusal of None in a list state."""
    return UsageError(f"You cannot add null to a ListState. (state {state_name!r})")


def _anything(value: Any) -> Any:
    return value


def _stamped(state_name: str, value_type: Any) -> Admit:
    """Check the value of a (value, timestamp) pair, with one call for the common types."""
    if is_undeclared(value_type):
        return _anything
    inner = admission(state_name, value_type)
    if value_type == STRING:
        return _stamped_text(inner)
    low, high = INT_BOUNDS.get(value_type, (1, 0))
    exact = exact_class(value_type)

    def admit(pair: Any) -> Any:
        if pair is None:
            return None
        value = pair[0]
        if value.__class__ is exact or (value.__class__ is int and low <= value <= high):
            return pair
        admitted = inner(value)
        return pair if admitted is value else (admitted, pair[1])

    return admit


def _stamped_text(inner: Admit) -> Admit:
    def admit(pair: Any) -> Any:
        if pair is None:
            return None
        value = pair[0]
        if value.__class__ is str and value.isascii():
            return pair
        admitted = inner(value)
        return pair if admitted is value else (admitted, pair[1])

    return admit


def _by_type(state_name: str, type_info: Any) -> Admit:
    check = type_info.check

    def admit(value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(value)
        except UsageError as e:
            msg = f"state {state_name!r} of type {type_info!r} cannot hold {value!r}: {e}"
            raise UsageError(msg) from e

    return admit


def _by_range(low: int, high: int, otherwise: Admit) -> Admit:
    def admit(value: Any) -> Any:
        if value.__class__ is int and low <= value <= high:
            return value
        return otherwise(value)

    return admit


def _by_text(otherwise: Admit) -> Admit:
    """Let text pass that can be encoded; of most, Python knows that it is ASCII."""

    def admit(value: Any) -> Any:
        if value.__class__ is str:
            try:
                value.isascii() or value.encode()
            except UnicodeEncodeError:
                return otherwise(value)
            return value
        return otherwise(value)

    return admit


def _by_class(exact: type, otherwise: Admit) -> Admit:
    def admit(value: Any) -> Any:
        if value.__class__ is exact:
            return value
        return otherwise(value)

    return admit
