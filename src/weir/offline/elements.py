"""Elements of operator state: lists that are split or united, and broadcast maps.

Elements are stored one by one, so that an undeclared one is its pickle and needs no loading. Every
subtask stores the same broadcast state, so it is read from the first one that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa

from weir.checkpoint.metadata import OperatorRecord
from weir.codec.portable import Portable, portable
from weir.codec.stamped import stored_type
from weir.common.typeinfo import PickledBytesTypeInfo, Types
from weir.errors import CorruptStateError
from weir.keygroup import KeyGroupRange
from weir.offline.opened import OpenSnapshot
from weir.offline.tables import BATCH_ROWS, MAP_KEY, POSITION, SUBTASK, VALUE
from weir.snapshot import SnapshotReader

MODES: Final = {
    "SPLIT": "operator list state",
    "UNION": "operator union list state",
    "BROADCAST": "broadcast state",
}
_decode_pair = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


@dataclass(frozen=True)
class StoredElements:
    """Where an operator state is in one subtask's file."""

    subtask: int
    reader: SnapshotReader
    addresses: list[Any]


@dataclass(frozen=True)
class ElementTable:
    """The elements of one operator state; see `weir.offline.tables.StateTable`."""

    name: str
    mode: str
    value: Portable
    map_key: Portable | None
    parts: tuple[StoredElements, ...]
    unpickle: bool = False

    @property
    def kind(self) -> str:
        """What it is, as users know it."""
        return MODES[self.mode]

    @property
    def schema(self) -> Any:
        """The columns: subtask and position of an element, then what is stored."""
        if self.map_key is not None:
            return pa.schema([(MAP_KEY, self.map_key.arrow), (VALUE, self.value.arrow)])
        return pa.schema([(SUBTASK, pa.int32()), (POSITION, pa.int32()), (VALUE, self.value.arrow)])

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[Any]:
        """Yield the elements as Arrow batches, subtask after subtask."""
        for part in self.parts:
            for start in range(0, len(part.addresses), BATCH_ROWS):
                data = part.reader.sections(part.addresses[start : start + BATCH_ROWS])
                yield self._batch(part, start, data)

    def elements(self) -> Iterator[Any]:
        """Yield the elements with their Python values; those of a map as (key, value).

        What was pickled is its bytes, unless loading it was allowed.
        """
        for key, data in self.stored():
            value = self.decoded(self.value, data)
            yield value if self.map_key is None else (self.decoded(self.map_key, key), value)

    def stored(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the bytes of map key and value of each element; in a list the key is empty."""
        for part in self.parts:
            for data in part.reader.sections(part.addresses):
                yield (b"", data) if self.map_key is None else _pair(data, part.reader.name)

    def decoded(self, of: Portable, data: bytes) -> Any:
        """Return a value or map key of some bytes, as `elements` does."""
        return data if self._stays_bytes(of) else of.codec.decode(data)

    def _batch(self, part: StoredElements, start: int, data: list[bytes]) -> Any:
        if self.map_key is not None:
            pairs = [_pair(found, part.reader.name) for found in data]
            keys = self._column(self.map_key, [key for key, _ in pairs], MAP_KEY)
            arrays = [keys, self._column(self.value, [value for _, value in pairs], VALUE)]
        else:
            arrays = [
                pa.array([part.subtask] * len(data), pa.int32()),
                pa.array(range(start, start + len(data)), pa.int32()),
                self._column(self.value, data, VALUE),
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, of: Portable, data: list[bytes], name: str) -> Any:
        if self._stays_bytes(of):
            return pa.array(data, pa.binary())
        return of.column([of.codec.decode(found) for found in data], name)

    def _stays_bytes(self, of: Portable) -> bool:
        return isinstance(of.type_info, PickledBytesTypeInfo) and not self.unpickle


def _pair(data: bytes, origin: str) -> tuple[bytes, bytes]:
    try:
        return _decode_pair(data)
    except msgspec.MsgspecError as error:
        msg = f"an entry of broadcast state in {origin!r} is not a pair of byte strings ({error})"
        raise CorruptStateError(msg) from error


def element_tables(
    snapshot: OpenSnapshot, operator: OperatorRecord, *, unpickle: bool = False
) -> dict[str, ElementTable]:
    """Return the operator states of an operator by name.

    Raises:
        CorruptStateError: a file is damaged.
        UsageError: a type has no form as a column.
        StorageError: a file cannot be read.
    """
    found: dict[str, ElementTable] = {}
    for subtask in sorted(operator.subtasks, key=lambda subtask: subtask.index):
        if subtask.file is None:
            continue
        reader = snapshot.reader(subtask.file)
        for name, entry in reader.operator(operator.id)["operator"].items():
            part = StoredElements(subtask.index, reader, entry["elements"])
            before = found.get(name)
            if before is None:
                found[name] = _table(name, entry, part, unpickle)
            elif entry["mode"] != "BROADCAST":
                found[name] = replace(before, parts=(*before.parts, part))
    return found


def _table(name: str, entry: dict[str, Any], part: StoredElements, unpickle: bool) -> ElementTable:
    types = {role: stored_type(described) for role, described in entry["type"].items()}
    if "value" not in types:  # raw state is bytes that only the program understands
        types["value"], unpickle = Types.PICKLED_BYTE_ARRAY(), False
    key = types.get("map_key")
    return ElementTable(
        name,
        entry["mode"],
        portable(types["value"], unpickle),
        None if key is None else portable(key, unpickle),
        parts=(part,),
        unpickle=unpickle,
    )
