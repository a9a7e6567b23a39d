"""Filling a database: from files of a database, and from snapshots in the common format.

Files of a database are downloaded. When they are exactly what the subtask owns, the database goes
on with them; otherwise each is opened beside, and the wanted key groups, one range in every column
family, are copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

from weir.backend.base import RestoreFiles, RestoreSource, StateLayer
from weir.backend.restored import read_states
from weir.backend.rocksdb.catalog import NATIVE, Catalog, Described, pack
from weir.backend.rocksdb.database import Database
from weir.backend.rocksdb.keys import group_start
from weir.backend.rocksdb.manifest import check_catalogue
from weir.backend.rocksdb.native import Placed
from weir.backend.rocksdb.options import RocksDBSettings
from weir.errors import CorruptStateError
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle, SnapshotReader

_CHUNK = 1 << 20
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_FileName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_Handle = tuple[str, _Number, _Number, bytes | None]


class _Timers(TypedDict):
    type: dict[str, dict[str, Any]]
    counts: list[tuple[_Number, _Number]]


class _Later(TypedDict, total=False):
    """What entries of older releases lack."""

    keys: _Number


class _Entry(_Later):
    """What describes a database in a checkpoint; see `weir.backend.rocksdb.native`."""

    tables: list[tuple[_FileName, _Handle, _Number, _Number]]
    files: list[tuple[_FileName, _Number, _Number, _Number]]
    stored: list[tuple[str, str, dict[str, dict[str, Any]], str]]
    packed: list[tuple[str, str, dict[str, dict[str, Any]]]]
    timers: dict[str, _Timers]
    sequence: _Number


_decode_entry = msgspec.msgpack.Decoder(_Entry).decode


@dataclass(frozen=True)
class NativePart:
    """The files of one old subtask's database."""

    entry: dict[str, Any]
    reader: SnapshotReader
    files: RestoreFiles
    wanted: KeyGroupRange
    stored: KeyGroupRange
    reusable: bool

    def placed(self) -> dict[str, Placed]:
        """Return where the table files are in the storage."""
        return {
            name: Placed(self.files.lasting(FileHandle(*handle)), offset, length)
            for name, handle, offset, length in self.entry["tables"]
        }

    def lasting(self) -> dict[str, Placed]:
        """Return where the table files are for checkpoints to come."""
        lasting = self.files.lasting
        return {n: p._replace(handle=lasting(p.handle)) for n, p in self.placed().items()}

    def described(self) -> list[Described]:
        """Return the states inside, timers left out."""
        stored = [Described(*state) for state in self.entry["stored"]]
        return stored + [Described(*state) for state in self.entry["packed"]]

    def timer_counts(self, name: str) -> dict[int, int]:
        """Return how many timers each wanted key group has."""
        timers = self.entry["timers"].get(name, {"counts": []})
        return {group: count for group, count in timers["counts"] if group in self.wanted}


@dataclass
class Filled:
    """What a restore found beside rows."""

    catalog: Catalog = field(default_factory=Catalog)
    known: dict[str, Placed] = field(default_factory=dict)
    sequence: int = 0
    timers: dict[str, dict[int, int]] = field(default_factory=dict)
    timer_types: dict[str, dict[str, Any]] = field(default_factory=dict)


def split(
    sources: list[RestoreSource], key_groups: KeyGroupRange
) -> tuple[list[NativePart], list[RestoreSource]]:
    """Return the files of databases among the sources, and everything that is not such files.

    Raises:
        CorruptStateError: two sources hold the same key groups, or files cannot be had.
    """
    native = [
        _native_part(layer, source, key_groups)
        for source in sources
        for layer in source.layers
        if NATIVE in layer.states
    ]
    seen: set[int] = set()
    for part in native:
        if not seen.isdisjoint(part.wanted):
            msg = f"key groups of {part.reader.name!r} are also in another file"
            raise CorruptStateError(msg)
        seen.update(part.wanted)
    return native, without_native(sources)


def without_native(sources: list[RestoreSource]) -> list[RestoreSource]:
    """Return the sources without the files of databases."""
    return [
        replace(
            source,
            layers=tuple(
                replace(layer, states={n: s for n, s in layer.states.items() if n != NATIVE})
                for layer in source.layers
            ),
        )
        for source in sources
    ]


def described_database(layer: StateLayer) -> dict[str, Any]:
    """Return what describes the database of a layer that has one.

    Raises:
        CorruptStateError: it is not in the known form.
    """
    try:
        found: Any = _decode_entry(msgspec.msgpack.encode(layer.states[NATIVE]))
    except msgspec.MsgspecError as error:
        msg = f"{layer.reader.name!r} is damaged: its database is not in the known form ({error})"
        raise CorruptStateError(msg) from error
    return dict(found)


