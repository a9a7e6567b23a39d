"""Value checks behind `TypeInformation.check`: one compiled function per declared type.

A check returns the value in the exact Python type that a restore from a snapshot would give
(`int` for a numpy integer, `Row` for a tuple declared as ROW) and the very same object when
nothing has to change, so that state reads alike before and after a recovery. It is meant for the
hot path: the common case is one class comparison.
"""

from __future__ import annotations

import array
import datetime
import decimal
import math
import numbers
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weir.common.time import Instant
from weir.common.types import Row, RowKind, row_class
from weir.errors import UsageError
from weir.keys import NAN

Check = Callable[[Any], Any]

# The tower of numbers takes numpy's scalars in; typed Any because mypy denies that bool is in it.
_Integral: Any = numbers.Integral
_Real: Any = numbers.Real

INT_RANGES = {
    "BYTE": (-(1 << 7), (1 << 7) - 1),
    "SHORT": (-(1 << 15), (1 << 15) - 1),
    "INT": (-(1 << 31), (1 << 31) - 1),
    "LONG": (-(1 << 63), (1 << 63) - 1),
}
_FLOAT32 = struct.Struct("<f")


def refuse(type_name: str, value: Any, expected: str) -> NoReturn:
    """Raise the error of a value that its declared type cannot hold."""
    text = repr(value)
    if len(text) > 120:
        text = text[:117] + "..."
    kind = type(value).__name__
    msg = f"{type_name} cannot hold {text} of type {kind}: expected {expected}"
    raise UsageError(msg)


def check_int(name: str) -> Check:
    """Compile the check of BYTE, SHORT, INT or LONG."""
    low, high = INT_RANGES[name]

    def check(value: Any) -> Any:
        if (value.__class__ is int and low <= value <= high) or value is None:
            return value
        if isinstance(value, _Integral) and not isinstance(value, bool):
            plain = int(value)
            if low <= plain <= high:
                return plain
        refuse(f"Types.{name}()", value, f"an int from {low} to {high}")

    return check


def check_big_int(value: Any) -> Any:
    """Check BIG_INT: an int of any size."""
    if value.__class__ is int or value is None:
        return value
    if isinstance(value, _Integral) and not isinstance(value, bool):
        return int(value)
    refuse("Types.BIG_INT()", value, "an int")


