"""Timers fire once, in order, and follow their keys through snapshots."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.databases import Databases, scratch_directory

from weir.backend.address import split_address
from weir.backend.base import NO_KEY, VOID
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.testing.backend_snapshot_conformance import source_of, write_file

ALL = KeyGroupRange(0, 127)
Make = Callable[[str, Any, KeyGroupRange], Any]
maker: Make = TimerQueue


class StoredTimers:
    """The timers of a RocksDB backend, with its snapshots and restores."""

    def __init__(self, databases: Databases, name: str, key_type: Any, owned: KeyGroupRange):
        options = {"state.backend.rocksdb.timer-service.cache-size": 3}
        self.backend = databases.backend(options, owned, key_type)
        self.name = name
        self.key_groups = owned
        self.snapshot = self.backend.snapshot
        self.restore = self.backend.restore

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend.timers(self.name), name)

    def __len__(self) -> int:
        return len(self.backend.timers(self.name))


@pytest.fixture(autouse=True, params=["memory", "rocksdb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every rule holds wherever timers are kept."""
    if request.param == "memory":
        yield
        return
    with scratch_directory() as directory:
        databases = Databases(directory)
        monkeypatch.setitem(globals(), "maker", partial(StoredTimers, databases))
        yield
        databases.close()


def queue(key_groups: KeyGroupRange = ALL, name: str = EVENT_TIMERS, key_type: Any = None) -> Any:
    return maker(name, key_type or Types.STRING(), key_groups)


def fired(timers: Any, up_to: int) -> list[tuple[int, str]]:
    return [(t.timestamp, t.key) for t in timers.pop_due(up_to)]


def test_timers_fire_in_timestamp_order_up_to_the_time_inclusive() -> None:
    timers = queue()
    for timestamp in (30, 10, 20, 21):
        assert timers.register(timestamp, "a", 5)
    assert timers.next_timestamp() == 10
    assert fired(timers, 9) == []
    assert fired(timers, 20) == [(10, "a"), (20, "a")]
    assert timers.next_timestamp() == 21
    assert len(timers) == 2


def test_a_timer_is_registered_once() -> None:
    timers = queue()
    assert timers.register(10, "a", 5)
    assert not timers.register(10, "a", 5)
    assert timers.register(10, "a", 5, "window")
    assert timers.register(10, "b", 6)
    assert [(t.key, t.group, t.namespace == "window") for t in timers.pop_due(10)] == [
        ("a", 5, False),
        ("a", 5, True),
        ("b", 6, False),
    ]
    assert len(timers) == 0
    assert timers.next_timestamp() is None


def test_equal_timestamps_fire_by_key_group_then_in_order_of_registration() -> None:
    timers = queue()
    for key, group in (("z", 9), ("b", 3), ("a", 3), ("y", 1)):
        timers.register(10, key, group)
    assert [t.key for t in timers.pop_due(10)] == ["y", "b", "a", "z"]


def test_a_deleted_timer_does_not_fire() -> None:
    timers = queue()
    timers.register(10, "a", 5)
    timers.register(20, "a", 5)
    assert timers.delete(10, "a", 5)
    assert not timers.delete(10, "a", 5)
    assert not timers.delete(20, "other", 7)
    assert timers.next_timestamp() == 20
    timers.register(10, "a", 5)
    assert fired(timers, 100) == [(10, "a"), (20, "a")]


def test_a_timer_registered_again_goes_behind_its_equals() -> None:
    timers = queue()
    timers.register(10, "a", 3)
    timers.register(10, "b", 3)
    timers.delete(10, "a", 3)
    timers.register(10, "a", 3)
    assert [t.key for t in timers.pop_due(10)] == ["b", "a"]


def test_deleting_all_timers_of_a_key_group_leaves_the_others() -> None:
    timers = queue()
    for group in range(50):
        timers.register(100 - group, f"k{group}", group)
    for group in range(0, 50, 2):
        assert timers.delete(100 - group, f"k{group}", group)
    assert [t.group for t in timers.pop_due(100)] == list(range(49, 0, -2))


def test_timers_of_a_firing_function_count() -> None:
    timers = queue()
    timers.register(10, "a", 5)
    timers.register(12, "gone", 6)
    seen = []
    for timer in timers.pop_due(20):
        seen.append((timer.timestamp, timer.key))
        if timer.timestamp == 10:
            timers.delete(12, "gone", 6)
            timers.register(5, "late", 7)
            timers.register(20, "now", 7)
            timers.register(21, "later", 7)
    assert seen == [(10, "a"), (5, "late"), (20, "now")]
    assert timers.next_timestamp() == 21


def test_timers_that_overtake_others_fire_before_the_rest_of_their_time() -> None:
    timers = queue()
    for key in "abc":
        timers.register(10, key, 5)
    seen = []
    for timer in timers.pop_due(20):
        seen.append((timer.timestamp, timer.key))
        if timer.key == "a":
            timers.register(7, "earlier", 9)
            timers.register(10, "lower", 4)
            timers.register(10, "behind", 5)
            timers.delete(10, "b", 5)
    assert seen == [(10, "a"), (7, "earlier"), (10, "lower"), (10, "c"), (10, "behind")]
    assert (len(timers), timers.next_timestamp()) == (0, None)


