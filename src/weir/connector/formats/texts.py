"""Values of declared types and their texts, as Java reads and writes them.

Formats of text share these: what Flink's formats accept is accepted, with the same value; anything
else is a `ValueError` that names the type and the text.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from weir.common._check import INT_RANGES
from weir.common._text import written
from weir.common.time import Instant
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import UsageError

Parse = Callable[[str], Any]
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = {
    sign + name: float(value)
    for sign in ("", "+", "-")
    for name, value in (("NaN", "nan"), ("Infinity", f"{sign}inf"))
}
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?")
_ZONE = re.compile(r"(Z|[+-][0-9]{2}:?[0-9]{2})$")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def _refuse(kind: str, text: str) -> NoReturn:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    msg = f"{shown!r} is no {kind}"
    raise ValueError(msg)


def _integer(kind: str) -> Parse:
    low, high = INT_RANGES[kind]

    def parse(text: str) -> int:
        plain = text.strip()
        if _INTEGER.fullmatch(plain) is None:
            _refuse(kind, text)
        value = int(plain)
        if not low <= value <= high:
            _refuse(f"{kind} (from {low} to {high})", text)
        return value

    return parse


def _double(text: str) -> float:
    plain = text.strip()
    if plain in _NOT_FINITE:
        return _NOT_FINITE[plain]
    # Java lets a number end in the letter of its type.
    number = plain[:-1] if plain[-1:] in ("d", "D", "f", "F") else plain
    if _NUMBER.fullmatch(number) is None:
        _refuse("number", text)
    return float(number)


def _float(text: str) -> float:
    return to_float(_double(text))


def to_float(value: float) -> float:
    """Return a number with the 32 bits of a FLOAT; what is too large for them is infinite."""
    try:
        short: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return short


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"


def _big_integer(text: str) -> int:
    plain = text.strip()
    if _INTEGER.fullmatch(plain) is None:
        _refuse("BIG_INT", text)
    return int(plain)


def _decimal(text: str) -> Decimal:
    plain = text.strip()
    if _NUMBER.fullmatch(plain) is None:
        _refuse("BIG_DEC", text)
    try:
        return Decimal(plain)
    except InvalidOperation:
        _refuse("BIG_DEC", text)


def _date(text: str) -> datetime.date:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        _refuse("date (2024-01-31)", text)
    try:
        return datetime.date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        _refuse("date of any calendar", text)


def _clock(text: str, whole: str) -> datetime.time:
    found = _TIME.fullmatch(text)
    if found is None:
        _refuse("time (12:34:56)", whole)
    micros = int((found[4] or "").ljust(6, "0")[:6])
    try:
        return datetime.time(int(found[1]), int(found[2]), int(found[3]), micros)
    except ValueError:
        _refuse("time of day", whole)


def _time(text: str) -> datetime.time:
    return _clock(text.strip().removesuffix("Z"), text)


def _local(text: str, whole: str) -> datetime.datetime:
    day, _, clock = text.replace("T", " ", 1).partition(" ")
    if not clock:
        _refuse("timestamp (2024-01-31 12:34:56)", whole)
    return datetime.datetime.combine(_date(day), _clock(clock, whole))


def _timestamp(text: str) -> datetime.datetime:
    return _local(text.strip().removesuffix("Z"), text)


def _moment(text: str) -> datetime.datetime:
    plain = text.strip()
    zone = _ZONE.search(plain)
    if zone is None:
        _refuse("moment with a zone (2024-01-31T12:34:56Z)", text)
    offset = zone[1].replace("Z", "+00:00").replace(":", "")
    away = datetime.timedelta(hours=int(offset[:3]), minutes=int(offset[0] + offset[3:]))
    return (_local(plain[: zone.start()], text) - away).replace(tzinfo=datetime.timezone.utc)


def instant_of(moment: datetime.datetime) -> Instant:
    """Return a moment with a zone as an `Instant`."""
    since = moment - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def moment_of(instant: Instant) -> datetime.datetime:
    """Return an `Instant` as a moment in UTC; below microseconds is cut off."""
    return _EPOCH + datetime.timedelta(seconds=instant.seconds, microseconds=instant.nanos // 1000)


def _character(text: str) -> str:
    if len(text) != 1:
        _refuse("single character", text)
    return text


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base 64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        _refuse("text in base 64", text)


_PARSE: dict[str, Parse] = {
    **{kind: _integer(kind) for kind in INT_RANGES},
    "STRING": str,
    "CHAR": _character,
    "BOOLEAN": _boolean,
    "FLOAT": _float,
    "DOUBLE": _double,
    "BIG_INT": _big_integer,
    "BIG_DEC": _decimal,
    "SQL_DATE": _date,
    "SQL_TIME": _time,
    "SQL_TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _moment,
    "INSTANT": lambda text: instant_of(_moment(text)),
}


def parser(type_info: TypeInformation) -> Parse | None:
    """Return what makes a value of a text; None for a type with parts."""
    return from_base64 if type_info == BYTES else _PARSE.get(type_info.kind)


def writer(type_info: TypeInformation) -> Callable[[Any], str] | None:
    """Return what makes the text of a value that is not None; None for a type with parts."""
    if type_info == BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    if type_info.kind == "TIMESTAMP_LTZ":
        return lambda value: written(Types.SQL_TIMESTAMP())(value) + "Z"
    return written(type_info) if type_info.kind in _PARSE else None


def require_row(type_info: Any, owner: str) -> Any:
    """Return a row type as it is.

    Raises:
        UsageError: it is something else.
    """
    if getattr(type_info, "kind", None) != "ROW":
        msg = (
            f"{owner} needs a type of rows such as Types.ROW_NAMED([...], [...]), not {type_info!r}"
        )
        raise UsageError(msg)
    return type_info
