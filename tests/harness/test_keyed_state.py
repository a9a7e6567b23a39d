"""The five keyed states in PyFlink programs, with Flink's golden results, also over failovers."""

from __future__ import annotations

import pytest
from tests.harness.programs import by_key, environment, run, started

from weir.common.typeinfo import Types
from weir.datastream import FlatMapFunction, KeyedProcessFunction, MapFunction, RuntimeContext
from weir.datastream.functions import AggregateFunction, ReduceFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.harness import collect

HELLOS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello")]
SUMS = {
    "hi": [(1, "hi"), (4, "hi"), (9, "hi")],
    "hello": [(2, "hello"), (6, "hello"), (12, "hello")],
}


class CountWindowAverage(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("average", Types.PICKLED_BYTE_ARRAY())
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value):
        current = self.sum.value() or (0, 0)
        current = (current[0] + 1, current[1] + value[1])
        self.sum.update(current)
        if current[0] >= 2:
            self.sum.clear()
            yield value[0], int(current[1] / current[0])


class Add(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Reducing(KeyedProcessFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", Add(), Types.LONG())
        )

    def process_element(self, value, ctx):
        self.state.add(value[0])
        yield self.state.get(), value[1]


class SumUp(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return value + accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


class Aggregating(KeyedProcessFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("sum", SumUp(), Types.LONG())
        )

    def process_element(self, value, ctx):
        self.state.add(value[0])
        yield self.state.get(), value[1]


class Remembering(KeyedProcessFunction):
    """Keeps all records of a key in a list and counts them in a map."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.LONG(), Types.LONG())
        )

    def process_element(self, value, ctx):
        self.seen.add(value[0])
        parity = value[0] % 2
        self.counts.put(parity, (self.counts.get(parity) or 0) + 1)
        yield value[1], tuple(self.seen.get()), tuple(sorted(self.counts.items()))


@pytest.mark.parametrize("take", [None, 1, 2])
def test_the_average_of_every_two_records(take):
    env = environment()
    pairs = [(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]
    collect(env.from_collection(pairs).key_by(lambda r: r[0]).flat_map(CountWindowAverage()))
    assert run(env, take=take).collected() == [(1, 4), (1, 5)]


@pytest.mark.parametrize("function", [Reducing, Aggregating])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_reducing_and_aggregating_state_add_up_per_key(function, parallelism):
    env = environment()
    collect(env.from_collection(HELLOS).key_by(lambda r: r[1]).process(function()))
    assert by_key(run(env, parallelism).collected(), 1) == SUMS


@pytest.mark.parametrize("function", [Reducing, Aggregating])
def test_a_failover_changes_no_result(function):
    env = environment()
    collect(env.from_collection(HELLOS).key_by(lambda r: r[1]).process(function()))
    harness = started(env, wait_for_checkpoints=True)
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_epoch(take=2)
    harness.kill_slot(0)
    harness.fail_over()
    assert by_key(harness.run().collected(), 1) == SUMS


def test_list_and_map_state_survive_a_restart_with_another_parallelism():
    env = environment()
    stream = env.from_collection(HELLOS).key_by(lambda r: r[1])
    collect(stream.process(Remembering()).uid("remember"))
    first = started(env, 2)
    first.run_epoch(take=4, checkpoint=True)
    second = first.restart(3)
    second.run()
    assert sorted(second.collected()) == [
        ("hello", (2, 4, 6), ((0, 3),)),
        ("hi", (1, 3, 5), ((1, 3),)),
    ]


def test_a_value_state_is_seen_through_the_harness():
    env = environment()
    pairs = [("a", 3), ("b", 5)]
    averages = env.from_collection(pairs).key_by(lambda r: r[0]).flat_map(CountWindowAverage())
    collect(averages.uid("average"))
    harness = started(env)
    harness.run_epoch()
    descriptor = ValueStateDescriptor("average", Types.PICKLED_BYTE_ARRAY())
    assert harness.state("average", descriptor, "a").value() == (1, 3)
    assert harness.state("average", descriptor, "b").value() == (1, 5)


class Numbering(MapFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()


def test_two_keyed_stages_in_a_row_have_states_of_their_own():
    env = environment()
    first = env.from_collection(list(range(12))).key_by(lambda n: n % 4).map(Numbering())
    collect(first.key_by(lambda r: r[1]).map(Numbering()))
    results = run(env, 3, take=5).collected()
    assert sorted(r[0][1] for r in results) == sorted([1, 2, 3] * 4)
    stages = by_key([(r[0][1], r[1]) for r in results])
    assert stages == {n: [(n, 1), (n, 2), (n, 3), (n, 4)] for n in (1, 2, 3)}


class Filtering(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx):
        if self.last.value() != value[1]:
            self.last.update(value[1])
            yield ctx.get_current_key(), value[1]


def test_the_current_key_is_that_of_the_record():
    env = environment()
    pairs = [("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1)]
    collect(env.from_collection(pairs).key_by(lambda r: r[0]).process(Filtering()))
    assert by_key(run(env).collected()) == {"a": [("a", 1), ("a", 2)], "b": [("b", 1)]}
