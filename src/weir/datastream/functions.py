"""The functions that users write: for single records, with timers, at the ends of a program.

A function object is created in the program, shipped to its subtask, opened once, called for every
record, closed once. Everything that a function keeps beyond a record belongs into state. The
contexts nested in functions are what the runtime hands to each call; a context is only valid during
the call that it was given to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol

from weir.common._absent import INTERNAL, JAVA, absent
from weir.common._generics import ACC, IN1, IN2, KEY, OUT, IN_contra, KEY_co, OUT_co, T
from weir.datastream._async_functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from weir.datastream._checkpointed_functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
)
from weir.datastream._function_base import Function
from weir.datastream._join_functions import ProcessJoinFunction
from weir.datastream._runtime_context import KeyedStateStore, RuntimeContext
from weir.datastream._window_functions import (
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from weir.datastream.time_domain import TimeDomain
from weir.datastream.timerservice import TimerService
from weir.state.descriptor import MapStateDescriptor
from weir.state.handles import BroadcastState, ReadOnlyBroadcastState

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "CountAggregate",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "ListCheckpointed",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "WindowFunction",
]


class MapFunction(Function, Generic[IN_contra, OUT_co]):
    """One record in, one record out.

    Example:
        class Doubled(MapFunction):
            def map(self, value):
                return value * 2

        numbers.map(Doubled(), Types.LONG())
    """

    @abstractmethod
    def map(self, value: IN_contra) -> OUT_co:
        """Return the record that replaces `value`."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Map over two connected streams; both methods see the same instance.

    Example:
        class Both(CoMapFunction):
            def map1(self, value):
                return "first", value

            def map2(self, value):
                return "second", value
    """

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return the record for a record of the first stream; None emits nothing."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return the record for a record of the second stream; None emits nothing."""


class FlatMapFunction(Function, Generic[IN_contra, OUT_co]):
    """One record in, any number of records out.

    Example:
        class Words(FlatMapFunction):
            def flat_map(self, value):
                yield from value.split()
    """

    @abstractmethod
    def flat_map(self, value: IN_contra) -> Iterable[OUT_co] | None:
        """Return or yield the records that replace `value`."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Flat map over two connected streams; both methods see the same instance.

    Example:
        class Both(CoFlatMapFunction):
            def flat_map1(self, value):
                yield value

            def flat_map2(self, value):
                yield value
    """

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield the records for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield the records for a record of the second stream."""


class FilterFunction(Function, Generic[IN_contra]):
    """Keeps or drops records.

    Example:
        class Large(FilterFunction):
            def filter(self, value):
                return value[1] > 100

        stream.filter(Large())
    """

    @abstractmethod
    def filter(self, value: IN_contra) -> bool:
        """Return whether `value` is kept."""


class ReduceFunction(Function, Generic[T]):
    """Combines two records of one type into one; must be associative.

    Example:
        class Larger(ReduceFunction):
            def reduce(self, value1, value2):
                return max(value1, value2)

        numbers.key_by(lambda n: n % 2).reduce(Larger())
    """

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of the value so far and the next one."""


class AggregateFunction(Function, Generic[IN_contra, ACC, OUT_co]):
    """Aggregates records into an accumulator of another type, and that into a result.

    Example:
        class Mean(AggregateFunction):
            def create_accumulator(self):
                return 0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]

            def merge(self, acc_a, acc_b):
                return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a fresh accumulator."""

    @abstractmethod
    def add(self, value: IN_contra, accumulator: ACC) -> ACC:
        """Return the accumulator with `value` added."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT_co:
        """Return the result that an accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return one accumulator that holds what both held."""


class CountAggregate(AggregateFunction[Any, int, int]):
    """Counts records. Flink has none; windows count whole columns with this one.

    Example:
        keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).aggregate(CountAggregate())
    """

    def create_accumulator(self) -> int:
        """Begin with nothing."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """Count one more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """Return the number."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """Return how many both are."""
        return acc_a + acc_b


class KeySelector(Function, Generic[IN_contra, KEY_co]):
    """Takes the key out of a record; must return the same key for the same record, always.

    Example:
        class ByName(KeySelector):
            def get_key(self, value):
                return value[0]

        stream.key_by(ByName(), Types.STRING())
    """

    @abstractmethod
    def get_key(self, value: IN_contra) -> KEY_co:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector[Any, int]):
    """Gives every record the same key, which brings a whole stream to one subtask.

    Example:
        stream.key_by(NullByteKeySelector(), Types.BYTE())
    """

    def get_key(self, value: Any) -> int:
        """Return the one key."""
        return 0


class Partitioner(Function):
    """Decides which subtask a record goes to.

    Example:
        class ByLength(Partitioner):
            def partition(self, key, num_partitions):
                return len(key) % num_partitions

        stream.partition_custom(ByLength(), lambda record: record[0])
    """

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the subtask index for a key, from 0 to `num_partitions - 1`."""


