"""Records of declared types as text: what PyFlink shows of them.

PyFlink hands records of declared types to Java, so that is how they look in files: `(a,1)` for a
tuple, `+I[a, null, true]` for a row. `print` of a row is PyFlink's own, `+I[a,None,True]`.
Undeclared values look as in Python.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from weir.common.time import Instant
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from weir.common.types import Row

Text = Callable[[Any], str]
_EXPONENT_FROM, _EXPONENT_BELOW = 1e7, 1e-3


@lru_cache(maxsize=1024)
def printed(type_info: TypeInformation | None) -> Text:
    """Return how `print` shows a record of a type; None is any type."""
    if not isinstance(type_info, RowTypeInfo):
        return written(type_info)
    check = type_info.check

    def show(value: Any) -> str:
        row = check(value)
        return "null" if row is None else f"{_kind(row)}[{','.join(map(str, row))}]"

    return show


def _kind(value: Any) -> str:
    return str(value.get_row_kind()) if isinstance(value, Row) else "+I"


@lru_cache(maxsize=1024)
def written(type_info: TypeInformation | None) -> Text:
    """Return how a record of a type looks in a text file; None is any type.

    A record that is not of its type is refused.
    """
    if type_info is None or type_info.kind == "PICKLED_BYTE_ARRAY":
        return str
    plain, check = _nullable(type_info), type_info.check
    return lambda value: plain(check(value))


def _nullable(type_info: TypeInformation) -> Text:
    if type_info.kind == "PICKLED_BYTE_ARRAY":
        return str
    plain = _inside(type_info)
    return lambda value: "null" if value is None else plain(value)


def _inside(type_info: TypeInformation) -> Text:
    """Return how values other than None look."""
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = [_nullable(t) for t in type_info.get_field_types()]
        is_row = isinstance(type_info, RowTypeInfo)
        return _row_text(fields) if is_row else _tuple_text(fields)
    if isinstance(type_info, MapTypeInfo):
        key, value = _nullable(type_info.key_type), _nullable(type_info.value_type)
        return lambda items: f"{{{', '.join(f'{key(k)}={value(v)}' for k, v in items.items())}}}"
    element = getattr(type_info, "elem_type", None)
    if element is not None:
        one = _nullable(element)
        return lambda items: f"[{', '.join(map(one, items))}]"
    return _BASIC.get(type_info.kind, str)


def _tuple_text(fields: list[Text]) -> Text:
    return lambda value: f"({','.join([f(v) for f, v in zip(fields, value, strict=True)])})"


def _row_text(fields: list[Text]) -> Text:
    return lambda value: (
        f"{_kind(value)}[{', '.join([f(v) for f, v in zip(fields, value, strict=True)])}]"
    )


def _boolean(value: Any) -> str:
    return "true" if value else "false"


def _double(value: float) -> str:
    """Show a double as Java does, with its fewest digits."""
    return _real(float(value), repr(float(value)))


def _float(value: float) -> str:
    """Show a 32-bit number as Java does, with its fewest digits."""
    try:
        short = np.float32(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return _double(value)
    return _real(float(value), np.format_float_scientific(short, unique=True))


def _real(value: float, digits: str) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if digits.startswith("-") else ""
    if value == 0:
        return f"{sign}0.0"
    mantissa, _, exponent = digits.lstrip("-").partition("e")
    whole, _, part = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    number = (whole + part).lstrip("0")
    point -= len(whole + part) - len(number)
    number = number.rstrip("0")
    if _EXPONENT_BELOW <= abs(value) < _EXPONENT_FROM:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{number}"
        return f"{sign}{number[:point].ljust(point, '0')}.{number[point:] or '0'}"
    return f"{sign}{number[0]}.{number[1:] or '0'}E{point - 1}"


def _timestamp(value: datetime.datetime) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    fraction = f"{value.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction or '0'}"


def _time(value: datetime.time) -> str:
    return value.strftime("%H:%M:%S")


def _instant(value: Instant) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value.seconds)
    fraction = f"{value.nanos:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment.isoformat()}{'.' if fraction else ''}{fraction}Z"


_BASIC: dict[str, Text] = {
    "BOOLEAN": _boolean,
    "FLOAT": _float,
    "DOUBLE": _double,
    "SQL_TIME": _time,
    "SQL_TIMESTAMP": _timestamp,
    "INSTANT": _instant,
}
