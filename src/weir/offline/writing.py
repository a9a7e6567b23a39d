"""State files and metadata of a savepoint that no job took.

A savepoint is written into a directory that was empty: first all state files, then `_metadata`,
which makes it one. Whatever fails before that leaves no savepoint, and takes its files away.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from weir.backend.base import RESERVED_PREFIX, RestoreSource
from weir.backend.restored import RestoredState, common_sources, read_states
from weir.checkpoint.metadata import (
    FileRecord,
    OperatorRecord,
    OperatorStateRecord,
    RedistributionMode,
    SubtaskRecord,
)
from weir.checkpoint.paths import new_data_file, resolve, split_location
from weir.codec.portable import Portable
from weir.codec.stamped import StampedTypeInfo
from weir.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange, range_of
from weir.offline.encoding import encoded_groups
from weir.offline.keyed import Layout, StoredKind
from weir.offline.opened import OpenSnapshot
from weir.snapshot import SnapshotReader, SnapshotWriter
from weir.state.descriptor import StateDescriptor
from weir.storage.base import Storage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

_CHUNK: Final = 4 << 20
_GROUPS_AT_ONCE: Final = 64
_encode_pair = msgspec.msgpack.encode


@dataclass(frozen=True)
class Target:
    """The directory of a savepoint that is being written; any process can make files in it."""

    uri: str
    directory: str
    options: StorageOptions | None = None

    @classmethod
    def at(cls, location: str, options: StorageOptions | None = None) -> Target:
        """Take a place where nothing is.

        Raises:
            UsageError: something is there.
        """
        uri, directory = split_location(location)
        target = cls(uri, directory, options)
        names = target.storage.list(directory)
        if names or target.storage.exists(directory):
            found = "a file" if not names else f"{', '.join(names[:3])}"
            msg = f"{location!r} is not empty, found {found}: name a new directory"
            raise UsageError(msg)
        return target

    @property
    def storage(self) -> Storage:
        """The storage that it lies on."""
        return open_storage(self.uri, self.options)

    def write(self, subtask: int, fill: Any) -> FileRecord:
        """Make one snapshot file; `fill` writes it and returns the footer of its operators."""
        name = new_data_file(subtask, 0)
        with self.storage.open_write(f"{self.directory}/{name}") as out:
            writer = SnapshotWriter(out)
            facts = writer.finish({"operators": fill(writer)})
        return FileRecord(name, facts.size, facts.crc32, subtask)


def state_kind(
    kind: str,
    *,
    key: TypeInformation,
    value: TypeInformation | None,
    map_key: TypeInformation | None = None,
    expires: bool = False,
    namespace: TypeInformation | None = None,
) -> StoredKind:
    """Describe a keyed state that is to be written, as files describe it."""
    any_type = Types.PICKLED_BYTE_ARRAY()
    inner = value or any_type
    types = {
        "key": key.to_json(),
        "namespace": (namespace or any_type).to_json(),
        "value": (StampedTypeInfo(inner) if expires else inner).to_json(),
    }
    if kind == "MAP":
        types["map_key"] = (map_key or any_type).to_json()
    return StoredKind(kind, types)


def kind_of(descriptor: StateDescriptor, key: TypeInformation) -> StoredKind:
    """Describe the keyed state that a program declares with a descriptor, under keys of a type."""
    config = descriptor.ttl_config
    return state_kind(
        descriptor.kind.name,
        key=key,
        value=descriptor.value_type,
        map_key=descriptor.key_type,
        expires=config is not None and config.is_enabled(),
    )


def write_keyed(
    target: Target,
    operator_id: str,
    name: str,
    state: tuple[StoredKind, Layout],
    rows: tuple[int, KeyGroupRange, Iterable[Any]],
) -> FileRecord:
    """Write one keyed state of one subtask: (its index, its key groups, its rows in their order).

    Raises:
        UsageError: rows do not fit; see `encoded_groups`.
    """
    kind, layout = state
    subtask, key_groups, batches = rows

    def fill(writer: SnapshotWriter) -> dict[str, Any]:
        groups: dict[str, Any] = {}
        for group, data, count in encoded_groups(batches, layout):
            if group not in key_groups:
                msg = f"key group {group} is not one of {key_groups.start} to {key_groups.end}"
                raise UsageError(msg)
            groups[str(group)] = [[*writer.section(data), count, 0]]
        entry = {"kind": kind.kind, "type": dict(kind.types), "groups": groups}
        return {operator_id: {"keyed": {name: entry}, "operator": {}}}

    return target.write(subtask, fill)


@dataclass(frozen=True)
class NewElements:
    """An operator state that is to be written: its elements by subtask, encoded."""

    mode: RedistributionMode
    types: Mapping[str, Any]
    elements: tuple[tuple[bytes, ...], ...]

    @classmethod
    def of(
        cls,
        mode: RedistributionMode,
        value: Portable,
        map_key: Portable | None,
        parts: list[list[Any]],
    ) -> NewElements:
        """Encode elements, given by subtask; those of a map as (key, value).

        Raises:
            UsageError: a value does not fit its type.
        """
        types = {"value": value.type_info.to_json()}
        if map_key is not None:
            types["map_key"] = map_key.type_info.to_json()
        encoded = tuple(
            tuple(_element(element, value, map_key) for element in part) for part in parts
        )
        return cls(mode, types, encoded)


def _element(element: Any, value: Portable, map_key: Portable | None) -> bytes:
    if map_key is None:
        return _encoded(element, value)
    return _encode_pair((_encoded(element[0], map_key), _encoded(element[1], value)))


def _encoded(element: Any, of: Portable) -> bytes:
    # What is read of an undeclared type is its pickle, which goes back as it is.
    undeclared = isinstance(of.type_info, PickledBytesTypeInfo)
    if undeclared and of.codec.safe and isinstance(element, bytes):
        return element
    return of.codec.encode(element)


@dataclass
class OperatorEdit:
    """What is to become of one operator.

    `keyed` are the files of new keyed states, by name and subtask, `elements` new operator states.
    Stored states of these names and kinds are replaced, whatever is `dropped` is not taken over.
    """

    record: OperatorRecord
    keyed: dict[str, list[FileRecord]] = field(default_factory=dict)
    elements: dict[str, NewElements] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    source: OpenSnapshot | None = None
    source_id: str | None = None
    unpickle: bool = False

    def subtasks(self, target: Target) -> tuple[list[SubtaskRecord], list[list[FileRecord]]]:
        """Write what is taken over; returns the records without their files, and the files.

        The last file of a subtask is its own, those before are layers.
        """
        width, groups = self.record.parallelism, self.record.max_parallelism
        before = {subtask.index: subtask for subtask in self.record.subtasks}
        records, files = [], []
        for index in range(width):
            key_groups = range_of(index, width, groups)
            old = before.get(index)
            parts = [self.keyed[name][index] for name in sorted(self.keyed)]
            contents = _OwnFile(self, index, key_groups, old)
            own = target.write(index, contents.fill)
            keyed = {*contents.keyed, *self.keyed}
            has_keyed = bool(keyed or contents.has_raw)
            named = sorted(name for name in keyed if not name.startswith(RESERVED_PREFIX))
            records.append(
                SubtaskRecord(
                    index,
                    keyed_range=(key_groups.start, key_groups.end) if has_keyed else None,
                    keyed_states=tuple(named),
                    operator_states=contents.operator_states,
                    watermark=None if old is None else old.watermark,
                )
            )
            files.append([*parts, own])
        return records, files


class _OwnFile:
    """The file of a subtask with everything that is taken over, and its operator state."""

    def __init__(
        self,
        edit: OperatorEdit,
        index: int,
        key_groups: KeyGroupRange,
        old: SubtaskRecord | None,
    ) -> None:
        self._edit = edit
        self._index = index
        self._key_groups = key_groups
        self._old = old
        self.keyed: dict[str, Any] = {}
        self.operator_states: dict[str, OperatorStateRecord] = {}
        self.has_raw = False

    def fill(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write the file; returns the footer of its operators."""
        operator: dict[str, Any] = {}
        raw: dict[str, Any] = {}
        if self._old is not None and self._edit.source is not None:
            self.keyed = self._carried(writer)
            operator, raw = self._own_parts(writer)
        for name, new in self._edit.elements.items():
            data = new.elements[self._index]
            sections = [list(section) for section in writer.slices(data)]
            operator[name] = {"mode": new.mode, "type": dict(new.types), "elements": sections}
        self.operator_states = {
            name: OperatorStateRecord(entry["mode"], len(entry["elements"]))
            for name, entry in operator.items()
        }
        self.has_raw = bool(raw.get("groups"))
        part: dict[str, Any] = {"keyed": self.keyed, "operator": operator}
        if self.has_raw:
            part["raw_keyed"] = raw
        return {self._edit.record.id: part}

    def _source_id(self) -> str:
        return self._edit.source_id or self._edit.record.id

    def _carried(self, writer: SnapshotWriter) -> dict[str, Any]:
        """Write keyed states and timers through, some key groups at a time, undecoded."""
        source, old = self._edit.source, self._old
        if source is None or old is None or old.keyed_range is None:
            return {}
        wanted = KeyGroupRange(*old.keyed_range)
        record = replace(self._edit.record, id=self._source_id(), subtasks=(old,))
        names = _AllBut({*self._edit.keyed, *self._edit.dropped})
        stored, plain = source.keyed_sources(record, wanted), not self._edit.unpickle
        sources = common_sources(stored, wanted, names, plain=plain)
        carried: dict[str, Any] = {}
        for start in range(wanted.start, wanted.end + 1, _GROUPS_AT_ONCE):
            part = KeyGroupRange(start, min(start + _GROUPS_AT_ONCE - 1, wanted.end))
            for state in _all_states(sources, part, names):
                entry = state.write(writer)
                known = carried.setdefault(state.name, entry)
                known["groups"].update(entry["groups"])
        return carried

    def _own_parts(self, writer: SnapshotWriter) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copy operator state and raw keyed state."""
        source, old = self._edit.source, self._old
        if source is None or old is None or old.file is None:
            return {}, {}
        reader = source.reader(old.file)
        part = reader.footer["operators"].get(self._source_id(), {})
        operator = {}
        replaced = {*self._edit.elements, *self._edit.dropped}
        for name, entry in part.get("operator", {}).items():
            if name not in replaced:
                copied = _copied(reader, entry["elements"], writer)
                operator[name] = {**entry, "elements": copied}
        groups = part.get("raw_keyed", {}).get("groups", {})
        copied = _copied(reader, groups.values(), writer)
        return operator, {"groups": dict(zip(groups, copied, strict=True))}


class _AllBut:
    """All names but some."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __contains__(self, name: object) -> bool:
        return name not in self._names


