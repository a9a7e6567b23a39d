"""Full snapshots: the rows of all column families in the format that every backend reads.

Written from cursors, key group after key group; a big group becomes several parts, so that memory
stays bounded whatever the size of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weir.backend.base import Keep, KeyedPart, SnapshotOutput
from weir.backend.delta import GroupDelta, encode_delta
from weir.backend.group_format import GroupFormat
from weir.backend.groups import kept
from weir.backend.key_bytes import key_codec
from weir.backend.kinds import TIMER_KIND, Shape, StateKind
from weir.backend.rocksdb.catalog import Described, unpack
from weir.backend.rocksdb.database import Cursor
from weir.backend.rocksdb.keys import Addresses, address_end, group_start
from weir.backend.rocksdb.maps import decode_value, map_key_of
from weir.backend.rocksdb.timers import RocksDBTimers
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotWriter

_PART_BYTES = 4 << 20


@dataclass(frozen=True)
class FrozenState:
    """The rows of one state at a moment, and what is to be left out of them."""

    name: str
    kind: StateKind
    format: GroupFormat
    cursor: Cursor
    keep: Keep | None = None
    types: dict[str, Any] | None = None

    @classmethod
    def of(cls, state: Described, cursor: Cursor) -> FrozenState:
        """Freeze a state that was restored and not asked for, in the types it was stored with."""
        kind, made = StateKind[state.kind], state.group_format()
        return cls(state.name, kind, made, cursor, types=state.types)

    def write(self, writer: SnapshotWriter, key_groups: KeyGroupRange) -> dict[str, Any]:
        """Write all groups and return the footer entry."""
        groups: dict[str, list[list[int]]] = {}
        for group in key_groups:
            parts: list[list[int]] = []
            for entries in self._parts(group):
                if parts:
                    data = encode_delta(self.format, GroupDelta(put=entries))
                else:
                    data = self.format.encode(list(entries), list(entries.values()))
                parts.append([*writer.section(data), len(entries), int(bool(parts))])
            if parts:
                groups[str(group)] = parts
        types = self.types or self.format.describe()
        return {"kind": self.kind.name, "type": types, "groups": groups}

    def _parts(self, group: int) -> Iterator[dict[Any, Any]]:
        """Return the entries of a group, some megabytes at a time, without what is left out."""
        for entries in self._decoded(group):
            left = entries
            if self.keep is not None:
                left = {
                    address: value
                    for address, stored in entries.items()
                    if (value := kept(self.kind.shape, stored, self.keep)) is not None
                }
            if left:
                yield left

    def _decoded(self, group: int) -> Iterator[dict[Any, Any]]:
        return self.between(group_start(group), group_start(group + 1))

    def between(self, start: bytes, stop: bytes | None) -> Iterator[dict[Any, Any]]:
        """Return the entries of a range of rows, some megabytes at a time.

        Where a list or map ends one part, it may go on in the next.
        """
        addresses = Addresses(self.format.key, self.format.namespace)
        add = self._adder()
        entries: dict[Any, Any] = {}
        size = 0
        for row, data in self.cursor.scan(start, stop):
            end = address_end(row)
            add(entries, addresses.decode(row[:end]), row[end:], data)
            size += len(row) + len(data)
            if size >= _PART_BYTES:
                yield entries
                entries, size = {}, 0
        if entries:
            yield entries

    def _adder(self) -> Any:
        value, map_key = self.format.value, self.format.map_key

        def add_value(entries: dict[Any, Any], address: Any, _: bytes, data: bytes) -> None:
            entries[address] = value.decode(data)

        def add_chunk(entries: dict[Any, Any], address: Any, _: bytes, data: bytes) -> None:
            entries.setdefault(address, []).extend(value.decode_many(data))

        if self.kind.shape is Shape.LIST:
            return add_chunk
        if map_key is None:
            return add_value
        keys = key_codec(map_key)

        def add_entry(entries: dict[Any, Any], address: Any, rest: bytes, data: bytes) -> None:
            key = map_key_of(keys, rest, data)
            entries.setdefault(address, {})[key] = decode_value(value, data)

        return add_entry


def whole(shape: Shape, parts: Iterator[dict[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Return the entries of parts, lists and maps that go on from one to the next put together."""
    last: tuple[Any, Any] | None = None
    for part in parts:
        for address, stored in part.items():
            if last is not None and last[0] != address:
                yield last
                last = None
            if last is None:
                last = (address, stored)
            elif shape is Shape.LIST:
                last[1].extend(stored)
            else:
                last[1].update(stored)
    if last is not None:
        yield last


def write_packed(
    writer: SnapshotWriter,
    cursor: Cursor,
    states: dict[str, Described],
    key_groups: KeyGroupRange,
) -> dict[str, Any]:
    """Write packed states through and return their footer entries."""
    footer: dict[str, Any] = {
        name: {"kind": state.kind, "type": state.types, "groups": {}}
        for name, state in states.items()
    }
    for group in key_groups:
        for name, _, part in unpack(cursor, group):
            if name in footer:
                section = [*writer.section(part.data), part.count, int(part.delta)]
                footer[name]["groups"].setdefault(str(group), []).append(section)
    return footer


@dataclass(frozen=True)
class FrozenTimers:
    """The timers of one time domain at a moment."""

    timers: RocksDBTimers
    cursor: Cursor

    def write(self, writer: SnapshotWriter, key_groups: KeyGroupRange) -> dict[str, Any]:
        """Write all groups and return the footer entry."""
        groups = {}
        for group in key_groups:
            found = self.timers.read(self.cursor, group)
            if found:
                data = self.timers.format.encode([a for a, _ in found], [t for _, t in found])
                groups[str(group)] = [[*writer.section(data), len(found), 0]]
        return {"kind": TIMER_KIND, "type": self.timers.format.describe(), "groups": groups}


class FullSnapshot:
    """Views of all column families; see `weir.backend.base.KeyedSnapshot`."""

    def __init__(
        self,
        checkpoint_id: int,
        key_groups: KeyGroupRange,
        states: list[FrozenState],
        packed: tuple[Cursor | None, dict[str, Described]],
        timers: list[Any],
    ) -> None:
        """Keep the views; `timers` are `FrozenTimers` or snapshots of timers in memory."""
        self.checkpoint_id = checkpoint_id
        self._key_groups = key_groups
        self._states = states
        self._packed = packed
        self._timers = timers
        self._released = False

    def write(self, out: SnapshotOutput) -> KeyedPart:
        """Write the frozen state into the checkpoint's own file.

        Raises:
            UsageError: the snapshot was released.
        """
        if self._released:
            msg = f"snapshot {self.checkpoint_id} was released before it was written"
            raise UsageError(msg)
        footer: dict[str, Any] = {}
        for state in self._states:
            footer[state.name] = state.write(out.writer, self._key_groups)
        cursor, packed = self._packed
        if cursor is not None:
            footer.update(write_packed(out.writer, cursor, packed, self._key_groups))
        for timers in self._timers:
            if isinstance(timers, FrozenTimers):
                footer[timers.timers.name] = timers.write(out.writer, self._key_groups)
            else:
                footer.update(timers.write(out).states)
        return KeyedPart(footer)

    def release(self) -> None:
        """Let go of the views, so that the database can drop what only they needed."""
        self._released = True
        self._states = []
        self._packed = (None, {})
        self._timers = []
