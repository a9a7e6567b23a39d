"""The function classes: names and paths of PyFlink, wrapping, refusals."""

from __future__ import annotations

import importlib

import cloudpickle
import pytest

from weir import datastream
from weir.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ListCheckpointed,
    MapFunction,
    ProcessFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from weir.datastream._plain_functions import PlainFilter, PlainFlatMap, PlainMap, PlainReduce

PYFLINK_NAMES = [
    "StreamExecutionEnvironment",
    "DataStream",
    "KeyedStream",
    "ConnectedStreams",
    "BroadcastStream",
    "BroadcastConnectedStream",
    "DataStreamSink",
    "MapFunction",
    "CoMapFunction",
    "FlatMapFunction",
    "CoFlatMapFunction",
    "ReduceFunction",
    "FilterFunction",
    "ProcessFunction",
    "KeyedProcessFunction",
    "CoProcessFunction",
    "KeyedCoProcessFunction",
    "AggregateFunction",
    "BroadcastProcessFunction",
    "KeyedBroadcastProcessFunction",
    "RuntimeContext",
    "TimerService",
    "CheckpointingMode",
    "CheckpointConfig",
    "ExternalizedCheckpointRetention",
    "ExternalizedCheckpointCleanup",
    "StateBackend",
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "CustomStateBackend",
    "PredefinedOptions",
    "MemoryStateBackend",
    "FsStateBackend",
    "RocksDBStateBackend",
    "CheckpointStorage",
    "JobManagerCheckpointStorage",
    "FileSystemCheckpointStorage",
    "CustomCheckpointStorage",
    "RuntimeExecutionMode",
    "TimeDomain",
    "TimeCharacteristic",
    "KeySelector",
    "Partitioner",
    "SourceFunction",
    "SinkFunction",
    "SlotSharingGroup",
    "MemorySize",
    "OutputTag",
]

PYFLINK_PATHS = {
    "checkpoint_config": ["CheckpointConfig", "ExternalizedCheckpointCleanup"],
    "checkpoint_storage": ["CheckpointStorage", "FileSystemCheckpointStorage"],
    "checkpointing_mode": ["CheckpointingMode"],
    "data_stream": [
        "DataStream",
        "KeyedStream",
        "ConnectedStreams",
        "DataStreamSink",
        "BroadcastStream",
        "BroadcastConnectedStream",
        "CloseableIterator",
    ],
    "execution_mode": ["RuntimeExecutionMode"],
    "externalized_checkpoint_retention": ["ExternalizedCheckpointRetention"],
    "functions": [
        "Function",
        "KeyedStateStore",
        "RuntimeContext",
        "MapFunction",
        "NullByteKeySelector",
        "BaseBroadcastProcessFunction",
        "CheckpointedFunction",
        "ListCheckpointed",
        "CheckpointListener",
    ],
    "output_tag": ["OutputTag"],
    "slot_sharing_group": ["SlotSharingGroup", "MemorySize"],
    "state": [
        "State",
        "ValueState",
        "AppendingState",
        "MergingState",
        "ReducingState",
        "AggregatingState",
        "ListState",
        "MapState",
        "ReadOnlyBroadcastState",
        "BroadcastState",
        "StateDescriptor",
        "ValueStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "AggregatingStateDescriptor",
        "OperatorStateStore",
    ],
    "state_backend": ["HashMapStateBackend", "EmbeddedRocksDBStateBackend", "FsStateBackend"],
    "stream_execution_environment": ["StreamExecutionEnvironment"],
    "time_characteristic": ["TimeCharacteristic"],
    "time_domain": ["TimeDomain"],
    "timerservice": ["TimerService"],
}


@pytest.mark.parametrize("name", PYFLINK_NAMES)
def test_every_name_of_pyflink_is_exported(name):
    assert hasattr(datastream, name)
    assert name in datastream.__all__


