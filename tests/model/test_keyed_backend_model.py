"""A keyed backend against plain dicts: whatever happens in whatever order, they agree.

Invariants: every read shows the last write; a snapshot restores exactly the moment it was taken,
however late it is written, in whatever order snapshots are written and released, at any
parallelism.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from contextlib import ExitStack
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
from tests.databases import Databases, scratch_directory
from tests.examples import examples

from weir.backend.base import VOID, KeyedBackend
from weir.backend.hashmap import HashMapBackend
from weir.backend.peek import Peekable
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, key_group, range_of, subtask_of
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.backend_snapshot_conformance import Sum, source_of, write_file

MAX_PARALLELISM = 8
ALL_KEYS = [1, -(1 << 40)]
STRIDE_ROWS = 40
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

OPERATIONS = [
    "update_value",
    "replace_object",
    "change_object_in_place",
    "change_elements_in_place",
    "change_entries_in_place",
    "add",
    "replace_list",
    "add_all",
    "add_object",
    "put_entry",
    "put_null",
    "put_object",
    "remove_entry",
    "fold",
    "clear_some",
    "read_some",
]
CHANGES = st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(ALL_KEYS), st.integers(-1, 1))

Contents = dict[tuple[str, int], Any]


class Job:
    """All subtasks of one operator; asks the subtask that owns a key."""

    def __init__(
        self, make: Callable[[KeyGroupRange], KeyedBackend], parallelism: int, files: list[bytes]
    ) -> None:
        self.parallelism = parallelism
        self.backends = []
        for subtask in range(parallelism):
            owned = range_of(subtask, parallelism, MAX_PARALLELISM)
            backend = make(owned)
            if files:
                backend.restore([source_of(data, owned) for data in files])
            self.backends.append(backend)

    def close(self) -> None:
        for backend in self.backends:
            backend.close()

    def owner(self, key: int) -> KeyedBackend:
        group = key_group(key, MAX_PARALLELISM)
        return self.backends[subtask_of(group, self.parallelism, MAX_PARALLELISM)]

    def state(self, name: str, key: int) -> Any:
        group, backend = key_group(key, MAX_PARALLELISM), self.owner(key)
        backend.current.key, backend.current.group = key, group
        return backend.state(DECLARATIONS[name])

    def read(self, name: str, key: int) -> Any:
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

    def make(self, owned: KeyGroupRange) -> KeyedBackend:
        return HashMapBackend(Types.LONG(), owned)

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self.job = Job(self.make, parallelism, [])
        self.model: Contents = {}
        self.generation = 0

    @rule(changes=st.lists(CHANGES, min_size=5, max_size=15))
    def change_more(self, changes: list[tuple[str, int, int]]) -> None:
        self.change(changes)

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=8), rows=st.sampled_from([0, STRIDE_ROWS]))
    def change_in_strides(self, changes: list[tuple[str, int, int]], rows: int) -> None:
        """Every subtask learns its keys before; so many that it is worth while, or just them."""
        for backend in self.job.backends:
            mine = [change for change in changes if self.job.owner(change[1]) is backend]
            keys = [key for _, key, _ in mine]
            keys *= 1 + rows // (len(keys) or 1)
            backend.begin_stride(keys, [key_group(key, MAX_PARALLELISM) for key in keys])
            self.change(mine)
            backend.end_stride()

    @rule(number=st.integers(1, 9))
    def use_a_namespace(self, number: int) -> None:
        """What is in a namespace is apart, and gone again before anybody looks."""
        for key in ALL_KEYS[number:]:
            state = self.job.state("value", key)
            current = self.job.owner(key).current
            current.namespace = "space"
            assert state.value() is None
            state.update(number)
            assert state.value() == number
            state.clear()
            current.namespace = VOID

    def change(self, changes: list[tuple[str, int, int]]) -> None:
        for operation, key, number in changes:
            getattr(self, operation)(key, number)

    def update_value(self, key: int, number: int) -> None:
        self.job.state("value", key).update(number)
        self.model["value", key] = number

    def replace_object(self, key: int, number: int) -> None:
        self.job.state("object", key).update({"numbers": [number]})
        self.model["object", key] = {"numbers": [number]}

    def change_object_in_place(self, key: int, number: int) -> None:
        value = self.job.state("object", key).value()
        if value is not None:
            value["numbers"].append(number)
            self.model["object", key]["numbers"].append(number)

    def change_elements_in_place(self, key: int, number: int) -> None:
        for element in self.job.state("object list", key).get():
            element.append(number)
        for element in self.model.get(("object list", key), []):
            element.append(number)

    def change_entries_in_place(self, key: int, number: int) -> None:
        for element in self.job.state("object map", key).values():
            element.append(number)
        for element in self.model.get(("object map", key), {}).values():
            element.append(number)

    def add(self, key: int, number: int) -> None:
        self.job.state("list", key).add(number)
        self.model.setdefault(("list", key), []).append(number)

    def replace_list(self, key: int, number: int) -> None:
        numbers = [number] * (number + 1)
        self.job.state("list", key).update(numbers)
        self.put("list", key, numbers)

    def add_all(self, key: int, number: int) -> None:
        numbers = [number] * (number + 1)
        self.job.state("list", key).add_all(numbers)
        self.put("list", key, self.model.get(("list", key), []) + numbers)

    def add_object(self, key: int, number: int) -> None:
        self.job.state("object list", key).add([number])
        self.model.setdefault(("object list", key), []).append([number])

    def put_entry(self, key: int, number: int) -> None:
        self.job.state("map", key).put(number, number)
        self.model.setdefault(("map", key), {})[number] = number

    def put_null(self, key: int, number: int) -> None:
        self.job.state("map", key).put_all({number: None})
        self.model.setdefault(("map", key), {})[number] = None

    def put_object(self, key: int, number: int) -> None:
        self.job.state("object map", key).put(number, [number])
        self.model.setdefault(("object map", key), {})[number] = [number]

    def remove_entry(self, key: int, number: int) -> None:
        for name in ("map", "object map"):
            self.job.state(name, key).remove(number)
            entries = self.model.get((name, key), {})
            entries.pop(number, None)
            self.put(name, key, entries)

    def fold(self, key: int, number: int) -> None:
        for name in ("reducing", "aggregating"):
            self.job.state(name, key).add(number)
            self.model[name, key] = self.model.get((name, key), 0) + number

    def clear_some(self, key: int, number: int) -> None:
        for name in sorted(DECLARATIONS)[number + 1 :: 3]:
            self.job.state(name, key).clear()
            self.model.pop((name, key), None)

    def read_some(self, key: int, number: int) -> None:
        for name in sorted(DECLARATIONS)[number + 1 :: 3]:
            assert self.job.read(name, key) == self.model.get((name, key))

    @rule(key=st.sampled_from(ALL_KEYS), whole=st.booleans())
    def peek(self, key: int, whole: bool) -> None:
        """Whoever looks from outside sees the same, and keeps nothing from being seen later."""
        group, backend = key_group(key, MAX_PARALLELISM), self.job.owner(key)
        assert isinstance(backend, Peekable)
        for state in backend.seen_states():
            if whole:
                found = dict(backend.peek_group(state.name, group))
            else:
                found = dict(backend.peek(state.name, group, [key], spaced=False))
            assert found.get(key) == self.model.get((state.name, key))

    @rule()
    def end_epoch(self) -> None:
        for backend in self.job.backends:
            backend.end_epoch()

    @rule(target=in_flight, later=st.lists(CHANGES, min_size=1, max_size=8))
    def snapshot(self, later: list[tuple[str, int, int]]) -> Any:
        snapshots = [backend.snapshot(1) for backend in self.job.backends]
        taken = Taken(snapshots, copy.deepcopy(self.model))
        self.change(later)
        return self.generation, taken

    @rule(target=finished, taken=in_flight)
    def write(self, taken: tuple[int, Taken]) -> Any:
        generation, checkpoint = taken
        if generation != self.generation or checkpoint.files:
            return multiple()
        checkpoint.files = [write_file(snapshot) for snapshot in checkpoint.snapshots]
        job = Job(self.make, self.job.parallelism % 4 + 1, checkpoint.files)
        for name, key in itertools.product(DECLARATIONS, ALL_KEYS):
            assert job.read(name, key) == checkpoint.expected.get((name, key))
        job.close()
        return checkpoint

    @rule(taken=consumes(in_flight))
    def release(self, taken: tuple[int, Taken]) -> None:
        if taken[0] == self.generation:
            for snapshot in taken[1].snapshots:
                snapshot.release()

    @rule(checkpoint=finished, parallelism=st.integers(1, 4))
    def crash_and_restore(self, checkpoint: Taken, parallelism: int) -> None:
        self.job.close()
        self.job = Job(self.make, parallelism, checkpoint.files)
        self.model = copy.deepcopy(checkpoint.expected)
        self.generation += 1

    @invariant()
    def declared_values_and_lists_agree(self) -> None:
        """Only two kinds: the other states must also survive while nobody asks for them."""
        for name, key in itertools.product(("value", "list"), ALL_KEYS):
            if hasattr(self, "job"):
                assert self.job.read(name, key) == self.model.get((name, key))

    def put(self, name: str, key: int, contents: Any) -> None:
        if contents:
            self.model[name, key] = contents
        else:
            self.model.pop((name, key), None)

    def teardown(self) -> None:
        if hasattr(self, "job"):
            for name, key in itertools.product(DECLARATIONS, ALL_KEYS):
                assert self.job.read(name, key) == self.model.get((name, key))
            self.job.close()


class FlatModel(KeyedBackendModel):
    """The same with numbers in arrays: from the start, or once there are two entries."""

    @initialize(flat_from=st.sampled_from([0, 2]))
    def choose(self, flat_from: int) -> None:
        self.flat_from = flat_from

    def make(self, owned: KeyGroupRange) -> KeyedBackend:
        return HashMapBackend(Types.LONG(), owned, flat_from=getattr(self, "flat_from", 0))


class RocksDBModel(KeyedBackendModel):
    """The same in databases, with hardly any memory for objects."""

    def __init__(self) -> None:
        self.scratch = ExitStack()
        self.databases = Databases(self.scratch.enter_context(scratch_directory()))
        super().__init__()

    def make(self, owned: KeyGroupRange) -> KeyedBackend:
        options = {"state.backend.rocksdb.memory.fixed-per-slot": 1 << 16}
        made: KeyedBackend = self.databases.backend(options, owned, Types.LONG())
        return made

    def teardown(self) -> None:
        super().teardown()
        self.databases.close()
        self.scratch.close()


TestKeyedBackendModel = KeyedBackendModel.TestCase
TestKeyedBackendModel.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)

TestFlatModel = FlatModel.TestCase
TestFlatModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)

TestRocksDBModel = RocksDBModel.TestCase
TestRocksDBModel.settings = settings(
    max_examples=examples(12), stateful_step_count=25, deadline=None
)
