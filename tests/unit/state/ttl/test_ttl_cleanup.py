"""How expired entries go away without being read: sweeps, steps, rounds, timers."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tests.unit.state.ttl.subjects import GROUPS, SUBJECTS, List, MapAll, Value, World, config

from weir.backend.base import VOID
from weir.backend.factory import BackendSettings

HASHMAP = BackendSettings()
BACKENDS = [
    pytest.param(HASHMAP, id="hashmap"),
    pytest.param(BackendSettings(incremental=True), id="incremental"),
    pytest.param(BackendSettings(changelog=True), id="changelog"),
    pytest.param(
        BackendSettings("rocksdb"),
        marks=pytest.mark.skipif(find_spec("rocksdict") is None, reason="needs rocksdict"),
        id="rocksdb",
    ),
]


@pytest.fixture(params=SUBJECTS, ids=lambda s: type(s).__name__)
def subject(request):
    return request.param


class Watched:
    """A backend that counts the entries that sweeps look at."""

    def __init__(self, backend):
        self._backend = backend
        self.looked = 0
        self.calls = 0

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def sweep(self, name, keep, limit):
        looked = self._backend.sweep(name, keep, limit)
        self.looked += looked
        self.calls += 1
        return looked


def watched(subject, change=None):
    """Make a world whose sweeps are counted, over a state that was restored with one entry."""
    world = World(subject, config(change=change), HASHMAP)
    world.write(subject.first, 0)
    world.step(0)
    (sweeper,) = world.ttl._sweepers
    sweeper._backend = Watched(world.backend)
    return world, sweeper._backend


def fill(world, count, now=0):
    for number in range(count):
        world.at(f"key {number}").write(world.subject.first, now)


def test_every_access_earns_five_entries_by_default():
    world, backend = watched(Value())
    fill(world, 100)
    world.ttl.end_epoch(100)
    world.clock.set(100)
    for _ in range(4):
        world.read()
    world.ttl.end_epoch(1000)
    assert backend.looked == 101 + 20
    assert world.entries() == 101 - 1 - 20


def test_an_epoch_without_access_looks_at_nothing():
    world, backend = watched(Value())
    fill(world, 10)
    world.ttl.end_epoch(0)
    world.clock.set(1000)
    looked = backend.looked
    world.ttl.end_epoch(50)
    assert backend.looked == looked
    assert world.entries() == 11


def test_records_earn_entries_when_asked():
    world, backend = watched(Value(), lambda b: b.cleanup_incrementally(2, True))
    fill(world, 10)
    world.ttl.end_epoch(0)
    world.clock.set(1000)
    backend.looked = 0
    world.ttl.end_epoch(3)
    assert backend.looked == 6
    assert world.entries() == 5


def test_a_sweep_that_could_find_nothing_is_left_out():
    world, backend = watched(Value())
    fill(world, 10, now=30)
    world.ttl.end_epoch(0)
    assert backend.looked == 11
    for now in (50, 99):
        world.read(now)
        world.ttl.end_epoch(0)
    assert backend.looked == 11
    for _ in range(3):
        world.read(100)
    world.ttl.end_epoch(0)
    assert backend.looked >= 22
    assert world.entries() == 10


def test_an_empty_state_has_nothing_to_sweep_for_a_whole_time_to_live():
    world = World(Value(), config(), HASHMAP)
    (sweeper,) = world.ttl._sweepers
    sweeper._backend = backend = Watched(world.backend)
    fill(world, 10)
    world.ttl.end_epoch(0)
    world.read(99)
    world.ttl.end_epoch(0)
    assert backend.calls == 0
    fill(world, 3, now=100)
    world.ttl.end_epoch(0)
    assert world.entries() == 3


def test_without_background_clean_up_nothing_is_swept():
    world = World(Value(), config(change=lambda b: b.disable_cleanup_in_background()), HASHMAP)
    fill(world, 10)
    world.clock.set(1000)
    world.at("key 3").read()
    world.ttl.end_epoch(10)
    assert world.entries() == 9


def test_compaction_looks_at_as_many_entries_as_were_accessed_in_whole_steps(subject):
    world, backend = watched(subject, lambda b: b.cleanup_in_rocksdb_compact_filter(10))
    fill(world, 29)
    world.clock.set(200)
    world.ttl.end_epoch(0)
    assert backend.looked == 20
    assert world.entries() == 10
    world.at("other").write(subject.first)
    world.ttl.end_epoch(0)
    assert backend.looked == 30


def test_compaction_makes_a_whole_round_within_its_time():
    world, _ = watched(Value(), lambda b: b.cleanup_in_rocksdb_compact_filter(1000, 500))
    fill(world, 29)
    world.clock.set(499)
    world.ttl.end_epoch(0)
    assert world.entries() == 30
    world.clock.set(500)
    world.ttl.end_epoch(0)
    assert world.entries() == 0


def timed(subject, ttl=100, settings=HASHMAP):
    change = lambda b: b.cleanup_by_timer().disable_cleanup_in_background()  # noqa: E731
    return World(subject, config(ttl=ttl, change=change), settings)


def test_timers_remove_entries_as_soon_as_they_expire(subject):
    world = timed(subject)
    world.at("a").write(subject.first, 0)
    world.at("b").write(subject.first, 50)
    assert world.ttl.next_processing_time() == 100
    world.clock.set(99)
    world.ttl.end_epoch(0)
    assert world.entries() == 2
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert world.entries() == 1
    assert world.ttl.next_processing_time() == 150
    world.clock.set(150)
    world.ttl.end_epoch(0)
    assert world.entries() == 0
    assert world.ttl.next_processing_time() is None


def test_timers_follow_entries_that_were_written_again(subject):
    world = timed(subject)
    world.at("a").write(subject.first, 0)
    world.at("a").write(subject.second, 60)
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert world.at("a").read() == subject.both
    assert world.ttl.next_processing_time() == 160
    world.clock.set(160)
    world.ttl.end_epoch(0)
    assert world.entries() == 0


def test_timers_follow_reads_that_refresh():
    change = lambda b: b.cleanup_by_timer().disable_cleanup_in_background()  # noqa: E731
    world = World(Value(), config("OnReadAndWrite", change=change), HASHMAP)
    world.write(1, 0)
    assert world.read(80) == 1
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert world.entries() == 1
    assert world.ttl.next_processing_time() == 180


@pytest.mark.parametrize(
    ("subject", "stored"), [(List(), lambda raw: raw.get()), (MapAll(), lambda raw: raw.items())]
)
def test_timers_remove_single_elements_and_map_entries(subject, stored):
    world = timed(subject)
    world.at("a").write(subject.first, 0)
    world.at("a").write(subject.second, 60)
    world.clock.set(100)
    world.ttl.end_epoch(0)
    world.at("a")
    assert len(list(stored(world.state._raw))) == 3
    assert world.read() == subject.second


def test_timers_reach_namespaces_and_merged_ones():
    world = timed(List())
    world.at("a", "window 1").write([1], 0)
    world.at("a", "window 2").write([2], 10)
    world.state.merge_namespaces("both", ["window 1", "window 2"])
    world.clock.set(110)
    world.ttl.end_epoch(0)
    assert world.entries() == 0
    assert world.ttl.next_processing_time() is None


def test_a_cleared_entry_leaves_nothing_behind():
    world = timed(Value())
    world.write(1, 0)
    world.state.clear()
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert world.ttl.next_processing_time() is None


def test_timers_are_rebuilt_after_a_restore(subject):
    world = timed(subject)
    world.at("a").write(subject.first, 0)
    world.at("b").write(subject.first, 90)
    world.step(120)
    world.ttl.end_epoch(0)
    assert world.entries() == 1
    assert world.ttl.next_processing_time() == 190
    world.clock.set(190)
    world.ttl.end_epoch(0)
    assert world.entries() == 0


@pytest.mark.parametrize("settings", BACKENDS)
def test_timers_of_all_namespaces_are_rebuilt_after_a_restore(subject, settings):
    world = timed(subject, settings=settings)
    for namespace, now in (("window 1", 0), ("window 2", 60), (VOID, 90)):
        world.at("a", namespace).write(subject.first, now)
    world.step(120)
    world.ttl.end_epoch(0)
    assert world.entries() == 2
    assert world.ttl.next_processing_time() == 160
    world.clock.set(160)
    world.ttl.end_epoch(0)
    assert world.entries() == 1
    world.clock.set(190)
    world.ttl.end_epoch(0)
    assert world.entries() == 0
    assert world.ttl.next_processing_time() is None
    world.backend.close()


@pytest.mark.parametrize("settings", BACKENDS)
def test_what_was_restored_in_namespaces_is_swept_at_once(settings):
    world = World(Value(), config(change=lambda b: b.cleanup_incrementally(5, False)), settings)
    world.at("a", "window").write(1, 0)
    world.clock.set(50)
    world.step(110)
    world.at("b").write(1)
    world.ttl.end_epoch(0)
    assert world.entries() == 1
    world.backend.close()


def test_no_key_is_current_after_timers_ran():
    world = timed(Value())
    world.write(1, 0)
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert repr(world.backend.current.key) == "NO_KEY"


def test_a_key_waits_once_however_often_it_is_written():
    world = timed(Value(), ttl=6400)
    for now in range(0, 6000, 10):
        world.write(now, now)
    ((queue,), _) = world.ttl._queues.values()
    assert len(queue) == 1
    assert sum(map(len, queue._buckets.values())) == 1


def test_expiry_times_are_put_together():
    world = timed(Value(), ttl=86_400_000)
    for now in range(0, 3000, 100):
        world.at(f"key {now}").write(1, now)
    ((queue,), _) = world.ttl._queues.values()
    assert len(queue._times) == 4
    assert queue.next_time() == 86_400_000


def test_what_never_expires_does_not_wait():
    world = timed(Value(), ttl=(1 << 63) - 1)
    world.write(1, 10)
    assert world.ttl.next_processing_time() is None


def test_timers_keep_to_the_key_groups_of_their_keys():
    world = timed(Value())
    for number in range(4 * GROUPS):
        world.at(f"key {number}").write(number, 0)
    world.step(0)
    world.clock.set(100)
    world.ttl.end_epoch(0)
    assert world.entries() == 0
