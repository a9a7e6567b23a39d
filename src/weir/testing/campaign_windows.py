"""Windows in the crash campaign: aligned, sessions, counted, one behind the other, late records.

Most events are at most `BOUND_MS` late, so windows of those have one right answer, however epochs
are cut. Every fifth is later than that. Whether a window still takes it depends on epochs; but a
window lives once, fires with all it has, and a record is in it or in the side output, never in both
and never in neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import Any, Final

from weir.common.time import Duration
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from weir.connector.decoder import Partition
from weir.connector.file_sink import FileSink
from weir.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from weir.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
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
from weir.testing.campaign_world import WorldFileSystem
from weir.testing.harness import collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

STEP_MS: Final = 5
BOUND_MS: Final = 7
SIZE_MS: Final = 10
LATENESS_MS: Final = 5
SLIDE_MS: Final = 15
WIDE_MS: Final = 30
GAP_MS: Final = 13
COUNT: Final = 2
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
LATE_TO_SESSIONS = OutputTag("late-to-sessions", Types.PICKLED_BYTE_ARRAY())
EVENT = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
Event = tuple[int, str, int]


def events(scenario: Scenario) -> list[Event]:
    """Return the input: (number, key, timestamp); no two have the same time."""
    return [(n, "abc"[n * n % 7 % 3], _time(n)) for n in range(scenario.events + 8)]


def _time(number: int) -> int:
    if is_punctual(number):
        return number * STEP_MS - (0, BOUND_MS, 3)[number % 3]
    return number * STEP_MS - (21, 41)[number % 2]


def partition_of(event: Event) -> Partition:
    """Tell the partition of the source that an event is of: each has a watermark."""
    return Partition(str(event[0] % 2))


def is_punctual(number: int) -> bool:
    """Tell whether an event comes before the watermark says that it is late."""
    return number % 5 != 1


class Timestamps(TimestampAssigner):
    """Takes the time out of an event, which is its last field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event's time."""
        return int(value[-1])


def strategy() -> WatermarkStrategy:
    """Return how event time follows from events."""
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    return bounded.with_timestamp_assigner(Timestamps())


class Numbers(ProcessWindowFunction[Any, Any, Any, Any]):
    """Tells the window and the numbers in it, and how often it has fired."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, key: Any, context: Any, elements: Iterable[Event]) -> Iterator[Any]:
        """Give one record."""
        window = context.window()
        yield self._name, key, window.start, window.end, tuple(number for number, *_ in elements)


def _summed(a: Event, b: Event) -> Event:
    return a[0] + b[0], a[1], b[2]


def _added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return "wide", a[1], 0, 0, (a[4][0] + b[4][0],)


def build(world: str, scenario: Scenario) -> StreamGraph:
    """Return the program, writing to the disk of a world."""
    env = StreamExecutionEnvironment()
    source = env.from_collection(events(scenario), EVENT).uid("events")
    timed = source.assign_timestamps_and_watermarks(strategy())
    every = timed.key_by(lambda e: e[1], Types.STRING())
    punctual = timed.filter(lambda e: is_punctual(e[0])).key_by(lambda e: e[1], Types.STRING())
    tumbling = (
        every.window(TumblingEventTimeWindows.of(SIZE_MS))
        .allowed_lateness(LATENESS_MS)
        .side_output_late_data(LATE)
        .process(Numbers("tumbling"))
        .uid("tumbling")
    )
    late_sessions = (
        every.window(EventTimeSessionWindows.with_gap(SIZE_MS))
        .allowed_lateness(LATENESS_MS)
        .side_output_late_data(LATE_TO_SESSIONS)
        .process(Numbers("late-session"))
        .uid("late-sessions")
    )
    sessions = (
        punctual.window(EventTimeSessionWindows.with_gap(GAP_MS))
        .process(Numbers("session"))
        .uid("sessions")
    )
    counted = punctual.count_window(COUNT).reduce(_summed).uid("counted")
    sliding = (
        punctual.window(SlidingEventTimeWindows.of(WIDE_MS, SLIDE_MS))
        .reduce(_summed, Numbers("sliding"))
        .uid("sliding")
    )
    wide = (
        sliding.key_by(lambda r: r[1], Types.STRING())
        .window(TumblingEventTimeWindows.of(2 * WIDE_MS))
        .reduce(_added)
        .uid("wide")
    )
    late = tumbling.get_side_output(LATE).map(lambda e: ("late", e[0]))
    aside = late_sessions.get_side_output(LATE_TO_SESSIONS)
    further = [late_sessions, late, aside.map(lambda e: ("late-to-sessions", e[0])), sessions]
    text = sliding.union(tumbling, counted.map(lambda e: ("counted", e[1], e[0])), *further)
    file_system: Any = WorldFileSystem(world)
    text.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(file_system)).uid("text")
    summed = wide.map(lambda r: (r[1], r[4][0]))
    summed.sink_to(ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, file_system)).uid("transactions")
    collect(summed)
    return env.build_graph("campaign of windows")


# ---- the right answer


def aligned(time: int, size: int, slide: int) -> list[int]:
    """Return the starts of the windows of a time."""
    latest = time // slide * slide
    return [s for s in range(latest, latest - size, -slide) if s <= time < s + size]


def sessions_of(found: Iterable[Event], gap: int) -> list[tuple[str, int, int, tuple[int, ...]]]:
    """Return sessions as (key, start, end, numbers in order of number)."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in found:
        by_key[event[1]].append(event)
    sessions = []
    for key, own in by_key.items():
        ordered = sorted(own, key=lambda e: e[2])
        groups = [[ordered[0]]]
        for event in ordered[1:]:
            if event[2] - groups[-1][-1][2] <= gap:
                groups[-1].append(event)
            else:
                groups.append([event])
        for group in groups:
            numbers = tuple(sorted(n for n, *_ in group))
            sessions.append((key, group[0][2], group[-1][2] + gap, numbers))
    return sessions


