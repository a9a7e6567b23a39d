"""The changelog backend: when it materialises, what checkpoints refer to, what stays behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from weir.backend.base import SnapshotKind
from weir.backend.changelog.backend import ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.backend.hashmap import HashMapBackend
from weir.common.typeinfo import Types
from weir.config import backend as options
from weir.errors import StorageError
from weir.keygroup import KeyGroupRange
from weir.state.descriptor import ListStateDescriptor, ValueStateDescriptor
from weir.testing.background import ManualBackground
from weir.testing.checkpoint_world import CheckpointWorld, WorldCheckpoint
from weir.testing.clock import ManualClock

GROUPS = KeyGroupRange(0, 3)
VALUE = ValueStateDescriptor("v", Types.LONG())
ELEMENTS = ListStateDescriptor("l", Types.STRING())
DEFAULTS: dict[str, Any] = {
    "materialize_ms": 1000,
    "failures_max": 3,
    "preemptive_bytes": 5 << 20,
    "attempts": 1,
    "in_flight_bytes": 100 << 20,
}


class Life:
    """A backend, its world, and the work it put off."""

    def __init__(self, world: CheckpointWorld | None = None, **settings: Any) -> None:
        self.world = world or CheckpointWorld()
        self.clock = ManualClock()
        self.background = ManualBackground()
        place = ChangelogPlace(
            self.world.shared, self.clock, ChangelogSettings(**{**DEFAULTS, **settings}), "counts"
        )
        self.inner: Any = HashMapBackend(Types.STRING(), GROUPS, tracked=True)
        self.backend: Any = ChangelogBackend(self.inner, place, self.background)
        self.number = 0

    def put(self, key: str, value: int) -> None:
        self.backend.current.key, self.backend.current.group = key, 0
        self.backend.state(VALUE).update(value)
        self.backend.state(ELEMENTS).add(str(value))
        self.backend.end_epoch()

    def checkpoint(self) -> WorldCheckpoint:
        self.number += 1
        return self.world.run(self.backend, self.number)

    def contents(self) -> dict[str, Any]:
        found = {}
        for key in self.backend.keys("v"):
            self.backend.current.key, self.backend.current.group = key, 0
            value, elements = self.backend.state(VALUE), self.backend.state(ELEMENTS)
            found[key] = (value.value(), list(elements.get()))
        return found

    def materialize(self) -> None:
        """Let a materialisation fall due, begin, and be done."""
        self.clock.advance(1000)
        self.backend.end_epoch()
        self.background.run()
        self.backend.end_epoch()
        self.background.run()


def restored(life: Life, checkpoint: WorldCheckpoint, **settings: Any) -> Life:
    again = Life(life.world, **settings)
    again.number = life.number
    again.backend.restore([life.world.source(checkpoint, reusable=True)])
    again.backend.state(VALUE)
    return again


def test_a_checkpoint_refers_to_the_log_until_the_state_is_materialised() -> None:
    life = Life()
    for number in range(100):
        life.put(f"key {number}", number)
    first = life.checkpoint()
    assert len(first.uses) == 1
    life.put("key 1", -1)
    second = life.checkpoint()
    assert first.uses < second.uses
    life.materialize()
    third = life.checkpoint()
    assert len(third.uses) == 1
    assert third.uses.isdisjoint(second.uses)
    life.put("key 2", -2)
    fourth = life.checkpoint()
    assert third.uses < fourth.uses
    assert restored(life, fourth).contents() == life.contents()
    assert set(life.world.shared.files) == fourth.uses


def test_what_happens_while_a_materialisation_is_written_stays_in_the_log() -> None:
    life = Life()
    life.put("a", 1)
    first = life.checkpoint()
    life.clock.advance(1000)
    life.put("a", 2)
    life.put("a", 3)
    old = life.checkpoint()
    expected = life.contents()
    life.background.run()
    life.put("a", 4)
    assert restored(life, old).contents() == expected
    new = life.checkpoint()
    assert restored(life, new).contents() == life.contents() == {"a": (4, ["1", "2", "3", "4"])}
    assert len(new.uses) == 2
    assert new.uses.isdisjoint(first.uses)


def test_nothing_is_materialised_without_changes_or_when_it_is_switched_off() -> None:
    life = Life()
    life.clock.advance(5000)
    life.backend.end_epoch()
    assert life.background.waiting == []
    off = Life(materialize_ms=None)
    off.put("a", 1)
    off.clock.advance(1 << 40)
    off.backend.end_epoch()
    assert off.background.waiting == []


def test_big_changes_are_written_before_a_checkpoint_asks_for_them() -> None:
    life = Life(preemptive_bytes=200)
    for number in range(50):
        life.put(f"key {number}", number)
    assert len(life.background.waiting) > 5
    life.background.run()
    made = life.world.shared.made
    checkpoint = life.checkpoint()
    assert life.world.shared.made <= made + 1
    assert restored(life, checkpoint).contents() == life.contents()


def test_a_failed_segment_declines_the_checkpoint_and_is_in_the_next_one() -> None:
    life = Life()
    life.put("a", 1)
    life.world.shared.failures = 1
    taken = life.world.take(life.backend, 1)
    with pytest.raises(OSError, match="out of order"):
        life.world.write(taken)
    life.world.abort(life.backend, taken)
    life.put("b", 2)
    life.number = 1
    assert restored(life, life.checkpoint()).contents() == life.contents()


def test_failed_materialisations_leave_the_log_and_end_the_job_when_too_many() -> None:
    life = Life()
    life.put("a", 1)
    for _ in range(2):
        life.world.shared.failures = 1
        life.materialize()
    life.materialize()
    assert life.world.shared.failures == 0
    assert len(life.checkpoint().uses) == 1
    life.put("b", 2)
    for _ in range(2):
        life.world.shared.failures = 1
        life.materialize()
    assert restored(life, life.checkpoint()).contents() == life.contents()
    life.world.shared.failures = 1
    with pytest.raises(StorageError, match=r"'counts'.*3 times in a row.*out of order"):
        life.materialize()


def test_the_log_is_given_up_when_it_cannot_be_written_and_memory_runs_out() -> None:
    life = Life(preemptive_bytes=100, in_flight_bytes=1000)
    life.put("a", 0)
    before = life.checkpoint()
    kept = life.contents()
    life.world.shared.failures = 1 << 30
    for number in range(200):
        life.put("a", number)
        assert life.backend.approximate_bytes() < 50_000
    assert sum(s.size for s in life.backend._log.unwritten()) <= 1100
    life.world.shared.failures = 0
    life.background.run()
    assert restored(life, before).contents() == kept
    after = life.checkpoint()
    assert restored(life, after).contents() == life.contents()
    life.put("a", 1)
    assert restored(life, life.checkpoint()).contents() == life.contents()


def test_files_that_no_checkpoint_ever_used_are_deleted() -> None:
    life = Life(preemptive_bytes=100)
    for number in range(20):
        life.put("a", number)
    life.background.run()
    assert len(life.world.shared.files) > 3
    life.materialize()
    assert len(life.world.shared.files) == 1
    pending = life.world.write(life.world.take(life.backend, 1))
    life.put("a", 1)
    life.materialize()
    assert pending.uses <= set(life.world.shared.files)
    life.world.abort(life.backend, pending)
    life.background.run()
    assert pending.uses.isdisjoint(life.world.shared.files)
    life.number = 1
    checkpoint = life.checkpoint()
    assert set(life.world.shared.files) == checkpoint.uses


def test_small_segments_that_were_merged_are_gone() -> None:
    life = Life()
    for number in range(40):
        life.put("a", number)
        checkpoint = life.checkpoint()
        life.background.run()
        assert set(life.world.shared.files) == checkpoint.uses
        assert len(checkpoint.uses) <= 8
    assert restored(life, checkpoint).contents() == life.contents()


def test_after_a_restore_of_other_files_the_first_checkpoint_is_whole() -> None:
    life = Life()
    life.put("a", 1)
    life.put("b", 2)
    checkpoint = life.checkpoint()
    other = Life()
    other.backend.restore([life.world.source(checkpoint)])
    other.put("a", 3)
    first = other.world.take(other.backend, 1)
    other.put("a", 4)
    second = other.world.take(other.backend, 2)
    other.world.write(second)
    other.world.write(first)
    assert first.uses < second.uses
    other.world.abort(other.backend, first)
    other.world.complete(other.backend, second)
    assert restored(other, second).contents() == other.contents()


def test_a_failed_first_materialisation_is_tried_with_the_next_checkpoint() -> None:
    life = Life()
    life.put("a", 1)
    checkpoint = life.checkpoint()
    other = Life()
    other.backend.restore([life.world.source(checkpoint)])
    other.put("b", 2)
    other.world.shared.failures = 1
    taken = other.world.take(other.backend, 1)
    with pytest.raises(OSError, match="out of order"):
        other.world.write(taken)
    other.world.abort(other.backend, taken)
    other.put("c", 3)
    other.number = 1
    assert restored(other, other.checkpoint()).contents() == other.contents()


@pytest.mark.parametrize("first", [True, False])
def test_the_changelog_is_switched_on_and_off_over_the_same_chain(first: bool) -> None:
    world, logged = CheckpointWorld(), first
    life: Any = Life(world)
    plain: Any = HashMapBackend(Types.STRING(), GROUPS, tracked=True)
    backend = life.backend if logged else plain
    expected: dict[str, int] = {}
    for number in range(1, 16):
        key = f"key {number % 4}"
        backend.current.key, backend.current.group = key, 0
        backend.state(VALUE).update(number)
        expected[key] = number
        checkpoint = world.run(backend, number)
        logged = not logged if number % 2 else logged
        backend.close()
        backend = Life(world).backend
        if not logged:
            backend = HashMapBackend(Types.STRING(), GROUPS, tracked=True)
        backend.restore([world.source(checkpoint, reusable=True)])
        state = backend.state(VALUE)
        found = {}
        for name in backend.keys("v"):
            backend.current.key, backend.current.group = name, 0
            found[name] = state.value()
        assert found == expected


def test_savepoints_are_those_of_the_inner_backend() -> None:
    life = Life()
    life.put("a", 1)
    savepoint = life.world.take(life.backend, 1, SnapshotKind.FULL)
    assert life.world.write(savepoint).uses == set()
    life.put("b", 2)
    life.number = 1
    assert restored(life, life.checkpoint()).contents() == life.contents()


def test_closing_waits_for_nothing_and_begins_nothing() -> None:
    life = Life(preemptive_bytes=10)
    life.put("a", 1)
    life.clock.advance(1000)
    life.put("a", 2)
    life.backend.close()
    life.background.run()
    assert life.world.shared.files == {}


def test_the_factory_makes_a_changelog_with_threads_of_its_own(tmp_path: Path) -> None:
    world = CheckpointWorld()
    settings = BackendSettings(
        changelog=True, options={options.CHANGELOG_PERSIST_THRESHOLD.key: 10}
    )
    context = BackendContext(settings, world.shared, local_dir=tmp_path)
    backend: Any = create_backend(context, Types.STRING(), GROUPS)
    assert isinstance(backend, ChangelogBackend)
    for number in range(20):
        backend.current.key, backend.current.group = f"key {number}", 0
        backend.state(VALUE).update(number)
        backend.end_epoch()
    checkpoint = world.run(backend, 1)
    backend.close()
    again = create_backend(BackendContext(), Types.STRING(), GROUPS)
    again.restore([world.source(checkpoint)])
    again.state(VALUE)
    assert again.size() == 20


def test_threads_materialise_and_write_while_the_backend_works() -> None:
    """Real threads, checkpoints written beside epochs, a materialisation whenever none runs."""
    world = CheckpointWorld()
    settings = ChangelogSettings(1, 3, 300, 3, 1 << 20)
    place = ChangelogPlace(world.shared, TickingClock(), settings)
    backend: Any = ChangelogBackend(HashMapBackend(Types.STRING(), GROUPS, tracked=True), place)
    value, elements = backend.state(VALUE), backend.state(ELEMENTS)
    expected: dict[str, tuple[int, list[str]]] = {}
    for number in range(1, 41):
        for step in range(20):
            key = f"key {(number * 7 + step * step) % 50}"
            backend.current.key, backend.current.group = key, 0
            value.update(number)
            elements.add(str(step))
            old = expected.get(key, (0, []))[1]
            expected[key] = (number, [*old, str(step)])
            backend.end_epoch()
        moment = dict(expected)
        taken = world.take(backend, number)
        writing = threading.Thread(target=world.write, args=(taken,))
        writing.start()
        for key in list(expected)[:20]:
            backend.current.key, backend.current.group = key, 0
            value.update(-number)
            expected[key] = (-number, expected[key][1])
            backend.end_epoch()
        writing.join()
        world.complete(backend, taken)
        again = Life(world)
        again.backend.restore([world.source(taken, reusable=True)])
        again.backend.state(VALUE)
        assert again.contents() == moment
    backend.close()


class TickingClock(ManualClock):
    """A clock on which every look takes a moment."""

    def monotonic_ms(self) -> int:
        self.advance(1)
        return super().monotonic_ms()


def test_settings_are_read_by_key_and_have_defaults() -> None:
    settings = ChangelogSettings.of({})
    assert settings == ChangelogSettings(600_000, 3, 5 << 20, 3, 100 << 20)
    off = ChangelogSettings.of({options.CHANGELOG_MATERIALIZE.key: False})
    assert off.materialize_ms is None
    never = ChangelogSettings.of({options.CHANGELOG_MATERIALIZE_INTERVAL.key: -1})
    assert never.materialize_ms is None
