"""The table of Flink's own TTL tests, row by row, for every kind of state and every backend."""

from __future__ import annotations

import pytest
from tests.unit.state.ttl.subjects import FOLDS, LISTS, SUBJECTS, Reducing, Value, World, config

from weir.backend.factory import BackendSettings
from weir.testing.backend_snapshot_conformance import write_file

BACKENDS = {
    "hashmap": BackendSettings(),
    "incremental": BackendSettings(incremental=True),
    "changelog": BackendSettings(changelog=True),
}
RELAXED = "ReturnExpiredIfNotCleanedUp"
READ = "OnReadAndWrite"


@pytest.fixture(
    params=[pytest.param(b, marks=() if b == "hashmap" else pytest.mark.matrix) for b in BACKENDS]
)
def settings(request):
    return BACKENDS[request.param]


@pytest.fixture(params=SUBJECTS, ids=lambda s: type(s).__name__)
def subject(request):
    return request.param


def test_exact_expiration_on_write(subject, settings):
    world = World(subject, config(), settings)
    world.write(subject.first, 0)
    assert world.step(20).read() == subject.seen_first
    world.step(50).write(subject.second)
    assert world.step(120).read() == subject.both
    world.step(170).write(subject.third)
    assert world.step(220).read() == subject.seen_third
    assert world.step(300).is_empty()
    assert world.entries() == 0
    assert world.step(300).is_empty()


def test_relaxed_expiration_on_write(subject, settings):
    world = World(subject, config(visible=RELAXED), settings)
    world.write(subject.first, 0)
    assert world.step(120).read() == subject.seen_first
    assert world.entries() == 0
    assert world.is_empty()


def test_exact_expiration_on_read(subject, settings):
    world = World(subject, config(READ), settings)
    world.write(subject.first, 0)
    assert world.step(50).read() == subject.seen_first
    assert world.step(120).read() == subject.seen_first
    assert world.step(250).is_empty()
    assert world.entries() == 0


def test_relaxed_expiration_on_read(subject, settings):
    world = World(subject, config(READ, RELAXED), settings)
    world.write(subject.first, 0)
    assert world.step(50).read() == subject.seen_first
    assert world.step(170).read() == subject.seen_first
    assert world.entries() == 0
    assert world.is_empty()


def test_an_entry_expires_at_the_very_millisecond(subject, settings):
    world = World(subject, config(), settings)
    world.write(subject.first, 7)
    assert world.read(106) == subject.seen_first
    assert world.read(107) == subject.empty


def test_the_longest_time_to_live_does_not_overflow(subject, settings):
    world = World(subject, config(ttl=(1 << 63) - 1), settings)
    world.write(subject.first, 10)
    assert world.step(50).read() == subject.seen_first
    assert world.step(1 << 62).read() == subject.seen_first


def test_a_disabled_time_to_live_is_none(subject, settings):
    world = World(subject, config("Disabled"), settings)
    world.write(subject.first, 0)
    assert world.step(10**12).read() == subject.seen_first
    world.config = None
    assert world.step(10**12).read() == subject.seen_first


@pytest.mark.parametrize("subject", LISTS, ids=lambda s: type(s).__name__)
def test_merged_lists_keep_the_timestamps_of_their_elements(subject, settings):
    world = World(subject, config(), settings)
    spaces = ("n1", "n2", "n3")
    expected = []
    for now, base in ((0, 100), (120, 200), (150, 300)):
        for number, space in enumerate(spaces):
            world.clock.set(now)
            world.at("id", space)
            world.state.add(base + number)
            if now == 150:
                expected.append(base + number)
    world.clock.set(230)
    world.state.merge_namespaces("target", spaces)
    assert world.at("id", "target").read() == expected
    assert [world.at("id", s).read() for s in spaces] == [[], [], []]


@pytest.mark.parametrize("subject", FOLDS, ids=lambda s: type(s).__name__)
def test_merging_namespaces_folds_what_is_not_expired(subject, settings):
    world = World(subject, config(), settings)
    spaces = ("n1", "n2", "n3")
    for now, base in ((0, 100), (120, 200), (150, 300)):
        for number, space in enumerate(spaces):
            world.clock.set(now)
            world.at("id", space)
            world.write(base + number)
    world.clock.set(230)
    world.state.merge_namespaces("target", spaces)
    total = 3 * (200 + 300) + 2 * (0 + 1 + 2)
    expected = total if subject.both == 12 else str(total + 9)
    assert world.at("id", "target").read() == expected
    assert world.at("id", "target").read(329) == expected
    assert world.read(330) == subject.empty


@pytest.mark.parametrize("subject", FOLDS, ids=lambda s: type(s).__name__)
def test_merging_leaves_out_expired_namespaces_unless_they_may_be_seen(subject, settings):
    for visible, expected in (("NeverReturnExpired", (7, "10")), (RELAXED, (12, "18"))):
        world = World(subject, config(visible=visible), settings)
        world.at("id", "old").write(5, 0)
        world.at("id", "new").write(7, 90)
        world.clock.set(110)
        world.state.merge_namespaces("target", ["old", "new"])
        assert world.at("id", "target").read() == expected[subject.both == "15"]


