"""Entries of one keyed state, or of the timers of one kind, read from the files of a checkpoint.

All backends and all forms of checkpoints are read alike: whole snapshots, chains of changes, logs
of changes, and files of a database. Memory holds the key groups of a few megabytes, or one larger
key group. No code of the program runs unless that was allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from weir.backend.address import split_address
from weir.backend.base import NATIVE_PREFIX, VOID, RestoreSource
from weir.backend.group_format import GroupColumns, GroupFormat
from weir.backend.kinds import TIMER_KIND, Shape, StateKind
from weir.backend.restored import RestoredState, common_sources, read_states
from weir.checkpoint.metadata import OperatorRecord
from weir.codec.portable import Portable, portable
from weir.codec.stamped import StampedCodec, StampedTypeInfo, stored_type
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import CorruptStateError, UsageError
from weir.keygroup import KeyGroupRange, key_group
from weir.keys import one_nan
from weir.offline.opened import OpenSnapshot
from weir.offline.tables import (
    KEY,
    KEY_GROUP,
    MAP_KEY,
    NAMESPACE,
    POSITION,
    TIMESTAMP,
    TTL_TIMESTAMP,
    VALUE,
    WINDOW,
    cut,
)
from weir.offline.text import kind_text
from weir.runtime.window_contents import CONTENTS

_CHUNK_BYTES: Final = 16 << 20
_TIME_WINDOW: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
_PICKLED: Final = Types.PICKLED_BYTE_ARRAY()
_NUMBERS: Final = ("LONG", "DOUBLE")


@dataclass(frozen=True)
class StoredKind:
    """Kind and types of a keyed state as its files describe them; `native`: inside a database."""

    kind: str
    types: Mapping[str, Any]
    native: bool = False

    def type_of(self, role: str) -> TypeInformation:
        """Return a type by its role: key, namespace, value, map_key.

        Raises:
            CorruptStateError: the description is not one of ours.
        """
        return stored_type(self.types.get(role))


def stored_kinds(sources: Iterable[RestoreSource]) -> dict[str, StoredKind]:
    """Return the keyed states of an operator, timers included, as the newest files describe them.

    Raises:
        CorruptStateError: the description of a database is not in the known form.
    """
    found: dict[str, StoredKind] = {}
    for source in sources:
        for layer in source.layers:
            for name, entry in layer.states.items():
                if name.startswith(NATIVE_PREFIX):
                    found.update(_native_kinds(entry, layer.reader.name))
                elif entry["groups"] or name not in found:
                    found[name] = StoredKind(entry["kind"], entry["type"])
    return found


def _native_kinds(entry: Mapping[str, Any], origin: str) -> dict[str, StoredKind]:
    try:
        states = [(n, k, t) for n, k, t, *_ in (*entry["stored"], *entry["packed"])]
        states += [(name, TIMER_KIND, timers["type"]) for name, timers in entry["timers"].items()]
        return {name: StoredKind(str(kind), dict(types), True) for name, kind, types in states}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"{origin!r} is damaged: its database is not in the known form ({error!r})"
        raise CorruptStateError(msg) from error


@dataclass(frozen=True)
class Layout:
    """How the entries of a state are decoded, and what columns they have."""

    kind: str
    key: Portable
    namespace: Portable | None
    value: Portable
    map_key: Portable | None
    expires: bool
    format: GroupFormat

    @classmethod
    def of(
        cls, stored: StoredKind, *, unpickle: bool, in_windows: bool, as_text: bool = True
    ) -> Layout:
        """Build the layout of a stored state.

        Raises:
            CorruptStateError: the description of a type is not one of ours.
            UsageError: a type has no form as a column.
        """
        kind = StateKind[stored.kind] if stored.kind in StateKind.__members__ else None
        declared = stored.type_of("value")
        expires = isinstance(declared, StampedTypeInfo)
        inner = declared.value_type if isinstance(declared, StampedTypeInfo) else declared
        key = portable(stored.type_of("key"), unpickle, as_text)
        value = portable(inner, unpickle, as_text)
        namespace = portable(stored.type_of("namespace"), unpickle, as_text)
        map_key = None
        if kind is not None and kind.shape is Shape.MAP:
            map_key = portable(stored.type_of("map_key"), unpickle, as_text)
        codec: Any = value.codec
        if isinstance(declared, StampedTypeInfo):
            codec = StampedCodec(declared, value.codec)
        made = GroupFormat(
            kind,
            key.codec,
            namespace.codec,
            codec,
            map_key=None if map_key is None else map_key.codec,
        )
        shown = namespace if in_windows or namespace.type_info != _PICKLED else None
        return cls(stored.kind, key, shown, value, map_key=map_key, expires=expires, format=made)

    @property
    def is_timers(self) -> bool:
        """Tell whether entries are timers."""
        return self.kind == TIMER_KIND

    @cached_property
    def is_numbers(self) -> bool:
        """Tell whether entries can be columns without making Python objects of them."""
        plain = self.namespace is None and not self.expires and not self.is_timers
        return (
            plain
            and self.format.shape is Shape.ONE
            and self.key.type_info.kind == "LONG"
            and self.value.type_info.kind in _NUMBERS
        )

    @cached_property
    def schema(self) -> Any:
        """The columns: key group, key, namespace, then what is stored."""
        fields = [(KEY_GROUP, pa.int32()), (KEY, self.key.arrow)]
        if self.namespace is not None:
            if self.namespace.type_info == _TIME_WINDOW:
                fields += [(name, pa.int64()) for name in WINDOW]
            else:
                fields.append((NAMESPACE, self.namespace.arrow))
        if self.is_timers:
            return pa.schema([*fields, (TIMESTAMP, pa.int64())])
        if self.map_key is not None:
            fields.append((MAP_KEY, self.map_key.arrow))
        elif self.format.shape is Shape.LIST:
            fields.append((POSITION, pa.int32()))
        fields.append((VALUE, self.value.arrow))
        if self.expires:
            fields.append((TTL_TIMESTAMP, pa.int64()))
        return pa.schema(fields)


def _batch(layout: Layout, groups: Any, columns: GroupColumns) -> Any:
    """Return a row for each value, list element or map entry; all of one group, or each of its."""
    of_keys = np.full(len(columns.keys), groups, np.int32)
    keys = layout.key.column(columns.keys, KEY)
    arrays = [keys, *_namespaces(layout, columns)]
    if columns.lengths is not None:
        lengths = np.asarray(columns.lengths, np.int64)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        of_keys = of_keys[owner]
        arrays = [array.take(pa.array(owner)) for array in arrays]
        if layout.map_key is not None:
            arrays.append(layout.map_key.column(columns.map_keys or [], MAP_KEY))
        else:
            begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
            arrays.append(pa.array((np.arange(len(owner)) - begin).astype(np.int32)))
    values = columns.values
    if layout.expires:
        stamps = pa.array([stamp for _, stamp in values], pa.int64())
        arrays += [layout.value.column([value for value, _ in values], VALUE), stamps]
    else:
        arrays.append(layout.value.column(values, VALUE))
    return pa.RecordBatch.from_arrays([pa.array(of_keys), *arrays], schema=layout.schema)


def _number_batch(layout: Layout, group: int, data: bytes) -> Any:
    """Return the rows of a key group that is two columns of numbers; None for any other."""
    found = layout.format.numbers(data) if layout.is_numbers else None
    if found is None or (found[1].dtype == np.float64) != (layout.value.type_info.kind == "DOUBLE"):
        return None
    groups = pa.array(np.full(len(found[0]), group, np.int32))
    return pa.RecordBatch.from_arrays([groups, *map(pa.array, found)], schema=layout.schema)


def group_batch(layout: Layout, group: int, data: bytes, origin: str) -> Any:
    """Return the rows of entries in the format of a key group.

    Raises:
        CorruptStateError: the bytes are not in the format of the layout.
        UsageError: values hold pickled objects, and loading those was not allowed.
    """
    return _batch(layout, group, layout.format.columns(data, origin))


def keys_batch(layout: Layout, group_of: Callable[[Any], int], data: bytes, origin: str) -> Any:
    """Return the rows of entries of several key groups, encoded as if they were one.

    Raises:
        CorruptStateError: the bytes are not in the format of the layout.
        UsageError: values hold pickled objects, and loading those was not allowed.
    """
    columns = layout.format.columns(data, origin)
    return _batch(layout, list(map(group_of, columns.keys)), columns)


def entries_batch(layout: Layout, group: int, entries: Mapping[Any, Any]) -> Any:
    """Return the rows of entries by address (`weir.backend.address`)."""
    return _batch(layout, group, _columns_of(entries, layout.format.shape))


def _namespaces(layout: Layout, columns: GroupColumns) -> list[Any]:
    if layout.namespace is None:
        if columns.spaced:
            msg = "its entries are in namespaces of a type that was not declared"
            raise UsageError(msg)
        return []
    found: list[Any] = [None] * len(columns.keys)
    for position, namespace in zip(columns.spaced, columns.namespaces, strict=True):
        found[position] = namespace
    if layout.namespace.type_info != _TIME_WINDOW:
        return [layout.namespace.column(found, NAMESPACE)]
    return [
        pa.array([None if window is None else window[i] for window in found], pa.int64())
        for i in (0, 1)
    ]


@dataclass(frozen=True)
class Entry:
    """One entry with the values that the program had; a map is a dict, a list a list.

    With time to live every value is a pair of it and its timestamp. `namespace` is None outside of
    windows.
    """

    key_group: int
    key: Any
    namespace: Any
    value: Any


@dataclass(frozen=True)
class KeyedTable:
    """The entries of one keyed state, or timers; see `weir.offline.tables.StateTable`."""

    snapshot: OpenSnapshot
    operator: OperatorRecord
    name: str
    stored: StoredKind
    layout: Layout
    unpickle: bool = False
    _sources: tuple[RestoreSource, ...] | None = None

    @property
    def kind(self) -> str:
        """What it is, as users know it."""
        return kind_text(self.stored.kind)

    @property
    def schema(self) -> Any:
        """The Arrow schema of the rows."""
        return self.layout.schema

    @property
    def key_groups(self) -> KeyGroupRange:
        """All key groups of the operator."""
        return KeyGroupRange(0, self.operator.max_parallelism - 1)

    def batches(self, key_groups: KeyGroupRange | None = None) -> Iterator[Any]:
        """Yield the rows as Arrow batches, in the order of key groups."""
        for state, group in self._groups(key_groups or self.key_groups):
            parts = state.groups[group]
            whole = len(parts) == 1 and not parts[0].delta
            batch = _number_batch(self.layout, group, parts[0].data) if whole else None
            if batch is not None:
                yield from cut(batch)
                continue
            with self._named():
                if whole:
                    columns = self.layout.format.columns(parts[0].data, parts[0].origin)
                elif self.layout.is_timers:
                    columns = self._timers(state, group)
                else:
                    columns = _columns_of(self._decoded(state, group), self.layout.format.shape)
                batch = _batch(self.layout, group, columns)
            yield from cut(batch)

    def prepared(self) -> KeyedTable:
        """Return a table that can be read often: files of a database are looked through once.

        Raises:
            UsageError: they hold pickled values, and loading those was not allowed.
            CorruptStateError: a file is damaged.
            StorageError: a file cannot be read.
        """
        if not self.stored.native:
            return self
        return replace(self, _sources=tuple(self._read_from(self.key_groups)))

    def rows_of(self, keys: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of some keys, reading only the key groups that they are in.

        Raises:
            UsageError: a value cannot be a key.
        """
        wanted: dict[int, set[Any]] = {}
        for key in map(one_nan, keys):
            wanted.setdefault(key_group(key, self.operator.max_parallelism), set()).add(key)
        for group in sorted(wanted):
            entries = {
                address: value
                for address, value in self._addresses(group)
                if split_address(address)[0] in wanted[group]
            }
            if entries:
                columns = _columns_of(entries, self.layout.format.shape)
                yield from cut(_batch(self.layout, group, columns))

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entry]:
        """Yield the entries with their Python values, in the order of key groups."""
        for state, group in self._groups(key_groups or self.key_groups):
            with self._named():
                found = self._pairs(state, group)
            for address, value in found:
                key, namespace = split_address(address)
                yield Entry(group, key, None if namespace is VOID else namespace, value)

    def _addresses(self, group: int) -> Iterator[tuple[Any, Any]]:
        for state, found in self._groups(KeyGroupRange(group, group)):
            with self._named():
                yield from self._pairs(state, found)

    def _pairs(self, state: RestoredState, group: int) -> list[tuple[Any, Any]]:
        if self.layout.is_timers:  # a key may have several
            parts = state.groups[group]
            return [e for part in parts for e in self.layout.format.decode(part.data, part.origin)]
        return list(self._decoded(state, group).items())

    def _timers(self, state: RestoredState, group: int) -> GroupColumns:
        pairs = self._pairs(state, group)
        return _columns([address for address, _ in pairs], [value for _, value in pairs])

    def _decoded(self, state: RestoredState, group: int) -> dict[Any, Any]:
        return state.entries(group, self.layout.format)

    def _named(self) -> _Named:
        return _Named(f"state {self.name!r} of operator {self.operator.uid or self.operator.id!r}")

    def _groups(self, wanted: KeyGroupRange) -> Iterator[tuple[RestoredState, int]]:
        """Yield the key groups that have something, a few megabytes of them at a time."""
        names = frozenset({self.name})
        sources = self._read_from(wanted) if self._sources is None else list(self._sources)
        sizes = _sizes(sources, self.name, wanted)
        for part in _chunks(sizes):
            found = read_states(sources, part, timers=self.layout.is_timers, names=names)
            state = found.get(self.name)
            if state is not None:
                for group in sorted(state.groups):
                    yield state, group

    def _read_from(self, wanted: KeyGroupRange) -> list[RestoreSource]:
        sources = self.snapshot.keyed_sources(self.operator, wanted)
        if self.stored.native:
            names, plain = frozenset({self.name}), not self.unpickle
            with self._named():
                sources = common_sources(sources, wanted, names, plain=plain)
        return sources