def _all_states(
    sources: list[RestoreSource], key_groups: KeyGroupRange, names: _AllBut
) -> list[RestoredState]:
    states = read_states(sources, key_groups, names=names)
    timers = read_states(sources, key_groups, timers=True, names=names)
    return [*states.values(), *timers.values()]


def _copied(
    reader: SnapshotReader, addresses: Iterable[Any], writer: SnapshotWriter
) -> list[list[int]]:
    found = reader.sections(addresses)
    return [list(section) for section in writer.slices(found)]


def copy_file(source: OpenSnapshot, file: FileRecord, target: Target) -> FileRecord:
    """Copy a state file into a savepoint's directory, checked; one in the metadata stays there.

    Raises:
        CorruptStateError: it is damaged.
        StorageError: it cannot be read or written.
    """
    if file.data is not None:
        return file
    path = resolve(source.directory, file.path)
    name = file.path.rpartition("/")[2]
    with target.storage.open_write(f"{target.directory}/{name}") as out:
        size, found = _copy(source.storage, path, out)
        if (size, found) != (file.size, file.crc32):
            msg = (
                f"state file {path!r} is corrupt: {size} bytes with checksum {found:08x}, "
                f"expected {file.size} with {file.crc32:08x}; use another checkpoint"
            )
            raise CorruptStateError(msg)
    return replace(file, path=name)


def _copy(storage: Storage, path: str, out: Any) -> tuple[int, int]:
    size = checksum = 0
    while chunk := storage.read_range(path, size, _CHUNK):
        out.write(chunk)
        size += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
    return size, checksum
