"""Single rules: per entry and element, what counts as a read, event time, restored state."""

from __future__ import annotations

import pytest
from tests.unit.state.ttl.subjects import (
    FOLDS,
    LONG,
    SUBJECTS,
    List,
    MapAll,
    MapOne,
    Reducing,
    Value,
    World,
    config,
)

from weir.backend.factory import BackendSettings
from weir.backend.hashmap import HashMapBackend
from weir.common.typeinfo import Types
from weir.errors import IncompatibleStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.state.descriptor import ReducingStateDescriptor, ValueStateDescriptor
from weir.state.ttl import TtlStates, bind_ttl
from weir.state.ttl.rules import END_OF_TIME, NO_TIME, EventTime
from weir.testing import ManualClock
from weir.testing.backend_snapshot_conformance import write_file

HASHMAP = BackendSettings()
RELAXED = "ReturnExpiredIfNotCleanedUp"
READ = "OnReadAndWrite"


def world_of(subject, *args, **kwargs):
    return World(subject, config(*args, **kwargs), HASHMAP)


# ---- map entries and list elements


def test_map_entries_expire_one_by_one():
    world = world_of(MapAll())
    world.write({"old": 1, "null": None}, 0)
    world.write({"new": 2}, 60)
    world.clock.set(110)
    assert world.state.get("old") is None
    assert not world.state.contains("null")
    assert world.state.get("new") == 2
    assert list(world.state.keys()) == ["new"]
    assert list(world.state.values()) == [2]
    assert list(world.state) == ["new"]


def test_contains_is_a_read_that_removes():
    world = world_of(MapOne(), visible=RELAXED)
    world.write(1, 0)
    world.clock.set(100)
    assert world.state.contains("k")
    assert not world.state.contains("k")
    assert world.entries() == 0


def test_contains_is_a_read_that_refreshes():
    world = world_of(MapOne(), READ)
    world.write(None, 0)
    world.clock.set(60)
    assert "k" in world.state
    world.clock.set(150)
    assert "k" in world.state


def test_is_empty_does_not_look_at_timestamps():
    world = world_of(MapOne())
    world.write(1, 0)
    world.clock.set(1000)
    assert not world.state.is_empty()
    assert world.state.get("k") is None
    assert world.state.is_empty()


def test_going_through_a_map_refreshes_and_removes_per_entry():
    world = world_of(MapAll(), READ)
    world.write({"old": 1}, 0)
    world.write({"new": 2}, 60)
    assert world.read(110) == {"new": 2}
    assert world.state._raw.items() == [("new", (2, 110))]
    assert world.read(209) == {"new": 2}


def test_expired_map_entries_are_shown_once_beside_others():
    world = world_of(MapAll(), visible=RELAXED)
    world.write({"old": 1}, 0)
    world.write({"new": 2}, 60)
    assert world.read(110) == {"old": 1, "new": 2}
    assert world.read(110) == {"new": 2}


def test_list_elements_expire_one_by_one():
    world = world_of(List())
    world.state.add(1)
    world.clock.set(60)
    world.state.add(2)
    assert world.read(110) == [2]
    assert world.state._raw.get() == [(2, 60)]


def test_reading_a_list_rewrites_the_survivors_with_the_new_time():
    world = world_of(List(), READ)
    world.state.add(1)
    world.clock.set(60)
    world.state.add(2)
    assert world.read(110) == [2]
    assert world.state._raw.get() == [(2, 110)]


def test_expired_elements_are_shown_once_beside_others():
    world = world_of(List(), visible=RELAXED)
    world.state.add(1)
    world.clock.set(60)
    world.state.add(2)
    assert world.read(110) == [1, 2]
    assert world.read(110) == [2]


def test_all_elements_of_one_call_have_one_timestamp():
    clock = iter(range(100))
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 0))
    descriptor = List().descriptor()
    descriptor.enable_time_to_live(config())
    state = bind_ttl(backend, descriptor, lambda: next(clock))
    backend.current.key = "k"
    state.add_all([1, 2, 3])
    assert [stamp for _, stamp in state._raw.get()] == [0, 0, 0]


