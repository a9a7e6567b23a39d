"""Configuration options as data: key, type, default, description, old spellings.

A type knows how to read a value from text and from Python, and what form it expects; the
reference page and the error messages come from the same data.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weir.common.time import Duration, Time, parse_duration_ms, to_ms
from weir.errors import UsageError

_BOOLEANS = {"true": True, "false": False}
_SECRET = (
    "password",
    "secret",
    "token",
    "credential",
    "api-key",
    "apikey",
    "access-key",
    "access.key",
    "account.key",
    "service-key",
    "basic-auth",
    "auth-params",
)
_SIZE = re.compile(r"\s*(\d+)\s*([a-zA-Z]*)\s*")
_SIZE_UNITS = {
    unit: 1 << (10 * power)
    for power, units in enumerate(
        ("b bytes", "k kb kibibytes", "m mb mebibytes", "g gb gibibytes", "t tb tebibytes")
    )
    for unit in ("", *units.split())
    if unit or power == 0
}


@dataclass(frozen=True)
class OptionType:
    """How the values of an option are read.

    `form` says what is expected, to people. `parse` raises ValueError or TypeError, whose text
    is not shown.
    """

    name: str
    form: str
    parse: Callable[[Any], Any]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return value


def _parse_boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _BOOLEANS[str(value).strip().lower()]


def _parse_duration(value: Any) -> int:
    if isinstance(value, (Duration, Time, datetime.timedelta)):
        return to_ms(value)
    return parse_duration_ms(str(_plain(value)))


def _parse_size(value: Any) -> int:
    match = _SIZE.fullmatch(str(_plain(value)))
    if match is None:
        raise ValueError
    return int(match.group(1)) * _SIZE_UNITS[match.group(2).lower()]


def _parse_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(map(str, value))
    text = str(value).strip()
    separator = ";" if ";" in text else ","
    return tuple(item.strip() for item in text.strip("[]").split(separator) if item.strip())


def _parse_map(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items()}
    pairs = (item.partition(":") for item in str(value).split(",") if item.strip())
    return {key.strip(): text.strip() for key, _, text in pairs}


def _folded(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def one_of(*names: str, **aliases: str) -> OptionType:
    """Return the type of a choice: case, dashes and underscores do not matter."""
    table = {_folded(name): name for name in names}
    table |= {_folded(alias): name for alias, name in aliases.items()}

    def parse(value: Any) -> str:
        return table[_folded(value.name if isinstance(value, enum.Enum) else str(value))]

    return OptionType("enum", "one of " + ", ".join(names), parse)


def is_secret(key: str) -> bool:
    """Tell whether values of a key, known or not, must not be shown to anybody."""
    lowered = key.lower()
    return any(part in lowered for part in _SECRET)


INT = OptionType("int", "a whole number such as 4", lambda value: int(str(_plain(value)).strip()))
FLOAT = OptionType("float", "a number such as 1.5", lambda value: float(_plain(value)))
BOOLEAN = OptionType("boolean", "true or false", _parse_boolean)
STRING = OptionType("string", "a text", str)
DURATION = OptionType("duration", "a time such as '10 s', '500 ms', '10 min'", _parse_duration)
MEMORY = OptionType("memory", "a size such as '20 kb', '64 mb' or bytes", _parse_size)
LIST = OptionType("list", "a list such as 'a;b'", _parse_list)
MAP = OptionType("map", "pairs such as 'a:1,b:2'", _parse_map)


@dataclass(frozen=True)
class ConfigOption:
    """One setting.

    Durations are milliseconds and memory sizes are bytes, in `default`, in `minimum` and in parsed
    values. Below the `minimum` only the value `off` is allowed, which switches something off.
    """

    key: str
    type: OptionType
    default: Any
    description: str
    deprecated_keys: tuple[str, ...] = ()
    minimum: int | None = None
    off: int | None = None

    def parse(self, value: Any, key: str | None = None, where: str = "") -> Any:
        """Return the typed value of what was given under `key` (this option's, unless named).

        `where` is the place that messages name.

        Raises:
            UsageError: the value has not the expected form or is too small.
        """
        name = f"configuration {(key or self.key)!r}"
        place = f" (set in {where})" if where else ""
        shown = "a value that is not shown" if is_secret(self.key) else repr(value)
        try:
            parsed = self.type.parse(value)
        except (ValueError, TypeError, KeyError, UsageError) as error:
            msg = f"{name}: found {shown}, expected {self.type.form}{place}"
            raise UsageError(msg) from error
        if self.minimum is not None and parsed < self.minimum and parsed != self.off:
            unit = " ms" if self.type is DURATION else ""
            switch = "" if self.off is None else f", or {self.off} for none"
            msg = f"{name}: found {shown}, expected at least {self.minimum}{unit}{switch}{place}"
            raise UsageError(msg)
        return parsed
