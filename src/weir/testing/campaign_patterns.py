"""Patterns in the crash campaign: one that times out, and one whose matches may be far apart.

No event is later than the watermark and no two have the same time, so there is one right answer,
however epochs are cut.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern
from weir.common.time import Duration
from weir.common.typeinfo import Types
from weir.connector.file_sink import FileSink
from weir.datastream import OutputTag, StreamExecutionEnvironment
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
from weir.testing.campaign_windows import BOUND_MS, STEP_MS, strategy
from weir.testing.campaign_world import WorldFileSystem
from weir.testing.harness import collect
from weir.testing.sink_conformance import ReferenceTwoPhaseSink

WITHIN_MS: Final = 25
EVENT = Types.TUPLE([Types.LONG(), Types.STRING(), Types.STRING(), Types.LONG()])
TIMED_OUT = OutputTag("timed-out", Types.PICKLED_BYTE_ARRAY())
Event = tuple[int, str, str, int]


def events(scenario: Scenario) -> list[Event]:
    """Return the input: (number, key, letter, timestamp), a little out of order."""
    count = scenario.events + 8
    return [
        (n, "abc"[n * n % 7 % 3], "xyz"[n * n % 11 % 3], n * STEP_MS - (0, BOUND_MS, 3)[n % 3])
        for n in range(count)
    ]


def _match(match: dict[str, list[Event]]) -> Any:
    return "match", *(n for found in match.values() for n, *_ in found)


def _timed_out(match: dict[str, list[Event]], time: int) -> Any:
    return "timed out", match["first"][0][0], time


def build(world: str, scenario: Scenario) -> StreamGraph:
    """Return the program, writing to the disk of a world."""
    env = StreamExecutionEnvironment()
    source = env.from_collection(events(scenario), EVENT).uid("events")
    keyed = source.assign_timestamps_and_watermarks(strategy()).key_by(
        lambda e: e[1], Types.STRING()
    )
    soon = (
        Pattern.begin("first")
        .where(lambda e: e[2] == "x")
        .followed_by("second")
        .where(lambda e: e[2] == "y")
        .within(Duration.of_millis(WITHIN_MS))
    )
    found = CEP.pattern(keyed, soon).select(_match, None, TIMED_OUT, _timed_out).uid("soon")
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    twice = Pattern.begin("both", skip).where(lambda e: e[2] == "z").times(2)
    pairs = CEP.pattern(keyed, twice).select(_match).uid("twice")
    file_system: Any = WorldFileSystem(world)
    text = found.union(found.get_side_output(TIMED_OUT).map(lambda r: r))
    text.sink_to(FileSink.text(TEXT_FOLDER).with_file_system(file_system)).uid("text")
    pairs.sink_to(ReferenceTwoPhaseSink(TRANSACTIONS_FOLDER, file_system)).uid("transactions")
    collect(pairs)
    return env.build_graph("campaign of patterns")


def expected(scenario: Scenario) -> tuple[list[Any], list[Any]]:
    """Return the records of both sinks, by looking along the events of each key."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events(scenario), key=lambda e: e[3]):
        by_key[event[1]].append(event)
    text: list[Any] = []
    pairs: list[Any] = []
    for own in by_key.values():
        for i, (number, _, letter, time) in enumerate(own):
            if letter == "x":
                after = [e for e in own[i + 1 :] if e[2] == "y" and e[3] - time < WITHIN_MS]
                ended = ("timed out", number, time + WITHIN_MS)
                text.append(("match", number, after[0][0]) if after else ended)
        last = [number for number, _, letter, _ in own if letter == "z"]
        pairs += [("match", *last[i : i + 2]) for i in range(0, len(last) - 1, 2)]
    return text, pairs


def _problems(scenario: Scenario, seen: Seen) -> list[str]:
    return exactly(*expected(scenario), seen)


def _lost(scenario: Scenario, seen: Seen) -> list[str]:
    """Return the first events of matches, found or timed out, that left no trace."""
    shown = {record[1] for record in records(seen.text)}
    firsts = [n for n, _, letter, _ in events(scenario) if letter == "x"]
    return [f"text sink: lost the match of event {n}" for n in firsts if n not in shown]


PATTERNS = Program(build, _problems, _lost, ends_empty=("soon",))
