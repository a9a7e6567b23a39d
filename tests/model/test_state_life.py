"""The life of keyed state against plain dicts: whatever happens to a job, state is what it was.

Rules put, read, let time pass, take checkpoints that complete or are aborted, lose all processes,
restore at another parallelism, on another backend, with a changed row type. Invariants: reads show
the last write that has not expired; a restored job continues exactly at its checkpoint; no
checkpoint that is kept ever misses a file.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.examples import examples

from weir.backend.base import RestoreSource, SnapshotKind, SnapshotOutput, StateLayer
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.checkpoint.paths import resolve
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.config.state_backends import STATE_BACKENDS
from weir.datastream.state import StateTtlConfig
from weir.ids import JobId
from weir.keygroup import key_group, range_of, subtask_of
from weir.slot.files import Recording, SlotFiles, StoredFiles
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.state.ttl import bind_ttl
from weir.storage.memory import MemoryStorage
from weir.testing.clock import ManualClock

GROUPS = 8
KEYS = ["a", "b", "c"]
TTL_MS = 100
RETAINED = 2
BACKENDS = [
    BackendSettings(facts.name, **mode)
    for mode in ({}, {"incremental": True}, {"changelog": True})
    for facts in STATE_BACKENDS
]
OPERATIONS = [
    "write_values",
    "write_values",
    "remove_entries",
    "clear_some",
    "write_row",
    "pass_time",
    "end_epoch",
]
CHANGES = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(KEYS), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)
COMPLETES = st.sampled_from([True, True, True, False])
VERSIONS = [
    (["name", "count"], [Types.STRING(), Types.INT()]),
    (["count", "name"], [Types.LONG(), Types.STRING()]),
    (["name", "count", "note"], [Types.STRING(), Types.LONG(), Types.STRING()]),
    (["count"], [Types.LONG()]),
]


def descriptors(version: int) -> dict[str, Any]:
    long = Types.LONG()
    names, types = VERSIONS[version]
    found = {
        "value": ValueStateDescriptor("value", long),
        "list": ListStateDescriptor("list", long),
        "map": MapStateDescriptor("map", long, long),
        "plain": MapStateDescriptor("plain", long, long),
        "row": ValueStateDescriptor("row", Types.ROW_NAMED(names, types)),
    }
    for name in ("value", "list", "map"):
        found[name].enable_time_to_live(StateTtlConfig.new_builder(TTL_MS).build())
    return found


class World:
    """All subtasks of one operator, and the storage that outlives them."""

    def __init__(self, storage: MemoryStorage, clock: ManualClock, local: Path) -> None:
        self.storage = storage
        self.clock = clock
        self.local = local
        self.attempt = 0

    def start(
        self, chosen: BackendSettings, parallelism: int, version: int, point: Any = None
    ) -> None:
        self.attempt += 1
        self.settings, self.parallelism, self.version = chosen, parallelism, version
        self.backends: list[Any] = []
        self.states: list[dict[str, Any]] = []
        self.files = [
            SlotFiles(self.storage, JobId("job"), subtask, self.attempt)
            for subtask in range(parallelism)
        ]
        for subtask in range(parallelism):
            groups = range_of(subtask, parallelism, GROUPS)
            context = BackendContext(
                chosen,
                self.files[subtask].shared("op"),
                self.clock,
                self.local / f"{self.attempt}-{subtask}",
                "op",
                subtask,
            )
            backend: Any = create_backend(context, Types.STRING(), groups)
            if point is not None:
                backend.restore(self.sources(point, groups))
            handles = {}
            for name, descriptor in descriptors(version).items():
                ttl = descriptor.ttl_config is not None
                handles[name] = (
                    bind_ttl(backend, descriptor, self.clock.now_ms)
                    if ttl
                    else backend.state(descriptor)
                )
            self.backends.append(backend)
            self.states.append(handles)

    def sources(self, point: Any, groups: Any) -> list[RestoreSource]:
        stored_files = StoredFiles(self.storage, point["directory"])
        found = []
        for stored, handles in point["subtasks"]:
            wanted = stored.intersect(groups)
            if wanted:
                readers = [stored_files.reader(h) for h in handles]
                layers = tuple(
                    StateLayer(r, r.operator("op")["keyed"], h)
                    for r, h in zip(readers, handles, strict=True)
                )
                found.append(RestoreSource(layers, wanted, stored, stored_files, point["reusable"]))
        return found

    def at(self, key: str) -> dict[str, Any]:
        group = key_group(key, GROUPS)
        subtask = subtask_of(group, self.parallelism, GROUPS)
        backend = self.backends[subtask]
        backend.current.key, backend.current.group = key, group
        return self.states[subtask]

    def take(self, number: int, full: bool) -> list[Any]:
        shares = self.settings.incremental or self.settings.changelog
        kind = SnapshotKind.INCREMENTAL if shares and not full else SnapshotKind.FULL
        return [backend.snapshot(number, kind) for backend in self.backends]

    def write(self, number: int, snapshots: list[Any]) -> dict[str, Any]:
        directory = f"job/chk-{number}"
        subtasks, created, named = [], [], []
        for backend, files, snapshot in zip(self.backends, self.files, snapshots, strict=True):
            recording = Recording(files.shared("op"))
            parts: list[Any] = []

            def fill(
                writer: Any, snapshot: Any = snapshot, shared: Any = recording, to: Any = parts
            ) -> dict[str, Any]:
                to.append(snapshot.write(SnapshotOutput(writer, shared)))
                return {"operators": {"op": {"keyed": to[0].states, "operator": {}}}}

            own = files.write(directory, "", fill)
            snapshot.release()
            created += recording.created
            named += [own, *parts[0].layers, *parts[0].attachments]
            subtasks.append((backend.key_groups, [*parts[0].layers, own]))
        paths = {resolve(directory, h.path) for h in named if h.data is None}
        return {
            "number": number,
            "directory": directory,
            "subtasks": subtasks,
            "created": [resolve(directory, h.path) for h in created if h.data is None],
            "paths": paths,
            "reusable": True,
        }

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


class StateLife(RuleBasedStateMachine):
    """One job and its dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.world = World(MemoryStorage("life"), self.clock, Path(self.directory.name))
        self.model: dict[str, dict[str, Any]] = {name: {} for name in descriptors(0)}
        self.completed: list[tuple[dict[str, Any], Any, int]] = []
        self.savepoint: tuple[dict[str, Any], Any, int] | None = None
        self.number = 0

    @initialize(chosen=st.sampled_from(BACKENDS), parallelism=st.integers(1, 3))
    def start(self, chosen: BackendSettings, parallelism: int) -> None:
        self.world.start(chosen, parallelism, 0)

    def teardown(self) -> None:
        if hasattr(self.world, "backends"):
            self.world.close()
        self.directory.cleanup()

    # ---- what functions do

    @rule(changes=CHANGES)
    def work(self, changes: list[tuple[str, str, int]]) -> None:
        for operation, key, number in changes:
            getattr(self, operation)(key, number)

    def write_values(self, key: str, number: int) -> None:
        states, now = self.world.at(key), self.clock.now_ms()
        states["value"].update(number)
        self.model["value"][key] = (number, now)
        states["list"].add(number)
        self.model["list"].setdefault(key, []).append((number, now))
        states["map"].put(number, -number)
        self.model["map"].setdefault(key, {})[number] = (-number, now)
        states["plain"].put(number, number)
        self.model["plain"].setdefault(key, {})[number] = number

    def remove_entries(self, key: str, number: int) -> None:
        states = self.world.at(key)
        states["map"].remove(number)
        self.model["map"].get(key, {}).pop(number, None)
        states["plain"].remove(number)
        self.model["plain"].get(key, {}).pop(number, None)

    def clear_some(self, key: str, number: int) -> None:
        for name in list(self.model)[number : number + 2]:
            self.world.at(key)[name].clear()
            self.model[name].pop(key, None)

    def write_row(self, key: str, number: int) -> None:
        names, _ = VERSIONS[self.world.version]
        values = {"name": key, "count": number << 20, "note": f"n{number}"}
        fields = {name: values[name] for name in names}
        self.world.at(key)["row"].update(Row(**fields))
        self.model["row"][key] = fields

    def pass_time(self, key: str, number: int) -> None:
        self.clock.advance((1, TTL_MS // 2, TTL_MS, 5 * TTL_MS)[number])

    def end_epoch(self, key: str, number: int) -> None:
        for backend in self.world.backends:
            backend.end_epoch()

    def read_all(self, key: str) -> None:
        states, limit = self.world.at(key), self.clock.now_ms() - TTL_MS
        value = self.model["value"].get(key)
        assert states["value"].value() == (None if value is None or value[1] <= limit else value[0])
        elements = self.model["list"].get(key, [])
        assert list(states["list"].get()) == [v for v, ts in elements if ts > limit]
        entries = self.model["map"].get(key, {})
        assert dict(states["map"].items()) == {k: v for k, (v, ts) in entries.items() if ts > limit}
        assert dict(states["plain"].items()) == self.model["plain"].get(key, {})
        row = states["row"].value()
        expected = self.model["row"].get(key)
        assert (None if row is None else row.as_dict()) == expected

    # ---- what happens to the job

    @rule(late=CHANGES, full=st.sampled_from([False, False, True]), completes=COMPLETES)
    def take_checkpoint(
        self, late: list[tuple[str, str, int]], full: bool, completes: bool
    ) -> None:
        """Freeze, let functions go on, then write."""
        self.number += 1
        number, model = self.number, copy.deepcopy(self.model)
        snapshots = self.world.take(number, full)
        self.work(late)
        point = self.world.write(number, snapshots)
        if not completes:
            for path in point["created"]:
                self.world.storage.delete(path)
            self.world.storage.delete_tree(point["directory"])
            for backend in self.world.backends:
                backend.notify_aborted(number)
            return
        for backend in self.world.backends:
            backend.notify_complete(number)
        if full:
            # A savepoint needs no other file, and replaces no checkpoint.
            self.savepoint = ({**point, "reusable": False}, model, self.world.version)
            return
        self.completed.append((point, model, self.world.version))
        dropped = self.completed[:-RETAINED]
        self.completed = self.completed[-RETAINED:]
        needed = {path for kept, _, _ in self.completed for path in kept["paths"]}
        for old, _, _ in dropped:
            for path in old["paths"] - needed:
                self.world.storage.delete(path)

    @precondition(lambda self: self.completed or self.savepoint)
    @rule(
        chosen=st.sampled_from(BACKENDS),
        parallelism=st.integers(1, 3),
        version=st.integers(0, len(VERSIONS) - 1),
        which=st.sampled_from(["newest", "newest", "oldest", "savepoint"]),
    )
    def crash_and_restore(
        self, chosen: BackendSettings, parallelism: int, version: int, which: str
    ) -> None:
        self.world.close()
        if self.savepoint and (which == "savepoint" or not self.completed):
            point, model, stored = self.savepoint
        else:
            point, model, stored = self.completed[-1 if which == "newest" else 0]
        version = max(version, 1) if stored >= 1 else version
        self.model = copy.deepcopy(model)
        names, _ = VERSIONS[version]
        for key, fields in self.model["row"].items():
            self.model["row"][key] = {name: fields.get(name) for name in names}
        self.world.start(chosen, parallelism, version, point)
        for key in KEYS:
            self.read_all(key)

    @rule()
    def read(self) -> None:
        for key in KEYS:
            self.read_all(key)


TestStateLife = StateLife.TestCase
TestStateLife.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