class _Named:
    """Puts the name of a state before what is wrong with its values."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        """Nothing has to be done before."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Say which state it is.

        Raises:
            UsageError: one was raised inside, without the name.
        """
        if isinstance(error, UsageError) and not str(error).startswith(self._subject):
            msg = f"{self._subject}: {error}"
            raise UsageError(msg) from error


def _sizes(sources: list[RestoreSource], name: str, wanted: KeyGroupRange) -> dict[int, int]:
    """Return how many bytes are to be read for each key group that has something."""
    sizes: dict[int, int] = {}
    for source in sources:
        for layer in source.layers:
            for text, parts in layer.states.get(name, {}).get("groups", {}).items():
                group = int(text)
                if group in wanted and parts:
                    sizes[group] = sizes.get(group, 0) + sum(part[1] for part in parts)
    return sizes


def _chunks(sizes: Mapping[int, int]) -> Iterator[KeyGroupRange]:
    """Cut key groups into ranges, each of some megabytes or of a single group."""
    start = end = -1
    total = 0
    for group in sorted(sizes):
        if start >= 0 and total + sizes[group] > _CHUNK_BYTES:
            yield KeyGroupRange(start, end)
            start = -1
        if start < 0:
            start, total = group, 0
        end, total = group, total + sizes[group]
    if start >= 0:
        yield KeyGroupRange(start, end)


def _columns_of(entries: Mapping[Any, Any], shape: Shape) -> GroupColumns:
    """Return entries by address as columns."""
    found = _columns(list(entries), list(entries.values()))
    if shape is Shape.ONE:
        return found
    found.lengths = list(map(len, found.values))
    if shape is Shape.MAP:
        found.map_keys = [key for value in found.values for key in value]
        found.values = [item for value in found.values for item in value.values()]
    else:
        found.values = [item for value in found.values for item in value]
    return found


def _columns(addresses: list[Any], values: list[Any]) -> GroupColumns:
    split = list(map(split_address, addresses))
    spaced = [i for i, (_, namespace) in enumerate(split) if namespace is not VOID]
    return GroupColumns(
        [key for key, _ in split], spaced, [split[i][1] for i in spaced], values=values
    )


def keyed_table(
    snapshot: OpenSnapshot,
    operator: OperatorRecord,
    name: str,
    kinds: Mapping[str, StoredKind],
    *,
    unpickle: bool = False,
    as_text: bool = True,
) -> KeyedTable:
    """Return the table of one of the states in `kinds`, which are all of the operator.

    Raises:
        CorruptStateError: the description of a type is not one of ours.
        UsageError: a type has no form as a column.
    """
    stored = kinds[name]
    windows = CONTENTS in kinds
    layout = Layout.of(stored, unpickle=unpickle, in_windows=windows, as_text=as_text)
    return KeyedTable(snapshot, operator, name, stored, layout=layout, unpickle=unpickle)
