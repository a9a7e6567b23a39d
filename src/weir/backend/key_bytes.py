"""The bytes of a key: keys that are equal are the same bytes, whatever their classes.

So are all NaNs. Undeclared keys are encoded as what `weir.keys.plain` makes of them: integers by
value, other numbers as a double if it is exact, else in decimal; texts, bytes, None, tuples and
frozen sets member by member; objects of other classes are pickled without memory of what occurred
before, so two of them are the same key when their fields are. Keys of declared types are encoded by
their codec, numbers without a sign of zero and without trailing zeros.

Bytes alone give the plain key back. Where a program sees a key again, in maps and timers, the
`original` is kept beside a key that is not plain.
"""

from __future__ import annotations

import decimal
import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, Protocol

from weir.codec import Codec, pickled
from weir.codec.plain import PlainCodec, loads_plain
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from weir.common.types import row_class
from weir.errors import CorruptStateError, UsageError
from weir.keys import NAN, one_nan, plain, stripped

Loads = Callable[[bytes], Any]
_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_NAN = float("nan")
_OFTEN = frozenset({str, int, bytes, type(None)})
_CHANGED_KINDS = frozenset({"PICKLED_BYTE_ARRAY", "DOUBLE", "FLOAT", "BIG_DEC"})
KEY_FORMAT = 2
"""Of the bytes of keys in a database, as its checkpoints say. In those of 1, which do not say it,
equal keys of different classes may have different bytes."""


class KeyCodec(Protocol):
    """Keys to bytes and back; equal keys give equal bytes."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""

    def decode(self, data: bytes) -> Any:
        """Return the key."""

    def original(self, value: Any) -> bytes | None:
        """Return what to keep beside the bytes of a key, for `read_original`; None for nothing."""

    def read_original(self, data: bytes) -> Any:
        """Return the key in what `original` returned."""


class TypedKeys:
    """Keys of a declared type."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._check = codec.type_info.check
        self._tidy = _tidy(codec.type_info)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""
        try:
            return self._encode(value)
        except UsageError:
            equal = plain(value)
            if equal is value:
                raise
        return self._encode(equal)

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode(value if self._tidy is None else self._tidy(self._check(value)))

    def decode(self, data: bytes) -> Any:
        """Return the key."""
        key = self._codec.decode(data)
        return key if self._tidy is None else one_nan(key)

    def original(self, value: Any) -> bytes | None:
        """Return nothing: the type says what a key is."""
        return None

    def read_original(self, data: bytes) -> Any:
        """Refuse: nothing is kept beside a key of a declared type.

        Raises:
            CorruptStateError: always.
        """
        msg = f"{len(data)} bytes are beside a key of {self._codec.type_info!r}, which has none"
        raise CorruptStateError(msg)


class AnyKeys:
    """Keys of undeclared types; `loads` reads the pickles of those that are objects."""

    def __init__(self, loads: Loads = pickled.loads) -> None:
        self._loads = loads

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""
        return _encode_any(value)

    def decode(self, data: bytes) -> Any:
        """Return the plain key; `loads` may run code when it was an object.

        Raises:
            CorruptStateError: the bytes are not a key.
        """
        try:
            return _decode_any(data, self._loads)
        except (struct.error, UnicodeDecodeError, LookupError, decimal.InvalidOperation) as e:
            msg = f"{len(data)} bytes in a database are not a key: {e}"
            raise CorruptStateError(msg) from e

    def original(self, value: Any) -> bytes | None:
        """Return the pickle of a key that `decode` would give back as one of another class."""
        if value.__class__ in _OFTEN or plain(value) is value:
            return None
        return pickled.dumps(value)

    def read_original(self, data: bytes) -> Any:
        """Return the key in what `original` returned."""
        return one_nan(self._loads(data))


def key_codec(codec: Codec) -> KeyCodec:
    """Return how keys of a codec's type become parts of database keys."""
    if isinstance(codec, PlainCodec):
        return AnyKeys(loads_plain)
    return TypedKeys(codec) if codec.safe else AnyKeys()


def had_other_bytes(type_info: TypeInformation) -> bool:
    """Tell whether keys of a type may have other bytes in databases before `KEY_FORMAT`."""
    fields: list[TypeInformation] = getattr(type_info, "get_field_types", list)()
    return type_info.kind in _CHANGED_KINDS or any(map(had_other_bytes, fields))


def _tidy(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """Return what makes equal values of a type the same value, None where they are."""
    if type_info.kind in ("DOUBLE", "FLOAT"):
        return _tidy_float
    if type_info.kind == "BIG_DEC":
        return _tidy_decimal
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return None
    steps = [_tidy(field) or _as_it_is for field in type_info.get_field_types()]
    if all(step is _as_it_is for step in steps):
        return None
    made = row_class(type_info.row_names)._of if isinstance(type_info, RowTypeInfo) else tuple

    def tidy(value: Any) -> Any:
        if value is None:
            return None
        return made(tuple([step(field) for step, field in zip(steps, value, strict=True)]))

    return tidy


def _as_it_is(value: Any) -> Any:
    return value


def _tidy_float(value: Any) -> Any:
    if value is None:
        return None
    return value + 0.0 if value == value else _NAN  # -0.0 becomes 0.0


def _tidy_decimal(value: Any) -> Any:
    if value is None or not value.is_finite():
        return decimal.Decimal("NaN") if value is not None and value.is_nan() else value
    return stripped(value)


def _encode_any(value: Any) -> bytes:
    cls = value.__class__
    if cls is str:
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if cls is tuple:
        return b"t" + _join(map(_encode_any, value))
    return _encode_plain(plain(value))


def _encode_plain(value: Any) -> bytes:
    cls = value.__class__
    if cls is int:
        return b"i" + int(value).to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    if cls is float or value is NAN:
        return b"f" + _DOUBLE.pack(value)
    if cls is bytes:
        return b"b" + bytes(value)
    if value is None:
        return b"n"
    if cls is str or cls is tuple:
        return _encode_any(value)
    if cls is frozenset:
        return b"z" + _join(sorted(map(_encode_any, value)))
    if cls is decimal.Decimal:
        return _encode_decimal(value)
    return b"p" + _pickle(value)


def _encode_decimal(value: decimal.Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    return f"d{'-' * sign}{''.join(map(str, digits))}E{exponent}".encode()


def _join(parts: Any) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _pickle(value: Any) -> bytes:
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    # Without its memo the pickler writes equal parts the same way, whether or not they are shared.
    pickler.fast = True
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError, ValueError):
        return pickled.dumps(value)
    data = out.getvalue()
    return pickled.dumps(value) if b"__main__" in data else data


def _decode_any(data: bytes, loads: Loads) -> Any:
    tag, rest = data[:1], data[1:]
    if tag == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if tag == b"i":
        return int.from_bytes(rest, "big", signed=True)
    if tag == b"f":
        return one_nan(_DOUBLE.unpack(rest)[0])
    if tag == b"b":
        return rest
    if tag == b"n":
        return None
    if tag == b"t":
        return tuple([_decode_any(part, loads) for part in _parts(rest)])
    if tag == b"z":
        return frozenset([_decode_any(part, loads) for part in _parts(rest)])
    if tag == b"d":
        return decimal.Decimal(rest.decode())
    if tag == b"p":
        return one_nan(loads(rest))
    msg = f"unknown mark {tag!r}"
    raise LookupError(msg)


def _parts(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        parts.append(data[at + _LENGTH.size : end])
        at = end
    return parts