def test_null_is_no_element():
    world = world_of(List())
    for call in (
        lambda: world.state.add(None),
        lambda: world.state.add_all([1, None]),
        lambda: world.state.update([None]),
        lambda: world.state.add_all(None),
        lambda: world.state.update(None),
    ):
        with pytest.raises(UsageError, match="null"):
            call()
    assert world.read() == []


def test_an_empty_list_clears():
    world = world_of(List())
    world.state.add(1)
    world.state.add_all([])
    assert world.read() == [1]
    world.state.update([])
    assert world.entries() == 0


# ---- values, folds


def test_a_wrong_value_is_refused_by_name_and_not_stored():
    world = world_of(Value())
    with pytest.raises(UsageError, match=r"state 's' of type Types\.LONG\(\) cannot hold 'x'"):
        world.state.update("x")
    assert world.entries() == 0


def test_objects_that_are_read_can_be_changed_in_place_beside_a_snapshot():
    class AnyValue(Value):
        def descriptor(self):
            return ValueStateDescriptor("s")

    world = World(AnyValue(), config(READ), HASHMAP)
    world.write({"n": [1]}, 0)
    snapshot = world.backend.snapshot(1)
    world.read()["n"].append(2)
    assert world.read(5) == {"n": [1, 2]}
    data = write_file(snapshot)
    snapshot.release()
    assert world.read() == {"n": [1, 2]}
    world.restore(data)
    assert world.read() == {"n": [1]}


@pytest.mark.parametrize("subject", FOLDS, ids=lambda s: type(s).__name__)
def test_reading_a_fold_refreshes_it_without_folding(subject):
    world = World(subject, config(READ), HASHMAP)
    world.write(5, 0)
    assert world.read(60) == subject.seen_first
    assert world.read(150) == subject.seen_first
    world.write(7, 200)
    assert world.read(290) == subject.both


@pytest.mark.parametrize("subject", FOLDS, ids=lambda s: type(s).__name__)
def test_adding_null_clears_a_fold(subject):
    world = World(subject, config(), HASHMAP)
    world.write(5, 0)
    world.write(None)
    assert world.entries() == 0


def test_a_fold_that_gives_null_clears():
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 0))
    descriptor = ReducingStateDescriptor("r", lambda a, b: None, LONG)
    descriptor.enable_time_to_live(config())
    state = bind_ttl(backend, descriptor, lambda: 0)
    backend.current.key = "k"
    state.add(1)
    state.add(2)
    assert backend.size() == 0


def test_a_failed_refresh_leaves_the_fold_folding():
    world = World(Reducing(), config(READ), HASHMAP)
    world.write(5, 0)
    world.state._add = lambda pair: 1 / 0
    with pytest.raises(ZeroDivisionError):
        world.read(50)
    world.state._add = world.state._raw.add
    world.write(7)
    assert world.read() == 12


# ---- names


def test_the_same_name_gives_the_same_handle():
    world = world_of(Value())
    descriptor = Value().descriptor()
    descriptor.enable_time_to_live(config(ttl=5))
    assert world.ttl.bind(descriptor) is world.state


def test_a_name_in_use_with_another_type_is_refused():
    world = world_of(Value())
    other = ValueStateDescriptor("s", Types.STRING())
    other.enable_time_to_live(config())
    with pytest.raises(UsageError, match="already in use"):
        world.ttl.bind(other)
    with pytest.raises(UsageError, match="already in use"):
        world.backend.state(Value().descriptor())


# ---- restored state


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__)
def test_switching_expiry_on_takes_restored_state_as_written_at_the_restore(subject):
    world = World(subject, None, HASHMAP)
    world.write(subject.first, 0)
    data = world.snapshot()
    world.clock.set(1000)
    world.config = config()
    world.restore(data)
    assert world.read(1099) == subject.seen_first
    assert world.read(1100) == subject.empty


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__)
def test_switching_expiry_off_drops_the_timestamps(subject):
    world = World(subject, config(), HASHMAP)
    world.write(subject.first, 0)
    world.config = None
    world.step(10_000)
    assert world.read() == subject.seen_first
    world.config = config()
    world.step(10_050)
    assert world.read() == subject.seen_first


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: type(s).__name__)
def test_another_time_to_live_counts_from_the_stored_timestamps(subject):
    day = 86_400_000
    world = World(subject, config(ttl=day), HASHMAP)
    world.write(subject.first, 0)
    world.config = config(ttl=2 * day)
    assert world.step(2 * day - 1).read() == subject.seen_first
    assert world.step(2 * day).read() == subject.empty


