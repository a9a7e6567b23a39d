"""What every `KeyedBackend` must do around snapshots; part of `KeyedBackendConformance`."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from weir.backend.base import KeyedBackend, KeyedSnapshot, RestoreSource, SnapshotOutput
from weir.backend.factory import NoSharedFiles
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, IncompatibleStateError
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.snapshot import SnapshotReader, SnapshotWriter
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

MAX_PARALLELISM = 128
ALL_GROUPS = KeyGroupRange(0, MAX_PARALLELISM - 1)
RESCALES = [(4, 2), (2, 4), (2, 2), (15, 77), (77, 15)]

CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "value update": lambda s: s["value"].update(9),
    "value clear": lambda s: s["value"].clear(),
    "list add": lambda s: s["list"].add(9),
    "list add_all": lambda s: s["list"].add_all([9]),
    "list update": lambda s: s["list"].update([9]),
    "list clear": lambda s: s["list"].clear(),
    "map put": lambda s: s["map"].put("y", 9),
    "map overwrite": lambda s: s["map"].put("x", 9),
    "map put_all": lambda s: s["map"].put_all({"y": 9}),
    "map remove": lambda s: s["map"].remove("x"),
    "map clear": lambda s: s["map"].clear(),
    "reducing add": lambda s: s["reducing"].add(9),
    "reducing clear": lambda s: s["reducing"].add(None),
    "aggregating add": lambda s: s["aggregating"].add(9),
    "aggregating clear": lambda s: s["aggregating"].clear(),
}


class Sum:
    """An aggregate function with an integer as accumulator."""

    def create_accumulator(self) -> int:
        """Start at nothing."""
        return 0

    def add(self, value: int, accumulator: int) -> int:
        """Add a value."""
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        """Return the sum."""
        return accumulator

    def merge(self, a: int, b: int) -> int:
        """Add two sums."""
        return a + b


def write_file(*snapshots: Any, operator: str = "op") -> bytes:
    """Write snapshots of one operator (keyed state, timers) into one snapshot file."""
    out = io.BytesIO()
    writer = SnapshotWriter(out)
    keyed: dict[str, Any] = {}
    for snapshot in snapshots:
        part = snapshot.write(SnapshotOutput(writer, NoSharedFiles()))
        keyed.update(part.states)
    writer.finish({"operators": {operator: {"keyed": keyed}}})
    return out.getvalue()


def read_file(data: bytes, name: str = "a file") -> SnapshotReader:
    """Open a snapshot file that is in memory."""
    return SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), name)


def source_of(data: bytes, key_groups: KeyGroupRange = ALL_GROUPS) -> RestoreSource:
    """Offer the key groups of a file for restoring."""
    reader = read_file(data)
    return RestoreSource.of(reader, reader.operator("op")["keyed"], key_groups)


class SnapshotConformance:
    """Snapshots show one moment, restore exactly, and follow the key groups."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return a new, empty backend."""
        raise NotImplementedError

    def restored(self, data: bytes, key_groups: KeyGroupRange = ALL_GROUPS) -> Any:
        """Return a new backend with the contents of a file."""
        backend = self.make_backend(Types.STRING(), key_groups)
        backend.restore([source_of(data)])
        return backend

    @staticmethod
    def fill(backend: Any) -> dict[str, Any]:
        """Register one state of each kind and put something under three keys."""
        states = SnapshotConformance.register(backend)
        for number, key in enumerate(("a", "b", "c")):
            backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)
            states["value"].update(number)
            states["list"].add_all([number, number + 1])
            states["map"].put_all({"x": number, "null": None})
            states["reducing"].add(number)
            states["aggregating"].add(number)
            states["any"].update({"inner": [number]})
        return states

    @staticmethod
    def register(backend: Any) -> dict[str, Any]:
        """Register one state of each kind, and one of an undeclared type."""
        long = Types.LONG()
        declarations: list[Any] = [
            ValueStateDescriptor("value", long),
            ListStateDescriptor("list", long),
            MapStateDescriptor("map", Types.STRING(), long),
            ReducingStateDescriptor("reducing", lambda a, b: a + b, long),
            AggregatingStateDescriptor("aggregating", Sum(), long),
            ValueStateDescriptor("any"),
        ]
        return {d.name: backend.state(d) for d in declarations}

    @staticmethod
    def look(backend: Any, states: dict[str, Any], key: str) -> dict[str, Any]:
        """Return everything that is stored under a key."""
        backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)
        return {
            "value": states["value"].value(),
            "list": list(states["list"].get()),
            "map": dict(states["map"].items()),
            "reducing": states["reducing"].get(),
            "aggregating": states["aggregating"].get(),
            "any": states["any"].value(),
        }

    def test_all_kinds_survive_snapshot_and_restore(self) -> None:
        """Every state of every key is what it was."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        states = self.fill(backend)
        before = [self.look(backend, states, key) for key in ("a", "b", "c", "d")]
        snapshot = backend.snapshot(1)
        data = write_file(snapshot)
        snapshot.release()
        again = self.restored(data)
        states = self.register(again)
        assert [self.look(again, states, key) for key in ("a", "b", "c", "d")] == before
        assert again.size() == backend.size() == 18

    def test_namespaces_and_any_keys_survive(self) -> None:
        """Entries with and without namespace, under keys of several types."""
        backend = self.make_backend(None, ALL_GROUPS)
        state: Any = backend.state(ValueStateDescriptor("v", Types.STRING()))
        addresses = [(1, None), ("1", None), ((1, "x"), None), (1, "window"), ((1, "x"), (5, 9))]
        for key, namespace in addresses:
            current = backend.current
            current.key, current.group = key, key_group(key, MAX_PARALLELISM)
            if namespace is not None:
                current.namespace = namespace
            state.update(repr((key, namespace)))
        again = self.make_backend(None, ALL_GROUPS)
        again.restore([source_of(write_file(backend.snapshot(1)))])
        state = again.state(ValueStateDescriptor("v", Types.STRING()))
        for key, namespace in addresses:
            current = again.current
            current.key, current.group = key, key_group(key, MAX_PARALLELISM)
            if namespace is not None:
                current.namespace = namespace
            assert state.value() == repr((key, namespace))

    def test_later_changes_do_not_reach_a_snapshot(self) -> None:
        """Updates, adds, removals and new keys after the snapshot stay out of its file."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        states = self.fill(backend)
        before = [self.look(backend, states, key) for key in ("a", "b", "c", "new")]
        snapshot = backend.snapshot(1)
        self.disturb(backend, states)
        after = [self.look(backend, states, key) for key in ("a", "b", "c", "new")]
        data = write_file(snapshot)
        assert [self.look(backend, states, key) for key in ("a", "b", "c", "new")] == after
        snapshot.release()
        assert [self.look(backend, states, key) for key in ("a", "b", "c", "new")] == after
        again = self.restored(data)
        states = self.register(again)
        assert [self.look(again, states, key) for key in ("a", "b", "c", "new")] == before

    @staticmethod
    def disturb(backend: Any, states: dict[str, Any]) -> None:
        """Change, remove and add entries of all kinds."""
        backend.current.key, backend.current.group = "a", key_group("a", MAX_PARALLELISM)
        states["value"].update(100)
        states["list"].add(100)
        states["map"].put("y", 100)
        states["map"].remove("null")
        states["reducing"].add(100)
        states["aggregating"].add(100)
        value = states["any"].value()
        value["inner"].append(100)
        states["any"].update(value)
        backend.current.key, backend.current.group = "b", key_group("b", MAX_PARALLELISM)
        for state in states.values():
            state.clear()
        backend.current.key, backend.current.group = "new", key_group("new", MAX_PARALLELISM)
        states["value"].update(7)
        states["list"].update([7])

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_single_change_does_not_reach_a_snapshot(self, change: str) -> None:
        """Each way to change state, as the first thing after the snapshot."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        states = self.fill(backend)
        before = self.look(backend, states, "a")
        snapshot = backend.snapshot(1)
        backend.current.key, backend.current.group = "a", key_group("a", MAX_PARALLELISM)
        CHANGES[change](states)
        data = write_file(snapshot)
        after = self.look(backend, states, "a")
        snapshot.release()
        assert after != before
        assert self.look(backend, states, "a") == after
        again = self.restored(data)
        assert self.look(again, self.register(again), "a") == before

    def test_objects_changed_in_place_do_not_reach_a_snapshot(self) -> None:
        """A list read from state and appended to is a later change, also without update."""
        backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
        value = backend.state(ValueStateDescriptor("v"))
        elements = backend.state(ListStateDescriptor("l"))
        entries = backend.state(MapStateDescriptor("m", Types.STRING(), None))
        backend.current.key, backend.current.group = "a", key_group("a", MAX_PARALLELISM)
        value.update({"n": [1]})
        elements.add([1])
        entries.put("x", [1])
        snapshot = backend.snapshot(1)
        value.value()["n"].append(2)
        for element in elements.get():
            element.append(2)
        entries.get("x").append(2)
        for inner in entries.values():
            inner.append(3)
        again = self.restored(write_file(snapshot))
        snapshot.release()
        again.current.key, again.current.group = "a", key_group("a", MAX_PARALLELISM)
        assert again.state(ValueStateDescriptor("v")).value() == {"n": [1]}
        assert list(again.state(ListStateDescriptor("l")).get()) == [[1]]
        assert again.state(MapStateDescriptor("m", Types.STRING(), None)).get("x") == [1]

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
    def test_several_snapshots_in_flight_keep_their_moments(self, order: tuple[int, ...]) -> None:
        """They may be written and released in any order."""
        backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
        states = self.fill(backend)
        keys = ("a", "b", "c", "new")
        moments, snapshots = [], []
        for number in range(3):
            moments.append([self.look(backend, states, key) for key in keys])
            snapshots.append(backend.snapshot(number))
            self.disturb(backend, states)
        present = [self.look(backend, states, key) for key in keys]
        for number in order:
            again = self.restored(write_file(snapshots[number]))
            snapshots[number].release()
            found = self.register(again)
            assert [self.look(again, found, key) for key in keys] == moments[number]
            assert [self.look(backend, states, key) for key in keys] == present

    def test_a_snapshot_is_written_while_the_backend_works(self) -> None:
        """Another thread writes while older snapshots are released; each file is right."""
        backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
        state = backend.state(ValueStateDescriptor("v", Types.LONG()))

        def update_all(value: int) -> None:
            for i in range(2000):
                key = f"key {i % 1000}"
                backend.current.key = key
                backend.current.group = key_group(key, MAX_PARALLELISM)
                state.update(value)

        update_all(1)
        previous: KeyedSnapshot | None = None
        for moment in range(1, 6):
            snapshot: KeyedSnapshot = backend.snapshot(moment)
            files: list[bytes] = []
            writing = threading.Thread(target=lambda s=snapshot, f=files: f.append(write_file(s)))
            writing.start()
            update_all(moment + 1)
            if previous is not None:
                previous.release()
            writing.join()
            previous = snapshot
            again = self.restored(files[0])
            found = again.state(ValueStateDescriptor("v", Types.LONG()))
            for i in range(1000):
                again.current.key = f"key {i}"
                again.current.group = key_group(f"key {i}", MAX_PARALLELISM)
                assert found.value() == moment

    @pytest.mark.parametrize(("old", "new"), RESCALES)
    def test_key_groups_move_to_other_subtasks(self, old: int, new: int) -> None:
        """Nothing is lost and nothing is doubled, whatever the parallelisms."""
        keys = [f"key {i}" for i in range(500)]
        files = []
        for subtask in range(old):
            backend: Any = self.make_backend(None, range_of(subtask, old, MAX_PARALLELISM))
            state = backend.state(MapStateDescriptor("m", Types.LONG(), Types.STRING()))
            for i, key in enumerate(keys):
                group = key_group(key, MAX_PARALLELISM)
                if group in backend.key_groups:
                    backend.current.key, backend.current.group = key, group
                    state.put(i, key)
            files.append(write_file(backend.snapshot(1)))
        found: list[Any] = []
        for subtask in range(new):
            owned = range_of(subtask, new, MAX_PARALLELISM)
            backend = self.make_backend(None, owned)
            backend.restore([source_of(data, owned) for data in files])
            state = backend.state(MapStateDescriptor("m", Types.LONG(), Types.STRING()))
            for key in backend.keys("m"):
                group = key_group(key, MAX_PARALLELISM)
                assert group in owned
                backend.current.key, backend.current.group = key, group
                found += state.items()
        assert sorted(found) == list(enumerate(keys))

    def test_state_that_is_never_registered_is_carried_along(self) -> None:
        """Two generations of a job that does not ask for it lose nothing."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        states = self.fill(backend)
        before = [self.look(backend, states, key) for key in ("a", "b", "c")]
        data = write_file(backend.snapshot(1))
        for checkpoint in (2, 3):
            generation = self.restored(data)
            generation.state(ValueStateDescriptor("value", Types.LONG()))
            data = write_file(generation.snapshot(checkpoint))
        again = self.restored(data)
        states = self.register(again)
        assert [self.look(again, states, key) for key in ("a", "b", "c")] == before

    def test_a_state_of_another_kind_or_type_cannot_be_restored(self) -> None:
        """The message shows both; the stored state stays for a correct registration."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        self.fill(backend)
        again = self.restored(write_file(backend.snapshot(1)))
        with pytest.raises(IncompatibleStateError, match=r"LONG.*STRING"):
            again.state(ValueStateDescriptor("value", Types.STRING()))
        with pytest.raises(IncompatibleStateError, match=r"VALUE.*LIST"):
            again.state(ListStateDescriptor("value", Types.LONG()))
        again.current.key, again.current.group = "b", key_group("b", MAX_PARALLELISM)
        assert again.state(ValueStateDescriptor("value", Types.LONG())).value() == 1

    def test_values_migrate_to_the_declared_type_and_stay_there(self) -> None:
        """Every kind reads the wider type at once, and from the next snapshot on."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        self.fill(backend)
        wide = Types.BIG_INT()
        data = write_file(backend.snapshot(1))
        for _ in range(2):
            again = self.restored(data)
            value = again.state(ValueStateDescriptor("value", wide))
            items = again.state(ListStateDescriptor("list", wide))
            entries = again.state(MapStateDescriptor("map", Types.STRING(), wide))
            again.current.key, again.current.group = "c", key_group("c", MAX_PARALLELISM)
            assert (value.value(), list(items.get())) == (2, [2, 3])
            assert dict(entries.items()) == {"x": 2, "null": None}
            again.current.key, again.current.group = "a", key_group("a", MAX_PARALLELISM)
            value.update(1 << 70)
            assert value.value() == 1 << 70
            data = write_file(again.snapshot(2))
        with pytest.raises(IncompatibleStateError, match=r"BIG_INT.*LONG"):
            self.restored(data).state(ValueStateDescriptor("value", Types.LONG()))

    def test_other_key_types_cannot_be_restored(self) -> None:
        """Keys are never migrated."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        self.fill(backend)
        other = self.make_backend(Types.LONG(), ALL_GROUPS)
        other.restore([source_of(write_file(backend.snapshot(1)))])
        with pytest.raises(IncompatibleStateError):
            other.state(ValueStateDescriptor("value", Types.LONG()))

    def test_a_damaged_group_is_refused_at_restore(self) -> None:
        """The backend stays empty and can be restored from another file."""
        backend = self.make_backend(Types.STRING(), ALL_GROUPS)
        self.fill(backend)
        good = write_file(backend.snapshot(1))
        damaged = bytearray(good)
        damaged[12] ^= 1
        again = self.make_backend(Types.STRING(), ALL_GROUPS)
        with pytest.raises(CorruptStateError, match="a file"):
            again.restore([source_of(bytes(damaged))])
        again.restore([source_of(good)])
        assert self.look(again, self.register(again), "c")["value"] == 2
