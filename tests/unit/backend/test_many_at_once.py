"""State of many keys at a time: what windows do with whole key groups, on every backend.

One by one is the rule; many at once have to leave the same entries, also in incremental snapshots,
and while a snapshot is being written.
"""

from __future__ import annotations

import operator

import pytest
from tests.databases import scratch_directory

from weir.backend.address import address_of, addresses_of, split_address, split_all
from weir.backend.base import VOID
from weir.backend.context import BackendContext
from weir.backend.factory import BackendSettings, create_backend
from weir.backend.hashmap.backend import HashMapBackend
from weir.backend.timers import EVENT_TIMERS
from weir.common import Types
from weir.keygroup import KeyGroupRange
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

SPACE = Types.TUPLE([Types.LONG(), Types.LONG()])
WINDOW, OTHER = (0, 10), (10, 20)
GROUP = 3
VALUES = {
    "integers": (Types.LONG(), 1, 2, operator.add),
    "texts": (Types.STRING(), "a", "b", operator.add),
    "tuples": (Types.TUPLE([Types.LONG()]), (1,), (2,), operator.add),
    "anything": (None, 1.5, 2.5, operator.add),
}


def made(value_type, kind=ValueStateDescriptor, *, tracked=True):
    backend = HashMapBackend(Types.LONG(), KeyGroupRange(0, 7), SPACE, tracked=tracked)
    return backend, backend.state(kind("s", value_type))


def map_of(name, value_type):
    return MapStateDescriptor(name, Types.LONG(), value_type)


def put(backend, state, key, namespace, value):
    backend.current.key, backend.current.group = key, GROUP
    backend.current.namespace = namespace
    state.update(value)


def read(backend, state, key, namespace):
    backend.current.key, backend.current.group = key, GROUP
    backend.current.namespace = namespace
    return state.value()


def adding(value, add):
    return lambda held, new: [value if before is None else add(before, value) for before in held]


def drained(backend):
    """Return what changed since the last call: values by key, None where one is gone."""
    found = {}
    for changes in backend.drain():
        for delta in changes.groups.values():
            found.update({split_address(a)[0]: None for a in delta.cleared})
            found.update({split_address(a)[0]: v for a, v in delta.put.items()})
    return found


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("of", VALUES)
def test_values_are_folded_into_what_is_there(of, tracked, frozen):
    declared, first, second, add = VALUES[of]
    backend, state = made(declared, tracked=tracked)
    put(backend, state, 1, WINDOW, first)
    put(backend, state, 1, OTHER, first)
    if frozen:
        backend.snapshot_states(1)
    addresses = addresses_of([2, 1, 3], WINDOW)
    assert state.fold_group(GROUP, addresses, adding(second, add)) == [0, 2]
    found = [read(backend, state, key, WINDOW) for key in (1, 2, 3)]
    assert found == [add(first, second), second, second]
    assert read(backend, state, 1, OTHER) == first
    assert state.fold_group(GROUP, addresses, adding(second, add)) == []
    assert backend.size() == 4


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_values_of_some_addresses_are_removed(tracked, frozen):
    backend, state = made(None, tracked=tracked)
    for key in (1, 2):
        put(backend, state, key, WINDOW, 5)
    if frozen:
        backend.snapshot_states(1)
    state.clear_group(GROUP, addresses_of([1, 3], WINDOW))
    assert [read(backend, state, key, WINDOW) for key in (1, 2, 3)] == [None, 5, None]
    assert backend.size() == 1
    if tracked:
        assert drained(backend) == {1: None, 2: 5, 3: None}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_lists_are_extended_or_begun(tracked, frozen):
    backend, state = made(Types.LONG(), ListStateDescriptor, tracked=tracked)
    put(backend, state, 1, WINDOW, [1])
    if tracked:
        drained(backend)
    if frozen:
        backend.snapshot_states(1)
    addresses = addresses_of([2, 1], WINDOW)
    assert state.extend_group(GROUP, addresses, [[5], [2, 3]]) == [0]
    assert state.extend_group(GROUP, addresses_of([4], WINDOW), [[6]]) == [0]
    assert state.extend_group(GROUP, addresses, [[7], [8]]) == []
    if tracked:
        assert drained(backend) == {1: [2, 3, 8], 2: [5, 7], 4: [6]}
    found = []
    for key in (1, 2, 4):
        backend.current.key, backend.current.group = key, GROUP
        backend.current.namespace = WINDOW
        found.append(state.get())
    assert found == [[1, 2, 3, 8], [5, 7], [6]]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("of", VALUES)
