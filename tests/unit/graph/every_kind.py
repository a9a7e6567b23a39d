"""A program that declares every kind of operator once."""

from __future__ import annotations

from weir.cep import CEP, Pattern
from weir.common import Encoder, Time, Types, WatermarkStrategy
from weir.connector.file_sink import FileSink
from weir.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.state import MapStateDescriptor
from weir.datastream.window import TumblingEventTimeWindows
from weir.graph.transformation import StreamGraph
from weir.testing import collect


class Process(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class CoMap(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield value


class CoProcess(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


class Ask(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


class Sink(SinkFunction):
    def invoke(self, value, context):
        pass


def every_kind() -> StreamGraph:
    """Return the graph; only the source feeds all others, so that no id depends on two kinds."""
    env = StreamExecutionEnvironment.get_execution_environment()
    pairs = env.from_collection([(1, 2)], Types.TUPLE([Types.LONG(), Types.LONG()]))
    keyed = pairs.key_by(0)
    pairs.map(lambda v: v)
    pairs.flat_map(lambda v: [v])
    pairs.filter(lambda v: True)
    pairs.project(1)
    pairs.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
    keyed.process(Process())
    keyed.reduce(lambda a, b: a)
    keyed.sum(1)
    keyed.window(TumblingEventTimeWindows.of(5)).sum(1)
    CEP.pattern(keyed, Pattern.begin("any")).select(len)
    pairs.connect(pairs).map(CoMap())
    pairs.connect(pairs).flat_map(CoFlatMap())
    pairs.connect(pairs).process(CoProcess())
    rules = pairs.broadcast(MapStateDescriptor("rules", Types.LONG(), Types.LONG()))
    pairs.connect(rules).process(Rules())
    keyed.interval_join(keyed).between(0, 1).process(Pairs())
    AsyncDataStream.ordered_wait(pairs, Ask(), Time.seconds(1))
    pairs.add_sink(Sink())
    pairs.sink_to(FileSink.for_row_format("out", Encoder.simple_string_encoder()).build())
    pairs.foreach_batch(lambda dataframe, checkpoint_id: None)
    pairs.print()
    collect(pairs)
    return env.build_graph()
