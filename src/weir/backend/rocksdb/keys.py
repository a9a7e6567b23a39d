"""The bytes of addresses: how they become database keys, in an order that key groups share.

A database key begins with the address::

    key group   2 bytes, big-endian
    key         4 bytes of length, big-endian, and the encoded key
    namespace   0, or 1 and 4 bytes of length and the encoded namespace

so that a key group is one range and no address is the prefix of another. What follows depends on
the kind of state. `weir.backend.key_bytes` has the bytes of keys.
"""

from __future__ import annotations

import struct
from typing import Any

from weir.backend.address import address_of, split_address
from weir.backend.base import VOID
from weir.backend.key_bytes import key_codec
from weir.codec import Codec

GROUP_BYTES = 2
_HEAD = struct.Struct(">HI")
_LENGTH = struct.Struct(">I")


class Addresses:
    """Addresses of one backend to the beginnings of database keys and back."""

    def __init__(self, key: Codec, namespace: Codec) -> None:
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

    def beginning(self, group: int, key: Any) -> bytes:
        """Return the beginning of the database keys of a key in all namespaces."""
        return self.encode(group, key)[:-1]

    def original(self, address: Any) -> bytes:
        """Return what to keep beside the bytes of an address; often that is nothing."""
        return self._key.original(split_address(address)[0]) or b""

    def decode_original(self, prefix: bytes, original: bytes) -> Any:
        """Return the address that `encode` and `original` were given, with the same key."""
        address = self.decode(prefix)
        if not original:
            return address
        return address_of(self._key.read_original(original), split_address(address)[1])

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
