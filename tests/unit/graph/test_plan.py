"""Levels: where operators run and which edges cross a shuffle."""

from __future__ import annotations

import pytest

from weir.common import Types, WatermarkStrategy
from weir.common.watermark_strategy import WatermarkGenerator
from weir.datastream import MapFunction, StreamExecutionEnvironment
from weir.datastream.connectors.number_seq import NumberSequenceSource
from weir.errors import UsageError
from weir.graph.plan import compile_plan
from weir.graph.transformation import Partitioning


class Resident(MapFunction):
    def open(self, runtime_context):
        self.opened = True

    def map(self, value):
        return value


class Plain(MapFunction):
    def map(self, value):
        return value


def numbers(env):
    return env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")


def plan_of(env, parallelism=2):
    return compile_plan(env.build_graph("test"), parallelism)


def levels(plan):
    return {op.name: op.level for op in plan.operators}


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def test_stateless_functions_stay_with_the_source_and_resident_ones_need_a_slot(env):
    stream = numbers(env).map(lambda v: v).name("lambda").map(Plain()).name("plain")
    stream.map(Resident()).name("resident").print()
    found = levels(plan_of(env))
    assert (found["lambda"], found["plain"], found["resident"]) == (0, 0, 1)


def test_every_exchange_starts_a_level_and_forward_edges_are_chained(env):
    first = numbers(env).key_by(lambda v: v).map(lambda v: v).name("first")
    first.map(lambda v: v).name("chained").key_by(lambda v: v).map(lambda v: v).name(
        "second"
    ).print()
    plan = plan_of(env)
    found = levels(plan)
    assert (found["first"], found["chained"], found["second"]) == (1, 1, 2)
    crossing = [e for e in plan.edges if not e.chained]
    assert [e.partitioning for e in crossing] == [Partitioning.HASH, Partitioning.HASH]
    assert plan.levels == 3
    assert plan.slots == 2


def test_another_parallelism_makes_an_exchange_and_widens_the_level(env):
    stream = numbers(env).key_by(lambda v: v).map(lambda v: v).name("two")
    stream.map(lambda v: v).name("four").set_parallelism(4).print().set_parallelism(4)
    plan = plan_of(env)
    assert levels(plan)["four"] == 2
    assert plan.level_parallelism == [2, 2, 4]
    edge = next(e for e in plan.edges if plan.operators[e.target].name == "four")
    assert edge.partitioning is Partitioning.REBALANCE


def test_an_edge_may_skip_a_level(env):
    source = numbers(env)
    deep = source.key_by(lambda v: v).map(lambda v: v).key_by(lambda v: v).map(lambda v: v)
    deep.union(source.map(lambda v: v)).key_by(lambda v: v).map(lambda v: v).name("union").print()
    plan = plan_of(env)
    spans = {e.target_level - e.source_level for e in plan.edges}
    assert spans == {0, 1, 3}


def test_the_same_program_gives_the_same_ids(env):
    def ids():
        made = StreamExecutionEnvironment.get_execution_environment()
        numbers(made).key_by(lambda v: v).map(lambda v: v).print()
        return [op.id for op in plan_of(made).operators]

    assert ids() == ids()


def test_max_parallelism_is_flinks_unless_it_is_set(env):
    numbers(env).key_by(lambda v: v).map(lambda v: v).name("derived").print()
    numbers(env).key_by(lambda v: v).map(lambda v: v).name("set").set_max_parallelism(7).print()
    plan = plan_of(env)
    found = {op.name: (op.max_parallelism, op.max_parallelism_explicit) for op in plan.operators}
    assert found["derived"] == (128, False)
    assert found["set"] == (7, True)


def test_a_parallelism_above_its_maximum_is_refused(env):
    env.set_max_parallelism(3)
    numbers(env).key_by(lambda v: v).map(lambda v: v).name("wide").print()
    with pytest.raises(UsageError, match="parallelism 4 is above its max parallelism 3"):
        plan_of(env, parallelism=4)


def test_two_operators_with_one_uid_are_refused(env):
    numbers(env).map(lambda v: v, Types.LONG()).uid("same").key_by(lambda v: v).map(
        lambda v: v
    ).uid("same").print()
    with pytest.raises(UsageError, match="same"):
        plan_of(env)


class Silent(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        """Nothing."""

    def on_periodic_emit(self, output):
        """Nothing."""


def test_generators_of_the_user_need_a_slot_and_get_whole_partitions(env):
    strategy = WatermarkStrategy.for_generator(Silent)
    beside = numbers(env).map(lambda v: v).assign_timestamps_and_watermarks(strategy)
    beside.rebalance().map(lambda v: v).assign_timestamps_and_watermarks(strategy).print()
    plan = plan_of(env)
    first, second = [op for op in plan.operators if op.kind == "timestamps"]
    assert (first.level, second.level) == (1, 2)
    assert [e.by_partition for e in plan.inputs_of(first.index)] == [True]
    assert [e.by_partition for e in plan.inputs_of(second.index)] == [False]


def test_built_in_strategies_stay_with_the_source(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    numbers(env).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v).reduce(max).print()
    assert [op.level for op in plan_of(env).operators if op.kind == "timestamps"] == [0]
