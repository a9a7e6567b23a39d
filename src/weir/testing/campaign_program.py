"""The first program of the crash campaign: keyed state, timers, broadcast state, two sinks.

Its results depend on the order of records within a key and on nothing else: not on epochs,
partitions, parallelism or the moments of checkpoints. So there is one right answer for an input,
whatever happens on the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from weir.common.typeinfo import Types
from weir.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from weir.connector.file_sink import FileSink
from weir.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.graph.transformation import StreamGraph
from weir.testing.campaign_checks import (
    TEXT_FOLDER,
    TRANSACTIONS_FOLDER,
    Program,
    Seen,
    exactly,
    records,
)
from weir.testing.campaign_scenario import Scenario
from weir.testing.campaign_world import WorldFileSystem
from weir.testing.harness import collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

WINDOW_MS = 10
END_OF_TIME = 1 << 50
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
Event = tuple[int, str, int, int]


def events(count: int) -> list[Event]:
    """Return the input: (number, key, item, timestamp), in order of time."""
    return [(n, "abcde"[n * n % 5], n % 3, n * 4) for n in range(count)]


def rules(count: int) -> list[int]:
    """Return the broadcast input."""
    return list(range(count))


class Timestamps(TimestampAssigner):
    """Takes the time out of an event."""

    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        """Return the event's time."""
        return value[3]


class Totals(KeyedProcessFunction):
    """Running totals, distinct items and windows by timer, per key."""

    def open(self, runtime_context: Any) -> None:
        """Register the states."""
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._items = runtime_context.get_map_state(
            MapStateDescriptor("items", Types.LONG(), Types.LONG())
        )
        self._windows = runtime_context.get_map_state(
            MapStateDescriptor("windows", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: Event, ctx: Any) -> Iterator[Any]:
        """Count, and set the timer of the event's window."""
        number, key, item, time = value
        total = (self._total.value() or 0) + number
        self._total.update(total)
        self._items.put(item, (self._items.get(item) or 0) + 1)
        end = (time // WINDOW_MS + 1) * WINDOW_MS
        self._windows.put(end, (self._windows.get(end) or 0) + 1)
        ctx.timer_service().register_event_time_timer(end)
        yield ("total", key, number, total, len(list(self._items.keys())))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Close a window."""
        count = self._windows.get(timestamp)
        self._windows.remove(timestamp)
        yield ("window", ctx.get_current_key(), timestamp, count, 0)


class Matcher(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Counts results per key, and rules; says both when time ends."""

    def open(self, runtime_context: Any) -> None:
        """Register the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[Any]:
        """Count a rule."""
        state = ctx.get_broadcast_state(RULES)
        state.put(value, (state.get(value) or 0) + 1)
        return iter(())

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Count a result and pass it on."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_event_time_timer(END_OF_TIME)
        yield (value[0], value[1], value[2])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Say what was counted."""
        seen = tuple(sorted(ctx.get_broadcast_state(RULES).items()))
        yield ("end", ctx.get_current_key(), (self._count.value(), seen))


def build(world: str, event_count: int, rule_count: int) -> StreamGraph:
    """Return the program, writing to the disk of a world."""
    env = StreamExecutionEnvironment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Timestamps())
    totals = (
        env.from_collection(events(event_count))
        .uid("events")
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda e: e[1])
        .process(Totals())
        .uid("totals")
    )
    file_system: Any = WorldFileSystem(world)
    totals.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(file_system)).uid("text")
    ruled = env.from_collection(rules(rule_count)).uid("rules").broadcast(RULES)
    matched = totals.key_by(lambda r: r[1]).connect(ruled).process(Matcher()).uid("matcher")
    matched.sink_to(ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, file_system)).uid("transactions")
    collect(matched)
    return env.build_graph("campaign")


def expected(event_count: int, rule_count: int) -> tuple[list[Any], list[Any]]:
    """Return the records of both sinks, computed without any of the engine."""
    total: dict[str, int] = defaultdict(int)
    items: dict[str, set[int]] = defaultdict(set)
    windows: dict[tuple[str, int], int] = defaultdict(int)
    results: list[Any] = []
    for number, key, item, time in events(event_count):
        total[key] += number
        items[key].add(item)
        windows[key, (time // WINDOW_MS + 1) * WINDOW_MS] += 1
        results.append(("total", key, number, total[key], len(items[key])))
    results += [("window", key, end, count, 0) for (key, end), count in windows.items()]
    seen = tuple((rule, 1) for rule in rules(rule_count))
    per_key: dict[str, int] = defaultdict(int)
    for result in results:
        per_key[result[1]] += 1
    matched: list[Any] = [result[:3] for result in results]
    matched += [("end", key, (count, seen)) for key, count in per_key.items()]
    return results, matched


def _build(world: str, scenario: Scenario) -> StreamGraph:
    return build(world, scenario.events, scenario.rules)


def _problems(scenario: Scenario, seen: Seen) -> list[str]:
    return exactly(*expected(scenario.events, scenario.rules), seen)


def _lost(scenario: Scenario, seen: Seen) -> list[str]:
    """Return the events that left no trace; records may be counted twice, so totals may be off."""
    found = {record[2] for record in records(seen.text) if record[0] == "total"}
    return [f"text sink: lost event {n}" for n in range(scenario.events) if n not in found]


TOTALS = Program(_build, _problems, _lost)