def check_double(value: Any) -> Any:
    """Check DOUBLE: a float, or a number that becomes one."""
    if value.__class__ is float or value is None:
        return value
    if isinstance(value, _Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            refuse("Types.DOUBLE()", value, "a number within the range of a double")
    refuse("Types.DOUBLE()", value, "a float or an int")


def check_float(value: Any) -> Any:
    """Check FLOAT: as DOUBLE, rounded to the 32 bits that it has."""
    if value is None:
        return None
    if isinstance(value, _Real) and not isinstance(value, bool):
        plain = value if value.__class__ is float else check_double(value)
        if not math.isfinite(plain):
            return plain
        try:
            rounded = _FLOAT32.unpack(_FLOAT32.pack(plain))[0]
        except OverflowError:
            refuse("Types.FLOAT()", value, "a float or an int within the range of 32 bits")
        return plain if rounded == plain else rounded
    refuse("Types.FLOAT()", value, "a float or an int")


_TEXT = "text that can be encoded, without halves of surrogate pairs such as '\\ud800'"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_string(value: Any) -> Any:
    """Check STRING: a str that can be encoded; of most, Python knows that they are ASCII."""
    if value is None:
        return None
    if not isinstance(value, str):
        refuse("Types.STRING()", value, "a str")
    if not value.isascii() and not _is_encodable(value):
        refuse("Types.STRING()", value, _TEXT)
    return value if value.__class__ is str else str.__str__(value)


def check_char(value: Any) -> Any:
    """Check CHAR: a str of one character."""
    if value is None:
        return None
    if value.__class__ is not str or len(value) != 1:
        refuse("Types.CHAR()", value, "a str of one character")
    if "\ud800" <= value <= "\udfff":
        refuse("Types.CHAR()", value, _TEXT)
    return value


def check_boolean(value: Any) -> Any:
    """Check BOOLEAN: True or False."""
    if value is True or value is False or value is None:
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    refuse("Types.BOOLEAN()", value, "True or False")


def check_decimal(value: Any) -> Any:
    """Check BIG_DEC: a Decimal, or an int that becomes one."""
    if value.__class__ is decimal.Decimal or value is None:
        return value
    if isinstance(value, decimal.Decimal) or (
        isinstance(value, _Integral) and not isinstance(value, bool)
    ):
        return decimal.Decimal(value)
    if value is NAN:  # a key, which all NaNs are
        return decimal.Decimal("NaN")
    refuse("Types.BIG_DEC()", value, "a Decimal or an int")


def check_date(value: Any) -> Any:
    """Check SQL_DATE: a date, not a datetime."""
    if value.__class__ is datetime.date or value is None:
        return value
    refuse("Types.SQL_DATE()", value, "a datetime.date")


def check_time(value: Any) -> Any:
    """Check SQL_TIME: a time of day without a zone."""
    if value is None or (value.__class__ is datetime.time and value.tzinfo is None):
        return value
    refuse("Types.SQL_TIME()", value, "a datetime.time without a time zone")


def _utc(type_name: str, value: datetime.datetime) -> datetime.datetime:
    try:
        plain = datetime.datetime.combine(value.date(), value.timetz())
        return plain.astimezone(datetime.timezone.utc)
    except OverflowError:
        refuse(type_name, value, "a datetime between the years 1 and 9999 in UTC")


def check_timestamp(value: Any) -> Any:
    """Check SQL_TIMESTAMP: a datetime without a zone; one with a zone is turned to UTC."""
    if value is None or (value.__class__ is datetime.datetime and value.tzinfo is None):
        return value
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return datetime.datetime.combine(value.date(), value.time())
        return _utc("Types.SQL_TIMESTAMP()", value).replace(tzinfo=None)
    refuse("Types.SQL_TIMESTAMP()", value, "a datetime.datetime")


def check_timestamp_ltz(value: Any) -> Any:
    """Check TIMESTAMP_LTZ: a datetime with a zone, turned to UTC."""
    if value is None or (
        value.__class__ is datetime.datetime and value.tzinfo is datetime.timezone.utc
    ):
        return value
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return _utc("Types.TIMESTAMP_LTZ()", value)
    refuse("Types.TIMESTAMP_LTZ()", value, "a datetime.datetime with a time zone")


def check_instant(value: Any) -> Any:
    """Check INSTANT."""
    if value is None or value.__class__ is Instant:
        return value
    refuse("Types.INSTANT()", value, "a weir.common.Instant")


def check_anything(value: Any) -> Any:
    """Check a pickled type: every value passes."""
    return value


def check_bytes(value: Any) -> Any:
    """Check PRIMITIVE_ARRAY(BYTE): bytes."""
    if value.__class__ is bytes or value is None:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    refuse("Types.PRIMITIVE_ARRAY(Types.BYTE())", value, "bytes")


def check_list(type_name: str, element: Check) -> Check:
    """Compile the check of a list whose elements all have one type."""

    def check(value: Any) -> Any:
        if value is None:
            return None
        if value.__class__ is list:
            items = value
        elif isinstance(value, (list, tuple)):
            items = list(value)
        elif isinstance(value, array.array) or type(value).__module__ == "numpy":
            items = value.tolist()
        else:
            items = None
        if not isinstance(items, list):
            refuse(type_name, value, "a list")
        for position, item in enumerate(items):
            checked = element(item)
            if checked is not item:
                if items is value:
                    items = list(value)
                items[position] = checked
        return items

    return check


def check_map(type_name: str, key: Check, value_check: Check) -> Check:
    """Compile the check of a dict."""

    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            refuse(type_name, value, "a dict")
        result = {key(k): value_check(v) for k, v in value.items()}
        unchanged = value.__class__ is dict and all(
            a is b and value[a] is result[b] for a, b in zip(value, result, strict=False)
        )
        return value if unchanged else result

    return check


def _fields_checked(values: Sequence[Any], checks: Sequence[Check]) -> tuple[Any, ...] | None:
    """Return the checked values when any of them changed, None when all stay."""
    for check, value in zip(checks, values):  # noqa: B905 - their number is known; this is hot
        if check(value) is not value:
            return tuple(c(v) for c, v in zip(checks, values, strict=True))
    return None


def check_tuple(type_name: str, checks: Sequence[Check]) -> Check:
    """Compile the check of a tuple with one type per field."""
    arity = len(checks)

    def check(value: Any) -> Any:
        if value is None:
            return None
        if value.__class__ is tuple:
            plain = value
        elif isinstance(value, (tuple, list, Row)):
            plain = tuple(value)
        else:
            refuse(type_name, value, f"a tuple of {arity} values")
        if len(plain) != arity:
            refuse(type_name, value, f"a tuple of {arity} values")
        changed = _fields_checked(plain, checks)
        return plain if changed is None else changed

    return check


def check_row(type_name: str, names: tuple[str, ...] | None, checks: Sequence[Check]) -> Check:
    """Compile the check of a row; named values are put into the declared order.

    Rows of a type without names have the names f0, f1, and so on.
    """
    arity = len(checks)
    wanted = row_class(tuple(f"f{i}" for i in range(arity)) if names is None else names)
    order = names if names is not None else ()
    fields = f"a Row, tuple or list of {arity} values"
    if names is not None:
        fields += f", or a Row or dict with the fields {list(names)}"

    def values_of(value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, Row):
            if value.get_row_kind() is not RowKind.INSERT:
                refuse(type_name, value, "a row of kind INSERT (other kinds travel as pickled)")
            if names is None or value._fields is None:
                return value._values
            by_name = value._index
            if by_name.keys() != wanted._index.keys():
                return None
            return tuple(value._values[by_name[name]] for name in order)
        if isinstance(value, (tuple, list)):
            return tuple(value)
        if isinstance(value, dict) and names is not None and value.keys() == wanted._index.keys():
            return tuple(value[name] for name in order)
        return None

    def check(value: Any) -> Any:
        if value is None:
            return None
        values = value._values if value.__class__ is wanted else values_of(value)
        if values is None or len(values) != arity:
            refuse(type_name, value, fields)
        changed = _fields_checked(values, checks)
        if changed is not None:
            return wanted._of(changed)
        return value if value.__class__ is wanted else wanted._of(values)

    return check


BASIC_CHECKS: dict[str, Check] = {
    **{name: check_int(name) for name in INT_RANGES},
    "BIG_INT": check_big_int,
    "FLOAT": check_float,
    "DOUBLE": check_double,
    "STRING": check_string,
    "CHAR": check_char,
    "BOOLEAN": check_boolean,
    "BIG_DEC": check_decimal,
    "INSTANT": check_instant,
    "SQL_DATE": check_date,
    "SQL_TIME": check_time,
    "SQL_TIMESTAMP": check_timestamp,
    "TIMESTAMP_LTZ": check_timestamp_ltz,
    "PICKLED_BYTE_ARRAY": check_anything,
}
