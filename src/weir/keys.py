"""Which keys are one key: those that Python calls equal, and all NaNs.

State is found by equality. Two things about Python's are in the way: a NaN is not equal to itself,
and equal keys may be of many classes (1, 1.0, True and `numpy.int64(1)`; an instant in two zones).
`one_nan` makes a key that can be looked up, of the class it has. `plain` makes the same object of
all keys that are equal, as far as its bytes tell: what is stored by bytes is found by those.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import fractions
import uuid
from collections.abc import Callable, Iterable
from dataclasses import Field, fields, is_dataclass
from operator import is_
from typing import Any, Final

import numpy as np

from weir.errors import UsageError


class _Nan(float):
    """A float that is not a number, and is found again in a dict: it equals itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self

    __hash__ = float.__hash__

    def __reduce__(self) -> str:
        return "NAN"  # a pickle holds the name, so that there is one in every process


NAN: Final = _Nan("nan")
"""The key that every NaN is, as in Java."""
_NEVER_NAN: Final = frozenset(
    {
        *(int, str, bytes, bool, type(None), _Nan, uuid.UUID),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
    }
)
_MANY_ZEROS: Final = 1000


def one_nan(key: Any) -> Any:
    """Return the key with `NAN` for every NaN inside; itself if there is none.

    Raises:
        UsageError: a complex number with a NaN, which has no equal.
    """
    cls = key.__class__
    if cls in _NEVER_NAN or isinstance(key, enum.Enum):
        return key
    if isinstance(key, (float, np.floating)):
        return NAN if key != key else key
    if isinstance(key, decimal.Decimal):
        return NAN if key.is_nan() else key
    if isinstance(key, tuple):
        changed = _changed(key)
        return key if changed is None else tuple.__new__(cls, changed)
    if isinstance(key, frozenset):
        changed = _changed(key)
        return key if changed is None else frozenset(changed)
    if isinstance(key, (complex, np.complexfloating)) and key != key:
        msg = f"{key!r} cannot be a key: a complex number with a NaN equals no other"
        raise UsageError(msg)
    if hasattr(cls, "__weir_replaced__"):
        return key.__weir_replaced__(one_nan)
    if is_dataclass(cls):
        return _with_fields(key, fields(key), one_nan)
    return key


def one_nan_many(keys: list[Any]) -> list[Any]:
    """Return the keys as `one_nan` does, quickly where no class among them can be or hold one."""
    return keys if _NEVER_NAN.issuperset(map(type, keys)) else list(map(one_nan, keys))


def _changed(items: Iterable[Any]) -> list[Any] | None:
    """Return the items after `one_nan`, None when all of them stay."""
    before = list(items)
    after = list(map(one_nan, before))
    return None if all(map(is_, before, after)) else after


