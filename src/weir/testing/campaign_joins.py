"""Joins in the crash campaign: in windows, grouped in windows, in sessions, by interval.

No record of either stream is later than the watermark, so there is one right answer, however epochs
are cut and whichever stream is read first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream import ProcessJoinFunction, StreamExecutionEnvironment
from weir.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
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
from weir.testing.campaign_windows import EVENT, STEP_MS, Event, sessions_of, strategy
from weir.testing.campaign_world import WorldFileSystem
from weir.testing.harness import collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

SIZE_MS: Final = 20
GAP_MS: Final = 9
LOWER_MS: Final = -8
UPPER_MS: Final = 6
RIGHT_EVENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.LONG()])
RightEvent = tuple[str, int, str, int]


def left_events(scenario: Scenario) -> list[Event]:
    """Return the first stream: (number, key, timestamp), a little out of order."""
    count = scenario.events + scenario.events // 2
    return [(n, "ab"[n * n % 3 % 2], n * STEP_MS - (0, 6)[n % 2]) for n in range(count)]


def right_events(scenario: Scenario) -> list[RightEvent]:
    """Return the second stream, of another type: ("r", number, key, timestamp)."""
    count = scenario.events + scenario.rules
    return [("r", n, "abc"[n % 3], n * (STEP_MS + 1) - (4, 0)[n % 2]) for n in range(count)]


def _group(first: list[Event], second: list[RightEvent]) -> Iterator[Any]:
    yield "group", _numbers(first), tuple(sorted(n for _, n, *_ in second))


def _numbers(found: list[Event]) -> tuple[int, ...]:
    return tuple(sorted(n for n, *_ in found))


class Pairs(ProcessJoinFunction):
    """Tells the numbers of a pair, and the later of the two times."""

    def process_element(self, left: Event, right: RightEvent, ctx: Any) -> Iterator[Any]:
        """Give one record."""
        yield left[0], right[1], ctx.get_timestamp()


def build(world: str, scenario: Scenario) -> StreamGraph:
    """Return the program, writing to the disk of a world."""
    env = StreamExecutionEnvironment()
    left = env.from_collection(left_events(scenario), EVENT).uid("left")
    right = env.from_collection(right_events(scenario), RIGHT_EVENT).uid("right")
    first = left.assign_timestamps_and_watermarks(strategy())
    second = right.assign_timestamps_and_watermarks(strategy())
    key = Types.STRING()
    grouped = (
        first.co_group(second)
        .where(lambda e: e[1], key)
        .equal_to(lambda e: e[2], key)
        .window(TumblingEventTimeWindows.of(SIZE_MS))
        .apply(_group)
        .uid("grouped")
    )
    joined = (
        first.join(second)
        .where(lambda e: e[1], key)
        .equal_to(lambda e: e[2], key)
        .window(EventTimeSessionWindows.with_gap(GAP_MS))
        .apply(lambda a, b: ("joined", a[0], b[1]))
        .uid("joined")
    )
    pairs = (
        first.key_by(lambda e: e[1], key)
        .interval_join(second.key_by(lambda e: e[2], key))
        .between(LOWER_MS, UPPER_MS)
        .process(Pairs())
        .uid("pairs")
    )
    file_system: Any = WorldFileSystem(world)
    text = grouped.union(joined)
    text.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(file_system)).uid("text")
    pairs.sink_to(ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, file_system)).uid("transactions")
    collect(pairs)
    return env.build_graph("campaign of joins")


def expected(scenario: Scenario) -> tuple[list[Any], list[Any]]:
    """Return the records of both sinks, by going through all pairs."""
    left, right = left_events(scenario), right_events(scenario)
    groups: dict[tuple[str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, key, time in left:
        groups[key, time // SIZE_MS][0].append(number)
    for _, number, key, time in right:
        groups[key, time // SIZE_MS][1].append(number)
    text: list[Any] = [("group", tuple(a), tuple(b)) for a, b in groups.values()]
    # Sides are told apart by sign; both count from 0.
    both = [*left, *((-1 - n, key, time) for _, n, key, time in right)]
    for *_, numbers in sessions_of(both, GAP_MS):
        own, others = [n for n in numbers if n >= 0], [-1 - n for n in numbers if n < 0]
        text += [("joined", a, b) for a in own for b in others]
    pairs = [
        (a, b, max(at, bt))
        for a, key, at in left
        for _, b, other, bt in right
        if key == other and LOWER_MS <= bt - at <= UPPER_MS
    ]
    return text, pairs


def _problems(scenario: Scenario, seen: Seen) -> list[str]:
    return exactly(*expected(scenario), seen)


def _lost(scenario: Scenario, seen: Seen) -> list[str]:
    """Return the events that are in no group, and the pairs that nobody made."""
    groups = [r for r in records(seen.text) if r[0] == "group"]
    shown = {n for r in groups for n in r[1]}
    others = {n for r in groups for n in r[2]}
    lost = [f"left event {n}" for n, *_ in left_events(scenario) if n not in shown]
    lost += [f"right event {n}" for _, n, *_ in right_events(scenario) if n not in others]
    made = set(seen.transactions)
    lost += [f"pair {pair}" for pair in expected(scenario)[1] if repr(pair) not in made]
    return [f"lost {what}" for what in lost]


JOINS = Program(build, _problems, _lost, ends_empty=("grouped", "joined", "pairs"))