def expected(scenario: Scenario) -> tuple[list[Any], list[Any]]:
    """Return what has one right answer: records of the text sink, and of the other one."""
    punctual = [e for e in events(scenario) if is_punctual(e[0])]
    sums: dict[tuple[str, int], int] = defaultdict(int)
    counts: dict[str, list[int]] = defaultdict(list)
    for number, key, time in punctual:
        counts[key].append(number)
        for start in aligned(time, WIDE_MS, SLIDE_MS):
            sums[key, start] += number
    wide: dict[tuple[str, int], int] = defaultdict(int)
    text: list[Any] = [("session", *session) for session in sessions_of(punctual, GAP_MS)]
    for (key, start), total in sums.items():
        text.append(("sliding", key, start, start + WIDE_MS, (total,)))
        # The result of a window is in the window behind it in which its last moment is.
        wide[key, (start + WIDE_MS - 1) // (2 * WIDE_MS)] += total
    for key, numbers in counts.items():
        whole = len(numbers) // COUNT * COUNT
        firsts = range(0, whole, COUNT)
        text += [("counted", key, sum(numbers[i : i + COUNT])) for i in firsts]
    return text, [(key, total) for (key, _), total in wide.items()]


def _problems(scenario: Scenario, seen: Seen) -> list[str]:
    found = records(seen.text)
    text, transactions = expected(scenario)
    free = ("tumbling", "late", "late-session", "late-to-sessions")
    # Merged windows hold their records in the order in which they were merged.
    fixed = [_sorted(r) if r[0] == "session" else r for r in found if r[0] not in free]
    fixed_seen = Seen([str(r) for r in fixed], seen.transactions, seen.collected, seen.partly)
    problems = exactly(text, transactions, fixed_seen)
    problems += _windows_that_live_twice(scenario, found)
    return problems + _sessions_that_live_twice(scenario, found)


def _sorted(record: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*record[:-1], tuple(sorted(record[-1])))


def _windows_that_live_twice(scenario: Scenario, found: list[Any]) -> list[str]:
    """Check tumbling windows: firings grow by one late record each; the rest came too late."""
    members: dict[tuple[str, int], list[int]] = defaultdict(list)
    firings: dict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
    for number, key, time in events(scenario):
        members[key, aligned(time, SIZE_MS, SIZE_MS)[0]].append(number)
    for _, key, start, _, numbers in (r for r in found if r[0] == "tumbling"):
        firings[key, start].append(numbers)
    late = [r[1] for r in found if r[0] == "late"]
    problems = []
    for window in {*members, *firings}:
        fired = sorted(firings[window], key=len)
        last = fired[-1] if fired else ()
        grown = all(b[:-1] == a for a, b in pairwise(fired))
        left = [n for n in late if n in members[window]]
        if not grown or sorted([*last, *left]) != members[window]:
            problems.append(f"tumbling {window}: {members[window]} fired {fired}, late {left}")
    return problems


def _sessions_that_live_twice(scenario: Scenario, found: list[Any]) -> list[str]:
    """Check sessions with late records: those that share one are stages of one session."""
    times = {number: time for number, _, time in events(scenario)}
    keys = {number: key for number, key, _ in events(scenario)}
    late = [r[1] for r in found if r[0] == "late-to-sessions"]
    fired = [r for r in found if r[0] == "late-session"]
    problems = []
    for _, key, start, end, numbers in fired:
        moments = [times[n] for n in numbers]
        if (start, end) != (min(moments), max(moments) + SIZE_MS) or {key} != {
            keys[n] for n in numbers
        }:
            problems.append(f"late-session {key} {start}-{end} holds {numbers}")
    stages = sorted((set(r[4]) for r in fired), key=len)
    problems += [
        f"late-session: {smaller} and {larger} share records"
        for smaller, larger in combinations(stages, 2)
        if smaller & larger and not smaller < larger
    ]
    taken: set[int] = set().union(*stages)
    if len(late) != len(set(late)) or taken & set(late) or taken | set(late) != set(times):
        problems.append(f"late-session: took {sorted(taken)}, late {sorted(late)}")
    return problems


def _lost(scenario: Scenario, seen: Seen) -> list[str]:
    """Return the events that are in no window and in no side output."""
    found = records(seen.text)
    problems = []
    for fired, aside in (("tumbling", "late"), ("late-session", "late-to-sessions")):
        shown = {n for r in found if r[0] == fired for n in r[4]}
        shown |= {r[1] for r in found if r[0] == aside}
        lost = [n for n, *_ in events(scenario) if n not in shown]
        problems += [f"text sink: lost event {n} of {fired}" for n in lost]
    return problems


WINDOWS = Program(
    build,
    _problems,
    _lost,
    ends_empty=("tumbling", "late-sessions", "sessions", "sliding", "wide"),
    partition_of=partition_of,
)
