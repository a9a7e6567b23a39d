"""Keys to key groups to subtasks: Flink's formulas, pure, on scalars and on columns.

The hash of a key is fixed for all time and all processes (Python's own `hash` is salted):
integers hash as Java's `Long`, ASCII strings as Java's `String`, tuples as `31 * h + element`;
the result goes through Flink's murmur mix. Keys that are equal in Python (1, 1.0, True) hash
alike, because state is looked up by equality, and so do all NaNs; see `weir.keys`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import struct
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weir.errors import UsageError
from weir.keys import NAN, compared_fields, plain

MAX_PARALLELISM_BOUND = 1 << 15
_DEFAULT_LOWER_BOUND = 128
_DIGITS_MAX = 10_000
_M32 = 0xFFFFFFFF


@dataclass(frozen=True)
class KeyGroupRange:
    """Key groups `start` to `end`, both inclusive; empty when `end < start`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse a negative start."""
        if self.start < 0:
            msg = f"a key-group range cannot start at {self.start}"
            raise UsageError(msg)

    def __len__(self) -> int:
        """Count the key groups."""
        return max(0, self.end - self.start + 1)

    def __contains__(self, group: object) -> bool:
        """Tell whether a key group lies inside."""
        return isinstance(group, int) and self.start <= group <= self.end

    def __iter__(self) -> Any:
        """Go through the key groups in order."""
        return iter(range(self.start, self.end + 1))

    def intersect(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the common part, possibly empty."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else EMPTY_RANGE


EMPTY_RANGE = KeyGroupRange(0, -1)


def murmur(code: int) -> int:
    """Mix a 32-bit hash code as Flink does; the result is not negative."""
    c = (code * 0xCC9E2D51) & _M32
    c = ((c << 15) | (c >> 17)) & _M32
    c = (c * 0x1B873593) & _M32
    c = ((c << 13) | (c >> 19)) & _M32
    c = (c * 5 + 0xE6546B64) & _M32
    c ^= 4
    c ^= c >> 16
    c = (c * 0x85EBCA6B) & _M32
    c ^= c >> 13
    c = (c * 0xC2B2AE35) & _M32
    c ^= c >> 16
    if c < 0x80000000:
        return c
    return 0 if c == 0x80000000 else 0x100000000 - c


def _hash_bytes(data: bytes) -> int:
    h = 0
    for b in data:
        h = (h * 31 + b) & _M32
    return h


def _hash_int(value: int) -> int:
    if -(1 << 63) <= value < (1 << 63):
        return (value ^ (value >> 32)) & _M32
    return _hash_bytes(value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))


def _hash_float(value: float) -> int:
    if value.is_integer():
        return _hash_int(int(value))
    bits = int(struct.unpack(">q", struct.pack(">d", NAN if value != value else value))[0])
    return (bits ^ (bits >> 32)) & _M32


def _hash_sequence(items: Iterable[Any]) -> int:
    h = 0
    for item in items:
        h = (h * 31 + (0 if item is None else stable_hash(item))) & _M32
    return h


def _hash_timedelta(value: datetime.timedelta) -> int:
    return _hash_sequence((value.days, value.seconds, value.microseconds))


def _hash_str(value: str) -> int:
    try:
        return _hash_bytes(str.encode(value))
    except UnicodeEncodeError:
        msg = (
            f"{_short(value)} cannot be a key: it holds a surrogate, half of a character, which no "
            f"encoding can store; repair the text before key_by, for example with "
            f"text.encode('utf-8', 'replace').decode()"
        )
        raise UsageError(msg) from None


def _hash_datetime(value: datetime.datetime) -> int:
    if value.tzinfo is not None:  # equal instants in two zones are equal keys
        value = value.replace(fold=0).astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return _hash_bytes(value.isoformat().encode())


def _hash_time(value: datetime.time) -> int:
    return _hash_bytes(plain(value).isoformat().encode())


def _hash_decimal(value: decimal.Decimal) -> int:
    if not value.is_finite():
        return _hash_float(NAN if value.is_nan() else float(value))
    if value == value.to_integral_value():
        # Written out, a number such as 1E+1000000 keeps a processor busy for minutes.
        if value.adjusted() >= _DIGITS_MAX:
            if value == 0:
                return _hash_int(0)
            msg = (
                f"a decimal of {value.adjusted() + 1} digits cannot be a key, at most "
                f"{_DIGITS_MAX} are possible: make it a text before key_by"
            )
            raise UsageError(msg)
        return _hash_int(int(value))
    as_float = float(value)
    if decimal.Decimal(as_float) == value:
        return _hash_float(as_float)
    return _hash_bytes(str(value.normalize()).encode())


_HASHERS: dict[type, Any] = {
    int: _hash_int,
    bool: _hash_int,
    str: _hash_str,
    bytes: _hash_bytes,
    float: _hash_float,
    type(NAN): _hash_float,
    tuple: _hash_sequence,
    datetime.datetime: _hash_datetime,
    datetime.date: lambda v: _hash_bytes(v.isoformat().encode()),
    datetime.time: _hash_time,
    datetime.timedelta: _hash_timedelta,
    decimal.Decimal: _hash_decimal,
    uuid.UUID: lambda v: _hash_bytes(v.bytes),
}


_BASES = (tuple, str, int, float, bytes)


def _hash_dataclass(key: Any) -> int:
    kind: Any = type(key)
    if kind.__eq__ is object.__eq__:
        msg = (
            f"{_short(key)} cannot be a key: a {kind.__name__} equals nothing but itself, so "
            f"its state would never be found again; declare it with @dataclass(frozen=True)"
        )
        raise UsageError(msg)
    return _hash_sequence(getattr(key, f.name) for f in compared_fields(key) if f.hash is not False)


def stable_hash(key: Any) -> int:
    """Return the 32-bit hash of a key, the same in every process and on every machine.

    Raises:
        UsageError: the key is null, or of a type whose equality Weir cannot hash stably.
    """
    hasher = _HASHERS.get(key.__class__)
    if hasher is not None:
        return int(hasher(key))
    if key is None:
        msg = "Assigned key must not be null! The key selector returned None for a record."
        raise UsageError(msg)
    if isinstance(key, enum.Enum) and not isinstance(key, _BASES):
        return stable_hash(key.name)
    stable = getattr(key, "__weir_key__", None)
    if stable is not None:
        return _hash_sequence(stable())
    if is_dataclass(key) and not isinstance(key, type) and getattr(key, "__hash__", None):
        return _hash_dataclass(key)
    if isinstance(key, (*_BASES, np.generic)):
        value = plain(key)
        if value is not key:
            return stable_hash(value)
    kind = type(key).__name__
    hint = (
        "it is unhashable: return an immutable value, for example tuple(...) instead of a list"
        if getattr(key, "__hash__", None) is None
        else "return a str, int, bytes, tuple, date or frozen dataclass from the key selector"
    )
    msg = f"a key of type {kind} cannot be assigned to a key group ({_short(key)}): {hint}"
    raise UsageError(msg)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key."""
    return murmur(stable_hash(key)) % max_parallelism


