"""What a database holds besides registered states, and what describes it in a checkpoint.

States that were restored and not asked for yet are in one of two forms. A *stored* state has a
column family of its own, with rows of the types it was stored with: it came with the files of a
database. A *packed* state came from a snapshot in the common format: its key groups are rows of one
column family, as they were read::

    key     key group (2 bytes) | length of the name (2 bytes) | name | part (4 bytes)
    value   MessagePack [data, count, origin, delta]

so that a key group is one range in every column family.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.backend.base import NATIVE_PREFIX
from weir.backend.group_format import GroupFormat
from weir.backend.kinds import StateKind
from weir.backend.restored import EncodedGroup, RestoredState
from weir.backend.rocksdb.database import Cursor, Database, WriteBatch
from weir.backend.rocksdb.keys import group_start
from weir.codec import Codec, codec_for
from weir.codec.portable import plain_codec
from weir.codec.stamped import stored_type
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError

NATIVE = NATIVE_PREFIX + "rocksdb"
PACKED_FAMILY = "packed"
_HEAD = struct.Struct(">HH")
_PART = struct.Struct(">I")
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, int, str, bool]).decode


@dataclass
class Described:
    """Kind and types of a state, as snapshots describe them; the column family of stored ones.

    A `plain` one is read without running code: what was pickled is loaded as plain data only.
    """

    name: str
    kind: str
    types: dict[str, Any]
    family: str = PACKED_FAMILY
    plain: bool = False

    @property
    def is_stored(self) -> bool:
        """Tell whether the state has a column family of its own."""
        return self.family != PACKED_FAMILY

    def restored(self) -> RestoredState:
        """Return the description with no groups."""
        return RestoredState(self.name, self.kind, self.types)

    def group_format(self) -> GroupFormat:
        """Return the format of the stored types.

        Raises:
            CorruptStateError: the description of one is missing or none.
            UsageError: it is plain, and keys hold pickled parts.
        """
        return self.restored().stored_format(self._codec)

    def _codec(self, part: str) -> Codec:
        declared = stored_type(self.types.get(part))
        if not self.plain:
            return codec_for(declared)
        codec = plain_codec(declared)
        if part != "value" and codec.type_info != declared:
            msg = (
                f"state {self.name!r} holds pickled parts in keys of {declared!r} inside of the "
                "files of a database, and reading those runs code: allow it with unpickle=True, "
                "or --unpickle, or take a savepoint in the canonical format"
            )
            raise UsageError(msg)
        return codec


@dataclass
class Catalog:
    """All states that were restored and not asked for yet."""

    stored: dict[str, Described] = field(default_factory=dict)
    packed: dict[str, Described] = field(default_factory=dict)

    def unite(self, found: Described, origin: str) -> None:
        """Add a state that another old subtask stored; both must mean the same.

        Raises:
            CorruptStateError: the kinds differ, or there is no such kind.
            IncompatibleStateError: the types differ.
        """
        if found.is_stored and found.kind not in StateKind.__members__:
            known_kinds = ", ".join(StateKind.__members__)
            msg = (
                f"state {found.name!r} in {origin!r} is of kind {found.kind!r}, expected one of "
                f"{known_kinds}; restore another checkpoint"
            )
            raise CorruptStateError(msg)
        table = self.stored if found.is_stored else self.packed
        known = table.setdefault(found.name, found)
        if known.kind != found.kind:
            msg = f"state {found.name!r} in {origin!r} has another kind than in its other files"
            raise CorruptStateError(msg)
        if known.types != found.types:
            msg = (
                f"state {found.name!r} in {origin!r} has the types {found.types!r}, in other "
                f"files {known.types!r}: restore an older checkpoint, and ask for the state in "
                f"open, so that all subtasks change its type together"
            )
            raise IncompatibleStateError(msg)


def pack(database: Database, batch: WriteBatch, state: RestoredState) -> None:
    """Put the key groups of a state, as they were read, into the database."""
    family = database.family(PACKED_FAMILY)
    name = state.name.encode()
    for group, parts in state.groups.items():
        for number, part in enumerate(parts):
            key = _HEAD.pack(group, len(name)) + name + _PART.pack(number)
            value = _encode((part.data, part.count, part.origin, part.delta))
            batch.put(family, key, value)


def unpack(cursor: Cursor, group: int) -> Iterator[tuple[str, bytes, EncodedGroup]]:
    """Return name, database key and contents of all parts of a key group, in order."""
    for key, value in cursor.scan(group_start(group), group_start(group + 1)):
        length = _HEAD.unpack_from(key)[1]
        name = key[_HEAD.size : _HEAD.size + length].decode()
        yield name, key, EncodedGroup(*_decode(value))


def unpack_state(cursor: Cursor, group: int, name: str) -> Iterator[tuple[bytes, EncodedGroup]]:
    """Return database key and contents of the parts of one state in a key group."""
    encoded = name.encode()
    prefix = _HEAD.pack(group, len(encoded)) + encoded
    for key, value in cursor.scan(prefix, prefix + b"\xff" * _PART.size):
        yield key, EncodedGroup(*_decode(value))
