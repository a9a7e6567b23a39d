"""A keyed backend against plain dicts: whatever happens in whatever order, they agree.

Invariants: every read shows the last write; a snapshot restores exactly the moment it was taken,
however late it is written, in whatever order snapshots are written and released, at any
parallelism.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from weir.backend.hashmap import HashMapBackend
from weir.common.typeinfo import Types
from weir.keygroup import key_group, range_of, subtask_of
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.backend_snapshot_conformance import Sum, source_of, write_file

MAX_PARALLELISM = 8
KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
NUMBERS = st.integers(-3, 3)
DECLARATIONS: dict[str, Any] = {
    "value": ValueStateDescriptor("value", Types.LONG()),
    "object": ValueStateDescriptor("object"),
    "list": ListStateDescriptor("list", Types.LONG()),
    "object list": ListStateDescriptor("object list"),
    "map": MapStateDescriptor("map", Types.LONG(), Types.LONG()),
    "object map": MapStateDescriptor("object map"),
    "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
    "aggregating": AggregatingStateDescriptor("aggregating", Sum(), Types.LONG()),
}

Contents = dict[tuple[str, str], Any]


class Job:
    """All subtasks of one operator; asks the subtask that owns a key."""

    def __init__(self, parallelism: int, files: list[bytes]) -> None:
        self.parallelism = parallelism
        self.backends = []
        for subtask in range(parallelism):
            owned = range_of(subtask, parallelism, MAX_PARALLELISM)
            backend = HashMapBackend(Types.STRING(), owned)
            if files:
                backend.restore([source_of(data, owned) for data in files])
            self.backends.append(backend)

    def state(self, name: str, key: str) -> Any:
        group = key_group(key, MAX_PARALLELISM)
        backend = self.backends[subtask_of(group, self.parallelism, MAX_PARALLELISM)]
        backend.current.key, backend.current.group = key, group
        return backend.state(DECLARATIONS[name])

    def read(self, name: str, key: str) -> Any:
        state = self.state(name, key)
        if name in ("value", "object"):
            return state.value()
        if name in ("list", "object list"):
            return list(state.get()) or None
        if name in ("map", "object map"):
            return dict(state.items()) or None
        return state.get()


class Taken:
    """A snapshot of all subtasks, what it must show, and its files once written."""

    def __init__(self, snapshots: list[Any], expected: Contents) -> None:
        self.snapshots = snapshots
        self.expected = expected
        self.files: list[bytes] = []


class KeyedBackendModel(RuleBasedStateMachine):
    """Drives a job and a dict of (state, key) -> contents side by side."""

    in_flight = Bundle("in_flight")
    finished = Bundle("finished")

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self.job = Job(parallelism, [])
        self.model: Contents = {}
        self.generation = 0

    @rule(key=KEYS, number=st.none() | NUMBERS)
    def update_value(self, key: str, number: int | None) -> None:
        self.job.state("value", key).update(number)
        self.put("value", key, number)

    @rule(key=KEYS, number=NUMBERS)
    def replace_object(self, key: str, number: int) -> None:
        self.job.state("object", key).update({"numbers": [number]})
        self.put("object", key, {"numbers": [number]})

    @rule(key=KEYS, number=NUMBERS)
    def change_objects_in_place(self, key: str, number: int) -> None:
        value = self.job.state("object", key).value()
        if value is not None:
            value["numbers"].append(number)
            self.model["object", key]["numbers"].append(number)
        for element in self.job.state("object list", key).get():
            element.append(number)
        for element in self.model.get(("object list", key), []):
            element.append(number)
        for element in self.job.state("object map", key).values():
            element.append(number)
        for element in self.model.get(("object map", key), {}).values():
            element.append(number)

    @rule(key=KEYS, numbers=st.lists(NUMBERS, max_size=3), replace=st.booleans())
    def lists(self, key: str, numbers: list[int], replace: bool) -> None:
        state = self.job.state("list", key)
        present = [] if replace else self.model.get(("list", key)) or []
        if replace:
            state.update(numbers)
        else:
            state.add_all(numbers)
        self.put("list", key, present + numbers)

    @rule(key=KEYS, number=NUMBERS)
    def add_object(self, key: str, number: int) -> None:
        self.job.state("object list", key).add([number])
        self.model.setdefault(("object list", key), []).append([number])

    @rule(key=KEYS, inner=NUMBERS, number=st.none() | NUMBERS)
    def put_entry(self, key: str, inner: int, number: int | None) -> None:
        self.job.state("map", key).put(inner, number)
        self.model.setdefault(("map", key), {})[inner] = number

    @rule(key=KEYS, inner=NUMBERS)
    def put_object_entry(self, key: str, inner: int) -> None:
        self.job.state("object map", key).put(inner, [inner])
        self.model.setdefault(("object map", key), {})[inner] = [inner]

    @rule(key=KEYS, inner=NUMBERS, name=st.sampled_from(["map", "object map"]))
    def remove_entry(self, key: str, inner: int, name: str) -> None:
        self.job.state(name, key).remove(inner)
        entries = self.model.get((name, key), {})
        entries.pop(inner, None)
        self.put(name, key, entries)

    @rule(key=KEYS, number=NUMBERS, name=st.sampled_from(["reducing", "aggregating"]))
    def fold(self, key: str, number: int, name: str) -> None:
        self.job.state(name, key).add(number)
        self.put(name, key, (self.model.get((name, key)) or 0) + number)

    @rule(key=KEYS, name=st.sampled_from(sorted(DECLARATIONS)))
    def clear(self, key: str, name: str) -> None:
        self.job.state(name, key).clear()
        self.model.pop((name, key), None)

    @rule(key=KEYS, name=st.sampled_from(sorted(DECLARATIONS)))
    def read(self, key: str, name: str) -> None:
        assert self.job.read(name, key) == self.model.get((name, key))

    @rule(target=in_flight)
    def snapshot(self) -> Any:
        snapshots = [backend.snapshot(1) for backend in self.job.backends]
        return self.generation, Taken(snapshots, copy.deepcopy(self.model))

    @rule(target=finished, taken=in_flight)
    def write(self, taken: tuple[int, Taken]) -> Any:
        generation, checkpoint = taken
        if generation != self.generation or checkpoint.files:
            return multiple()
        checkpoint.files = [write_file(snapshot) for snapshot in checkpoint.snapshots]
        return checkpoint

    @rule(taken=consumes(in_flight))
    def release(self, taken: tuple[int, Taken]) -> None:
        if taken[0] == self.generation:
            for snapshot in taken[1].snapshots:
                snapshot.release()

    @rule(checkpoint=finished, parallelism=st.integers(1, 4))
    def crash_and_restore(self, checkpoint: Taken, parallelism: int) -> None:
        self.job = Job(parallelism, checkpoint.files)
        self.model = copy.deepcopy(checkpoint.expected)
        self.generation += 1

    @invariant()
    def every_entry_is_there(self) -> None:
        for name, key in self.registered():
            assert self.job.read(name, key) == self.model.get((name, key))

    def registered(self) -> Iterator[tuple[str, str]]:
        """Spare states that the job has not asked for: they must survive untouched too."""
        for name, key in self.model:
            if name in ("value", "list"):
                yield name, key

    def put(self, name: str, key: str, contents: Any) -> None:
        if contents is None or contents in ([], {}):
            self.model.pop((name, key), None)
        else:
            self.model[name, key] = contents

    def teardown(self) -> None:
        if hasattr(self, "job"):
            for name in DECLARATIONS:
                for key in ("a", "b", "c", "d", "e"):
                    assert self.job.read(name, key) == self.model.get((name, key))


TestKeyedBackendModel = KeyedBackendModel.TestCase
TestKeyedBackendModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
