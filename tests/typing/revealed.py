"""What a type checker knows of a program; `test_typing.py` lets mypy look at this file."""

from typing import Any

from typing_extensions import assert_type

from weir.common import Row, Types
from weir.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.data_stream import CloseableIterator
from weir.datastream.state import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["a", "b"])
assert_type(words, DataStream[str])
assert_type(env.from_collection([1], Types.LONG()), DataStream[int])
assert_type(env.from_collection([(1, "a")], Types.ROW([Types.INT()])), DataStream[Row])
assert_type(env.from_sequence(1, 3), DataStream[int])
assert_type(env.read_text_file("x"), DataStream[str])
assert_type(words.map(lambda word: (word, 1)), DataStream[tuple[str, int]])
assert_type(words.map(len, Types.INT()).uid("length"), DataStream[int])
assert_type(words.flat_map(lambda word: word.split()), DataStream[str])
assert_type(words.filter(lambda word: word.isupper()), DataStream[str])
keyed = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0], Types.STRING())
assert_type(keyed, KeyedStream[tuple[str, int], str])
assert_type(keyed.reduce(lambda a, b: (a[0], a[1] + b[1])), DataStream[tuple[str, int]])
assert_type(keyed.sum(1), DataStream[tuple[str, int]])
assert_type(words.execute_and_collect(), CloseableIterator[str])
assert_type(words.execute_and_collect(limit=3), list[str])
assert_type(words.execute_and_collect("name", 3), list[str])
assert_type(words.get_side_output(OutputTag("late", Types.LONG())), DataStream[int])


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Words(FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return value.split()


class Count(KeyedProcessFunction[str, tuple[str, int], int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        assert_type(count, ValueState[int])
        names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING()))
        assert_type(names, ListState[str])
        ages = MapStateDescriptor("ages", Types.STRING(), Types.LIST(Types.DOUBLE()))
        assert_type(runtime_context.get_map_state(ages), MapState[str, list[float]])
        total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        assert_type(runtime_context.get_reducing_state(total), ReducingState[int])
        assert_type(runtime_context.get_state(ValueStateDescriptor("any")), ValueState[Any])

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> Any:
        yield value[1]


assert_type(words.map(Length()), DataStream[int])
assert_type(words.flat_map(Words()), DataStream[Any])
assert_type(keyed.process(Count(), Types.INT()), DataStream[int])
words.map(Length()).map(lambda number: number.upper())  # type: ignore[attr-defined]
words.map(Count())  # type: ignore[arg-type]
