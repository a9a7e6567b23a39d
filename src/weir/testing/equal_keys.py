"""Pairs of keys that are one key, of any two classes that Python or Weir call equal.

Hypothesis strategies: `equal_keys` for keys of streams, `equal_map_keys` for keys of map state,
which may be more.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from weir.common import Row

Pairs = st.SearchStrategy[tuple[Any, Any]]


class Pair(NamedTuple):
    """A tuple with names."""

    x: Any
    y: Any


@dataclass(frozen=True)
class Point:
    """An object with a field that is not compared."""

    x: Any
    y: Any
    note: str = field(default="", compare=False)


class Level(enum.IntEnum):
    """Enumerated integers."""

    ZERO = 0
    ONE = 1


class Name(str, enum.Enum):
    """Enumerated texts."""

    A = "a"
    EMPTY = ""


class Text(str):
    """A class of texts."""

    __slots__ = ()


_NANS = (
    *(math.nan, -math.nan, struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]),
    *(decimal.Decimal("NaN"), decimal.Decimal("-NaN7"), np.float32("nan"), np.float64("nan")),
)
_OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda m: datetime.timedelta(minutes=m))
_ZONES = _OFFSETS.map(datetime.timezone)


def _numbers(value: int) -> list[Any]:
    """Return numbers of builtin classes, Decimals aside, and of numpy that equal an integer."""
    found: list[Any] = [value]
    if -(1 << 63) <= value < (1 << 63):
        found.append(np.int64(value))
    if abs(value) < 1 << 1000 and int(float(value)) == value:
        found += [float(value), np.float64(value)]
    if value in (0, 1):
        found += [bool(value), Level(value), np.bool_(value)]
    return [*found, -0.0] if not value else found


def _decimals(value: int) -> list[Any]:
    """Return numbers of builtin classes that equal an integer; numpy's do not like Decimals."""
    decimals = [decimal.Decimal(value), decimal.Decimal(f"{value}.00")]
    return decimals + [n for n in _numbers(value) if not isinstance(n, np.generic)]


def _texts(value: str) -> list[Any]:
    found: list[Any] = [value, Text(value)]
    if value in ("a", ""):
        found.append(Name(value))
    return found if "\0" in value else [*found, np.str_(value)]


def _two(variants: Callable[[Any], list[Any]], values: st.SearchStrategy[Any]) -> Pairs:
    """Draw a value, and two things that equal it."""
    return values.flatmap(
        lambda value: st.tuples(*[st.sampled_from(variants(value)) for _ in range(2)])
    )


def _instants() -> Pairs:
    moments = st.datetimes(datetime.datetime(1900, 1, 3), datetime.datetime(2100, 1, 1))

    def shown(parts: tuple[Any, ...]) -> tuple[Any, Any]:
        moment = parts[0].replace(tzinfo=datetime.timezone.utc)
        return moment.astimezone(parts[1]), moment.astimezone(parts[2])

    return st.tuples(moments, _ZONES, _ZONES).map(shown)


_INTEGERS = st.sampled_from([0, 1]) | st.integers() | st.integers(-(1 << 80), 1 << 80)
_FLOATS = st.floats(allow_nan=False)
_TEXT = st.sampled_from(["a", ""]) | st.text(st.characters(exclude_categories=["Cs"]))
_LEAVES: Pairs = (
    _two(_numbers, _INTEGERS)
    | _two(_decimals, _INTEGERS)
    | _two(lambda v: [v, np.float64(v)], _FLOATS)
    | _two(lambda v: [v, decimal.Decimal(v)], _FLOATS)
    | _two(lambda v: [v, v + decimal.Decimal("0.000")], st.decimals("-9", "9", places=2))
    | _two(_texts, _TEXT)
    | _two(lambda v: [v, v if v.endswith(b"\0") else np.bytes_(v)], st.binary())
    | _two(lambda v: [v, uuid.UUID(int=v.int, is_safe=uuid.SafeUUID.safe)], st.uuids())
    | _two(lambda v: [v, v.replace(fold=1)], st.datetimes() | st.times())
    | _two(lambda v: [v, *_NANS], st.sampled_from(_NANS))
    | _instants()
)


def _combined(parts: tuple[Any, Any, Any, Any]) -> tuple[Any, Any]:
    """Return two equal containers, of equal parts."""
    (one_x, other_x), (one_y, other_y), kind, turned = parts
    if kind == "row":
        row = Row(y=other_y, x=other_x) if turned else Row(x=other_x, y=other_y)
        return Row(x=one_x, y=one_y), row
    if kind == "object":
        return Point(one_x, one_y, "one"), Point(other_x, other_y, "other")
    return (one_x, one_y), Pair(other_x, other_y) if turned else (other_x, other_y)


def _nested(leaves: Pairs) -> Pairs:
    kinds = st.sampled_from(["row", "object", "tuple"])
    return st.recursive(
        leaves,
        lambda inner: st.tuples(inner, inner, kinds, st.booleans()).map(_combined),
        max_leaves=4,
    )


def equal_keys() -> Pairs:
    """Draw two keys that are one key of a stream."""
    return _nested(_LEAVES)


def equal_map_keys() -> Pairs:
    """Draw two keys that are one key of a map state."""
    more: Pairs = (
        _two(lambda v: [v, fractions.Fraction(v), complex(v)], st.integers(-(1 << 50), 1 << 50))
        | _two(lambda v: [v, fractions.Fraction(v)], st.decimals("-9", "9", places=2))
        | _two(lambda v: [v, fractions.Fraction(v.numerator, v.denominator)], st.fractions())
        | _LEAVES.map(lambda pair: (frozenset(pair[:1]), frozenset(pair[1:])))
    )
    return _nested(_LEAVES | more | st.just((None, None)))