class _TimedContext(ABC):
    """What every process context offers: the record's timestamp and the timer service."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the service that tells the time and keeps timers."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the event timestamp of the record (or timer), None when it has none."""


class _KeyedContext(_TimedContext):
    """A process context with a current key."""

    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the record, or of the timer that fires."""


class ProcessFunction(Function, Generic[IN_contra, OUT_co]):
    """Any number of outputs per record, with timestamps and side outputs.

    Yield a value for the main output, `tag, value` with an `OutputTag` for a side output.

    Example:
        LATE = OutputTag("late", Types.STRING())

        class Split(ProcessFunction):
            def process_element(self, value, ctx):
                yield value
                if value[1] < 0:
                    yield LATE, value[0]
    """

    class Context(_TimedContext):
        """Given to `process_element`."""

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: ProcessFunction.Context) -> Any:
        """Handle one record; return or yield the outputs."""


class KeyedProcessFunction(Function, Generic[KEY, IN_contra, OUT_co]):
    """A process function on a keyed stream: adds keyed state and timers.

    Example:
        class Count(KeyedProcessFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

            def process_element(self, value, ctx):
                self.count.update((self.count.value() or 0) + 1)
                yield ctx.get_current_key(), self.count.value()

        keyed.process(Count()).uid("count")
    """

    class Context(_KeyedContext):
        """Given to `process_element`."""

    class OnTimerContext(Context):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: KeyedProcessFunction.Context) -> Any:
        """Handle one record; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A process function over two connected streams.

    Example:
        class Both(CoProcessFunction):
            def process_element1(self, value, ctx):
                yield value

            def process_element2(self, value, ctx):
                yield value
    """

    class Context(_TimedContext):
        """Given to both methods."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Any:
        """Handle a record of the first stream; return or yield the outputs."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Any:
        """Handle a record of the second stream; return or yield the outputs."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A process function over two streams keyed alike: both share keyed state and timers.

    Example:
        class Both(KeyedCoProcessFunction):
            def process_element1(self, value, ctx):
                ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1_000)

            def process_element2(self, value, ctx):
                yield ctx.get_current_key(), value
    """

    class Context(_KeyedContext):
        """Given to both methods."""

    class OnTimerContext(Context):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Handle a record of the first stream; return or yield the outputs."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Handle a record of the second stream; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast function share: their contexts.

    The broadcast side may write broadcast state, the other side may only read it: that is what
    keeps the copies in all subtasks equal.

    Example:
        def names_of(ctx: BaseBroadcastProcessFunction.ReadOnlyContext, rules):
            return sorted(ctx.get_broadcast_state(rules))
    """

    class BaseContext(ABC):
        """The time of the record that is being handled."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record, None when it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the current processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the current event-time watermark in milliseconds."""

    class Context(BaseContext):
        """Given to the broadcast side: broadcast state to read and write."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return the broadcast state of a descriptor that was given to `broadcast()`."""

    class ReadOnlyContext(BaseContext):
        """Given to the other side: broadcast state to read."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return a view of a broadcast state that refuses writes."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Joins a stream that is not keyed with a broadcast stream.

    Example:
        RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

        class Allowed(BroadcastProcessFunction):
            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put(value[0], value[1])

            def process_element(self, value, ctx):
                if ctx.get_broadcast_state(RULES).contains(value[0]):
                    yield value
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Given to `process_broadcast_element`."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Given to `process_element`."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        """Handle a record of the stream; return or yield the outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Any:
        """Handle a broadcast record, in every subtask alike; return or yield the outputs."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Joins a keyed stream with a broadcast stream: adds keyed state and timers.

    Example:
        RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

        class Limited(KeyedBroadcastProcessFunction):
            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(RULES).put(value[0], value[1])

            def process_element(self, value, ctx):
                yield ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("limit")
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Given to `process_broadcast_element`."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Given to `process_element`."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the service that tells the time and keeps timers."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record, or of the timer that fires."""

    class OnTimerContext(ReadOnlyContext, ABC):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Any:
        """Handle a record of the keyed stream; return or yield the outputs."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Any:
        """Handle a broadcast record, in every subtask alike; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""