def test_timers_of_many_keys_are_registered_and_fire_together() -> None:
    timers = queue()
    timers.register(10, "a", 5, "w")
    timers.register_all(10, ["b", "a", "c", "d"], [5, 5, 3, 5], "w")
    timers.register_all(10, ["d"], [5])
    timers.register_all(30, ["z"], [5], "w")
    timers.register_all(40, [], [])
    assert len(timers) == 6
    found = [
        (time, group, [split_address(address) for address in addresses])
        for time, group, addresses in timers.pop_buckets(20)
    ]
    assert found == [
        (10, 3, [("c", "w")]),
        (10, 5, [("a", "w"), ("b", "w"), ("d", "w"), ("d", VOID)]),
    ]
    assert (len(timers), timers.next_timestamp()) == (1, 30)


def test_what_many_registrations_and_deletions_leave_is_exact() -> None:
    rng = random.Random(7)
    timers, expected = queue(), set()
    for _ in range(5000):
        timestamp, key = rng.randrange(500), f"k{rng.randrange(20)}"
        group = key_group(key, 128)
        if rng.random() < 0.55:
            assert timers.register(timestamp, key, group) is ((timestamp, key) not in expected)
            expected.add((timestamp, key))
        else:
            assert timers.delete(timestamp, key, group) is ((timestamp, key) in expected)
            expected.discard((timestamp, key))
        assert len(timers) == len(expected)
    result = fired(timers, 1000)
    assert sorted(result) == sorted(expected)
    assert [t for t, _ in result] == sorted(t for t, _ in result)


@pytest.mark.parametrize("timestamp", [1.5, "10", None, True, 1 << 63, -(1 << 63) - 1])
def test_a_timestamp_must_be_a_64_bit_integer(timestamp: object) -> None:
    with pytest.raises(UsageError, match="64-bit"):
        queue().register(timestamp, "a", 5)  # type: ignore[arg-type]


def test_a_timer_needs_a_key_and_an_owned_key_group() -> None:
    with pytest.raises(UsageError, match="No key set"):
        queue().register(1, NO_KEY, 5)
    with pytest.raises(UsageError, match="not owned"):
        queue(KeyGroupRange(10, 20)).register(1, "a", 5)


def test_snapshots_keep_timers_and_their_order() -> None:
    timers = queue()
    for key, namespace in (("b", 1), ("a", 2), ("a", 1)):
        timers.register(10, key, 3, namespace)
    timers.register(10, "plain", 3)
    timers.register(5, "x", 90)
    snapshot = timers.snapshot(1)
    timers.register(1, "later", 3)
    assert timers.delete(5, "x", 90)
    data = write_file(snapshot)
    snapshot.release()
    again = queue()
    again.restore([source_of(data)])
    assert len(again) == 5
    assert [(t.timestamp, t.key, t.namespace) for t in again.pop_due(10)][:4] == [
        (5, "x", again_void()),
        (10, "b", 1),
        (10, "a", 2),
        (10, "a", 1),
    ]


def again_void() -> object:
    timers = queue()
    timers.register(1, "a", 1)
    return next(timers.pop_due(1)).namespace


def test_event_and_processing_timers_share_a_file() -> None:
    event, processing = queue(), queue(name=PROCESSING_TIMERS)
    event.register(1, "e", 1)
    processing.register(2, "p", 2)
    data = write_file(event.snapshot(1), processing.snapshot(1))
    for name, expected in ((EVENT_TIMERS, [(1, "e")]), (PROCESSING_TIMERS, [(2, "p")])):
        again = queue(name=name)
        again.restore([source_of(data)])
        assert fired(again, 10) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (4, 2),
        (2, 4),
        pytest.param(15, 77, marks=pytest.mark.matrix),
        pytest.param(77, 15, marks=pytest.mark.matrix),
    ],
)
def test_timers_follow_their_key_groups(old: int, new: int) -> None:
    keys = [f"key {i}" for i in range(300)]
    files = []
    for subtask in range(old):
        timers = queue(range_of(subtask, old, 128))
        for i, key in enumerate(keys):
            group = key_group(key, 128)
            if group in timers.key_groups:
                timers.register(i, key, group)
        files.append(write_file(timers.snapshot(1)))
    found = []
    for subtask in range(new):
        timers = queue(range_of(subtask, new, 128))
        timers.restore([source_of(data) for data in files])
        found += fired(timers, 1000)
    assert sorted(found) == list(enumerate(keys))


def test_timers_are_restored_before_the_first_registration_and_for_the_same_key_type() -> None:
    timers = queue()
    timers.register(1, "a", 1)
    data = write_file(timers.snapshot(1))
    with pytest.raises(UsageError, match="restored once"):
        timers.restore([source_of(data)])
    with pytest.raises(IncompatibleStateError):
        queue(key_type=Types.LONG()).restore([source_of(data)])
    with pytest.raises(CorruptStateError, match="in another file"):
        queue().restore([source_of(data), source_of(data)])
