"""Marks, intervals and chains of the hashmap backend; counting entries while snapshots exist."""

from __future__ import annotations

import random
from typing import Any

import pytest

from weir.backend.base import SnapshotKind
from weir.backend.hashmap import HashMapBackend
from weir.backend.hashmap.incremental import INTERVALS_MAX, LAYERS_MAX, Chain, needs_base
from weir.backend.hashmap.marks import WHOLE, Changed, delta_of, union
from weir.backend.hashmap.overlay import Overlay, contents, count, merge_into
from weir.backend.kinds import Shape
from weir.common.typeinfo import Types
from weir.common.types import Row
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.checkpoint_world import CheckpointWorld

GROUPS = KeyGroupRange(0, 3)


def tracked() -> Any:
    backend = HashMapBackend(Types.STRING(), GROUPS, tracked=True)
    backend.current.key, backend.current.group = "a", 0
    return backend


def drained(backend: Any) -> Any:
    """Return the only state's only delta, None when nothing changed."""
    changes = backend.drain()
    if not changes:
        return None
    (change,) = changes
    (delta,) = change.groups.values()
    return delta


def handle(size: int) -> FileHandle:
    return FileHandle("../shared/x", size, 0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (None, True),
        ((), True),
        ((100,), False),
        ((100, 50), False),
        ((100, 51), True),
        ((100, 25, 25), False),
        ((100, 25, 26), True),
        ((1000, *[1] * (LAYERS_MAX - 2)), False),
        ((1000, *[1] * (LAYERS_MAX - 1)), True),
    ],
)
def test_a_base_is_written_again_when_the_chain_is_long_or_heavy(
    sizes: tuple[int, ...] | None, expected: bool
) -> None:
    chain = None if sizes is None else Chain(tuple(map(handle, sizes)))
    assert needs_base(chain) is expected


def test_the_union_of_marks_covers_both_and_leaves_the_parts_alone() -> None:
    first = Changed({0: {"list": 5, "map": {"x": None}, "both": {"x": None}, "one": 3}})
    second = Changed({0: {"list": 8, "map": {"y": None}, "both": WHOLE}, 1: {"new": WHOLE}}, True)
    both = union([first, second])
    assert both.anew
    assert both.groups[0] == {
        "list": 5,
        "map": {"x": None, "y": None},
        "both": WHOLE,
        "one": 3,
    }
    assert both.groups[1] == {"new": WHOLE}
    assert first.groups[0]["map"] == {"x": None}
    assert first.groups[0]["list"] == 5
    assert not union([first]).anew


def test_a_delta_says_what_became_of_marked_entries() -> None:
    lists = {"tail": [1, 2, 3], "whole": [4]}
    delta = delta_of(Shape.LIST, {"tail": 1, "whole": WHOLE, "gone": 2, "same": 3}, lists)
    assert delta.put == {"tail": [2, 3], "whole": [4]}
    assert delta.cleared == ["whole", "gone", "same"]
    maps = {"some": {"x": 1, "y": None}, "whole": {"z": 1}}
    marks = {"some": {"y": None, "gone": None}, "whole": WHOLE, "cleared": {"x": None}}
    delta = delta_of(Shape.MAP, marks, maps)
    assert delta.put == {"some": {"y": None}, "whole": {"z": 1}}
    assert delta.removed == {"some": ["gone"]}
    assert delta.cleared == ["whole", "cleared"]


def test_a_big_list_and_a_big_map_change_by_what_changed_in_them() -> None:
    backend = tracked()
    elements = backend.state(ListStateDescriptor("l", Types.LONG()))
    elements.add_all(range(1000))
    assert drained(backend).put == {"a": list(range(1000))}
    elements.add(7)
    elements.add_all([8, 9])
    delta = drained(backend)
    assert (delta.put, delta.cleared) == ({"a": [7, 8, 9]}, [])
    backend = tracked()
    entries = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
    entries.put_all({i: i for i in range(1000)})
    drained(backend)
    entries.put(5, 50)
    entries.remove(6)
    entries.remove(5000)
    delta = drained(backend)
    assert (delta.put, delta.removed, delta.cleared) == ({"a": {5: 50}}, {"a": [6]}, [])