class SourceFunction(Function):
    """A source written in Python: a loop that collects records until it is cancelled.

    It runs once a job, in one thread of the driver, through all restarts; everything that it says
    is journaled first, so that restarts repeat it word for word. `open` is called before `run`,
    with a context that has no keyed state, whose attempt number is 0 and whose metrics nobody
    reports; `close` is called when
    `run` has returned or failed. When `run` returns without having been cancelled, event time of
    this source is over: its watermark goes to the maximum.

    Example:
        class Ticks(SourceFunction):
            running = True

            def run(self, ctx):
                for number in range(10):
                    if self.running:
                        ctx.collect(number)

            def cancel(self):
                self.running = False
    """

    class SourceContext(Protocol):
        """Given to `run`: where records go. Any thread may call it.

        Timestamps and watermarks count unless `assign_timestamps_and_watermarks` follows, which
        sees the timestamps and replaces both. An epoch handles its records first and then moves
        to the last watermark that was emitted among them.
        """

        def collect(self, element: Any) -> None:
            """Emit a record without a timestamp."""

        def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
            """Emit a record with its event timestamp in milliseconds."""

        def emit_watermark(self, timestamp: int) -> None:
            """Declare that no record with this timestamp or an earlier one will follow."""

        def mark_as_temporarily_idle(self) -> None:
            """Declare that this source emits nothing for now and holds no watermark back.

            The next record or watermark ends that.
            """

        def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
            """Return a lock that keeps records which are emitted under it in one epoch.

            More than 10,000 of them are parted all the same. Flink's other use of it, to change
            state together with emitting, has no meaning here: state of a source function is not
            stored, its journal is its position.
            """

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        """Emit records until the input ends or `cancel` was called."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon; called from another thread."""


class SinkFunction(Function):
    """A sink that is invoked per record.

    Effects on the outside happen at least once. For exactly-once output use a two-phase sink, or
    keep unwritten records in state with `CheckpointedFunction`.

    Example:
        class Printed(SinkFunction):
            def invoke(self, value, context):
                print(value)

        stream.add_sink(Printed())
    """

    class Context(ABC):
        """Given to `invoke`: the time of the record."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the current processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the current event-time watermark in milliseconds."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record, None when it has none."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Write one record."""


__getattr__ = absent(
    __name__,
    {
        "FunctionWrapper MapFunctionWrapper FlatMapFunctionWrapper FilterFunctionWrapper "
        "ReduceFunctionWrapper KeySelectorFunctionWrapper PartitionerFunctionWrapper": INTERNAL,
        "JavaFunctionWrapper": JAVA,
        "InternalWindowFunction InternalIterableWindowFunction InternalProcessWindowContext "
        "InternalIterableProcessWindowFunction InternalSingleValueWindowFunction "
        "InternalSingleValueAllWindowFunction InternalIterableAllWindowFunction "
        "InternalProcessAllWindowContext InternalSingleValueProcessWindowFunction "
        "InternalSingleValueProcessAllWindowFunction InternalIterableProcessAllWindowFunction "
        "PassThroughWindowFunction PassThroughAllWindowFunction AsyncFunctionDescriptor": INTERNAL,
    },
)
