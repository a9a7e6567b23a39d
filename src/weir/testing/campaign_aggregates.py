"""Windows over columns in the crash campaign, and those that fire by other rules than their end.

The number of an event is a power of two, so a sum tells which events are in it, each once. No event
is later than the watermark says, so sums, counts and the like have one right answer, however epochs
are cut. Two things depend on epochs, and are checked as far as they do not: a window that fires
while it fills shows the beginning of what it holds in the end, and what windows of the clock have
shown in all is the beginning of a key's events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any, Final

from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream import CountAggregate, ProcessWindowFunction, StreamExecutionEnvironment
from weir.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
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
from weir.testing.campaign_windows import (
    BOUND_MS,
    EVENT,
    SLIDE_MS,
    STEP_MS,
    WIDE_MS,
    Event,
    aligned,
    strategy,
)
from weir.testing.campaign_world import WorldFileSystem
from weir.testing.harness import collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

CLOCK_MS: Final = 15
FIRES_EVERY_MS: Final = 10
LAST: Final = 4
EACH: Final = 2
_FREE = ("stepwise", "clocked")


def events(scenario: Scenario) -> list[Event]:
    """Return the input: (2 to the power of its number, key, timestamp), a little out of order.

    Events that follow each other often have one key, so that there are rows to combine.
    """
    count = scenario.events + 8
    return [
        (1 << n, "abc"[n % 9 // 3], n * STEP_MS - (0, BOUND_MS, 3)[n % 3]) for n in range(count)
    ]


class Shown(ProcessWindowFunction[Any, Any, Any, Any]):
    """Tells the window and what it holds; of an event its number."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        """Give one record."""
        window = context.window()
        bounds = (window.start, window.end) if hasattr(window, "start") else ()
        held = tuple(e[0] if isinstance(e, tuple) else e for e in elements)
        yield self._name, key, *bounds, held


def build(world: str, scenario: Scenario) -> StreamGraph:
    """Return the program, writing to the disk of a world."""
    env = StreamExecutionEnvironment()
    source = env.from_collection(events(scenario), EVENT).uid("events")
    timed = source.assign_timestamps_and_watermarks(strategy())
    keyed = timed.key_by(lambda e: e[1], Types.STRING())
    tumbling, sliding = TumblingEventTimeWindows, SlidingEventTimeWindows
    summed = keyed.window(tumbling.of(WIDE_MS)).sum(0).uid("summed")
    greatest = keyed.window(tumbling.of(WIDE_MS)).max_by(0).uid("greatest")
    least = keyed.window(sliding.of(WIDE_MS, SLIDE_MS)).min(2).uid("least")
    counts = (
        keyed.window(sliding.of(WIDE_MS, SLIDE_MS))
        .aggregate(CountAggregate(), Shown("counts"))
        .uid("counts")
    )
    last = (
        keyed.window(GlobalWindows.create())
        .trigger(CountTrigger.of(EACH))
        .evictor(CountEvictor.of(LAST))
        .process(Shown("last"))
        .uid("last")
    )
    stepwise = (
        keyed.window(tumbling.of(WIDE_MS))
        .trigger(ContinuousEventTimeTrigger.of(FIRES_EVERY_MS))
        .process(Shown("stepwise"))
        .uid("stepwise")
    )
    clocked = keyed.window(TumblingProcessingTimeWindows.of(CLOCK_MS)).sum(0).uid("clocked")
    named = [
        greatest.map(lambda e: ("greatest", e[1], e[0])),
        least.map(lambda e: ("least", e[1], e[0], e[2])),
        clocked.map(lambda e: ("clocked", e[1], e[0])),
    ]
    text = counts.union(last, stepwise, *named)
    file_system: Any = WorldFileSystem(world)
    text.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(file_system)).uid("text")
    totals = summed.map(lambda e: (e[1], e[0]))
    totals.sink_to(ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, file_system)).uid("transactions")
    collect(totals)
    return env.build_graph("campaign of aggregates")


# ---- the right answer


def _windows(scenario: Scenario, size: int, slide: int) -> dict[tuple[str, int], list[Event]]:
    """Return the events of each key and window, in the order in which they come."""
    found: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events(scenario):
        for start in aligned(event[2], size, slide):
            found[event[1], start].append(event)
    return found


def _by_key(scenario: Scenario) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for number, key, _ in events(scenario):
        found[key].append(number)
    return found


def expected(scenario: Scenario) -> tuple[list[Any], list[Any]]:
    """Return what has one right answer: records of the text sink, and of the other one."""
    tumbling = _windows(scenario, WIDE_MS, WIDE_MS)
    sliding = _windows(scenario, WIDE_MS, SLIDE_MS)
    text: list[Any] = []
    for (key, _), held in tumbling.items():
        text.append(("greatest", key, max(number for number, *_ in held)))
    for (key, start), held in sliding.items():
        text.append(("least", key, held[0][0], min(time for *_, time in held)))
        text.append(("counts", key, start, start + WIDE_MS, (len(held),)))
    for key, numbers in _by_key(scenario).items():
        ends = range(EACH, len(numbers) + 1, EACH)
        text += [("last", key, tuple(numbers[max(0, end - LAST) : end])) for end in ends]
    totals = [(key, sum(number for number, *_ in held)) for (key, _), held in tumbling.items()]
    return text, totals


def _problems(scenario: Scenario, seen: Seen) -> list[str]:
    found = records(seen.text)
    fixed = [str(record) for record in found if record[0] not in _FREE]
    text, totals = expected(scenario)
    problems = exactly(text, totals, Seen(fixed, seen.transactions, seen.collected, seen.partly))
    return problems + _steps_that_are_wrong(scenario, found) + _clocks_that_err(scenario, found)


def _steps_that_are_wrong(scenario: Scenario, found: list[Any]) -> list[str]:
    """Check windows that fire while they fill: each firing goes on from the one before."""
    firings: dict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
    for _, key, start, _, held in (r for r in found if r[0] == "stepwise"):
        firings[key, start].append(held)
    members = _windows(scenario, WIDE_MS, WIDE_MS)
    problems = []
    for window in {*members, *firings}:
        fired = sorted(firings[window], key=len)
        whole = tuple(number for number, *_ in members.get(window, ()))
        goes_on = all(b[: len(a)] == a for a, b in pairwise(fired))
        if not fired or not goes_on or fired[-1] != whole:
            problems.append(f"stepwise {window}: {whole} fired {fired}")
    return problems


def _clocks_that_err(scenario: Scenario, found: list[Any]) -> list[str]:
    """Check windows of the clock: the last ones of a key do not fire at the end of input."""
    totals: dict[str, int] = defaultdict(int)
    for _, key, total in (r for r in found if r[0] == "clocked"):
        totals[key] += total
    beginnings = {key: [0, *accumulate(own)] for key, own in _by_key(scenario).items()}
    return [
        f"clocked {key}: fired {total:b} in all"
        for key, total in totals.items()
        if total not in beginnings.get(key, ())
    ]


def _lost(scenario: Scenario, seen: Seen) -> list[str]:
    """Return the events that are in no window, and the windows without their greatest event."""
    found = records(seen.text)
    shown = {number for r in found if r[0] == "stepwise" for number in r[4]}
    lost = [number for number, *_ in events(scenario) if number not in shown]
    wanted = [record for record in expected(scenario)[0] if record[0] == "greatest"]
    problems = [f"text sink: lost event {number} of stepwise" for number in lost]
    return problems + [f"text sink: lost {record}" for record in wanted if record not in found]


AGGREGATES = Program(
    build, _problems, _lost, ends_empty=("summed", "greatest", "least", "counts", "stepwise")
)
