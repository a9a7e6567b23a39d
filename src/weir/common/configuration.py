"""`Configuration`: flat keys and values as the program gave them.

Meaning, defaults and old spellings of keys are the business of `weir.config`.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from typing import Any

from weir.common.config_options import ConfigOption
from weir.common.time import Duration, Time, to_ms
from weir.errors import UsageError

__all__ = ["Configuration"]

_Keys = set[str]  # the method `set` hides the class inside `Configuration`
_BOOLEANS = {"true": True, "false": False}


def _key_of(key: str | ConfigOption) -> str:
    return key.key if isinstance(key, ConfigOption) else key


def _text(value: Any) -> str:
    """Render a value as a configuration file would spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Duration, Time, datetime.timedelta)):
        return f"{to_ms(value)} ms"
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return ";".join(map(_text, value))
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{_text(v)}" for k, v in value.items())
    return str(value)


class Configuration:
    """Settings by key.

    Example:
        config = Configuration()
        config.set_string("execution.checkpointing.interval", "30 s")
        StreamExecutionEnvironment.get_execution_environment(config)
    """

    def __init__(self, other: Configuration | None = None) -> None:
        """Start empty, or with a copy of another configuration."""
        self._values: dict[str, Any] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Return a configuration with these entries."""
        made = cls()
        made._values.update(map)
        return made

    def get(self, key: str | ConfigOption, default_value: Any = None) -> Any:
        """Return the value as it was given, or the default (the option's own, when it has one)."""
        if default_value is None and isinstance(key, ConfigOption):
            default_value = key.default
        return self._values.get(_key_of(key), default_value)

    def set(self, key: str | ConfigOption, value: Any) -> Configuration:
        """Set a value, kept as given."""
        self._values[_key_of(key)] = value
        return self

    def get_string(self, key: str, default_value: str) -> str:
        """Return the value as text."""
        return _text(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a text."""
        return self.set(key, value)

    def _number(self, key: str, default: Any, kind: type) -> Any:
        value = self._values.get(key, default)
        try:
            return value if value is None else kind(value)
        except (TypeError, ValueError) as error:
            msg = f"configuration {key!r}: expected {kind.__name__}, found {value!r}"
            raise UsageError(msg) from error

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the value as an integer."""
        number: int = self._number(key, default_value, int)
        return number

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set an integer."""
        return self.set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Return the value as a float."""
        number: float = self._number(key, default_value, float)
        return number

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a float."""
        return self.set(key, float(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the value as a boolean."""
        value = self._values.get(key, default_value)
        if isinstance(value, bool):
            return value
        parsed = _BOOLEANS.get(str(value).strip().lower())
        if parsed is None:
            msg = f"configuration {key!r}: expected true or false, found {value!r}"
            raise UsageError(msg)
        return parsed

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a boolean."""
        return self.set(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return the value as bytes."""
        return bytearray(self._values.get(key, default_value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes; they are copied."""
        return self.set(key, bytearray(value))

    def key_set(self) -> _Keys:
        """Return all keys."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Tell whether a key is set."""
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Take all entries of another configuration, optionally under a prefix."""
        for key, value in other._values.items():
            self._values[(prefix or "") + key] = value
        return self

    def add_configuration(self, other: Configuration) -> Configuration:
        """Take all entries of another configuration."""
        return self.add_all(other)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Put all entries into a dict, each value as it was given."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Return all entries as text."""
        return {key: _text(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Remove a key; tell whether it was set."""
        return self._values.pop(key, _MISSING) is not _MISSING

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Split a list such as `a;b`, `[a, b]`, or lines that begin with `- `."""
        if not value:
            return []
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            return [item.strip().strip("'\"") for item in text[1:-1].split(",") if item.strip()]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if all(line.startswith("- ") for line in lines):
            return [line[2:].strip().strip("'\"") for line in lines]
        return text.split(";")

    def __deepcopy__(self, memo: Any = None) -> Configuration:
        """Copy the entries, not the values."""
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        """Compare entries."""
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        """Hash the entries as they are now."""
        return frozenset(self.to_dict().items()).__hash__()

    def __str__(self) -> str:
        """Show all entries as Flink does: `{k1=v1, k2=1}`."""
        return f"{{{', '.join(f'{key}={value}' for key, value in self.to_dict().items())}}}"

    def __repr__(self) -> str:
        """Show all entries."""
        return f"Configuration.from_dict({self._values!r})"


_MISSING = object()
