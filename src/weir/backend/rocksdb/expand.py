"""Checkpoints of a database's files in the format that every backend reads.

The database is opened once more, beside, and a full snapshot of the wanted key groups is written
to a temporary file.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Container
from dataclasses import replace

from weir.backend.base import RestoreSource, SnapshotOutput, StateLayer
from weir.backend.context import NoSharedFiles
from weir.backend.key_bytes import KEY_FORMAT, had_other_bytes
from weir.backend.kinds import TIMER_KIND
from weir.backend.rocksdb.catalog import NATIVE, PACKED_FAMILY, Catalog, Described
from weir.backend.rocksdb.database import Database
from weir.backend.rocksdb.full import FrozenState, FrozenTimers, FullSnapshot
from weir.backend.rocksdb.options import RocksDBSettings
from weir.backend.rocksdb.restore import Filled, described_database, fill, without_native
from weir.backend.rocksdb.timers import RocksDBTimers
from weir.codec.stamped import stored_type
from weir.keygroup import KeyGroupRange
from weir.snapshot import SnapshotReader, SnapshotWriter
from weir.storage.private_files import scratch_directory


def expand_native(
    source: RestoreSource, key_groups: KeyGroupRange, names: Container[str] | None = None
) -> RestoreSource:
    """Return a source without files of a database, with the same contents.

    With `names` only these states are read; nothing of the others is decoded. Files that are made
    here are gone when nobody reads them any more.

    Raises:
        UsageError: the package rocksdict is not installed.
        CorruptStateError: a file is damaged.
    """
    return _common(source, key_groups, names, plain=False)


def expand_plain(
    source: RestoreSource, key_groups: KeyGroupRange, names: Container[str] | None = None
) -> RestoreSource:
    """Return what `expand_native` does without running code: what was pickled is plain data.

    Raises:
        UsageError: it is more than that, or the package rocksdict is not installed.
        CorruptStateError: a file is damaged.
    """
    return _common(source, key_groups, names, plain=True)


def _common(
    source: RestoreSource, key_groups: KeyGroupRange, names: Container[str] | None, *, plain: bool
) -> RestoreSource:
    wanted = source.key_groups.intersect(key_groups)
    layers = without_native([source])[0].layers
    if len(wanted):
        layers += (_expanded(source, wanted, names, plain=plain),)
    return replace(source, layers=layers, reusable=False)


def with_present_keys(
    sources: list[RestoreSource], key_groups: KeyGroupRange
) -> list[RestoreSource]:
    """Return sources in whose databases all keys have the bytes that they would have now.

    Entries that only differ in the class of their keys become one: lists and maps are joined, of
    single values one is left.
    """
    return [
        expand_native(source, key_groups) if _is_outdated(source) else source for source in sources
    ]


def _is_outdated(source: RestoreSource) -> bool:
    for entry in (described_database(at) for at in source.layers if NATIVE in at.states):
        if entry.get("keys", 1) < KEY_FORMAT:
            types = [types for _, _, types, _ in entry["stored"]]
            types += [timers["type"] for timers in entry["timers"].values()]
            keys = [found[part] for found in types for part in ("key", "map_key") if part in found]
            if any(had_other_bytes(stored_type(key)) for key in keys):
                return True
    return False


def _expanded(
    source: RestoreSource, wanted: KeyGroupRange, names: Container[str] | None, *, plain: bool
) -> StateLayer:
    with scratch_directory("weir-rocksdb-expand-") as directory:
        database, filled = fill([source], wanted, directory / "db", RocksDBSettings())
        try:
            if names is not None:
                filled = _only(filled, names)
            frozen = _frozen(database, filled, wanted, plain=plain)
            return _written(frozen, source.layers[-1].reader.name)
        finally:
            database.close()


def _only(filled: Filled, names: Container[str]) -> Filled:
    """Return what was found, without the states of other names."""
    stored, packed = (
        {name: state for name, state in states.items() if name in names}
        for states in (filled.catalog.stored, filled.catalog.packed)
    )
    timers = {name: types for name, types in filled.timer_types.items() if name in names}
    return replace(filled, catalog=Catalog(stored, packed), timer_types=timers)


def _frozen(
    database: Database, filled: Filled, wanted: KeyGroupRange, *, plain: bool
) -> FullSnapshot:
    catalog = filled.catalog
    states = [
        FrozenState.of(replace(state, plain=plain), database.family(state.family).cursor())
        for state in catalog.stored.values()
    ]
    packed = database.family(PACKED_FAMILY).cursor() if catalog.packed else None
    timers = []
    for name, types in filled.timer_types.items():
        described = Described(name, TIMER_KIND, types, plain=plain)
        stored = RocksDBTimers(name, described.group_format(), wanted)
        timers.append(FrozenTimers(stored, database.family(name).cursor()))
    return FullSnapshot(0, wanted, states, (packed, catalog.packed), timers=timers)


def _written(snapshot: FullSnapshot, name: str) -> StateLayer:
    with tempfile.TemporaryFile() as out:  # It has no name, and stays as long as its reader.
        writer = SnapshotWriter(out)
        part = snapshot.write(SnapshotOutput(writer, NoSharedFiles()))
        size = writer.finish({}).size
        out.flush()
        descriptor = os.dup(out.fileno())
    try:
        reader = SnapshotReader(lambda o, n: os.pread(descriptor, n, o), size, name)
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(reader, os.close, descriptor)
    return StateLayer(reader, part.states)