def test_a_lone_expired_namespace_is_merged_into_nothing(settings):
    world = World(Reducing(), config(), settings)
    world.at("id", "old").write(5, 0)
    world.clock.set(110)
    world.state.merge_namespaces("target", ["old", "none"])
    assert world.at("id", "target").read() is None


@pytest.mark.parametrize("place", ["keys", "namespaces"])
def test_keys_and_namespaces_expire_apart(subject, settings, place):
    world = World(subject, config(), settings)

    def at(name):
        return world.at(name) if place == "keys" else world.at("id", name)

    at("2").write(subject.first, 0)
    world.step(50)
    at("1").write(subject.first)
    at("2").write(subject.second)
    world.step(120)
    assert at("1").read() == subject.seen_first
    assert at("2").read() == subject.both
    world.step(170)
    at("2").write(subject.third)
    world.step(230)
    assert at("1").is_empty()
    assert at("2").read() == subject.seen_third
    world.step(300)
    assert at("1").is_empty()
    assert at("2").is_empty()
    assert world.entries() == 0


def test_full_snapshots_leave_out_what_is_expired(subject, settings):
    world = World(subject, config(change=lambda b: b.cleanup_full_snapshot()), settings)
    world.at("2").write(subject.first, 0)
    world.at("1").write(subject.first, 50)
    world.at("2").write(subject.second, 50)
    world.clock.set(120)
    world.step(120)
    assert world.at("1").read() == subject.seen_first
    assert world.at("2").read() == subject.both
    world.at("2").write(subject.third, 170)
    world.clock.set(240)
    world.step(170)
    assert world.at("1").is_empty()
    assert world.at("2").read() == subject.seen_third
    world.clock.set(300)
    world.step(230)
    assert world.at("1").is_empty()
    assert world.at("2").is_empty()
    assert world.entries() == 0


def test_without_that_clean_up_snapshots_hold_what_is_expired(settings):
    world = World(Value(), config(), settings)
    world.write(11, 0)
    world.clock.set(500)
    world.step(50)
    assert world.read() == 11


def test_a_snapshot_is_cleaned_as_of_its_barrier_and_local_state_is_left_alone(settings):
    subject = Value()
    world = World(subject, config(change=lambda b: b.cleanup_full_snapshot()), settings)
    world.write(11, 0)
    world.clock.set(50)
    snapshot = world.backend.snapshot(1)
    world.clock.set(500)
    data = write_file(snapshot)
    snapshot.release()
    assert world.entries() == 1
    world.restore(data)
    assert world.read(60) == 11


def test_a_snapshot_does_not_see_what_comes_after_it(subject, settings):
    world = World(subject, config(), settings)
    world.at("k1").write(subject.first, 0)
    world.at("k1").write(subject.second, 50)
    world.at("k2").write(subject.first, 100)
    data = world.snapshot()
    world.at("k1").write(subject.third, 170)
    world.at("k2").write(subject.second, 170)
    world.restore(data)
    assert world.at("k1").read(180) == subject.empty
    assert world.at("k2").read(180) == subject.seen_first


def test_updating_with_null_clears_also_what_may_be_seen_when_expired(settings):
    world = World(Value(), config(visible=RELAXED), settings)
    world.write(21, 0)
    world.write(None)
    assert world.read() is None
    assert world.entries() == 0


@pytest.mark.parametrize("subject", FOLDS, ids=lambda s: type(s).__name__)
def test_expired_aggregates_are_still_added_to_when_they_may_be_seen(subject, settings):
    world = World(subject, config(visible=RELAXED), settings)
    world.write(5, 0)
    world.write(7, 150)
    assert world.read() == subject.both
    assert world.step(249).read() == subject.both


def fill(world, count, now):
    for number in range(count):
        world.at(f"key {number}").write(world.subject.first, now)


def test_touching_keys_removes_all_expired_ones(subject, settings):
    world = World(subject, config(change=lambda b: b.cleanup_incrementally(5, True)), settings)
    fill(world, 50, 0)
    world.ttl.end_epoch(0)
    assert world.entries() == 50
    world.clock.set(120)
    snapshot = world.backend.snapshot(1)
    for number in range(13):
        world.at(f"touched {number}").write(subject.first)
    world.ttl.end_epoch(0)
    assert world.entries() == 13
    data = write_file(snapshot)
    snapshot.release()
    assert world.entries() == 13
    world.restore(data)
    assert world.entries() == 50


def test_the_whole_state_is_removed_by_enough_records(subject, settings):
    world = World(subject, config(change=lambda b: b.cleanup_incrementally(5, True)), settings)
    fill(world, 50, 0)
    world.ttl.end_epoch(50)
    world.clock.set(120)
    world.ttl.end_epoch(10)
    assert world.entries() == 0