def test_the_value_type_can_grow_together_with_expiry():
    class Wide(Value):
        def descriptor(self):
            return ValueStateDescriptor("s", Types.BIG_INT())

    world = world_of(Value())
    world.write(5, 0)
    world.subject = Wide()
    assert world.step(50).read() == 5
    world.subject = Value()
    with pytest.raises(IncompatibleStateError, match="'s'"):
        world.step(60)


# ---- event time


def handle(time, *timestamps):
    """Let records be handled: the last of some is the current one."""
    records = iter([*timestamps, "one to come"])
    for _ in timestamps:
        next(records)
    time.begin_records([*timestamps, END_OF_TIME], records)


def event_world(ttl=100):
    clock = ManualClock(10**6)
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 0))
    ttl_states = TtlStates(backend, clock)
    descriptor = Value().descriptor()
    descriptor.enable_time_to_live(config(ttl=ttl, change=lambda b: b.use_event_time()))
    state = ttl_states.bind(descriptor)
    assert ttl_states.bind(descriptor) is state
    backend.current.key = "k"
    return ttl_states, state, clock


def test_event_time_is_the_watermark_and_not_the_clock():
    ttl, state, clock = event_world()
    handle(ttl.event_time, 5)
    state.update(1)
    clock.advance(10**9)
    assert state.value() == 1
    ttl.event_time.advance(104)
    assert state.value() == 1
    ttl.event_time.advance(105)
    assert state.value() is None


def test_what_is_written_has_the_later_of_record_and_watermark():
    time = EventTime(ManualClock(77))
    assert time.now() == NO_TIME
    assert time.stamp() == 77
    handle(time, 5)
    assert time.stamp() == 5
    time.advance(10)
    assert time.stamp() == 10
    handle(time, 5, 12)
    assert time.stamp() == 12
    handle(time, 12, None)
    assert time.stamp() == 10
    time.begin_records(None, iter([1]))
    assert time.stamp() == 10
    handle(time, 12)
    time.end_records()
    assert time.stamp() == 10
    assert time.now() == 10


def test_the_end_of_input_lets_nothing_expire():
    ttl, state, _ = event_world()
    handle(ttl.event_time, 5)
    state.update(1)
    ttl.event_time.advance(50)
    ttl.event_time.advance(END_OF_TIME)
    assert state.value() == 1


def test_a_late_record_does_not_shorten_the_life_of_an_entry():
    clock = ManualClock()
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 0))
    ttl = TtlStates(backend, clock)
    descriptor = Reducing().descriptor()
    descriptor.enable_time_to_live(config(READ, change=lambda b: b.use_event_time()))
    state = ttl.bind(descriptor)
    backend.current.key = "k"
    handle(ttl.event_time, 90)
    state.add(1)
    handle(ttl.event_time, 90, 20)
    assert state.get() == 1
    state.add(2)
    ttl.event_time.advance(189)
    assert state.get() == 3


def test_timers_of_event_time_run_with_the_watermark():
    clock = ManualClock()
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 0))
    ttl = TtlStates(backend, clock)
    descriptor = Value().descriptor()
    change = lambda b: b.use_event_time().cleanup_by_timer()  # noqa: E731
    descriptor.enable_time_to_live(config(change=change))
    state = ttl.bind(descriptor)
    backend.current.key = "k"
    handle(ttl.event_time, 5)
    state.update(1)
    ttl.end_epoch(1)
    assert ttl.next_processing_time() is None
    ttl.event_time.advance(104)
    ttl.end_epoch(0)
    assert backend.size() == 1
    ttl.event_time.advance(105)
    ttl.end_epoch(0)
    assert backend.size() == 0