@pytest.mark.parametrize(
    ("descriptor", "write", "read"),
    [
        (ValueStateDescriptor("s", Types.LONG()), lambda s: s.update(1), lambda s: s.value()),
        (ValueStateDescriptor("s"), lambda s: s.update((1, "x")), lambda s: s.value()),
        (ListStateDescriptor("s", Types.STRING()), lambda s: s.add("x"), lambda s: s.get()),
        (ListStateDescriptor("s"), lambda s: s.add(1), lambda s: list(s)),
        (MapStateDescriptor("s"), lambda s: s.put(1, 2), lambda s: (s.get(1), s.items())),
        (
            ReducingStateDescriptor("s", lambda a, b: a + b),
            lambda s: s.add(1),
            lambda s: s.get(),
        ),
    ],
)
def test_reading_what_cannot_change_is_no_change(descriptor: Any, write: Any, read: Any) -> None:
    backend = tracked()
    state = backend.state(descriptor)
    read(state)
    assert drained(backend) is None
    write(state)
    assert drained(backend) is not None
    read(state)
    state.clear()
    drained(backend)
    state.clear()
    assert drained(backend) is None


class Collect:
    """An aggregate whose accumulator is its result."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a + b


@pytest.mark.parametrize(
    ("descriptor", "write", "read"),
    [
        (ValueStateDescriptor("s"), lambda s: s.update([1]), lambda s: s.value()),
        (
            ValueStateDescriptor("s", Types.ROW([Types.LONG()])),
            lambda s: s.update(Row(1)),
            lambda s: s.value(),
        ),
        (ListStateDescriptor("s"), lambda s: s.add([1]), lambda s: s.get()),
        (MapStateDescriptor("s"), lambda s: s.put(1, [1]), lambda s: s.get(1)),
        (MapStateDescriptor("s"), lambda s: s.put(1, [1]), lambda s: s.values()),
        (
            ReducingStateDescriptor("s", lambda a, b: a + b),
            lambda s: s.add([1]),
            lambda s: s.get(),
        ),
        (AggregatingStateDescriptor("s", Collect()), lambda s: s.add(1), lambda s: s.get()),
    ],
)
def test_what_was_handed_out_and_can_change_counts_as_changed(
    descriptor: Any, write: Any, read: Any
) -> None:
    backend = tracked()
    state = backend.state(descriptor)
    write(state)
    drained(backend)
    read(state)
    assert len(drained(backend)) > 0
    assert drained(backend) is None


def test_an_element_that_was_refused_is_no_change() -> None:
    backend = tracked()
    state = backend.state(ListStateDescriptor("l", Types.LONG()))
    state.add(1)
    drained(backend)
    with pytest.raises(UsageError, match="'l'"):
        state.add("x")
    assert len(drained(backend)) == 0


def test_merged_namespaces_are_changes() -> None:
    backend = tracked()
    state = backend.state(ListStateDescriptor("l", Types.LONG()))
    for namespace in (1, 2):
        backend.current.namespace = namespace
        state.add(namespace)
    world = CheckpointWorld()
    world.run(backend, 1)
    state.merge_namespaces(1, iter([2]))
    checkpoint = world.run(backend, 2)
    again = tracked()
    again.restore([world.source(checkpoint)])
    state = again.state(ListStateDescriptor("l", Types.LONG()))
    found = {}
    for namespace in (1, 2):
        again.current.namespace = namespace
        found[namespace] = list(state.get())
    assert found == {1: [1, 2], 2: []}


def test_a_checkpoint_without_changes_makes_no_layer() -> None:
    world, backend = CheckpointWorld(), tracked()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    state.update(1)
    first = world.run(backend, 1)
    again = world.run(backend, 2)
    assert first.part is not None
    assert again.part is not None
    assert again.part.layers == first.part.layers
    assert world.shared.made == 1
    state.update(2)
    assert len(world.run(backend, 3).uses) == 2


def test_only_key_groups_with_changes_are_frozen() -> None:
    world, backend = CheckpointWorld(), tracked()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    for group in GROUPS:
        backend.current.group = group
        state.update(group)
    world.run(backend, 1)
    backend.current.group = 2
    state.update(9)
    backend.snapshot(2, SnapshotKind.INCREMENTAL)
    layers = [type(group) for group in backend._tables["v"].groups]
    assert layers == [dict, dict, Overlay, dict]


def test_marks_do_not_pile_up_when_nothing_completes() -> None:
    world, backend = CheckpointWorld(), tracked()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    for number in range(4 * INTERVALS_MAX):
        state.update(number)
        world.abort(backend, world.write(world.take(backend, number)))
        assert len(backend._increments._intervals) <= INTERVALS_MAX


def test_a_released_snapshot_of_changes_cannot_be_written() -> None:
    world, backend = CheckpointWorld(), tracked()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    state.update(1)
    world.run(backend, 1)
    state.update(2)
    late = world.take(backend, 2)
    late.snapshot.release()
    with pytest.raises(UsageError, match="snapshot 2 was released"):
        world.write(late)


def test_incremental_snapshots_without_tracking_are_full() -> None:
    world = CheckpointWorld()
    backend: Any = HashMapBackend(Types.STRING(), GROUPS)
    backend.current.key = "a"
    backend.state(ValueStateDescriptor("v", Types.LONG())).update(1)
    checkpoint = world.run(backend, 1)
    assert checkpoint.uses == set()
    again = tracked()
    again.restore([world.source(checkpoint, reusable=True)])
    assert again.state(ValueStateDescriptor("v", Types.LONG())).value() == 1
    assert len(world.run(again, 2).uses) == 1


def test_a_chain_of_row_types_goes_on_after_a_restore() -> None:
    """The description of a type is the same before and after it was in a file."""
    row = Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.TUPLE([Types.STRING(), Types.INT()])])
    descriptor = ValueStateDescriptor("v", row)
    world, backend = CheckpointWorld(), tracked()
    for key in ("a", "b"):
        backend.current.key = key
        backend.state(descriptor).update(Row(n=1, t=("x", 1)))
    first = world.run(backend, 1)
    again = tracked()
    again.restore([world.source(first, reusable=True)])
    again.state(descriptor).update(Row(n=2, t=("y", 2)))
    second = world.run(again, 2)
    assert first.uses < second.uses
    last = tracked()
    last.restore([world.source(second)])
    found = []
    for key in ("a", "b"):
        last.current.key = key
        found.append(last.state(descriptor).value()["n"])
    assert found == [2, 1]


def test_layers_count_their_entries_without_looking_at_them() -> None:
    rng = random.Random(4)
    base: dict[int, int] = {i: i for i in range(20)}
    layers: list[dict[int, int]] = [base]
    for _ in range(2000):
        top, key = layers[-1], rng.randrange(40)
        step = rng.randrange(20)
        if step == 0 and len(layers) < 5:
            layers.append(Overlay(top, True))
        elif step == 1 and isinstance(top, Overlay):
            merge_into(layers[-2], top)
            layers.pop()
        elif step < 10:
            top.pop(key, None)
        else:
            top[key] = step
        assert count(layers[-1]) == len(contents(layers[-1]))


def test_size_and_bytes_are_known_while_a_snapshot_is_in_flight() -> None:
    backend = tracked()
    state = backend.state(ValueStateDescriptor("v", Types.LONG()))
    for number in range(100):
        backend.current.key = str(number)
        state.update(number)
    snapshot = backend.snapshot(1)
    for number in range(50, 120):
        backend.current.key = str(number)
        if number % 2:
            state.clear()
        else:
            state.update(0)
    assert backend.size() == len(list(backend.keys("v"))) == 85
    assert 85 * 100 < backend.approximate_bytes() < 85 * 300
    snapshot.release()
    assert backend.size() == 85