def compared_fields(key: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass that decide whether two of them are equal."""
    return [f for f in fields(key) if f.compare]


def _with_fields(key: Any, wanted: Iterable[Field[Any]], change: Callable[[Any], Any]) -> Any:
    """Return a dataclass object with some fields changed; itself if none changes."""
    made = key
    for f in wanted:
        before = getattr(key, f.name)
        after = change(before)
        if after is not before:
            made = copy.copy(key) if made is key else made
            object.__setattr__(made, f.name, after)
    return made


def plain(key: Any) -> Any:
    """Return the one representative of all keys that are equal to this one: itself if it is that.

    It is equal to the key and of a class of the standard library, where there is such a value:
    numbers are the int, else the float, else the Decimal of their value; texts, bytes and tuples
    lose their subclass; times with a zone are in UTC. Fields of dataclasses that are not compared
    are None. An object of any other class is itself.
    """
    convert = _PLAIN.get(key.__class__)
    if convert is None:
        convert = _plain_by_base(key)
    return convert(key)


def _plain_by_base(key: Any) -> Callable[[Any], Any]:
    for base, convert in _PLAIN.items():
        if base is not type(None) and isinstance(key, base):
            return convert
    if isinstance(key, np.generic):
        return _plain_numpy
    if isinstance(key, enum.Enum):
        return _itself
    if hasattr(key.__class__, "__weir_replaced__"):
        return lambda row: row.__weir_replaced__(plain, in_order=True)
    return _plain_dataclass if is_dataclass(key.__class__) else _itself


def _itself(key: Any) -> Any:
    return key


def _plain_int(key: Any) -> Any:
    value = int.__index__(key)
    if value.bit_length() < 3 * _MANY_ZEROS or value % 10**_MANY_ZEROS:
        return value
    return stripped(decimal.Decimal(value))


def _plain_bytes(key: Any) -> Any:
    return key if key.__class__ is bytes else bytes(memoryview(key))


def _plain_tuple(key: Any) -> Any:
    members = list(map(plain, key))
    return key if key.__class__ is tuple and all(map(is_, members, key)) else tuple(members)


def _plain_frozenset(key: Any) -> Any:
    before = list(key)
    members = list(map(plain, before))
    exact = key.__class__ is frozenset and all(map(is_, members, before))
    return key if exact else frozenset(members)


def _plain_float(key: Any) -> Any:
    value = float.__float__(key)
    if value != value:
        return NAN
    return _plain_int(int(value)) if value.is_integer() else value


def _plain_complex(key: Any) -> Any:
    value = complex(key)
    if value.imag == 0:
        return _plain_float(value.real)
    # A real part of -0.0 becomes 0.0.
    return value if value is key and value.real else complex(value.real + 0.0, value.imag)


def _plain_decimal(key: Any) -> Any:
    if not key.is_finite():
        return NAN if key.is_nan() else float(key)
    value = stripped(key)
    exponent = int(value.as_tuple().exponent)
    if 0 <= exponent < _MANY_ZEROS:
        return int(value)
    as_float = float(value)
    return as_float if decimal.Decimal(as_float) == value else value


def stripped(value: decimal.Decimal) -> decimal.Decimal:
    """Return the equal finite Decimal without trailing zeros, however many digits it has."""
    sign, digits, exponent = value.as_tuple()
    if digits[-1] and value.__class__ is decimal.Decimal:
        return value
    kept = len(digits)
    while kept and not digits[kept - 1]:
        kept -= 1
    if not kept:
        return decimal.Decimal(0)
    return decimal.Decimal((sign, digits[:kept], int(exponent) + len(digits) - kept))


def _plain_fraction(key: Any) -> Any:
    value = key if key.__class__ is fractions.Fraction else fractions.Fraction(key)
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return value
    power = max(twos, fives)
    scaled = decimal.Decimal(value.numerator * 10**power // value.denominator).as_tuple()
    return _plain_decimal(decimal.Decimal((scaled.sign, scaled.digits, -power)))


def _plain_datetime(key: Any) -> Any:
    if key != key:
        return key  # no time at all, as pandas has it
    value = key
    if key.__class__ is not datetime.datetime or key.fold:
        value = datetime.datetime.combine(key.date(), key.timetz()).replace(fold=0)
    if value != key:
        return key  # of a class that is finer, such as nanoseconds
    if value.tzinfo is None or value.tzinfo is datetime.timezone.utc:
        return value
    if value.utcoffset() != value.replace(fold=1).utcoffset():
        return value  # at the end of summer time Python takes it for no other zone's instant
    try:
        return value.astimezone(datetime.timezone.utc)
    except OverflowError:
        return value


def _plain_date(key: Any) -> Any:
    exact = key.__class__ is datetime.date
    return key if exact else datetime.date(key.year, key.month, key.day)


def _plain_time(key: Any) -> Any:
    value = key.replace(fold=0) if key.fold else key
    if value.tzinfo is None and value.__class__ is datetime.time:
        return value
    offset = value.utcoffset()
    if offset is None:
        return datetime.time(value.hour, value.minute, value.second, value.microsecond)
    day = value.hour * 3600 + value.minute * 60 + value.second
    seconds = day - offset.days * 86400 - offset.seconds
    shown = min(max(seconds, 0), 86399)
    zone = datetime.timezone(datetime.timedelta(seconds=shown - seconds))
    return datetime.time(
        *(shown // 3600, shown // 60 % 60, shown % 60), value.microsecond, tzinfo=zone
    )


def _plain_timedelta(key: Any) -> Any:
    if key.__class__ is datetime.timedelta:
        return key
    value = datetime.timedelta(key.days, key.seconds, key.microseconds)
    return value if value == key else key


def _plain_uuid(key: Any) -> Any:
    exact = key.__class__ is uuid.UUID and key.is_safe is uuid.SafeUUID.unknown
    return key if exact else uuid.UUID(int=key.int)


def _plain_numpy(key: Any) -> Any:
    value = key.item()
    if value.__class__ is key.__class__:  # numbers of more than 64 bits
        value = float(key)
        return plain(value) if value == key else key
    return plain(value)


def _plain_dataclass(key: Any) -> Any:
    made = _with_fields(key, compared_fields(key), plain)
    return _with_fields(made, [f for f in fields(key) if not f.compare], lambda _: None)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    type(None): _itself,
    str: str.__str__,
    int: _plain_int,
    bytes: _plain_bytes,
    tuple: _plain_tuple,
    float: _plain_float,
    bool: _plain_int,
    frozenset: _plain_frozenset,
    datetime.datetime: _plain_datetime,
    datetime.date: _plain_date,
    datetime.time: _plain_time,
    datetime.timedelta: _plain_timedelta,
    decimal.Decimal: _plain_decimal,
    fractions.Fraction: _plain_fraction,
    complex: _plain_complex,
    uuid.UUID: _plain_uuid,
    memoryview: bytes,
}
