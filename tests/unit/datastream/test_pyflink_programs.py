"""PyFlink programs as their users have them, `pyflink` replaced: each builds its graph."""

from __future__ import annotations

import pytest

from weir.common import Duration
from weir.common.typeinfo import Types
from weir.datastream import (
    BroadcastProcessFunction,
    ExternalizedCheckpointCleanup,
    FileSystemCheckpointStorage,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.checkpointing_mode import CheckpointingMode
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.graph.plan import compile_plan
from weir.graph.transformation import Partitioning


class CountWindowAverage(FlatMapFunction):
    def __init__(self):
        self.sum = None

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("average", Types.PICKLED_BYTE_ARRAY())
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value):
        current_sum = self.sum.value()
        if current_sum is None:
            current_sum = (0, 0)
        current_sum = (current_sum[0] + 1, current_sum[1] + value[1])
        self.sum.update(current_sum)
        if current_sum[0] >= 2:
            self.sum.clear()
            yield value[0], int(current_sum[1] / current_sum[0])


def test_the_average_over_a_keyed_value_state():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]) \
        .key_by(lambda row: row[0]) \
        .flat_map(CountWindowAverage()) \
        .print()  # fmt: skip
    graph = env.build_graph()
    source, average, sink = graph.transformations
    (edge,) = average.inputs[0]
    assert source.function.elements == [(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]
    assert (average.kind, edge.partitioning, edge.key.fields) == (
        "flat_map",
        Partitioning.HASH,
        (0,),
    )
    assert sink.kind == "print"
    plan = compile_plan(graph, default_parallelism=2)
    assert [op.level for op in plan.operators] == [0, 1, 1]


class MyKeyedBroadcastProcessFunction(KeyedBroadcastProcessFunction):
    def __init__(self):
        self._map_state_desc = MapStateDescriptor(
            "item", Types.STRING(), Types.LIST(Types.PICKLED_BYTE_ARRAY())
        )
        self._map_state = None

    def open(self, ctx: RuntimeContext):
        self._map_state = ctx.get_map_state(self._map_state_desc)

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        pass

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        yield value


class Plain(BroadcastProcessFunction):
    def process_broadcast_element(self, value, ctx: BroadcastProcessFunction.Context):
        pass

    def process_element(self, value, ctx: BroadcastProcessFunction.ReadOnlyContext):
        yield value


def rules_and_items():
    env = StreamExecutionEnvironment.get_execution_environment()
    item_stream = env.from_collection([("red", "square")])
    rule_stream = env.from_collection([("rule", "square", "circle")])
    descriptor = MapStateDescriptor(
        "RuleBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
    )
    return env, item_stream, rule_stream, descriptor


def test_rules_are_broadcast_to_a_keyed_stream():
    _, item_stream, rule_stream, descriptor = rules_and_items()
    color_partitioned_stream = item_stream.key_by(lambda item: item[0])
    rule_broadcast_stream = rule_stream.broadcast(descriptor)
    output = color_partitioned_stream \
        .connect(rule_broadcast_stream) \
        .process(MyKeyedBroadcastProcessFunction(), Types.STRING())  # fmt: skip
    operator = output.edges[0].source
    (data,), (rules,) = operator.inputs
    assert operator.kind == "broadcast_process"
    assert operator.options == {"descriptors": [descriptor]}
    assert operator.keyed
    assert (data.partitioning, data.key.fields) == (Partitioning.HASH, (0,))
    assert (rules.partitioning, rules.source) == (
        Partitioning.BROADCAST,
        rule_stream.edges[0].source,
    )
    assert operator.output_type == Types.STRING()


def test_the_kind_of_broadcast_function_must_fit_the_stream():
    _, item_stream, rule_stream, descriptor = rules_and_items()
    rules = rule_stream.broadcast(descriptor)
    keyed = item_stream.key_by(lambda item: item[0])
    assert not item_stream.connect(rules).process(Plain()).edges[0].source.keyed
    with pytest.raises(TypeError, match="should be applied to non-keyed DataStream"):
        keyed.connect(rules).process(Plain())
    with pytest.raises(TypeError, match="should be applied to keyed DataStream"):
        item_stream.connect(rules).process(MyKeyedBroadcastProcessFunction())
    with pytest.raises(TypeError, match="BroadcastProcessFunction"):
        keyed.connect(rules).process(CountWindowAverage())
    with pytest.raises(TypeError, match="MapStateDescriptor"):
        rule_stream.broadcast(ValueStateDescriptor("x", Types.STRING()))
    with pytest.raises(TypeError, match="DataStream or a BroadcastStream"):
        keyed.connect(descriptor)


def test_the_checkpoint_settings_as_printed():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.EXACTLY_ONCE)
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    env.get_checkpoint_config().set_alignment_timeout(Duration.of_seconds(5))
    env.get_checkpoint_config().enable_externalized_checkpoints(
        ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
    )
    env.get_checkpoint_config().set_checkpoint_storage(
        FileSystemCheckpointStorage("hdfs://hadoop-01:9000/chk")
    )
    env.get_checkpoint_config().set_checkpoint_timeout(60000)
    env.get_checkpoint_config().set_min_pause_between_checkpoints(500)
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(2)
    env.get_checkpoint_config().set_max_concurrent_checkpoints(1)
    found = env.effective_configuration().to_dict()
    assert {key.removeprefix("execution.checkpointing."): v for key, v in found.items()} == {
        "interval": "1000 ms",
        "mode": "EXACTLY_ONCE",
        "unaligned.enabled": "true",
        "aligned-checkpoint-timeout": "5000 ms",
        "externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "storage": "filesystem",
        "dir": "hdfs://hadoop-01:9000/chk",
        "timeout": "60000 ms",
        "min-pause": "500 ms",
        "tolerable-failed-checkpoints": "2",
        "max-concurrent-checkpoints": "1",
    }