def key_groups_of_int64(values: npt.NDArray[np.int64], max_parallelism: int) -> npt.NDArray[Any]:
    """Return the key groups of a column of 64-bit integers, the same as `key_group` one by one."""
    code = ((values ^ (values >> 32)) & _M32).astype(np.uint32)
    return murmur_column(code) % np.int64(max_parallelism)


def murmur_column(code: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Apply `murmur` to a column of 32-bit hash codes."""
    c = code * np.uint32(0xCC9E2D51)
    c = (c << np.uint32(15)) | (c >> np.uint32(17))
    c *= np.uint32(0x1B873593)
    c = (c << np.uint32(13)) | (c >> np.uint32(19))
    c = c * np.uint32(5) + np.uint32(0xE6546B64)
    c ^= np.uint32(4)
    c ^= c >> np.uint32(16)
    c *= np.uint32(0x85EBCA6B)
    c ^= c >> np.uint32(13)
    c *= np.uint32(0xC2B2AE35)
    c ^= c >> np.uint32(16)
    signed = c.astype(np.int64)
    negative = signed >= 0x80000000
    signed[negative] = 0x100000000 - signed[negative]
    signed[signed == 0x80000000] = 0
    return signed


def subtask_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return group * parallelism // max_parallelism


def range_of(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that a subtask owns."""
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def default_max_parallelism(parallelism: int) -> int:
    """Return the max parallelism of an operator that does not set one."""
    wanted = round_up_to_power_of_two(parallelism + parallelism // 2)
    return min(max(wanted, _DEFAULT_LOWER_BOUND), MAX_PARALLELISM_BOUND)


def round_up_to_power_of_two(x: int) -> int:
    """Return the smallest power of two that is not below x (0 for 0)."""
    return 1 << (x - 1).bit_length() if x > 0 else 0
