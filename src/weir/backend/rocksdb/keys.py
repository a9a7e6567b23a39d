"""The bytes of keys: how addresses become database keys, in an order that key groups share.

A database key begins with the address::

    key group   2 bytes, big-endian
    key         4 bytes of length, big-endian, and the encoded key
    namespace   0, or 1 and 4 bytes of length and the encoded namespace

so that a key group is one range and no address is the prefix of another. What follows depends on
the kind of state. Invariant: keys that are equal are the same bytes. Keys of declared types are
encoded by their codec. Undeclared keys have an encoding of their own, because equal objects may
pickle differently: integers by value (True, 1.0 and Decimal(1) are stored as 1; a fraction is one
key as a float and another as a Decimal), texts, bytes, None, tuples and frozen sets member by
member; objects of other classes are pickled without memory of what occurred before, so two of them
are the same key when their fields are.
"""

from __future__ import annotations

import decimal
import io
import pickle
import struct
from typing import Any, Protocol

from weir.backend.address import address_of, split_address
from weir.backend.base import VOID
from weir.codec import Codec, pickled
from weir.common.typeinfo import PickledBytesTypeInfo
from weir.errors import CorruptStateError, UsageError

GROUP_BYTES = 2
_HEAD = struct.Struct(">HI")
_LENGTH = struct.Struct(">I")
_DOUBLE = struct.Struct(">d")
_LONG_INTEGER = 1000


class KeyCodec(Protocol):
    """Keys to bytes and back; equal keys give equal bytes."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""

    def decode(self, data: bytes) -> Any:
        """Return the key."""


class TypedKeys:
    """Keys of a declared type."""

    def __init__(self, codec: Codec) -> None:
        """Use the codec of the declared type."""
        self._codec = codec
        self.decode = codec.decode

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""
        if value.__class__ is float and value == 0:
            value = 0.0  # also for -0.0
        try:
            return self._codec.encode(value)
        except UsageError:
            if value.__class__ in (bool, float) and value == int(value):
                return self._codec.encode(int(value))
            raise


class AnyKeys:
    """Keys of undeclared types."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key."""
        return _encode_any(value)

    def decode(self, data: bytes) -> Any:
        """Return the key; runs code when it was an object.

        Raises:
            CorruptStateError: the bytes are not a key.
        """
        try:
            return _decode_any(data)
        except (struct.error, UnicodeDecodeError, LookupError, decimal.InvalidOperation) as e:
            msg = f"{len(data)} bytes in a database are not a key: {e}"
            raise CorruptStateError(msg) from e


def key_codec(codec: Codec) -> KeyCodec:
    """Return how keys of a codec's type become parts of database keys."""
    return AnyKeys() if isinstance(codec.type_info, PickledBytesTypeInfo) else TypedKeys(codec)


class Addresses:
    """Addresses of one backend to the beginnings of database keys and back."""

    def __init__(self, key: Codec, namespace: Codec) -> None:
        """Encode keys and namespaces by the codecs of their types."""
        self._key = key_codec(key)
        self._namespace = key_codec(namespace)
        self._last: tuple[bytes, Any] = (b"", None)

    def encode(self, group: int, address: Any) -> bytes:
        """Return the beginning of the database keys of an address."""
        key, namespace = split_address(address)
        data = self._key.encode(key)
        if namespace is VOID:
            return _HEAD.pack(group, len(data)) + data + b"\0"
        space = self._namespace.encode(namespace)
        return b"".join(
            (_HEAD.pack(group, len(data)), data, b"\1", _LENGTH.pack(len(space)), space)
        )

    def decode(self, prefix: bytes) -> Any:
        """Return the address that `encode` was given, apart from its key group."""
        if prefix == self._last[0]:
            return self._last[1]
        end = _HEAD.size + _HEAD.unpack_from(prefix)[1]
        key = self._key.decode(prefix[_HEAD.size : end])
        namespace: Any = VOID
        if prefix[end]:
            namespace = self._namespace.decode(prefix[end + 1 + _LENGTH.size :])
        address = address_of(key, namespace)
        self._last = (prefix, address)
        return address


def address_end(key: bytes) -> int:
    """Return where the address ends in a database key."""
    end = _HEAD.size + int(_HEAD.unpack_from(key)[1])
    if not key[end]:
        return end + 1
    return end + 1 + _LENGTH.size + int(_LENGTH.unpack_from(key, end + 1)[0])


def group_start(group: int) -> bytes:
    """Return what all database keys of a key group and above are not below."""
    return group.to_bytes(GROUP_BYTES, "big")


def after(prefix: bytes) -> bytes | None:
    """Return the least bytes above everything that begins with a prefix; None when none are."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _encode_any(value: Any) -> bytes:
    cls = value.__class__
    if cls is str:
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if cls is int or cls is bool:
        return _encode_int(int(value))
    if cls is float:
        return _encode_int(int(value)) if value.is_integer() else b"f" + _DOUBLE.pack(value)
    if cls is bytes:
        return b"b" + bytes(value)
    if value is None:
        return b"n"
    if cls is tuple:
        return b"t" + _join(map(_encode_any, value))
    if cls is frozenset:
        return b"z" + _join(sorted(map(_encode_any, value)))
    if cls is decimal.Decimal and value.is_finite():
        return _encode_decimal(value)
    return b"p" + _pickle(value)


def _encode_int(value: int) -> bytes:
    return b"i" + value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _encode_decimal(value: decimal.Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return _encode_int(0)
    power = int(exponent) + len(digits) - len(text)
    if 0 <= power < _LONG_INTEGER:
        return _encode_int(int(value))
    return f"d{'-' * sign}{text}E{power}".encode()


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


def _decode_any(data: bytes) -> Any:
    tag, rest = data[:1], data[1:]
    if tag == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if tag == b"i":
        return int.from_bytes(rest, "big", signed=True)
    if tag == b"f":
        return _DOUBLE.unpack(rest)[0]
    if tag == b"b":
        return rest
    if tag == b"n":
        return None
    if tag == b"t":
        return tuple(map(_decode_any, _parts(rest)))
    if tag == b"z":
        return frozenset(map(_decode_any, _parts(rest)))
    if tag == b"d":
        return decimal.Decimal(rest.decode())
    if tag == b"p":
        return pickled.loads(rest)
    msg = f"unknown mark {tag!r}"
    raise LookupError(msg)


def _parts(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        parts.append(data[at + _LENGTH.size : end])
        at = end
    return parts
