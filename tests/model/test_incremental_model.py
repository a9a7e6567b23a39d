"""Chains of checkpoints against plain dicts: a checkpoint that exists restores its moment.

The rules of the backend model, and checkpoints that are taken, written late, completed or aborted
in any order, with crashes that resume from the newest one at the same or another parallelism. Every
file is deleted as soon as the contract allows it. Full snapshots in between are savepoints.
"""

from __future__ import annotations

import copy
import itertools
from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, initialize, rule
from tests.databases import Databases, scratch_directory
from tests.examples import examples
from tests.model.test_keyed_backend_model import (
    ALL_KEYS,
    CHANGES,
    DECLARATIONS,
    MAX_PARALLELISM,
    Contents,
    Job,
    KeyedBackendModel,
    Taken,
)

from weir.backend.base import KeyedBackend, SharedFiles
from weir.backend.changelog.backend import ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.changes import ChangeSource
from weir.backend.hashmap import HashMapBackend
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, range_of
from weir.testing.backend_snapshot_conformance import source_of
from weir.testing.background import ManualBackground
from weir.testing.checkpoint_world import CheckpointWorld, MemoryFiles, WorldCheckpoint
from weir.testing.clock import ManualClock


class Pending:
    """A checkpoint of all subtasks on its way, and what it must show."""

    def __init__(self, number: int, parts: list[WorldCheckpoint], expected: Contents) -> None:
        self.number = number
        self.parts = parts
        self.expected = expected
        self.written = False


class IncrementalModel(KeyedBackendModel):
    """Drives a job whose checkpoints consist of changes."""

    pending = Bundle("pending")

    def incremental(self, owned: KeyGroupRange, shared: SharedFiles) -> KeyedBackend:
        return HashMapBackend(Types.LONG(), owned, tracked=True)

    def make(self, owned: KeyGroupRange) -> KeyedBackend:
        return self.incremental(owned, MemoryFiles())

    @initialize(parallelism=st.integers(1, 4))
    def start(self, parallelism: int) -> None:
        self.model: Contents = {}
        self.generation = 0
        self.number = 0
        self.clock = ManualClock()
        self.new_job(parallelism)

    def new_job(self, parallelism: int) -> None:
        """Begin with empty storage and empty state."""
        self.worlds = [CheckpointWorld(retained=2) for _ in range(parallelism)]
        self.open: list[Pending] = []
        self.newest: Pending | None = None
        self.job = self.attempt(parallelism)

    def attempt(self, parallelism: int) -> Job:
        by_start = {
            range_of(i, parallelism, MAX_PARALLELISM).start: world.shared
            for i, world in enumerate(self.worlds)
        }
        return Job(lambda owned: self.incremental(owned, by_start[owned.start]), parallelism, [])

    @rule(target=pending, later=st.lists(CHANGES, max_size=4))
    def take(self, later: list[tuple[str, int, int]]) -> Any:
        self.number += 1
        self.clock.advance(10)
        both = zip(self.worlds, self.job.backends, strict=True)
        parts = [world.take(backend, self.number) for world, backend in both]
        taken = Pending(self.number, parts, copy.deepcopy(self.model))
        self.open.append(taken)
        self.change(later)
        return taken

    @rule(taken=pending)
    def write_parts(self, taken: Pending) -> None:
        if taken in self.open and not taken.written:
            for world, part in zip(self.worlds, taken.parts, strict=True):
                world.write(part)
            taken.written = True

    @rule(taken=consumes(pending))
    def complete(self, taken: Pending) -> None:
        """Older ones that are still on their way are given up, as the coordinator does."""
        if taken not in self.open:
            return
        self.write_parts(taken)
        self.open.remove(taken)
        for world, backend, part in self.subtasks(taken):
            world.complete(backend, part)
        self.newest = taken
        for older in [p for p in self.open if p.number < taken.number]:
            self.abort(older)
        self.check(taken, self.job.parallelism)
        self.check(taken, self.job.parallelism % 4 + 1)

    @rule(taken=consumes(pending))
    def abort_one(self, taken: Pending) -> None:
        if taken in self.open:
            self.abort(taken)

    def abort(self, taken: Pending) -> None:
        self.open.remove(taken)
        for world, backend, part in self.subtasks(taken):
            if not taken.written:
                part.snapshot.release()
            world.abort(backend, part)

    def subtasks(self, taken: Pending) -> Any:
        return zip(self.worlds, self.job.backends, taken.parts, strict=True)

    def restored(self, taken: Pending, job: Job, *, reusable: bool) -> Job:
        for backend in job.backends:
            sources = [
                world.source(part, wanted, reusable=reusable)
                for world, part in zip(self.worlds, taken.parts, strict=True)
                if (wanted := part.key_groups.intersect(backend.key_groups))
            ]
            backend.restore(sources)
        return job

    def check(self, taken: Pending, parallelism: int) -> None:
        job = self.restored(taken, Job(self.make, parallelism, []), reusable=False)
        for name, key in itertools.product(DECLARATIONS, ALL_KEYS):
            assert job.read(name, key) == taken.expected.get((name, key))
        job.close()

    @rule()
    def fail_over(self) -> None:
        """All processes are lost; the chain goes on with the newest checkpoint."""
        if self.newest is None:
            return
        self.job.close()
        for world in self.worlds:
            world.fail_over()
        self.open.clear()
        self.generation += 1
        parallelism = self.job.parallelism
        self.job = self.restored(self.newest, self.attempt(parallelism), reusable=True)
        self.model = copy.deepcopy(self.newest.expected)

    @rule(parallelism=st.integers(1, 4))
    def rescale(self, parallelism: int) -> None:
        """Another job takes over, and does not get the files of the old one."""
        if self.newest is None:
            return
        self.job.close()
        taken, old = self.newest, self.worlds
        self.new_job(parallelism)
        self.worlds, new = old, self.worlds
        self.restored(taken, self.job, reusable=False)
        self.worlds = new
        for world in old:
            world.shared.files.clear()
        self.generation += 1
        self.model = copy.deepcopy(taken.expected)

    @rule(checkpoint=KeyedBackendModel.finished, parallelism=st.integers(1, 4))
    def crash_and_restore(self, checkpoint: Taken, parallelism: int) -> None:
        """A savepoint begins another job."""
        self.job.close()
        self.new_job(parallelism)
        for backend in self.job.backends:
            backend.restore([source_of(data, backend.key_groups) for data in checkpoint.files])
        self.model = copy.deepcopy(checkpoint.expected)
        self.generation += 1


