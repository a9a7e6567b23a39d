"""The bytes of one key group of one state: columns, each encoded by the codec of its type.

A group is a MessagePack array of seven::

    [count, keys, spaced, namespaces, lengths, map_keys, values]

`keys` holds `count` keys in the order they were given. `spaced` lists the positions of the keys
that have a namespace and `namespaces` holds those, both nil when no key has one. `values` is one
column. For lists and maps `lengths` says how many values (and `map_keys`) belong to each key; it
is nil otherwise. Columns are whole-list encodings of `weir.codec`, so plain types never touch
Python per element.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import msgspec

from weir.backend.address import address_of, split_address, split_all
from weir.backend.base import VOID
from weir.backend.kinds import Shape, StateKind
from weir.codec import Codec, codec_for
from weir.codec.columns import decode_numbers, encode_numbers
from weir.errors import CorruptStateError, UsageError
from weir.keys import one_nan_many

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(
    tuple[int, bytes, list[int] | None, bytes | None, list[int] | None, bytes | None, bytes]
).decode


@dataclass(frozen=True)
class AddressTypes:
    """Declared types of keys and namespaces; None means any, stored pickled."""

    key: Any = None
    namespace: Any = None


@dataclass
class GroupColumns:
    """The entries of a group as columns.

    `namespaces` are those of the keys at the positions in `spaced`. Of a list or map, `lengths`
    says how many of the `values`, and of the `map_keys`, belong to each key.
    """

    keys: list[Any]
    spaced: list[int]
    namespaces: list[Any]
    values: list[Any]
    lengths: list[int] | None = None
    map_keys: list[Any] | None = None

    def check(self, count: int, shape: Shape) -> None:
        """Refuse columns of a group of `count` entries that do not fit together.

        Raises:
            CorruptStateError: their lengths differ, or a position is none.
        """
        if shape is Shape.ONE:
            entries = len(self.values)
        elif not _fit(self.lengths, len(self.values)):
            msg = f"{len(self.values)} elements do not have the lengths {self.lengths!r}"
            raise CorruptStateError(msg)
        else:
            entries = len(self.lengths or ())
        if not count == len(self.keys) == entries:
            msg = f"{count} entries have {len(self.keys)} keys and {entries} values"
            raise CorruptStateError(msg)
        if self.map_keys is not None and len(self.map_keys) != len(self.values):
            msg = f"{len(self.map_keys)} map keys have {len(self.values)} values"
            raise CorruptStateError(msg)
        if len(self.spaced) != len(self.namespaces):
            msg = f"{len(self.namespaces)} namespaces belong to {len(self.spaced)} keys"
            raise CorruptStateError(msg)
        if self.spaced and not 0 <= min(self.spaced) <= max(self.spaced) < count:
            msg = f"namespaces belong to keys up to {max(self.spaced)} of {count}"
            raise CorruptStateError(msg)

    def grouped(self) -> list[Any]:
        """Return what is stored under each key: a value, a list or a dict."""
        if self.lengths is None:
            return self.values
        if self.map_keys is None:
            return _regroup(self.lengths, self.values)
        entries = list(zip(self.map_keys, self.values, strict=True))
        return [dict(part) for part in _regroup(self.lengths, entries)]


@dataclass(frozen=True)
class GroupFormat:
    """How the entries of one state become bytes; `kind` is None for timers."""

    kind: StateKind | None
    key: Codec
    namespace: Codec
    value: Codec
    map_key: Codec | None = None

    @classmethod
    def of(
        cls, kind: StateKind | None, address: AddressTypes, value_type: Any, map_key: Any = None
    ) -> GroupFormat:
        """Build the format from declared types."""
        return cls(
            kind,
            codec_for(address.key),
            codec_for(address.namespace),
            codec_for(value_type),
            map_key=codec_for(map_key) if kind is not None and kind.shape is Shape.MAP else None,
        )

    def describe(self) -> dict[str, Any]:
        """Return the type description that goes into the footer and decides compatibility."""
        types = {
            "key": self.key.describe(),
            "namespace": self.namespace.describe(),
            "value": self.value.describe(),
        }
        if self.map_key is not None:
            types["map_key"] = self.map_key.describe()
        return types

    def check_same(self, name: str, wanted: GroupFormat) -> None:
        """Refuse a second declaration of a state in use that says something else.

        Raises:
            UsageError: the kind or a type differs.
        """
        if self.kind is not wanted.kind:
            kind = "timer" if wanted.kind is None else wanted.kind.value
            msg = f"The state name '{name}' is already in use and not a {kind}."
            raise UsageError(msg)
        found, types = self.describe(), wanted.describe()
        if found != types:
            msg = (
                f"The state name '{name}' is already in use with type {found!r}, "
                f"which is not {types!r}: use the same type, or another name"
            )
            raise UsageError(msg)

    @property
    def shape(self) -> Shape:
        """What is stored under one address."""
        return Shape.ONE if self.kind is None else self.kind.shape

    def encode(self, addresses: list[Any], values: list[Any]) -> bytes:
        """Encode entries given as parallel lists; their order is kept."""
        keys, spaced, namespaces = _take_apart(addresses)
        lengths = map_keys = None
        if self.shape is Shape.LIST:
            lengths = list(map(len, values))
            column = list(chain.from_iterable(values))
        elif self.map_key is not None:
            lengths = list(map(len, values))
            map_keys = self.map_key.encode_many(list(chain.from_iterable(values)))
            column = list(chain.from_iterable(v.values() for v in values))
        else:
            column = values
        return _encode(
            (
                len(keys),
                self.key.encode_many(keys),
                spaced or None,
                self.namespace.encode_many(namespaces) if namespaces else None,
                lengths,
                map_keys,
                self.value.encode_many(column),
            )
        )

    def encode_numbers(self, keys: Any, values: Any) -> bytes:
        """Encode integer keys and plain numbers, given as arrays, outside of namespaces."""
        columns = encode_numbers(keys), None, None, None, None, encode_numbers(values)
        return _encode((len(keys), *columns))

    def numbers(self, data: bytes) -> tuple[Any, Any] | None:
        """Return what `encode_numbers` encoded, as arrays; None for any other bytes."""
        try:
            count, keys, spaced, namespaces, lengths, map_keys, values = _decode(data)
        except msgspec.MsgspecError:
            return None
        if any(found is not None for found in (spaced, namespaces, lengths, map_keys)):
            return None
        columns = decode_numbers(keys), decode_numbers(values)
        if any(found is None or len(found) != count for found in columns):
            return None
        return columns

    def decode(self, data: bytes, name: str) -> list[tuple[Any, Any]]:
        """Return the entries as (address, value) pairs.

        Raises:
            CorruptStateError: the bytes are not a group of this format; `name` is the file.
        """
        columns = self.columns(data, name)
        keys = one_nan_many(columns.keys)
        for position, namespace in zip(columns.spaced, columns.namespaces, strict=True):
            keys[position] = address_of(keys[position], namespace)
        return list(zip(keys, columns.grouped(), strict=True))

    def columns(self, data: bytes, name: str) -> GroupColumns:
        """Return the columns of a group, whose lengths fit together.

        Raises:
            CorruptStateError: the bytes are not a group of this format; `name` is the file.
        """
        try:
            return self._columns(data)
        except (msgspec.MsgspecError, CorruptStateError, ValueError, IndexError) as e:
            msg = f"a key group in {name!r} is not in the group format: {e}"
            raise CorruptStateError(msg) from e

    def _columns(self, data: bytes) -> GroupColumns:
        count, keys_data, spaced, ns_data, lengths, map_keys_data, values_data = _decode(data)
        map_keys = None
        if self.map_key is not None:
            map_keys = one_nan_many(self.map_key.decode_many(map_keys_data or b""))
        found = GroupColumns(
            self.key.decode_many(keys_data),
            spaced or [],
            namespaces=[] if ns_data is None else self.namespace.decode_many(ns_data),
            lengths=lengths if self.shape is not Shape.ONE else None,
            map_keys=map_keys,
            values=self.value.decode_many(values_data),
        )
        found.check(count, self.shape)
        return found


def _take_apart(addresses: list[Any]) -> tuple[list[Any], list[int], list[Any]]:
    """Return keys, the positions of those with a namespace, and their namespaces."""
    if tuple not in set(map(type, addresses)):
        return addresses, [], []
    split = split_all(addresses)
    if split is not None:  # windows: all of them have a namespace
        return split[0], list(range(len(addresses))), split[1]
    keys, spaced, namespaces = [], [], []
    for position, address in enumerate(addresses):
        key, namespace = split_address(address)
        keys.append(key)
        if namespace is not VOID:
            spaced.append(position)
            namespaces.append(namespace)
    return keys, spaced, namespaces


def _fit(lengths: list[int] | None, elements: int) -> bool:
    return lengths is not None and min(lengths, default=0) >= 0 and sum(lengths) == elements


def _regroup(lengths: list[int], elements: list[Any]) -> list[list[Any]]:
    rest = iter(elements)
    return [list(islice(rest, length)) for length in lengths]
