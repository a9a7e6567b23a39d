"""Incremental checkpoints upload what is new, once, and every backend can read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.databases import ALL, Databases, scratch_directory

from weir.backend.base import (
    NATIVE_PREFIX,
    RestoreSource,
    SnapshotKind,
    SnapshotOutput,
    StateLayer,
)
from weir.backend.hashmap import HashMapBackend
from weir.backend.rocksdb.catalog import Catalog, Described
from weir.backend.rocksdb.native import Placed, worth_keeping
from weir.backend.timers import EVENT_TIMERS
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.ids import JobId
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.slot.files import SlotFiles, StoredFiles
from weir.snapshot import FileHandle, SnapshotWriter
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.storage.local import LocalStorage
from weir.testing.checkpoint_world import CheckpointWorld

VALUE = ValueStateDescriptor("v", Types.STRING())
HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}


@pytest.fixture
def databases() -> Iterator[Databases]:
    with scratch_directory() as directory:
        made = Databases(directory)
        yield made
        made.close()


def at(backend: Any, key: str) -> None:
    backend.current.key, backend.current.group = key, key_group(key, 128)


def put(backend: Any, first: int, last: int, size: int = 1000) -> None:
    state = backend.state(VALUE)
    for i in range(first, last):
        at(backend, f"key {i}")
        state.update(f"{i}:" + "x" * size)


def read(backend: Any, count: int) -> list[Any]:
    state, found = backend.state(VALUE), []
    for i in range(count):
        at(backend, f"key {i}")
        found.append((state.value() or "none:").split(":")[0])
    return found


def entry_of(world: CheckpointWorld, checkpoint: Any) -> dict[str, Any]:
    return dict(world.source(checkpoint).layers[-1].states[NATIVE_PREFIX + "rocksdb"])


def test_a_second_checkpoint_uploads_only_new_files(databases: Databases) -> None:
    world = CheckpointWorld(retained=2)
    backend = databases.backend({"state.backend.rocksdb.compaction.style": "NONE"})
    put(backend, 0, 2000)
    first = world.run(backend, 1)
    before = set(world.shared.files)
    put(backend, 2000, 2010)
    written = world.shared.bytes_written
    second = world.run(backend, 2)
    assert before <= set(world.shared.files)
    assert world.shared.bytes_written - written < 10_000
    assert {h.path for h in first.part.attachments} < {h.path for h in second.part.attachments}
    made = world.shared.made
    third = world.run(backend, 3)
    assert world.shared.made == made
    assert set(third.part.attachments) == set(second.part.attachments)


def big(backend: Any, name: str) -> None:
    """Put about 100 KB into a state."""
    at(backend, "a")
    noise = "".join(f"{i * 7919 % 104729:x}" for i in range(20_000))
    backend.state(ValueStateDescriptor(name, Types.STRING())).update(noise)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3),
        ({"file-merging.enabled": True}, 1),
        ({"file-merging.enabled": True, "file-merging.max-file-size": 150_000}, 2),
    ],
)
def test_small_files_of_a_checkpoint_become_one(
    databases: Databases, options: dict[str, Any], expected: int
) -> None:
    """The tiny ones always, those of some size when it is configured."""
    world = CheckpointWorld()
    backend = databases.backend({f"execution.checkpointing.{k}": v for k, v in options.items()})
    for name in ("tiny", "tinier"):
        at(backend, "a")
        backend.state(ValueStateDescriptor(name, Types.LONG())).update(1)
    big(backend, "big")
    big(backend, "bigger")
    checkpoint = world.run(backend, 1)
    assert len(entry_of(world, checkpoint)["tables"]) == 4
    assert len(world.shared.files) == len(checkpoint.part.attachments) == expected
    again = databases.backend()
    again.restore([world.source(checkpoint)])
    at(again, "a")
    assert again.state(ValueStateDescriptor("tinier", Types.LONG())).value() == 1
    assert len(again.state(ValueStateDescriptor("bigger", Types.STRING())).value()) > 50_000


def test_a_merged_file_of_which_little_is_left_is_not_referred_to_again() -> None:
    merged, single = FileHandle("merged", 100, 0), FileHandle("single", 10, 0)
    known = {"a": Placed(merged, 0, 40), "b": Placed(merged, 40, 60), "c": Placed(single, 0, 10)}
    assert set(worth_keeping(known, {"a": 40, "b": 60, "c": 10}, 2.0)) == {"a", "b", "c"}
    assert set(worth_keeping(known, {"b": 60, "c": 10}, 2.0)) == {"b", "c"}
    assert set(worth_keeping(known, {"a": 40, "c": 10}, 2.0)) == {"c"}


@pytest.mark.parametrize("options", [{}, HEAP])
def test_every_backend_restores_the_files_of_a_database(
    databases: Databases, options: dict[str, Any]
) -> None:
    world = CheckpointWorld()
    backend = databases.backend(options)
    put(backend, 0, 100)
    at(backend, "key 7")
    backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG())).put_all({"x": None})
    backend.state(ListStateDescriptor("l")).add_all([[1], (2, "y")])
    backend.timers(EVENT_TIMERS).register(5, "key 7", key_group("key 7", 128))
    checkpoint = world.run(backend, 1)
    halves: list[Any] = [HashMapBackend(Types.STRING(), range_of(i, 2, 128)) for i in range(2)]
    for half in halves:
        half.restore([world.source(checkpoint, half.key_groups)])
    found = []
    for i in range(100):
        group = key_group(f"key {i}", 128)
        half = halves[0] if group in halves[0].key_groups else halves[1]
        at(half, f"key {i}")
        found.append(half.state(VALUE).value().split(":")[0])
    assert found == [str(i) for i in range(100)]
    half = halves[0] if key_group("key 7", 128) in halves[0].key_groups else halves[1]
    at(half, "key 7")
    maps = half.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    assert list(maps.items()) == [("x", None)]
    assert half.state(ListStateDescriptor("l")).get() == [[1], (2, "y")]
    assert [t.timestamp for h in halves for t in h.timers(EVENT_TIMERS).pop_due(9)] == [5]


@pytest.mark.parametrize(("old", "new"), [({}, HEAP), (HEAP, {}), ({}, {})])
def test_timers_move_between_memory_and_database(
    databases: Databases, old: dict[str, Any], new: dict[str, Any]
) -> None:
    world = CheckpointWorld()
    backend = databases.backend(old)
    for i in range(300):
        backend.timers(EVENT_TIMERS).register(i % 7, f"k{i}", key_group(f"k{i}", 128))
    checkpoint = world.run(backend, 1)
    again = databases.backend(new)
    again.restore([world.source(checkpoint)])
    assert len(again.timers(EVENT_TIMERS)) == 300
    expected = [(t.timestamp, t.key) for t in backend.timers(EVENT_TIMERS).pop_due(10)]
    assert [(t.timestamp, t.key) for t in again.timers(EVENT_TIMERS).pop_due(10)] == expected


def test_states_that_nobody_asks_for_move_with_the_files(databases: Databases) -> None:
    world = CheckpointWorld()
    backend = databases.backend()
    put(backend, 0, 50)
    checkpoint = world.run(backend, 1)
    for number in range(2, 4):
        parts = [databases.backend(key_groups=range_of(i, 2, 128)) for i in range(2)]
        again = databases.backend()
        for part in parts:
            part.restore([world.source(checkpoint, part.key_groups)])
        again.restore([world.source(checkpoint)])
        checkpoint = world.run(again, number)
    last = databases.backend()
    last.restore([world.source(checkpoint)])
    assert read(last, 51) == [*map(str, range(50)), "none"]


def test_damaged_and_missing_files_are_refused(databases: Databases) -> None:
    storage = LocalStorage(databases.directory / "storage")
    files = SlotFiles(storage, JobId("job"), 0, 1)
    backend = databases.backend()
    put(backend, 0, 50)
    snapshot, parts = backend.snapshot(1, SnapshotKind.INCREMENTAL), []

    def fill(writer: SnapshotWriter) -> dict[str, Any]:
        parts.append(snapshot.write(SnapshotOutput(writer, files.shared("op"))))
        return {"operators": {"op": {"keyed": parts[0].states, "operator": {}}}}

    own = files.write("job/chk-1", "", fill)
    stored = StoredFiles(storage, "job/chk-1")
    (table,) = (databases.directory / "storage" / "job" / "shared").iterdir()
    good, again = table.read_bytes(), databases.backend()
    reader = stored.reader(own)
    layer = StateLayer(reader, reader.operator("op")["keyed"])
    for damage in (good[:-1], good[:50] + bytes([good[50] ^ 1]) + good[51:], None):
        table.write_bytes(damage) if damage else table.unlink()
        with pytest.raises(CorruptStateError if damage else StorageError):
            again.restore([RestoreSource((layer,), ALL, ALL, stored)])
    table.write_bytes(good)
    with pytest.raises(CorruptStateError, match="no way to them"):
        again.restore([RestoreSource((layer,), ALL, ALL)])
    again.restore([RestoreSource((layer,), ALL, ALL, stored)])
    assert read(again, 50) == list(map(str, range(50)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sequence", "many"),
        ("stored", [["v", "VALUE"]]),
        ("timers", {"t": {}}),
        ("files", [["CURRENT", 0, 0]]),
        ("files", [["../CURRENT", 9, 0, 0]]),
        ("files", [["..", 9, 0, 0]]),
        ("tables", [["000001.sst", ["path", 1, 2], 0, 1]]),
        ("tables", None),
    ],
)
def test_a_description_of_a_database_in_another_form_is_refused(
    databases: Databases, key: str, value: Any
) -> None:
    world = CheckpointWorld()
    backend = databases.backend()
    put(backend, 0, 5)
    source = world.source(world.run(backend, 1))
    entry = {NATIVE_PREFIX + "rocksdb": {**entry_of(world, world.completed[1]), key: value}}
    layer = replace(source.layers[-1], states=entry)
    with pytest.raises(CorruptStateError, match="not in the known form"):
        databases.backend().restore([replace(source, layers=(layer,))])


def test_a_database_without_its_package_names_the_extra(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = CheckpointWorld()
    backend = databases.backend()
    put(backend, 0, 5)
    checkpoint = world.run(backend, 1)
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(UsageError, match=r"weir-spark\[rocksdb\]"):
        HashMapBackend(Types.STRING(), ALL).restore([world.source(checkpoint)])
    with pytest.raises(UsageError, match=r"weir-spark\[rocksdb\]"):
        databases.backend()


def test_key_groups_in_two_files_are_refused(databases: Databases) -> None:
    world = CheckpointWorld()
    backend = databases.backend()
    put(backend, 0, 5)
    source = world.source(world.run(backend, 1))
    with pytest.raises(CorruptStateError, match="another file"):
        databases.backend().restore([source, source])
    half = databases.backend(key_groups=KeyGroupRange(0, 63))
    half.restore([source])
    assert 0 < len(list(half.state(VALUE) and half.keys("v"))) < 5


def test_a_stored_state_of_an_unknown_kind_is_refused() -> None:
    found = Described("name", "VAL\x15E", {}, "s0")
    with pytest.raises(CorruptStateError, match="expected one of"):
        Catalog().unite(found, "a file")