class FlatIncrementalModel(IncrementalModel):
    """The same with numbers in arrays."""

    def incremental(self, owned: KeyGroupRange, shared: SharedFiles) -> KeyedBackend:
        return HashMapBackend(Types.LONG(), owned, tracked=True, flat_from=owned.start % 3)


class ChangelogModel(IncrementalModel):
    """The same with a log, segments of a few changes, and a materialisation now and then."""

    def incremental(self, owned: KeyGroupRange, shared: SharedFiles) -> KeyedBackend:
        logged = ChangelogSettings(
            materialize_ms=20,
            failures_max=1,
            preemptive_bytes=150,
            attempts=1,
            in_flight_bytes=1 << 20,
        )
        inner = self.inner(owned)
        place = ChangelogPlace(shared, self.clock, logged)
        self.backgrounds.append(ManualBackground())
        return ChangelogBackend(inner, place, self.backgrounds[-1])

    def inner(self, owned: KeyGroupRange) -> ChangeSource:
        return HashMapBackend(Types.LONG(), owned, tracked=True)

    def __init__(self) -> None:
        self.backgrounds: list[ManualBackground] = []
        super().__init__()

    @rule()
    def work_in_background(self) -> None:
        for background in self.backgrounds:
            background.run()
            assert background.errors == []


class FlatChangelogModel(ChangelogModel):
    """The same over numbers in arrays."""

    def inner(self, owned: KeyGroupRange) -> ChangeSource:
        return HashMapBackend(Types.LONG(), owned, tracked=True, flat_from=owned.start % 3)


class RocksDBChangelogModel(ChangelogModel):
    """The same over databases, with memory for two objects."""

    def __init__(self) -> None:
        self.scratch = ExitStack()
        self.databases = Databases(self.scratch.enter_context(scratch_directory()))
        super().__init__()

    def inner(self, owned: KeyGroupRange) -> ChangeSource:
        options = {"state.backend.rocksdb.memory.fixed-per-slot": 1 << 12}
        made: ChangeSource = self.databases.tracked(options, owned, Types.LONG())
        return made

    def teardown(self) -> None:
        super().teardown()
        self.databases.close()
        self.scratch.close()


TestIncrementalModel = IncrementalModel.TestCase
TestIncrementalModel.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None
)

TestFlatIncrementalModel = FlatIncrementalModel.TestCase
TestFlatIncrementalModel.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None
)

TestFlatChangelogModel = FlatChangelogModel.TestCase
TestFlatChangelogModel.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None
)

TestChangelogModel = ChangelogModel.TestCase
TestChangelogModel.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None
)

TestRocksDBChangelogModel = RocksDBChangelogModel.TestCase
TestRocksDBChangelogModel.settings = settings(
    max_examples=examples(20), stateful_step_count=30, deadline=None
)
