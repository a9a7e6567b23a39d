"""The table of state kinds, and that everything that has a row per kind has all of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from weir.backend.hashmap import HashMapBackend
from weir.backend.kinds import TIMER_KIND, Shape, StateKind, stored_shape
from weir.common import state as handles
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange
from weir.offline.text import kind_text
from weir.state import descriptor as d
from weir.state.ttl.binding import TTL_KINDS


class Count:
    """Counts what is added; its accumulator is the count."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


DECLARED = {
    made.kind: made
    for made in (
        d.ValueStateDescriptor("value", Types.LONG()),
        d.ListStateDescriptor("list", Types.LONG()),
        d.MapStateDescriptor("map", Types.STRING(), Types.LONG()),
        d.ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        d.AggregatingStateDescriptor("aggregating", Count(), Types.LONG()),
    )
}


@pytest.mark.parametrize("kind", StateKind)
@pytest.mark.parametrize("tracked", [False, True])
def test_every_kind_has_a_descriptor_a_handle_expiry_and_a_name_for_people(
    kind: StateKind, tracked: bool
) -> None:
    backend = HashMapBackend(Types.STRING(), KeyGroupRange(0, 7), tracked=tracked)
    known = getattr(handles, str(kind.value))
    assert isinstance(backend.state(DECLARED[kind]), known)
    assert issubclass(TTL_KINDS[kind].handle, known)  # type: ignore[arg-type]
    assert kind_text(kind.name) == kind.value


def test_the_names_and_shapes_that_checkpoints_rely_on_stay() -> None:
    assert {kind.name: kind.shape for kind in StateKind} == {
        "VALUE": Shape.ONE,
        "LIST": Shape.LIST,
        "MAP": Shape.MAP,
        "REDUCING": Shape.ONE,
        "AGGREGATING": Shape.ONE,
    }
    assert stored_shape("LIST") is Shape.LIST
    assert (TIMER_KIND, stored_shape(TIMER_KIND)) == ("TIMER", Shape.ONE)


@pytest.mark.parametrize("kind", StateKind)
def test_a_kind_is_itself_after_pickling(kind: StateKind) -> None:
    assert pickle.loads(pickle.dumps(kind)) is kind