def test_everything_in_all_exists():
    assert len(set(datastream.__all__)) == len(datastream.__all__)
    for name in datastream.__all__:
        assert hasattr(datastream, name)


@pytest.mark.parametrize("path", PYFLINK_PATHS)
def test_modules_have_pyflinks_paths(path):
    module = importlib.import_module(f"weir.datastream.{path}")
    for name in PYFLINK_PATHS[path]:
        assert hasattr(module, name)


@pytest.mark.parametrize(
    ("plain", "method"),
    [
        (PlainMap, "map"),
        (PlainFlatMap, "flat_map"),
        (PlainFilter, "filter"),
        (PlainReduce, "reduce"),
    ],
)
def test_a_wrapped_lambda_survives_shipping(plain, method):
    offset = 3
    function = cloudpickle.loads(cloudpickle.dumps(plain(lambda *values: sum(values) + offset)))
    arguments = (1, 2) if method == "reduce" else (1,)
    assert getattr(function, method)(*arguments) == sum(arguments) + offset
    assert getattr(type(function), method)(function, *arguments)
    assert function.weir_plain


class Keeping(FilterFunction):
    def filter(self, value):
        return True


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("map", "MapFunction"),
        ("flat_map", "FlatMapFunction"),
        ("process", "ProcessFunction"),
    ],
)
@pytest.mark.parametrize("wrong", [1, None, Keeping(), "text"])
def test_a_function_of_the_wrong_kind_is_refused_by_name(method, expected, wrong):
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(TypeError, match=expected):
        getattr(stream, method)(wrong)


def test_filter_and_reduce_refuse_other_kinds():
    class Mapping(MapFunction):
        def map(self, value):
            return value

    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(TypeError, match="FilterFunction"):
        stream.filter(Mapping())
    with pytest.raises(TypeError, match="ReduceFunction"):
        stream.key_by(lambda x: x).reduce(Mapping())
    with pytest.raises(TypeError, match="Partitioner"):
        stream.partition_custom(Mapping(), lambda x: x)
    with pytest.raises(TypeError, match="KeySelector"):
        stream.key_by(Mapping())
    with pytest.raises(TypeError, match="CoMapFunction"):
        stream.connect(stream).map(Mapping())
    with pytest.raises(TypeError, match="CoFlatMapFunction"):
        stream.connect(stream).flat_map(Mapping())
    with pytest.raises(TypeError, match="CoProcessFunction or KeyedCoProcessFunction"):
        stream.connect(stream).process(Mapping())


def test_a_class_instead_of_an_instance_is_refused():
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(TypeError, match="add parentheses"):
        stream.filter(Keeping)


def test_a_builtin_class_is_a_callable_like_any_other():
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    assert stream.map(str).edges[0].source.function.map is str


def test_keyed_and_other_process_functions_are_not_mixed_up():
    class Keyed(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value

    class Other(ProcessFunction):
        def process_element(self, value, ctx):
            yield value

    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(TypeError, match="requires a ProcessFunction"):
        stream.process(Keyed())
    with pytest.raises(TypeError, match="requires a KeyedProcessFunction"):
        stream.key_by(lambda x: x).process(Other())


def test_a_function_without_its_method_cannot_be_created():
    class Unfinished(FlatMapFunction):
        pass

    with pytest.raises(TypeError):
        Unfinished()


def test_checkpoint_hooks_mix_into_any_function():
    class BufferingSink(SinkFunction, CheckpointedFunction, CheckpointListener):
        def invoke(self, value, context):
            pass

        def snapshot_state(self, context):
            pass

        def initialize_state(self, context):
            pass

        def notify_checkpoint_complete(self, checkpoint_id):
            pass

    class Counter(MapFunction, ListCheckpointed):
        def map(self, value):
            return value

        def snapshot_state(self, checkpoint_id, timestamp):
            return [1]

        def restore_state(self, state):
            pass

    assert BufferingSink().notify_checkpoint_aborted(1) is None
    assert Counter().snapshot_state(1, 2) == [1]
