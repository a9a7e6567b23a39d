"""Values that expire: `(value, timestamp in ms)` pairs of a declared value type.

The type is described as ``{"type": "STAMPED", "value": T}`` and is always the outermost one of a
state. Layout of one pair: 8 bytes timestamp, then the value; of a list: 4 bytes count, that many
8-byte timestamps, then all values as one list. Numbers are little-endian, signed for timestamps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from weir.common.typeinfo import TypeInformation, Types, type_from_json
from weir.errors import CorruptStateError, UsageError

STAMPED = "STAMPED"
_STAMP = struct.Struct("<q")
_COUNT = struct.Struct("<I")

value_of: Callable[[Any], Any] = itemgetter(0)
"""Return the user's value of a pair."""
timestamp_of: Callable[[Any], int] = itemgetter(1)
"""Return the timestamp of a pair, in milliseconds."""


class StampedTypeInfo(TypeInformation):
    """The type of a value together with the time at which it was last written (or read)."""

    __slots__ = ()

    def __init__(self, value_type: TypeInformation | None) -> None:
        """Keep the type of the value; None means any Python object, pickled."""
        inner = Types.PICKLED_BYTE_ARRAY() if value_type is None else value_type
        self._init(STAMPED, (inner,), _pair_check(inner))

    @property
    def value_type(self) -> TypeInformation:
        """The type of the value without its timestamp."""
        inner: TypeInformation = self._args[0]
        return inner

    def to_json(self) -> dict[str, Any]:
        """Describe the type for a snapshot; `stored_type` reads it back."""
        return {"type": STAMPED, "value": self.value_type.to_json()}

    def __repr__(self) -> str:
        """Show the constructor call."""
        return f"StampedTypeInfo({self.value_type!r})"


def stored_type(description: Any) -> TypeInformation:
    """Read back the description of a stored type, with or without timestamps.

    Raises:
        CorruptStateError: the description is not one of ours.
    """
    if isinstance(description, dict) and description.get("type") == STAMPED:
        value = description.get("value")
        if isinstance(value, dict):
            return StampedTypeInfo(type_from_json(value))
    return type_from_json(description)


def _pair_check(inner: TypeInformation) -> Callable[[Any], Any]:
    check = inner.check

    def check_pair(pair: Any) -> Any:
        if pair is None:
            return None
        if pair.__class__ is not tuple or len(pair) != 2 or pair[1].__class__ is not int:
            msg = f"StampedTypeInfo({inner!r}) holds (value, timestamp in ms), got {pair!r}"
            raise UsageError(msg)
        value = pair[0]
        checked = check(value)
        return pair if checked is value else (checked, pair[1])

    return check_pair


class ValueCodec(Protocol):
    """What a pair's codec needs of the codec of the value."""

    safe: bool

    def encode(self, value: Any) -> bytes:
        """Return the bytes of one value."""

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value."""

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of a list."""

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list."""


class StampedCodec:
    """Pairs of a `StampedTypeInfo` to bytes and back: two columns, apart from each other."""

    def __init__(self, type_info: StampedTypeInfo, value: ValueCodec) -> None:
        self.type_info: TypeInformation = type_info
        self.safe = value.safe
        self._value = value

    def encode(self, pair: Any) -> bytes:
        """Return the bytes of one pair; UsageError when the type cannot hold it."""
        value, stamp = self._checked(pair)
        return _STAMP.pack(stamp) + self._value.encode(value)

    def decode(self, data: bytes | memoryview) -> tuple[Any, int]:
        """Return the pair; CorruptStateError when the bytes are not one."""
        return self._value.decode(memoryview(data)[8:]), encoded_timestamp(data)

    def encode_many(self, pairs: Sequence[Any]) -> bytes:
        """Return the bytes of a whole list; UsageError when the type cannot hold an element."""
        try:
            values, stamps = [p[0] for p in pairs], [p[1] for p in pairs]
            packed = struct.pack(f"<I{len(stamps)}q", len(stamps), *stamps)
        except (TypeError, LookupError, struct.error):
            for pair in pairs:
                self._checked(pair)
            raise
        return packed + self._value.encode_many(values)

    def decode_many(self, data: bytes | memoryview) -> list[tuple[Any, int]]:
        """Return the list; CorruptStateError when the bytes are not one."""
        try:
            (count,) = _COUNT.unpack_from(data)
            stamps = struct.unpack_from(f"<{count}q", data, 4)
        except struct.error as error:
            msg = f"{len(data)} bytes are not a list of {self.type_info!r}: {error}"
            raise CorruptStateError(msg) from error
        values = self._value.decode_many(memoryview(data)[4 + 8 * count :])
        if len(values) != count:
            msg = f"a list of {self.type_info!r} has {count} timestamps and {len(values)} values"
            raise CorruptStateError(msg)
        return list(zip(values, stamps, strict=True))

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the type."""
        return self.type_info.to_json()

    def _checked(self, pair: Any) -> Any:
        checked = None if pair is None else self.type_info.check(pair)
        if checked is None or not -(1 << 63) <= checked[1] < 1 << 63:
            msg = f"{self.type_info!r} cannot hold {pair!r}: a value needs a 64-bit timestamp"
            raise UsageError(msg)
        return checked


def encoded_timestamp(data: bytes | memoryview) -> int:
    """Return the timestamp of one encoded pair without decoding its value.

    Raises:
        CorruptStateError: the bytes are too short.
    """
    try:
        stamp: int = _STAMP.unpack_from(data)[0]
    except struct.error as error:
        msg = f"{len(data)} bytes are too short for a value with a timestamp"
        raise CorruptStateError(msg) from error
    return stamp