def _native_part(layer: StateLayer, source: RestoreSource, key_groups: KeyGroupRange) -> NativePart:
    if source.files is None:
        msg = f"{layer.reader.name!r} refers to files of a database, and there is no way to them"
        raise CorruptStateError(msg)
    described = described_database(layer)
    wanted = source.key_groups.intersect(key_groups).intersect(source.stored)
    return NativePart(
        described,
        layer.reader,
        source.files,
        wanted,
        stored=source.stored,
        reusable=source.reusable,
    )


def download(part: NativePart, target: Path, settings: RocksDBSettings) -> None:
    """Put the files of a database into a new directory, checked byte for byte.

    Raises:
        CorruptStateError: a file is damaged, or the catalogue among them is not whole.
    """
    target.mkdir(parents=True)
    listed = part.entry["files"]
    sections = part.reader.sections([address for _, *address in listed])
    files = {name: bytes(data) for (name, *_), data in zip(listed, sections, strict=True)}
    check_catalogue(files, part.reader.name)
    for name, data in files.items():
        (target / Path(name).name).write_bytes(data)
    whole: dict[str, list[tuple[str, Placed]]] = {}
    for name, placed in part.placed().items():
        whole.setdefault(placed.handle.path, []).append((Path(name).name, placed))

    def fetch(parts: list[tuple[str, Placed]]) -> None:
        handle = parts[0][1].handle
        if len(parts) == 1 and parts[0][1].length == handle.size:
            part.files.download(handle, target / parts[0][0])
            return
        merged = target / f"merged-{parts[0][0]}"
        part.files.download(handle, merged)
        with merged.open("rb") as source:
            for name, placed in parts:
                source.seek(placed.offset)
                _copy(source, target / name, placed.length)
        merged.unlink()

    with ThreadPoolExecutor(settings.transfer_threads) as pool:
        list(pool.map(fetch, whole.values()))


def _copy(source: Any, target: Path, length: int) -> None:
    with target.open("wb") as out:
        while length:
            data = source.read(min(length, _CHUNK))
            if not data:
                msg = f"a merged file is too short for {target.name!r}; restore another checkpoint"
                raise CorruptStateError(msg)
            out.write(data)
            length -= len(data)


def fill(
    sources: list[RestoreSource], key_groups: KeyGroupRange, path: Path, settings: RocksDBSettings
) -> tuple[Database, Filled]:
    """Make a database in a new directory from all sources.

    Raises:
        CorruptStateError: a file is damaged, or two files hold the same key group.
        IncompatibleStateError: subtasks stored a state with different types.
    """
    native, common = split(sources, key_groups)
    parts = [part for part in native if len(part.wanted)]
    filled = describe(parts)
    goes_on = len(parts) == len(sources) == 1 and parts[0].stored == parts[0].wanted == key_groups
    if goes_on:
        download(parts[0], path, settings)
        if parts[0].reusable:
            filled.known = parts[0].lasting()
        parts = []
    database = Database(path, settings)
    try:
        for number, part in enumerate(parts):
            beside = path.with_name(f"{path.name}-source-{number}")
            download(part, beside, settings)
            source = Database(beside, settings)
            copy_groups(part, source, database, filled.catalog)
            source.close()
            shutil.rmtree(beside, ignore_errors=True)
        pack_common(common, key_groups, database, filled.catalog)
    except BaseException:
        database.close()
        raise
    return database, filled


def describe(parts: Iterable[NativePart]) -> Filled:
    """Unite what several databases say about themselves.

    Raises:
        CorruptStateError, IncompatibleStateError: they contradict each other.
    """
    found = Filled()
    for part in parts:
        for state in part.described():
            found.catalog.unite(state, part.reader.name)
        found.sequence = max(found.sequence, int(part.entry["sequence"]))
        for name, timers in part.entry["timers"].items():
            found.timers.setdefault(name, {}).update(part.timer_counts(name))
            found.timer_types[name] = timers["type"]
    return found


def copy_groups(part: NativePart, source: Database, target: Database, catalog: Catalog) -> None:
    """Copy the wanted key groups of all column families; a state may have another one here."""
    start, stop = group_start(part.wanted.start), group_start(part.wanted.end + 1)
    names = {s.family: catalog.stored[s.name].family for s in part.described() if s.is_stored}
    batch = target.batch()
    for name in source.names():
        family = target.family(names.get(name, name))
        for key, value in source.family(name).cursor().scan(start, stop):
            batch.put(family, key, value)
    batch.finish()


def pack_common(
    sources: list[RestoreSource], key_groups: KeyGroupRange, database: Database, catalog: Catalog
) -> None:
    """Put the states of snapshots in the common format into a database, a key group at a time.

    Raises:
        CorruptStateError: a file is damaged, or two files hold the same key group.
        IncompatibleStateError: subtasks stored a state with different types.
    """
    batch = database.batch()
    for group in key_groups:
        for state in read_states(sources, KeyGroupRange(group, group)).values():
            if state.groups or state.name not in catalog.packed:
                catalog.unite(Described(state.name, state.kind, state.types), "a file")
            pack(database, batch, state)
    batch.finish()
