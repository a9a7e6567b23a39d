"""`CheckpointedFunction` on every kind of function: when its hooks run and what they see."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, started

from weir.common.typeinfo import Types
from weir.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListCheckpointed,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.errors import IncompatibleStateError, WeirError
from weir.testing.harness import collect

NUMBERS = ListStateDescriptor("numbers", Types.LONG())


class Remember(CheckpointedFunction):
    """Keeps the number of records, and notes what the hooks are told and in which order."""

    def __init__(self):
        self.number = 0
        self.calls = []

    def initialize_state(self, context):
        self.calls.append("initialize_state")
        self.restored = (context.is_restored(), context.get_restored_checkpoint_id())
        self.numbers = context.get_operator_state_store().get_list_state(NUMBERS)
        self.number = sum(self.numbers.get())

    def open(self, runtime_context):
        self.calls.append("open")

    def snapshot_state(self, context):
        self.calls.append((context.get_checkpoint_id(), context.get_checkpoint_timestamp()))
        self.numbers.update([self.number])

    def one(self, *_):
        self.number += 1
        return []


class Mapped(Remember, MapFunction):
    def map(self, value):
        self.one()
        return value


class FlatMapped(Remember, FlatMapFunction):
    flat_map = Remember.one


class Filtered(Remember, FilterFunction):
    filter = Remember.one


class Processed(Remember, ProcessFunction):
    process_element = Remember.one


class KeyedProcessed(Remember, KeyedProcessFunction):
    process_element = Remember.one


class Reduced(Remember, ReduceFunction):
    def reduce(self, value1, value2):
        self.one()
        return value2


class CoMapped(Remember, CoMapFunction):
    map1 = map2 = Remember.one


class CoFlatMapped(Remember, CoFlatMapFunction):
    flat_map1 = flat_map2 = Remember.one


class CoProcessed(Remember, CoProcessFunction):
    process_element1 = process_element2 = Remember.one


class KeyedCoProcessed(Remember, KeyedCoProcessFunction):
    process_element1 = process_element2 = Remember.one


class Broadcasted(Remember, BroadcastProcessFunction):
    process_element = process_broadcast_element = Remember.one


class Sunk(Remember, SinkFunction):
    invoke = Remember.one


def key(value):
    return value % 3


RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
KINDS = {
    "map": lambda a, b: a.map(Mapped()),
    "keyed map": lambda a, b: a.key_by(key).map(Mapped()),
    "flat_map": lambda a, b: a.flat_map(FlatMapped()),
    "filter": lambda a, b: a.filter(Filtered()),
    "process": lambda a, b: a.process(Processed()),
    "keyed process": lambda a, b: a.key_by(key).process(KeyedProcessed()),
    "reduce": lambda a, b: a.key_by(key).reduce(Reduced()),
    "co_map": lambda a, b: a.connect(b).map(CoMapped()),
    "co_flat_map": lambda a, b: a.connect(b).flat_map(CoFlatMapped()),
    "co_process": lambda a, b: a.connect(b).process(CoProcessed()),
    "keyed co_process": lambda a, b: (
        a.key_by(key).connect(b.key_by(key)).process(KeyedCoProcessed())
    ),
    "broadcast": lambda a, b: a.connect(b.broadcast(RULES)).process(Broadcasted()),
    "sink": lambda a, b: a.add_sink(Sunk()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_function_keeps_operator_state(kind):
    env = environment()
    a, b = env.from_sequence(1, 12).uid("a"), env.from_collection([]).uid("b")
    result = KINDS[kind](a, b).uid("function")
    if kind != "sink":
        collect(result)
    harness = started(env, 2)
    fresh = [op.function for op in harness.operators("function")]
    assert [f.restored for f in fresh] == [(False, None)] * 2
    assert [f.calls for f in fresh] == [["initialize_state", "open"]] * 2
    harness.run_epoch(take=6, checkpoint=True)
    numbers = [f.number for f in fresh]
    # A reduction calls the function from the second record of a key on.
    assert sum(numbers) == (3 if kind == "reduce" else 6)
    assert [f.calls[2:] for f in fresh] == [[(1, harness.clock.now_ms())]] * 2
    harness.run_epoch(take=6)
    harness.kill_slot(0)
    harness.fail_over()
    again = [op.function for op in harness.operators("function")]
    assert [f.restored for f in again] == [(True, 1)] * 2
    assert [f.number for f in again] == numbers


class Keyless(Mapped):
    def initialize_state(self, context):
        context.get_keyed_state_store().get_state(ValueStateDescriptor("x", Types.LONG()))


def test_keyed_state_is_refused_on_a_stream_without_keys():
    env = environment()
    collect(env.from_sequence(1, 2).map(Keyless()).name("keyless"))
    with pytest.raises(WeirError, match=r"'keyless'.*key_by"):
        started(env, 1)


class Peeking(Mapped):
    def initialize_state(self, context):
        super().initialize_state(context)
        store = context.get_keyed_state_store()
        self.count = store.get_state(ValueStateDescriptor("count", Types.LONG()))

    def snapshot_state(self, context):
        self.count.value()


def test_keyed_state_has_no_key_while_a_snapshot_is_taken():
    env = environment()
    collect(env.from_sequence(1, 2).key_by(key).map(Peeking()))
    harness = started(env, 1)
    with pytest.raises(WeirError, match="No key set"):
        harness.run_epoch(checkpoint=True)


class Both(Mapped, ListCheckpointed):
    """Has the hooks of both interfaces."""

    def restore_state(self, state):
        raise AssertionError


def test_a_function_with_both_interfaces_is_a_checkpointed_function():
    env = environment()
    collect(env.from_sequence(1, 4).map(Both()).uid("both"))
    first = started(env, 1)
    first.run_epoch(checkpoint=True)
    (operator,) = first.restart(1).operators("both")
    assert operator.function.number == 4


class Listed(MapFunction, ListCheckpointed):
    def __init__(self, state):
        self.state = state
        self.restored = None

    def map(self, value):
        return value

    def snapshot_state(self, checkpoint_id, timestamp):
        self.told = (checkpoint_id, timestamp)
        return self.state

    def restore_state(self, state):
        self.restored = state


@pytest.mark.parametrize("state", [None, [], [{"any": "object"}, 2, "three"]])
def test_a_list_checkpointed_function_is_told_its_list_after_a_restore_only(state):
    env = environment()
    collect(env.from_sequence(1, 4).map(Listed(state)).uid("listed"))
    first = started(env, 1)
    (operator,) = first.operators("listed")
    first.run_epoch(checkpoint=True)
    assert operator.function.restored is None
    assert operator.function.told == (1, first.clock.now_ms())
    (operator,) = first.restart(1).operators("listed")
    assert operator.function.restored == (state or [])


class Single(Listed):
    """Cannot be rescaled: it insists on one element."""

    def restore_state(self, state):
        if len(state) != 1:
            msg = f"expected one element, found {state}"
            raise ValueError(msg)
        super().restore_state(state)


def test_a_function_that_insists_on_one_element_keeps_its_parallelism():
    env = environment()
    collect(env.from_sequence(1, 4).rebalance().map(Single([7])).uid("single"))
    first = started(env, 2)
    first.run_epoch(checkpoint=True)
    second = first.restart(2)
    assert [op.function.restored for op in second.operators("single")] == [[7], [7]]
    with pytest.raises(WeirError, match="expected one element, found"):
        second.restart(1)


class Switching(Mapped):
    """Asks for its state in a mode that differs after a restore."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        union = context.is_restored()
        self.numbers = (store.get_union_list_state if union else store.get_list_state)(NUMBERS)


def test_a_state_cannot_change_its_mode():
    env = environment()
    collect(env.from_sequence(1, 4).map(Switching()).uid("switching"))
    first = started(env, 1)
    first.run_epoch(checkpoint=True)
    clash = r"(?s)Incompatible state assignment modes.*'numbers'.*SPLIT.*UNION"
    with pytest.raises(IncompatibleStateError, match=clash):
        first.restart(1)


class Named(Mapped):
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.names = store.get_registered_state_names()
        self.broadcast_names = store.get_registered_broadcast_state_names()
        if not context.is_restored():
            store.get_list_state(NUMBERS).add(1)
            store.get_broadcast_state(RULES).put(1, 1)

    def snapshot_state(self, context):
        pass


def test_restored_names_are_known_before_they_are_asked_for():
    env = environment()
    collect(env.from_sequence(1, 4).map(Named()).uid("named"))
    first = started(env, 1)
    first.run_epoch(checkpoint=True)
    (operator,) = first.restart(1).operators("named")
    assert operator.function.names == {"numbers"}
    assert operator.function.broadcast_names == {"rules"}