def test_values_are_taken_out(of, tracked, frozen):
    declared, first, second, _ = VALUES[of]
    backend, state = made(declared, tracked=tracked)
    put(backend, state, 1, WINDOW, first)
    put(backend, state, 2, WINDOW, second)
    put(backend, state, 2, OTHER, second)
    if frozen:
        backend.snapshot_states(1)
    assert state.take_all(GROUP, addresses_of([2, 9, 1], WINDOW)) == [second, None, first]
    assert (read(backend, state, 1, WINDOW), backend.size()) == (None, 1)


@pytest.mark.parametrize("of", VALUES)
def test_what_many_change_is_in_the_next_increment(of):
    declared, first, second, add = VALUES[of]
    backend, state = made(declared)
    for key in (1, 2):
        put(backend, state, key, WINDOW, first)
    drained(backend)
    state.fold_group(GROUP, addresses_of([1, 3], WINDOW), adding(second, add))
    assert drained(backend) == {1: add(first, second), 3: second}
    state.take_all(GROUP, addresses_of([2, 3], WINDOW))
    assert drained(backend) == {2: None, 3: None}
    assert drained(backend) == {}


@pytest.mark.parametrize("tracked", [False, True])
def test_lists_that_are_taken_out_belong_to_who_took_them(tracked):
    backend, state = made(Types.LONG(), ListStateDescriptor, tracked=tracked)
    put(backend, state, 1, WINDOW, [3, 1, 2])
    put(backend, state, 2, WINDOW, [5])
    if tracked:
        drained(backend)
    snapshot = backend.snapshot_states(1)
    found = state.take_all(GROUP, addresses_of([1, 7], WINDOW))
    found[0].sort()
    assert found == [[1, 2, 3], None]
    [(table, layers)] = snapshot._tables._frozen
    addresses, values = table.collect(layers[GROUP])
    assert dict(zip(addresses, values, strict=True))[address_of(1, WINDOW)] == [3, 1, 2]
    assert backend.size() == 1
    if tracked:
        assert drained(backend) == {1: None, 7: None}


@pytest.mark.parametrize("tracked", [False, True])
def test_entries_of_maps_that_were_admitted_are_put_and_marked(tracked):
    backend, state = made(Types.LONG(), map_of, tracked=tracked)
    backend.current.key, backend.current.group = 1, GROUP
    backend.current.namespace = WINDOW
    state.put_admitted({5: 50})
    if tracked:
        drained(backend)
    state.put_admitted({6: 60, 7: 70})
    state.put_admitted({})
    assert dict(state.items()) == {5: 50, 6: 60, 7: 70}
    if tracked:
        assert drained(backend) == {1: {6: 60, 7: 70}}


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_timers_of_a_group_are_set_once(kind):
    with scratch_directory() as directory:
        context = BackendContext(settings=BackendSettings(kind), local_dir=directory)
        backend = create_backend(context, Types.LONG(), KeyGroupRange(0, 7), SPACE)
        timers = backend.timers(EVENT_TIMERS)
        timers.register(10, 1, GROUP, WINDOW)
        timers.register_group(10, GROUP, addresses_of([2, 1, 3], WINDOW))
        timers.register_group(10, GROUP, [])
        assert len(timers) == 3
        [(time, group, addresses)] = timers.pop_buckets(10)
        assert (time, group) == (10, GROUP)
        assert [split_address(a)[0] for a in addresses] == [1, 2, 3]
        backend.close()


def test_addresses_are_split_together_or_not_at_all():
    spaced = addresses_of([1, (2, 3, 4)], WINDOW)
    assert spaced == [address_of(1, WINDOW), address_of((2, 3, 4), WINDOW)]
    assert split_all(spaced) == ([1, (2, 3, 4)], [WINDOW, WINDOW])
    assert addresses_of([1, 2], VOID) == [1, 2]
    assert split_all([*spaced, 1]) is None
    assert split_all([*spaced, (1, 2, 3)]) is None
    assert split_all([*spaced, (1, 2)]) is None
    assert split_all([]) is None
