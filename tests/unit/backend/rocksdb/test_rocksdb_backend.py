"""What only the RocksDB backend promises: bounded memory, a disk that shrinks, reads of parts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.databases import Databases, scratch_directory

from weir.backend.base import SnapshotKind
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.backend.rocksdb.database import ColumnFamily
from weir.backend.rocksdb.options import MB, RocksDBSettings
from weir.common.typeinfo import Types
from weir.config import backend as conf
from weir.errors import IncompatibleStateError, StorageError, UsageError
from weir.keygroup import KeyGroupRange, key_group
from weir.state.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.backend_snapshot_conformance import source_of, write_file
from weir.testing.checkpoint_world import CheckpointWorld

TINY = {"state.backend.rocksdb.memory.fixed-per-slot": 1 << 16}
NATIVE, FULL = SnapshotKind.INCREMENTAL, SnapshotKind.FULL


@pytest.fixture
def databases() -> Iterator[Databases]:
    with scratch_directory() as directory:
        made = Databases(directory)
        yield made
        made.close()


def at(backend: Any, key: Any) -> None:
    backend.current.key, backend.current.group = key, key_group(key, 128)


def again(databases: Databases, backend: Any, kind: SnapshotKind) -> Any:
    """Return a new backend with the contents of another, through a checkpoint of a kind."""
    made = databases.backend()
    if kind is FULL:
        made.restore([source_of(write_file(backend.snapshot(1)))])
    else:
        world = CheckpointWorld()
        made.restore([world.source(world.run(backend, 1))])
    return made


class ReadRows:
    """Counts what a column family is asked for."""

    def __init__(self, family: ColumnFamily) -> None:
        self.gets = self.cursors = 0
        get, cursor = family.get, family.cursor
        family.get = lambda key: self._count("gets", get(key))
        family.cursor = lambda: self._count("cursors", cursor())  # type: ignore[method-assign]

    def _count(self, name: str, result: Any) -> Any:
        setattr(self, name, getattr(self, name) + 1)
        return result


def test_one_entry_of_a_big_map_is_read_without_the_others(databases: Databases) -> None:
    backend = databases.backend()
    state = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    at(backend, "a")
    state.put_all({i: i for i in range(5000)})
    backend._relieve()
    at(backend, "other")
    backend._relieve()
    rows = ReadRows(backend._stores["m"].facts.family)
    at(backend, "a")
    assert state.get(77) == 77
    assert state.get(77) == 77
    assert not state.contains(-1)
    assert (rows.gets, rows.cursors) == (2, 0)


def test_appending_to_a_list_never_reads_it(databases: Databases) -> None:
    backend = databases.backend(TINY)
    state = backend.state(ListStateDescriptor("l", Types.LONG()))
    rows = ReadRows(backend._stores["l"].facts.family)
    for i in range(2000):
        at(backend, f"key {i % 10}")
        state.add(i)
        if i % 100 == 0:
            backend.end_epoch()
    assert (rows.gets, rows.cursors) == (0, 0)
    at(backend, "key 3")
    assert state.get() == list(range(3, 2000, 10))


def test_a_list_of_many_pieces_is_written_as_one_when_it_is_read(databases: Databases) -> None:
    backend = databases.backend()
    state = backend.state(ListStateDescriptor("l", Types.LONG()))
    at(backend, "a")
    for i in range(200):
        state.add(i)
        backend.end_epoch()
    family = backend._stores["l"].facts.family
    assert len(list(family.cursor().keys(b""))) == 200
    backend.snapshot(1).release()
    backend._stores["l"].forget()
    assert state.get() == list(range(200))
    backend.end_epoch()
    assert len(list(family.cursor().keys(b""))) == 1
    assert state.get() == list(range(200))
    backend._stores["l"].forget()
    assert state.get() == list(range(200))


def test_a_hot_key_is_decoded_once(databases: Databases) -> None:
    backend = databases.backend()
    state = backend.state(ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG()))
    at(backend, "a")
    state.add(1)
    backend.end_epoch()
    rows = ReadRows(backend._stores["r"].facts.family)
    for _ in range(100):
        state.add(1)
    backend.end_epoch()
    assert state.get() == 101
    assert rows.gets == 0


def test_objects_in_use_survive_that_memory_runs_out(databases: Databases) -> None:
    """What user code holds of the current key is written however late it changes."""
    backend = databases.backend(TINY)
    value = backend.state(ValueStateDescriptor("v"))
    elements = backend.state(ListStateDescriptor("l"))
    entries = backend.state(MapStateDescriptor("m"))
    other = backend.state(MapStateDescriptor("other", Types.LONG(), Types.STRING()))
    at(backend, "a")
    value.update([1])
    elements.add([1])
    entries.put("x", [1])
    backend.end_epoch()
    held = [value.value(), elements.get()[0], entries.get("x")]
    for i in range(500):
        other.put(i, "x" * 100)
    for item in held:
        item.append(2)
    at(backend, "b")
    for i in range(500):
        other.put(i, "x" * 100)
    at(backend, "a")
    assert (value.value(), elements.get(), entries.get("x")) == ([1, 2], [[1, 2]], [1, 2])


def test_reading_a_mutable_value_writes_nothing(databases: Databases) -> None:
    world = CheckpointWorld()
    backend = databases.backend()
    state = backend.state(ValueStateDescriptor("v"))
    for i in range(100):
        at(backend, f"key {i}")
        state.update({"n": [i]})
    world.run(backend, 1)
    made = world.shared.made
    for i in range(100):
        at(backend, f"key {i}")
        assert state.value() == {"n": [i]}
    world.run(backend, 2)
    assert world.shared.made == made


def test_a_swept_state_leaves_the_disk(databases: Databases) -> None:
    backend = databases.backend()
    values = backend.state(ValueStateDescriptor("v", Types.STRING()))
    elements = backend.state(ListStateDescriptor("l", Types.STRING()))
    for i in range(3000):
        at(backend, f"key {i}")
        values.update(f"{i:05}" * 60)
        elements.add_all([f"{i:05}" * 30, "stays"])
    backend.snapshot(1, NATIVE).release()
    before = backend._database.file_bytes()
    looked = [backend.sweep("v", lambda v: v[:5] < "00010", 1000) for _ in range(3)]
    assert looked == [1000, 1000, 1000]
    assert backend.sweep("l", lambda e: e == "stays", 5000) == 3000
    backend.sweep("v", lambda v: v[:5] < "00010", 1000)
    backend._compactions.shutdown(wait=True)
    backend._stores["v"].facts.family.compact()
    backend._stores["l"].facts.family.compact()
    assert backend._database.file_bytes() < before / 4
    assert len(list(backend.keys("v"))) == 10
    at(backend, "key 2999")
    assert elements.get() == ["stays"]
    assert values.value() is None


def test_a_round_of_sweeping_compacts_by_itself(databases: Databases) -> None:
    backend = databases.backend()
    values = backend.state(ValueStateDescriptor("v", Types.STRING()))
    for i in range(2000):
        at(backend, f"key {i}")
        values.update(f"{i:05}" * 60)
    backend.snapshot(1, NATIVE).release()
    before = backend._database.file_bytes()
    assert backend.sweep("v", lambda v: False, 5000) == 2000
    backend._compaction.result()
    assert backend._database.file_bytes() < before / 10
    assert backend.size() == 0


def test_a_sweep_leaves_entries_that_are_in_use(databases: Databases) -> None:
    backend = databases.backend()
    values = backend.state(ValueStateDescriptor("v", Types.LONG()))
    for i in range(10):
        at(backend, f"key {i}")
        values.update(1)
    assert backend.sweep("v", lambda v: v > 1, 3) == 3
    for i in range(10):
        at(backend, f"key {i}")
        values.update(5)
    assert backend.sweep("v", lambda v: v > 1, 100) == 10
    assert backend.sweep("v", lambda v: v > 1, 100) == 10
    assert backend.size() == 10


@pytest.mark.parametrize("kind", [FULL, NATIVE])
def test_values_migrate_when_the_state_is_asked_for(databases: Databases, kind: Any) -> None:
    backend = databases.backend()
    at(backend, "a")
    backend.state(ValueStateDescriptor("v", Types.INT())).update(1)
    backend.state(ListStateDescriptor("l", Types.INT())).add_all([1, 2])
    backend.state(MapStateDescriptor("m", Types.STRING(), Types.INT())).put_all({"x": 1, "n": None})
    made = again(databases, backend, kind)
    at(made, "a")
    with pytest.raises(IncompatibleStateError):
        made.state(ValueStateDescriptor("v", Types.STRING()))
    with pytest.raises(IncompatibleStateError):
        made.state(MapStateDescriptor("m", Types.LONG(), Types.INT()))
    value = made.state(ValueStateDescriptor("v", Types.LONG()))
    assert value.value() == 1
    value.update(1 << 40)
    assert made.state(ListStateDescriptor("l", Types.LONG())).get() == [1, 2]
    entries = made.state(MapStateDescriptor("m", Types.STRING(), Types.DOUBLE()))
    assert dict(entries.items()) == {"x": 1.0, "n": None}
    last = again(databases, made, kind)
    at(last, "a")
    assert last.state(ValueStateDescriptor("v", Types.LONG())).value() == 1 << 40


@pytest.mark.parametrize("kind", [FULL, NATIVE])
def test_a_value_that_does_not_fit_leaves_what_was_restored(
    databases: Databases, kind: SnapshotKind
) -> None:
    backend = databases.backend()
    for key, value in (("a", 1), ("b", "text")):
        at(backend, key)
        backend.state(ValueStateDescriptor("v")).update(value)
    made = again(databases, backend, kind)
    with pytest.raises(IncompatibleStateError, match="text"):
        made.state(ValueStateDescriptor("v", Types.LONG()))
    state = made.state(ValueStateDescriptor("v"))
    at(made, "b")
    assert state.value() == "text"


def test_lists_keep_their_order_over_restores(databases: Databases) -> None:
    backend, expected = databases.backend(), []
    for generation in range(5):
        state = backend.state(ListStateDescriptor("l", Types.LONG()))
        at(backend, "a")
        for i in range(3):
            state.add(generation * 10 + i)
            expected.append(generation * 10 + i)
            backend.end_epoch()
        backend = again(databases, backend, NATIVE if generation % 2 else FULL)
        at(backend, "a")
    assert backend.state(ListStateDescriptor("l", Types.LONG())).get() == expected


@pytest.mark.slow
def test_a_snapshot_outlives_what_it_was_taken_from(databases: Databases) -> None:
    """States that are asked for, and a backend that is closed, take nothing from under it."""
    backend = databases.backend()
    for i in range(500):
        at(backend, f"key {i}")
        backend.state(ValueStateDescriptor("v", Types.INT())).update(i)
    for closed in (False, True) * 3:
        made = again(databases, backend, FULL)
        snapshot = made.snapshot(2)
        made.state(ValueStateDescriptor("v", Types.LONG()))
        late = made.snapshot(3)
        if closed:
            made.close()
        for taken in (snapshot, late):
            last = databases.backend()
            last.restore([source_of(write_file(taken))])
            state = last.state(ValueStateDescriptor("v", Types.LONG()))
            at(last, "key 499")
            assert state.value() == 499
            last.close()


class KeepEven:
    """A cleanup that calls odd numbers expired, as long as it is switched on."""

    full_snapshot = True

    def __init__(self) -> None:
        self.on = True

    def keep(self) -> Any:
        on = self.on
        return lambda number: not on or number % 2 == 0

    def now_ms(self) -> int:
        return 0


def test_full_snapshots_leave_out_what_was_expired_when_they_were_taken(
    databases: Databases,
) -> None:
    backend, cleanup = databases.backend(), KeepEven()
    declarations: list[Any] = [
        ValueStateDescriptor("v", Types.LONG()),
        ListStateDescriptor("l", Types.LONG()),
        MapStateDescriptor("m", Types.LONG(), Types.LONG()),
    ]
    for declaration in declarations:
        declaration.cleanup = cleanup
    value, elements, entries = (backend.state(d) for d in declarations)
    for key, number in (("a", 1), ("b", 2)):
        at(backend, key)
        value.update(number)
        elements.add_all([number, number + 1])
        entries.put_all({1: number, 2: number + 2})
    snapshot = backend.snapshot(1)
    cleanup.on = False
    made = databases.backend()
    made.restore([source_of(write_file(snapshot))])
    found = [made.state(d) for d in declarations]
    at(made, "a")
    assert (found[0].value(), found[1].get(), found[2].items()) == (None, [2], [])
    at(made, "b")
    assert (found[0].value(), found[1].get(), found[2].items()) == (2, [2], [(1, 2), (2, 4)])


def test_a_released_snapshot_is_not_written(databases: Databases) -> None:
    backend = databases.backend()
    backend.state(ValueStateDescriptor("v", Types.LONG()))
    for kind in (FULL, NATIVE):
        snapshot = backend.snapshot(1, kind)
        snapshot.release()
        snapshot.release()
        with pytest.raises(UsageError, match="released"):
            write_file(snapshot)


def test_big_key_groups_are_written_in_parts(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.backend.rocksdb.full._PART_BYTES", 2000)
    backend = databases.backend(key_groups=KeyGroupRange(0, 0))
    backend.current.key, backend.current.group = "a", 0
    expected = {i: f"value {i}" for i in range(500)}
    backend.state(MapStateDescriptor("m", Types.LONG(), Types.STRING())).put_all(expected)
    for i in range(100):
        backend.state(ListStateDescriptor("l", Types.LONG())).add_all([i] * 50)
        backend.end_epoch()
    data = write_file(backend.snapshot(1))
    made = databases.backend(key_groups=KeyGroupRange(0, 0))
    made.restore([source_of(data, KeyGroupRange(0, 0))])
    made.current.key, made.current.group = "a", 0
    assert (
        dict(made.state(MapStateDescriptor("m", Types.LONG(), Types.STRING())).items()) == expected
    )
    elements = made.state(ListStateDescriptor("l", Types.LONG())).get()
    assert elements == [i for i in range(100) for _ in range(50)]


def test_a_full_disk_is_a_storage_error(databases: Databases) -> None:
    blocked = databases.directory / "file"
    blocked.write_text("no directory")
    context = BackendContext(BackendSettings("rocksdb"), local_dir=blocked)
    with pytest.raises(StorageError, match="file"):
        create_backend(context, Types.STRING(), KeyGroupRange(0, 1))


def test_the_factory_makes_it_and_refuses_what_is_not_there(databases: Databases) -> None:
    context = BackendContext(BackendSettings("rocksdb"), local_dir=databases.directory)
    backend = create_backend(context, Types.STRING(), KeyGroupRange(0, 1))
    backend.close()
    backend.close()
    assert list(databases.directory.iterdir()) == []


def test_no_database_is_made_that_a_restore_would_replace(databases: Databases) -> None:
    backend = databases.backend()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    at(backend, "a")
    state.update(7)
    made = databases.backend()
    assert list(made._directory.path.iterdir()) == []
    assert made.approximate_bytes() == 0
    made.restore([source_of(write_file(backend.snapshot(1)))])
    assert len(list(made._directory.path.iterdir())) == 1
    at(made, "a")
    assert made.state(ValueStateDescriptor("v", Types.LONG())).value() == 7


@pytest.mark.parametrize(
    "options",
    [
        {"predefined-options": "SPINNING_DISK_OPTIMIZED"},
        {"predefined-options": "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "memory.managed": False},
        {"predefined-options": "FLASH_SSD_OPTIMIZED", "compression.per.level": "NO_COMPRESSION"},
        {"compaction.style": "UNIVERSAL", "use-bloom-filter": True},
        {"compression.per.level": "NO_COMPRESSION;LZ4_COMPRESSION;ZSTD_COMPRESSION"},
        {"memory.partitioned-index-filters": True, "files.open": 100, "thread.num": 4},
        {"options-factory": "tests.unit.backend.rocksdb.test_rocksdb_backend:change_options"},
    ],
)
def test_options_are_taken(databases: Databases, options: dict[str, Any]) -> None:
    backend = databases.backend({f"state.backend.rocksdb.{k}": v for k, v in options.items()})
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    at(backend, "a")
    state.update(7)
    made = again(databases, backend, NATIVE)
    at(made, "a")
    assert made.state(ValueStateDescriptor("v", Types.LONG())).value() == 7


def change_options(options: Any) -> None:
    options.set_max_subcompactions(2)


def test_what_is_set_comes_before_what_is_predefined() -> None:
    high = {conf.ROCKSDB_PREDEFINED.key: "SPINNING_DISK_OPTIMIZED_HIGH_MEM"}
    assert RocksDBSettings({}).get(conf.ROCKSDB_BLOCK_SIZE) == 4 << 10
    assert RocksDBSettings(high).get(conf.ROCKSDB_BLOCK_SIZE) == 128 << 10
    own = {**high, conf.ROCKSDB_BLOCK_SIZE.key: 8 << 10}
    assert RocksDBSettings(own).get(conf.ROCKSDB_BLOCK_SIZE) == 8 << 10
    assert RocksDBSettings({}).budget == 64 * MB
    assert RocksDBSettings({conf.ROCKSDB_FIXED_PER_SLOT.key: MB}).budget == MB
    assert RocksDBSettings({conf.ROCKSDB_MANAGED_MEMORY.key: False}).budget is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("compression.per.level", "GZIP"), ("options-factory", "nowhere:at_all")],
)
def test_unusable_options_are_refused(databases: Databases, key: str, value: str) -> None:
    with pytest.raises((UsageError, StorageError), match=value.split(":", maxsplit=1)[0]):
        databases.backend({f"state.backend.rocksdb.{key}": value})


MEMORY_PROGRAM = """
import resource, sys
from tests.databases import Databases
from weir.common.typeinfo import Types
from weir.keygroup import key_group
from weir.state.descriptor import ValueStateDescriptor
from pathlib import Path

backend = Databases(Path(sys.argv[1])).backend(
    {"state.backend.rocksdb.memory.fixed-per-slot": 4 << 20,
     "state.backend.rocksdb.compression.per.level": "NO_COMPRESSION"})
state = backend.state(ValueStateDescriptor("v", Types.BIG_INT()))
def put(first, last):
    for i in range(first, last):
        backend.current.key, backend.current.group = f"{i}", key_group(f"{i}", 128)
        state.update((i + 1) << 16000)
put(0, 4000)
backend.end_epoch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
put(4000, 24000)
backend.end_epoch()
print(backend.approximate_bytes() >> 20)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
backend.close()
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_state(databases: Databases) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM, str(databases.directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    stored, grown = map(int, done.stdout.split())
    assert stored > 40
    assert grown < 10
