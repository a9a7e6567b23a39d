"""Schema evolution: which stored types may become which declared ones, and how values change.

A change is sound when every value of the stored type has exactly one meaning in the declared type;
only sound changes are made, everything else is refused before a value is read. Keys never change:
an entry is found by the hash of its key, so another key would be another entry. TTL wraps a stored
value as `(value, timestamp in ms)`, described as `{"type": "STAMPED", "value": T}`; it can be
switched on and off, and is always the outermost type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from weir.codec.codec import Codec, codec_for
from weir.codec.stamped import STAMPED, StampedTypeInfo, stored_type
from weir.common.typeinfo import (
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from weir.common.types import row_class
from weir.errors import IncompatibleStateError, UsageError

Convert = Callable[[Any], Any]

_INTEGERS = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")
# Python's int and float hold every value of the wider type too: nothing is converted.
_SAME_VALUE = {(a, b) for i, a in enumerate(_INTEGERS) for b in _INTEGERS[i + 1 :]}
_SAME_VALUE.add(("FLOAT", "DOUBLE"))
# Only where every integer of the stored type is exactly a float of the declared one.
_EXACT_FLOAT = {(a, "DOUBLE") for a in _INTEGERS[:3]} | {(a, "FLOAT") for a in _INTEGERS[:2]}


class Compatibility(enum.Enum):
    """How stored values relate to the declared type."""

    AS_IS = "AS_IS"
    """The types are the same."""
    AFTER_MIGRATION = "AFTER_MIGRATION"
    """Every value is read by the stored type and becomes one of the declared type."""


class Migration:
    """A `Codec` that reads bytes of the stored type and gives values of the declared type.

    What it encodes and describes is the declared type: nothing is ever written in the old form.
    """

    def __init__(
        self, kind: Compatibility, stored: Codec, declared: Codec, convert: Convert | None = None
    ) -> None:
        """Keep both codecs and the change of a whole value, None when it stays what it is."""
        self.kind = kind
        self.type_info: TypeInformation = declared.type_info
        self.safe: bool = stored.safe
        self._stored = stored
        self._declared = declared
        self._convert = convert

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value in the declared type.

        Raises:
            CorruptStateError: the bytes are not a value of the stored type.
            IncompatibleStateError: an undeclared value does not fit the declared type.
        """
        value = self._stored.decode(data)
        return value if self._convert is None else self._convert(value)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list in the declared type; raises as `decode` does."""
        values = self._stored.decode_many(data)
        return values if self._convert is None else list(map(self._convert, values))

    def encode(self, value: Any) -> bytes:
        """Return the bytes of one value in the declared type."""
        return self._declared.encode(value)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of a whole list in the declared type."""
        return self._declared.encode_many(values)

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the declared type."""
        return self._declared.describe()


class _Refused(Exception):
    """A change that is not sound: where in the type, and why."""


def migration(
    stored: Any,
    declared: TypeInformation | None,
    now_ms: int = 0,
    subject: str = "the state",
) -> Migration:
    """Say how values that were stored with a description become values of the declared type.

    `now_ms` is the timestamp of values whose TTL is switched on by this change; `subject` names
    the state in messages.

    Raises:
        IncompatibleStateError: the change is not sound.
        CorruptStateError: the description is not one.
    """
    new = codec_for(declared)
    if stored == new.describe():
        return Migration(Compatibility.AS_IS, new, new)
    old = codec_for(stored_type(stored))
    try:
        convert = _outer_convert(old.type_info, new.type_info, now_ms, subject)
    except _Refused as error:
        msg = (
            f"{subject} was stored as {old.type_info!r} and is declared as {new.type_info!r}: "
            f"{error}; declare it as it was stored, or give the new state another name"
        )
        raise IncompatibleStateError(msg) from None
    return Migration(Compatibility.AFTER_MIGRATION, old, new, convert)


def require_same_key(what: str, stored: Any, declared: Codec, subject: str) -> None:
    """Refuse a key, namespace or map key of another type than the stored one.

    Raises:
        IncompatibleStateError: the types differ in anything.
    """
    if stored != declared.describe():
        found = repr(stored_type(stored)) if isinstance(stored, dict) else repr(stored)
        msg = (
            f"{subject} was stored with a {what} of {found}, but the program has "
            f"{declared.type_info!r}: key types cannot change; use the stored type, or give the "
            f"operator another uid"
        )
        raise IncompatibleStateError(msg)


def _inside(stamped: TypeInformation) -> TypeInformation:
    return stamped.value_type if isinstance(stamped, StampedTypeInfo) else stamped


def _outer_convert(
    old: TypeInformation, new: TypeInformation, now_ms: int, subject: str
) -> Convert | None:
    """Compile the change of a whole value, TTL included."""
    was, is_ = old.kind == STAMPED, new.kind == STAMPED
    inner = _nullable(_convert(_inside(old), _inside(new), "", subject))
    same: Convert = lambda value: value  # noqa: E731 - the identity
    change = inner or same
    if was and is_:
        return None if inner is None else lambda pair: (change(pair[0]), pair[1])
    if was:
        return lambda pair: change(pair[0])
    if is_:
        return lambda value: (change(value), now_ms)
    return inner


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    inner = convert
    return lambda value: None if value is None else inner(value)


def _convert(
    old: TypeInformation, new: TypeInformation, place: str, subject: str
) -> Convert | None:
    """Compile the change of a value that is not None; None when it stays what it is.

    Raises:
        _Refused: some value of the old type would have no place in the new one.
    """
    kinds = old.kind, new.kind
    if old == new or new == Types.PICKLED_BYTE_ARRAY() or kinds in _SAME_VALUE:
        return None
    if old == Types.PICKLED_BYTE_ARRAY():
        return _checked(new, place, subject)
    if kinds in _EXACT_FLOAT:
        return float
    if isinstance(old, RowTypeInfo) and isinstance(new, RowTypeInfo):
        return _row_convert(old, new, place, subject)
    if isinstance(old, TupleTypeInfo) and isinstance(new, TupleTypeInfo):
        return _tuple_convert(old, new, place, subject)
    if isinstance(old, MapTypeInfo) and isinstance(new, MapTypeInfo):
        return _map_convert(old, new, place, subject)
    if old.kind == new.kind and hasattr(old, "elem_type") and hasattr(new, "elem_type"):
        return _list_convert(old, new, place, subject)
    msg = f"{_at(place)}{old!r} cannot become {new!r}"
    raise _Refused(msg)


def _at(place: str) -> str:
    return f"in {place[1:]}, " if place else ""


def _checked(new: TypeInformation, place: str, subject: str) -> Convert:
    """Check undeclared values one by one: only the values themselves can tell."""
    check = new.check

    def convert(value: Any) -> Any:
        try:
            return check(value)
        except UsageError as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            msg = (
                f"{subject} was stored without a declared type and {_at(place)}holds a value of "
                f"class {kind} that the declared type does not take: {error}; declare a type "
                f"that takes it, or none"
            )
            raise IncompatibleStateError(msg) from error

    return convert


def _list_convert(old: Any, new: Any, place: str, subject: str) -> Convert | None:
    if old.kind == "PRIMITIVE_ARRAY" and "BYTE" in (old.elem_type.kind, new.elem_type.kind):
        msg = f"{_at(place)}{old!r} cannot become {new!r}: one of them is bytes, not a list"
        raise _Refused(msg)
    element = _nullable(_convert(old.elem_type, new.elem_type, f"{place}.elements", subject))
    if element is None:
        return None
    return lambda items: list(map(element, items))


def _map_convert(old: MapTypeInfo, new: MapTypeInfo, place: str, subject: str) -> Convert | None:
    if old.key_type != new.key_type:
        msg = (
            f"{_at(place)}keys of {old.key_type!r} cannot become {new.key_type!r}: "
            f"key types cannot change"
        )
        raise _Refused(msg)
    value = _nullable(_convert(old.value_type, new.value_type, f"{place}.values", subject))
    if value is None:
        return None
    return lambda items: {key: value(item) for key, item in items.items()}


def _tuple_convert(
    old: TupleTypeInfo, new: TupleTypeInfo, place: str, subject: str
) -> Convert | None:
    befores, afters = old.get_field_types(), new.get_field_types()
    if len(befores) != len(afters):
        msg = f"{_at(place)}a tuple of {len(befores)} fields cannot become one of {len(afters)}"
        raise _Refused(msg)
    pairs = zip(befores, afters, strict=True)
    steps = [_nullable(_convert(b, a, f"{place}.f{i}", subject)) for i, (b, a) in enumerate(pairs)]
    if not any(steps):
        return None
    return lambda values: tuple(
        [v if step is None else step(v) for v, step in zip(values, steps, strict=True)]
    )


def _row_convert(old: RowTypeInfo, new: RowTypeInfo, place: str, subject: str) -> Convert | None:
    """Match fields by name; by position when a side has no names, and then only as many."""
    before, after = old.get_field_types(), new.get_field_types()
    if old.field_names is not None and new.field_names is not None:
        sources = [old.get_field_index(name) for name in new.field_names]
    elif len(before) == len(after):
        sources = list(range(len(after)))
    else:
        msg = (
            f"{_at(place)}a row of {len(before)} fields cannot become one of {len(after)}: fields "
            f"are added and removed by name, and one of the types has no names"
        )
        raise _Refused(msg)
    names = new.get_field_names()
    fields = [
        (source, None if source < 0 else _nullable(_convert(before[source], t, at, subject)))
        for source, t, at in zip(sources, after, [f"{place}.{n}" for n in names], strict=True)
    ]
    if old.field_names == new.field_names and not any(step for _, step in fields):
        return None
    made = row_class(new.row_names)._of

    def convert(row: Any) -> Any:
        values = row._values
        return made(
            tuple(
                [
                    None if i < 0 else values[i] if step is None else step(values[i])
                    for i, step in fields
                ]
            )
        )

    return convert
