"""Expiry on disk: one life of every kind of state, short because opening a database is not."""

from __future__ import annotations

import pytest
from tests.unit.state.ttl.subjects import (
    Aggregating,
    List,
    MapAll,
    Reducing,
    Value,
    World,
    config,
)

from weir.backend.factory import BackendSettings
from weir.config.backend import ROCKSDB_TTL_QUERY_ENTRIES
from weir.state.ttl import TtlStates

pytest.importorskip("rocksdict")
ROCKSDB = BackendSettings("rocksdb")
KINDS = [Value(), List(), MapAll(), Reducing(), Aggregating()]


@pytest.mark.parametrize("subject", KINDS, ids=lambda s: type(s).__name__)
def test_state_on_disk_expires_refreshes_and_survives(subject):
    change = lambda b: b.cleanup_full_snapshot().cleanup_incrementally(5)  # noqa: E731
    world = World(subject, config("OnReadAndWrite", change=change), ROCKSDB)
    world.write(subject.first, 0)
    assert world.read(50) == subject.seen_first
    for number in range(20):
        world.at(f"key {number}").write(subject.first)
    world.at("id").read(120)
    world.step(160)
    assert world.read() == subject.seen_first
    for _ in range(10):
        world.at("key 3").read()
    world.ttl.end_epoch(0)
    assert list(world.backend.keys("s")) == ["id"]
    world.at("id")
    assert world.read(260) == subject.empty
    assert list(world.backend.keys("s")) == []
    world.backend.close()


def test_timers_remove_what_is_on_disk():
    change = lambda b: b.cleanup_by_timer().disable_cleanup_in_background()  # noqa: E731
    world = World(Value(), config(change=change), ROCKSDB)
    for number in range(5):
        world.at(f"key {number}").write(number, number)
    world.clock.set(101)
    world.ttl.end_epoch(0)
    assert sorted(world.backend.keys("s")) == ["key 2", "key 3", "key 4"]
    world.backend.close()


def test_the_default_on_disk_is_the_compaction_filter_of_the_options():
    world = World(Value(), None, BackendSettings())
    options = {ROCKSDB_TTL_QUERY_ENTRIES.key: 3}
    ttl = TtlStates(world.backend, world.clock, backend_kind="rocksdb", options=options)
    descriptor = Value().descriptor()
    descriptor.name = "other"
    descriptor.enable_time_to_live(config())
    state = ttl.bind(descriptor)
    for number in range(4):
        world.at(f"key {number}")
        state.update(number)
    ttl.end_epoch(0)
    world.clock.set(100)
    world.at("key 0")
    assert [state.value() for _ in range(2)] == [None, None]
    ttl.end_epoch(0)
    assert world.entries() == 0
