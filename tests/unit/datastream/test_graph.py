"""The graph that each method of the door declares: kinds, edges, options, types."""

from __future__ import annotations

import pytest

from weir.common import Duration, Types, WatermarkStrategy
from weir.connector.builtin_sources import (
    CollectionSource,
    DataFrameSource,
    FunctionSource,
    SequenceSource,
    TextFileSource,
)
from weir.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.connectors import FileSource, NumberSequenceSource, StreamFormat
from weir.errors import UsageError
from weir.graph.transformation import Partitioning, Transformation

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


class Doubling(MapFunction):
    def map(self, value):
        return value * 2


class Splitting(FlatMapFunction):
    def flat_map(self, value):
        yield from value.split()


class Passing(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class KeyedPassing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class CoPassing(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class KeyedCoPassing(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class CoMapping(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class CoFlatMapping(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield value


class Adding(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Writing(SinkFunction):
    def invoke(self, value, context):
        pass


class Counting(SourceFunction):
    def run(self, ctx):
        ctx.collect(1)

    def cancel(self):
        pass


class Even(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def operator_of(stream: DataStream) -> Transformation:
    return stream.edges[0].source


def test_a_lambda_becomes_a_function_whose_method_is_the_lambda(env):
    def double(value):
        return value * 2

    operator = operator_of(env.from_collection([1]).map(double, Types.INT()))
    assert operator.kind == "map"
    assert operator.name == "Map"
    assert operator.function.map is double
    assert operator.function.weir_plain is True
    assert operator.output_type == Types.INT()


def test_a_function_object_is_passed_as_it_is(env):
    function = Doubling()
    operator = operator_of(env.from_collection([1]).map(function))
    assert operator.function is function
    assert not hasattr(function, "weir_plain")
    assert operator.output_type is None


def test_each_stateless_method_declares_its_kind(env):
    source = env.from_collection(["a b"], Types.STRING())
    assert operator_of(source.flat_map(Splitting(), Types.STRING())).kind == "flat_map"
    assert operator_of(source.flat_map(str.split)).function.flat_map == str.split
    kept = operator_of(source.filter(bool))
    assert (kept.kind, kept.output_type) == ("filter", Types.STRING())
    assert operator_of(source.process(Passing())).kind == "process"


def test_a_chain_is_joined_by_forward_edges(env):
    first = env.from_collection([1]).map(Doubling())
    second = operator_of(first.map(Doubling()))
    (edges,) = second.inputs
    assert [(e.source, e.partitioning) for e in edges] == [
        (operator_of(first), Partitioning.FORWARD)
    ]


def test_a_list_of_types_declares_a_row(env):
    operator = operator_of(env.from_collection([1]).map(Doubling(), [Types.INT(), Types.LONG()]))
    assert operator.output_type == Types.ROW([Types.INT(), Types.LONG()])


def test_anything_else_as_output_type_is_refused(env):
    with pytest.raises(TypeError, match="output_type must be None, list or TypeInformation"):
        env.from_collection([1]).map(Doubling(), int)


def test_keying_sets_hash_edges_and_keeps_the_record_type(env):
    keyed = env.from_collection([("a", 1)], PAIR).key_by(lambda r: r[0], Types.STRING())
    operator = operator_of(keyed.process(KeyedPassing(), PAIR))
    (edge,) = operator.inputs[0]
    assert isinstance(keyed, KeyedStream)
    assert (operator.kind, operator.name, operator.keyed) == ("process", "KEYED PROCESS", True)
    assert edge.partitioning is Partitioning.HASH
    assert edge.key.fields == (0,)
    assert edge.key.key_type == Types.STRING()
    assert keyed.get_type() == PAIR


def test_keying_again_replaces_the_key(env):
    keyed = env.from_collection([("a", 1)], PAIR).key_by(0).key_by(1)
    (edge,) = keyed.edges
    assert edge.key.fields == (1,)


def test_functions_on_a_keyed_stream_are_keyed_and_their_output_is_not(env):
    mapped = env.from_collection([("a", 1)], PAIR).key_by(0).map(Doubling())
    assert operator_of(mapped).keyed
    assert not isinstance(mapped, KeyedStream)
    assert not operator_of(mapped.map(Doubling())).keyed


def test_reduce_keeps_the_type_of_the_stream(env):
    operator = operator_of(env.from_collection([("a", 1)], PAIR).key_by(0).reduce(Adding()))
    assert (operator.kind, operator.output_type) == ("reduce", PAIR)


@pytest.mark.parametrize("op", ["sum", "min", "max", "min_by", "max_by"])
def test_rolling_aggregates_name_their_operation_and_field(env, op):
    keyed = env.from_collection([("a", 1)], PAIR).key_by(0)
    assert operator_of(getattr(keyed, op)(1)).options == {"op": op, "field": 1}
    assert operator_of(getattr(keyed, op)()).options == {"op": op, "field": 0}
    assert operator_of(getattr(keyed, op)(1)).kind == "aggregate"


def test_a_rolling_aggregate_of_a_missing_field_is_refused(env):
    keyed = env.from_collection([("a", 1)], PAIR).key_by(0)
    with pytest.raises(UsageError, match=r"sum\(\) got field 2"):
        keyed.sum(2)
    with pytest.raises(TypeError, match="int or str"):
        keyed.sum(1.5)


def test_projection_keeps_fields_in_the_given_order(env):
    stream = env.from_collection([("a", 1)], PAIR).project(1, 0)
    operator = operator_of(stream)
    assert (operator.kind, operator.options) == ("project", {"fields": [1, 0]})
    assert stream.get_type() == Types.TUPLE([Types.INT(), Types.STRING()])


def test_only_tuples_can_be_projected(env):
    with pytest.raises(UsageError, match="Only Tuple DataStreams can be projected"):
        env.from_collection([1], Types.INT()).project(0)
    with pytest.raises(UsageError, match="position 2"):
        env.from_collection([("a", 1)], PAIR).project(2)


@pytest.mark.parametrize(
    ("method", "partitioning"),
    [
        ("rebalance", Partitioning.REBALANCE),
        ("shuffle", Partitioning.SHUFFLE),
        ("rescale", Partitioning.RESCALE),
        ("forward", Partitioning.FORWARD),
        ("global_", Partitioning.GLOBAL),
        ("broadcast", Partitioning.BROADCAST),
    ],
)
def test_partitioners_change_all_edges_of_a_union(env, method, partitioning):
    union = env.from_collection([1]).union(env.from_collection([2]))
    operator = operator_of(getattr(union, method)().map(Doubling()))
    assert [e.partitioning for e in operator.inputs[0]] == [partitioning] * 2


def test_a_custom_partitioner_gets_a_key_and_a_function(env):
    stream = env.from_collection([("a", 1)], PAIR)
    (by_function,) = stream.partition_custom(lambda k, n: k % n, lambda r: r[1]).edges
    (by_object,) = stream.partition_custom(Even(), lambda r: r[1]).edges
    assert by_function.partitioning is Partitioning.CUSTOM
    assert by_function.partition_fn(7, 4) == by_object.partition_fn(7, 4) == 3
    assert by_function.key.fields == (1,)


def test_a_union_is_several_edges_of_one_input(env):
    first, second = env.from_collection([1]), env.from_collection([2])
    operator = operator_of(first.union(second).map(Doubling()))
    assert [e.source for e in operator.inputs[0]] == [operator_of(first), operator_of(second)]


def test_a_union_of_keyed_streams_is_not_keyed(env):
    first = env.from_collection([("a", 1)], PAIR)
    union = first.key_by(0).union(first.key_by(1))
    assert not isinstance(union, KeyedStream)
    assert {e.partitioning for e in union.edges} == {Partitioning.FORWARD}


def test_a_union_of_different_types_is_refused(env):
    with pytest.raises(UsageError, match="streams of one type"):
        env.from_collection([1], Types.INT()).union(env.from_collection(["a"], Types.STRING()))


def test_streams_of_two_environments_cannot_be_joined(env):
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(UsageError, match="different environments"):
        env.from_collection([1]).union(other)
    with pytest.raises(UsageError, match="different environments"):
        env.from_collection([1]).connect(other)


def test_connected_streams_have_two_inputs(env):
    first, second = env.from_collection([1]), env.from_collection(["a"])
    for function, method, kind in (
        (CoMapping(), "map", "co_map"),
        (CoFlatMapping(), "flat_map", "co_flat_map"),
        (CoPassing(), "process", "co_process"),
    ):
        operator = operator_of(getattr(first.connect(second), method)(function, Types.STRING()))
        assert operator.kind == kind
        assert operator.function is function
        assert [e.source for edges in operator.inputs for e in edges] == [
            operator_of(first),
            operator_of(second),
        ]
        assert operator.output_type == Types.STRING()


def test_connected_streams_are_keyed_by_one_selector_each(env):
    first = env.from_collection([("a", 1)], PAIR)
    second = env.from_collection([(1, "a")])
    for connected in (
        first.connect(second).key_by(lambda r: r[0], lambda r: r[1], Types.STRING()),
        first.key_by(0).connect(second.key_by(1)),
        first.key_by(1).connect(second).key_by(0, 1),
    ):
        operator = operator_of(connected.process(KeyedCoPassing()))
        assert [e.key.fields for edges in operator.inputs for e in edges] == [(0,), (1,)]
        assert operator.name == "Keyed Co-Process"


def test_a_keyed_function_needs_both_connected_streams_keyed(env):
    first, second = env.from_collection([1]), env.from_collection([2])
    with pytest.raises(TypeError, match="both streams keyed"):
        first.connect(second).process(KeyedCoPassing())
    with pytest.raises(UsageError, match="key both, or none"):
        first.key_by(lambda x: x).connect(second).process(CoPassing())


def test_a_side_output_is_a_tagged_edge_with_its_type(env):
    stream = env.from_collection([1]).process(Passing(), Types.INT())
    tag = OutputTag("late", Types.STRING())
    side = stream.get_side_output(tag)
    operator = operator_of(side.map(Doubling()))
    (edge,) = operator.inputs[0]
    assert (edge.source, edge.tag) == (operator_of(stream), "late")
    assert operator_of(stream).side_types == {"late": Types.STRING()}
    assert side.get_type() == Types.STRING()
    assert stream.get_side_output(tag).get_type() == Types.STRING()
    with pytest.raises(UsageError, match="side output 'late'"):
        stream.get_side_output(OutputTag("late", Types.INT()))


def test_timestamps_come_from_a_strategy(env):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    stream = env.from_collection([1], Types.INT()).assign_timestamps_and_watermarks(strategy)
    operator = operator_of(stream)
    assert (operator.kind, operator.function) == ("timestamps", strategy)
    assert stream.get_type() == Types.INT()


def test_printing_is_a_sink_with_its_stream(env):
    source = env.from_collection([1], Types.INT())
    source.print()
    source.print_to_err("errors").name("Shouting")
    _, out, err = env.build_graph().transformations
    assert (out.kind, out.name) == ("print", "Sink: Print to Std. Out")
    assert out.options == {"identifier": None, "stderr": False, "input_type": Types.INT()}
    assert err.options["identifier"] == "errors"
    assert err.options["stderr"] is True
    assert err.name == "Shouting"


class WriterSink:
    def create_writer(self, context):
        return None


def test_sinks_are_told_apart_by_what_they_offer(env):
    source = env.from_collection([1], Types.INT())
    function, writer = Writing(), WriterSink()
    source.add_sink(function)
    source.sink_to(writer)
    source.foreach_batch(print)
    sinks = env.build_graph().transformations[1:]
    assert [(s.kind, s.function) for s in sinks] == [
        ("sink", function),
        ("sink_v2", writer),
        ("spark_sink", print),
    ]
    assert {s.options["input_type"] for s in sinks} == {Types.INT()}


def test_a_sink_that_cannot_write_is_refused(env):
    source = env.from_collection([1])
    with pytest.raises(TypeError, match="invoke"):
        source.add_sink(object())
    with pytest.raises(TypeError, match="invoke"):
        source.add_sink(Writing)
    with pytest.raises(TypeError, match=r"build\(\)"):
        source.sink_to(object())


def test_every_source_is_a_value_with_its_type(env):
    frame = object()
    function = Counting()
    found = [
        operator_of(stream)
        for stream in (
            env.from_collection([1], Types.INT()),
            env.from_sequence(1, 9),
            env.read_text_file("in.txt"),
            env.from_dataframe(frame, PAIR),
            env.add_source(function, "numbers", Types.INT()),
        )
    ]
    assert {t.kind for t in found} == {"source"}
    assert [(t.function, t.output_type) for t in found] == [
        (CollectionSource([1], Types.INT()), Types.INT()),
        (SequenceSource(1, 9), Types.LONG()),
        (TextFileSource("in.txt", "UTF-8"), Types.STRING()),
        (DataFrameSource(frame, PAIR), PAIR),
        (FunctionSource(function, Types.INT()), Types.INT()),
    ]
    assert found[4].name == "Source: numbers"


def test_a_collection_is_read_by_one_subtask(env):
    source = env.from_collection([1])
    assert operator_of(source).parallelism == operator_of(source).max_parallelism == 1
    with pytest.raises(UsageError, match="not parallel"):
        source.set_parallelism(2)
    source.set_parallelism(1)


def test_elements_that_do_not_fit_the_declared_type_are_refused_at_once(env):
    with pytest.raises(UsageError):
        env.from_collection(["a"], Types.INT())


def test_a_source_with_watermarks_keeps_name_and_uid_on_the_source(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(SequenceSource(1, 3), strategy, "numbers")
    stream.uid("numbers").set_parallelism(3)
    stream.print()
    source, timestamps, sink = env.build_graph().transformations
    assert (source.kind, source.uid, source.output_type) == ("source", "numbers", Types.LONG())
    assert (timestamps.kind, timestamps.uid, timestamps.function) == ("timestamps", None, strategy)
    assert source.parallelism == timestamps.parallelism == 3
    assert sink.inputs[0][0].source is timestamps


def test_a_source_without_watermarks_stands_alone(env):
    source = SequenceSource(1, 3)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    assert operator_of(stream).function is source


def test_a_file_source_becomes_one_text_source_per_path(env):
    lines = StreamFormat.text_line_format()
    one = FileSource.for_record_stream_format(lines, "a").build()
    two = FileSource.for_record_stream_format(lines, "a", "b").build()
    none = WatermarkStrategy.no_watermarks()
    single = env.from_source(one, none, "one")
    assert operator_of(single).function == TextFileSource("a", "UTF-8")
    assert single.get_type() == Types.STRING()
    double = env.from_source(two, none, "two").set_parallelism(2)
    assert [e.source.function.path for e in double.edges] == ["a", "b"]
    assert [e.source.parallelism for e in double.edges] == [2, 2]


def test_a_directory_may_be_watched(env):
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, "a").monitor_continuously(1000).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "watched")
    assert operator_of(stream).function == TextFileSource("a", "UTF-8", watched=True)


def test_the_number_source_of_the_connectors_is_a_sequence(env):
    stream = env.from_source(
        NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers"
    )
    assert isinstance(operator_of(stream).function, SequenceSource)
    assert stream.get_type() == Types.LONG()


def test_a_stream_knows_its_environment(env):
    stream = env.from_collection([1])
    assert stream.get_execution_environment() is env
    assert stream.get_execution_config() is env.get_config()
    assert stream.get_type() == Types.PICKLED_BYTE_ARRAY()
