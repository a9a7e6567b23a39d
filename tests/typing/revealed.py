"""What a type checker knows of a program; `test_typing.py` lets mypy look at this file."""

from typing import Any

from typing_extensions import assert_type

from weir.common import Row, Time, Types
from weir.datastream import (
    AggregateFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.data_stream import CloseableIterator
from weir.datastream.functions import JoinFunction, ProcessJoinFunction
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
from weir.datastream.window import TimeWindow, TumblingEventTimeWindows

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

windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
all_windows = words.window_all(TumblingEventTimeWindows.of(Time.seconds(1)))


class Size(ProcessWindowFunction[tuple[str, int], int, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any
    ) -> Any:
        assert_type(context.window(), TimeWindow)
        yield len(list(elements))


class Total(AggregateFunction[tuple[str, int], int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[str, int], accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> float:
        return accumulator / 2

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Either(CoMapFunction[str, int, bytes]):
    def map1(self, value: str) -> bytes:
        return value.encode()

    def map2(self, value: int) -> bytes | None:
        return None


class Untyped(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield value


class Pair(JoinFunction[str, int, bool]):
    def join(self, first: str, second: int) -> bool:
        return len(first) == second


class Within(ProcessJoinFunction[Any, Any, float]):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        yield 1.0


assert_type(windows.reduce(lambda a, b: a), DataStream[tuple[str, int]])
assert_type(windows.reduce(lambda a, b: a, Size()), DataStream[int])
assert_type(windows.aggregate(Total()), DataStream[float])
assert_type(windows.aggregate(Total(), Size()), DataStream[int])
assert_type(windows.process(Size(), Types.INT()), DataStream[int])
assert_type(windows.allowed_lateness(1).sum(1), DataStream[tuple[str, int]])
assert_type(all_windows.reduce(min), DataStream[str])
numbers = words.map(len)
assert_type(words.connect(numbers).map(Either()), DataStream[bytes])
assert_type(words.connect(numbers).process(Untyped()), DataStream[Any])
both = words.join(numbers).where(len).equal_to(abs)
joined = both.window(TumblingEventTimeWindows.of(Time.seconds(1)))
assert_type(
    both.window(TumblingEventTimeWindows.of(Time.seconds(1))).apply(Pair()), DataStream[bool]
)
close = keyed.interval_join(keyed).between(Time.seconds(0), Time.seconds(1))
assert_type(close.upper_bound_exclusive().process(Within()), DataStream[float])
assert_type(words.rebalance().broadcast(), DataStream[str])
