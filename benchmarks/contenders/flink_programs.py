"""The workloads as PyFlink DataStream programs; Weir and PyFlink run the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.contenders import window_programs
from benchmarks.contenders.flink_api import (
    PYFLINK,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    record,
)
from benchmarks.contenders.progress import Progress
from benchmarks.contenders.window_programs import LONG, Shape, longs
from benchmarks.workloads.catalogue import (
    CLOSING_KEY,
    FLUSH_AT,
    REGIONS,
    RULES,
    TTL_MS,
    WINDOW_MS,
    Workload,
)

RULE_STATE = MapStateDescriptor("rules", LONG, LONG)
ByKey = Callable[[Any], Any]


class Least(FlatMapFunction):
    """Every record with the least value of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.least = runtime_context.get_state(ValueStateDescriptor("least", LONG))

    def flat_map(self, value: Any) -> Any:
        """Compare with the least value so far."""
        least = self.least.value()
        if least is None or value[1] < least:
            least = value[1]
            self.least.update(least)
        yield record(value[0], value[1], least)


class Distinct(KeyedProcessFunction):
    """A user of a site, the first time on a day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        descriptor = MapStateDescriptor("seen", LONG, Types.BOOLEAN())
        ttl = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))
        descriptor.enable_time_to_live(ttl.build())
        self.seen = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Emit who is new."""
        user = value[2] * 1_000_000 + value[1]
        if not self.seen.contains(user):
            self.seen.put(user, True)
            yield record(value[0], value[1], value[2])


class Flush(FlatMapFunction):
    """The average of every so many values of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the states."""
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", LONG))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def flat_map(self, value: Any) -> Any:
        """Append, and flush when there are enough."""
        count = (self.count.value() or 0) + 1
        self.values.add(value[1])
        if count == FLUSH_AT:
            yield record(value[0], sum(self.values.get()) // FLUSH_AT)
            self.values.clear()
            self.count.clear()
        else:
            self.count.update(count)


class Matches(KeyedBroadcastProcessFunction):
    """A match of a record's rule, with the number of matches of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Look the rule up."""
        rule = value[1] % RULES
        threshold = ctx.get_broadcast_state(RULE_STATE).get(rule)
        if threshold is not None and value[1] >= threshold:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            yield record(value[0], rule, count)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        """Take a rule."""
        ctx.get_broadcast_state(RULE_STATE).put(value[0], value[1])
        return ()


class ByRegion(FlatMapFunction):
    """Counts the records of a region."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def flat_map(self, value: Any) -> Any:
        """Count."""
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield record(value[1] % REGIONS, count, value[0], value[2])


class Wide(FlatMapFunction):
    """Every wide record with the least value of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.least = runtime_context.get_state(ValueStateDescriptor("least", LONG))

    def flat_map(self, value: Any) -> Any:
        """Compare with the least value so far."""
        least = self.least.value()
        if least is None or value[1] < least:
            least = value[1]
            self.least.update(least)
        yield record(*value, least)


class EventTime(TimestampAssigner):
    """One of the fields is the time."""

    def __init__(self, field: int) -> None:
        """Remember which."""
        self.field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return it."""
        return int(value[self.field])


class Windows(KeyedProcessFunction):
    """Counts records in windows, each ended by a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Register the state."""
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", LONG, LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Count, and ask to be called at the end of the window."""
        if value[0] == CLOSING_KEY:
            return
        end = value[1] - value[1] % WINDOW_MS + WINDOW_MS
        count = self.counts.get(end)
        if count is None:
            count = 0
            ctx.timer_service().register_event_time_timer(end)
        self.counts.put(end, count + 1)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        """Emit the count of the window."""
        count = self.counts.get(timestamp)
        self.counts.remove(timestamp)
        yield record(ctx.get_current_key(), timestamp, count)


class Passing(FilterFunction):
    """Notes progress, and lets nothing pass: what has come this far is the result."""

    def __init__(self, directory: str, groups: Any, shape: Shape | None = None) -> None:
        """Remember where to note, and what the checksum covers, of rows of which shape."""
        self.directory = directory
        self.groups = groups
        self.shape = shape

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin."""
        self.progress = Progress(self.directory, self.groups)

    def filter(self, value: Any) -> bool:
        """Count what is of a real key."""
        if value[0] != CLOSING_KEY:
            if self.shape is None:
                self.progress.row(value)
            else:
                self.progress.batch(list(self.shape(tuple(value))))
        return False

    def close(self) -> None:
        """End."""
        self.progress.close()


class Counting(Passing):
    """Notes progress, and lets everything pass."""

    def filter(self, value: Any) -> bool:
        """Count."""
        self.progress.row(value)
        return True


def passing(workload: Workload, directory: str, verify: bool) -> Passing:
    """Return what stands behind the work of a workload."""
    if not verify:
        return Passing(directory, None)
    return Passing(directory, workload.groups, window_programs.SHAPES.get(workload.kind))


def wide_type() -> Any:
    """Return the type of the result of the wide workload."""
    text, real = Types.STRING(), Types.DOUBLE()
    return Types.ROW([text, LONG, text, text, text, real, real, LONG, LONG, LONG])


def with_time(stream: Any, workload: Workload) -> Any:
    """Return a stream in event time: the last field is the time."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    field = len(workload.columns) - 1
    # In Weir a field is enough, and rows stay columns.
    assigner = EventTime(field) if PYFLINK else field
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(assigner))


def build(workload: Workload, stream: Any, rules: Any, by_key: ByKey, verify: bool) -> Any:
    """Return the stream of results of a workload; timers and windows want one in event time."""
    kind = workload.kind
    keyed = stream.key_by(by_key, Types.STRING() if kind == "wide" else LONG)
    if workload.is_windowed:
        return window_programs.build(kind, keyed, verify)
    if kind == "rules":
        connected = keyed.connect(rules.broadcast(RULE_STATE))
        return connected.process(Matches(), longs(3)).uid("work")
    if kind == "stages":
        first = keyed.flat_map(Least(), longs(3)).uid("first")
        regions = first.key_by(lambda row: row[1] % REGIONS, LONG)
        return regions.flat_map(ByRegion(), longs(4)).uid("work")
    if kind == "sum":
        return keyed.sum(1).uid("work")
    if kind == "reduce":
        return keyed.reduce(lambda a, b: record(a[0], a[1] + b[1])).uid("work")
    if kind in ("distinct", "timers"):
        function = Distinct() if kind == "distinct" else Windows()
        return keyed.process(function, longs(3)).uid("work")
    if kind == "wide":
        return keyed.flat_map(Wide(), wide_type()).uid("work")
    function, width = (Least(), 3) if kind == "least" else (Flush(), 2)
    return keyed.flat_map(function, longs(width)).uid("work")
