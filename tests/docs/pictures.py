"""The pictures of windows, joins and the like: each shows what the program it is about does.

`python tests/docs/pictures.py --write` writes them to `docs/pictures`, `test_reference.py` compares
them. Nothing is drawn by hand: the programs run here, in the harness, one record in an epoch.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]  # For `python tests/docs/pictures.py`.

from tests.docs.timelines import (  # noqa: E402
    Chain,
    Event,
    Lane,
    Link,
    Picture,
    Span,
    render,
)

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern  # noqa: E402
from weir.common import Duration, Types, WatermarkStrategy  # noqa: E402
from weir.connector.decoder import Partition  # noqa: E402
from weir.datastream import (  # noqa: E402
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.window import (  # noqa: E402
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from weir.testing.harness import HarnessOptions, JobHarness, collect  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
RECORD = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
LATE = OutputTag("late", RECORD)
Record = tuple[str, str, int]
FIVE: list[Record] = [("k", name, at) for name, at in zip("abcde", (1, 4, 5, 11, 12), strict=True)]


class Names(ProcessWindowFunction):
    """Tells who is in a window."""

    def process(self, key: str, context: Any, elements: Any) -> Any:
        """Return the window, as far as it has bounds, and the names in it."""
        window = context.window()
        bounds = getattr(window, "start", 0), getattr(window, "end", 0)
        yield key, *bounds, tuple(element[1] for element in elements)


def timed(env: StreamExecutionEnvironment) -> Any:
    """Return a stream in event time whose records the harness gives."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[2])
    return env.from_collection([], RECORD).assign_timestamps_and_watermarks(strategy)


def by_key(stream: Any) -> Any:
    """Key a stream by the first field."""
    return stream.key_by(lambda record: record[0], Types.STRING())


def play(records: list[Record], build: Callable[[Any], Any]) -> list[tuple[int, Any]]:
    """Run a program, one record in an epoch.

    Returns its results, each with the number of the record behind which it came; those that came
    only with the end of the input have the number behind the last.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    handle = collect(build(timed(env)))
    job = JobHarness(env.build_graph(), parallelism=1).start()
    found: list[tuple[int, Any]] = []
    for number, record in enumerate(records):
        job.run_epoch([record])
        found += [(number, result) for result in job.collected(handle)[len(found) :]]
    job.finish()
    return found + [(len(records), result) for result in job.collected(handle)[len(found) :]]


def windows_of(assigner: Any, records: list[Record] = FIVE) -> tuple[Span, ...]:
    """Return the windows that records get, with their names."""
    results = play(records, lambda stream: by_key(stream).window(assigner).process(Names()))
    spans = [Span(start, end, " ".join(names)) for _, (_, start, end, names) in results]
    return tuple(sorted(spans, key=lambda span: span.start))


def dots(records: list[Record], kind: str = "event") -> tuple[Event, ...]:
    """Return records at their times."""
    return tuple(Event(at, name, kind) for _, name, at in records)


def tumbling() -> Picture:
    """Windows that follow each other."""
    return Picture(
        "Five records in tumbling windows of 5 ms, without and with an offset of 2 ms",
        *(-3, 17),
        (
            Lane("records", dots(FIVE)),
            Lane("tumbling\nof(5)", windows_of(TumblingEventTimeWindows.of(5))),
            Lane("with an offset\nof(5, 2)", windows_of(TumblingEventTimeWindows.of(5, 2))),
        ),
    )


def sliding() -> Picture:
    """Windows that overlap, and windows with gaps between them."""
    return Picture(
        "Five records in sliding windows: of 6 ms every 2 ms, and of 2 ms every 4 ms",
        *(-4, 18),
        (
            Lane("records", dots(FIVE)),
            Lane("overlapping\nof(6, 2)", windows_of(SlidingEventTimeWindows.of(6, 2))),
            Lane("with gaps\nof(2, 4)", windows_of(SlidingEventTimeWindows.of(2, 4))),
        ),
    )


def sessions() -> Picture:
    """Windows as long as records are close."""
    gaps = tuple(Span(at, at + 3, name, "faint") for _, name, at in FIVE)
    return Picture(
        "Five records in sessions with a gap of 3 ms: gaps that overlap or touch are one session",
        *(0, 17),
        (
            Lane("records", dots(FIVE)),
            Lane("their gaps", gaps),
            Lane("sessions\nwith_gap(3)", windows_of(EventTimeSessionWindows.with_gap(3))),
        ),
    )


NAMES = ("a1", "b1", "a2", "a3", "b2", "a4", "a5", "b3", "a6", "a7")
VISITS: list[Record] = [
    ("ann" if name[0] == "a" else "bob", name, position) for position, name in enumerate(NAMES, 1)
]


def counted(key: str, size: int, slide: int = 0) -> tuple[Span, ...]:
    """Return the count windows of a key, each from its first record to its last."""
    results = play(VISITS, lambda s: by_key(s).count_window(size, slide).process(Names()))
    at = {name: position for _, name, position in VISITS}
    own = [result[3] for _, result in results if result[0] == key]
    return tuple(Span(at[n[0]] - 0.4, at[n[-1]] + 0.4, " ".join(n)) for n in own)


def count() -> Picture:
    """Windows by number."""
    ann, bob = (tuple(v for v in VISITS if v[0] == key) for key in ("ann", "bob"))
    return Picture(
        "Records of two keys in count windows: of three, and of three for every two",
        *(0, 11),
        (
            Lane("records of ann", dots(list(ann))),
            Lane("count_window(3)", counted("ann", 3)),
            Lane("count_window(3, 2)", counted("ann", 3, 2)),
            Lane("records of bob", dots(list(bob), "other")),
            Lane("count_window(3)", counted("bob", 3)),
        ),
    )


def fired(records: list[Record], build: Callable[[Any], Any]) -> tuple[Event, ...]:
    """Return when windows fire, at the times of the records that made them, and with what."""
    times = [at for _, _, at in records]
    times.append(times[-1] + 2)  # the end of the input
    results = play(records, lambda stream: build(by_key(stream)).process(Names()))
    by_time: dict[int, list[str]] = {}
    for number, (_, _, _, names) in results:
        by_time.setdefault(times[number], []).append(" ".join(names))
    return tuple(Event(at, ", ".join(names), "fires") for at, names in by_time.items())


EARLY: list[Record] = [("k", n, at) for n, at in zip("abcdef", (1, 2, 5, 8, 9, 12), strict=True)]


def global_windows() -> Picture:
    """One window for ever, and what makes it fire."""

    def lane(title: str, assigner: Any, trigger: Any = None) -> Lane:
        def build(keyed: Any) -> Any:
            windowed = keyed.window(assigner)
            return windowed.trigger(trigger) if trigger else windowed

        return Lane(title, (*fired(EARLY, build), Span(0, 17, "", "faint")))

    forever = GlobalWindows.create()
    return Picture(
        "Six records in a global window: what its function gets, and when, by four triggers",
        *(0, 17),
        (
            Lane("records", dots(EARLY)),
            Lane("NeverTrigger\nthe default", (Span(0, 17, "", "faint"),)),
            lane("CountTrigger.of(2)", forever, CountTrigger.of(2)),
            lane("PurgingTrigger.of(\nCountTrigger.of(2))", forever, purging()),
            lane(
                "end of stream\n(bounded input)", GlobalWindows.create_with_end_of_stream_trigger()
            ),
        ),
    )


def purging() -> Any:
    """Return a trigger that empties the window."""
    return PurgingTrigger.of(CountTrigger.of(2))


def triggers() -> Picture:
    """A tumbling window, and what makes it fire."""
    chosen = (
        ("EventTimeTrigger\nthe default", EventTimeTrigger.create()),
        ("ContinuousEventTime-\nTrigger.of(3)", ContinuousEventTimeTrigger.of(3)),
        ("CountTrigger.of(2)", CountTrigger.of(2)),
        ("PurgingTrigger.of(\nCountTrigger.of(2))", purging()),
    )

    def lane(title: str, trigger: Any) -> Lane:
        marks = fired(EARLY, lambda k: k.window(TumblingEventTimeWindows.of(10)).trigger(trigger))
        return Lane(title, (*marks, Span(0, 10, "", "faint"), Span(10, 15, "", "faint")))

    return Picture(
        "Six records in tumbling windows of 10 ms: what the function gets, and when, by four "
        "triggers",
        *(0, 15),
        (Lane("records", dots(EARLY)), *(lane(title, trigger) for title, trigger in chosen)),
    )


def evictors() -> Picture:
    """A global window that fires at every second record, and what is left of it."""
    chosen = (
        ("no evictor", None),
        ("CountEvictor.of(3)", CountEvictor.of(3)),
        ("TimeEvictor.of(4)", TimeEvictor.of(4)),
        ("the same, after\nof(4, True)", TimeEvictor.of(4, True)),
        ("DeltaEvictor: less\nthan 5 ms apart", DeltaEvictor.of(5, lambda e, n: n[2] - e[2])),
    )

    def lane(title: str, evictor: Any) -> Lane:
        def build(keyed: Any) -> Any:
            windowed = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
            return windowed if evictor is None else windowed.evictor(evictor)

        return Lane(title, (*fired(EARLY, build), Span(0, 15, "", "faint")))

    return Picture(
        "Six records in a global window that fires at every second one: what its function gets, by "
        "four evictors",
        *(0, 15),
        (Lane("records", dots(EARLY)), *(lane(title, evictor) for title, evictor in chosen)),
    )


ARRIVALS: list[Record] = [
    ("k", n, at) for n, at in zip("abcdefg", (3, 8, 12, 6, 14, 16, 5), strict=True)
]


def lateness() -> Picture:
    """Records that come behind the watermark."""

    def build(stream: Any, late: bool) -> Any:
        windowed = by_key(stream).window(TumblingEventTimeWindows.of(10)).allowed_lateness(5)
        result = windowed.side_output_late_data(LATE).process(Names())
        return result.get_side_output(LATE) if late else result

    results = [r for r in play(ARRIVALS, lambda s: build(s, False)) if r[1][1] == 0]
    late = play(ARRIVALS, lambda s: build(s, True))
    watermarks = [max(at for _, _, at in ARRIVALS[:n]) - 1 for n in range(1, len(ARRIVALS) + 1)]
    ended = next(n for n, mark in enumerate(watermarks) if mark >= 9)
    over = next(n for n, mark in enumerate(watermarks) if mark >= 9 + 5)
    window = (
        Span(0, ended + 1, "taken, nothing comes out yet", "faint"),
        Span(ended + 1, over + 1, "each record fires again"),
        Span(over + 1, len(ARRIVALS) + 0.9, "gone", "late"),
    )
    return Picture(
        "Seven records in the order in which they come: the window from 0 to 10 with a lateness "
        "of 5 ms fires, fires again, and is gone",
        *(0, len(ARRIVALS) + 1),
        (
            Lane("comes, with its time", tuple(Event(n, f"{name} at {at}")
                 for n, (_, name, at) in enumerate(ARRIVALS, 1))),
            Lane("watermark behind it", tuple(Event(n, str(mark), "other")
                 for n, mark in enumerate(watermarks, 1))),
            Lane("window 0 to 10\nallowed_lateness(5)", window),
            Lane("fires with", tuple(Event(n + 1, " ".join(names), "fires")
                 for n, (_, _, _, names) in results)),
            Lane("late", tuple(Event(n + 1, record[1], "other") for n, record in late)),
        ),
        moments=("", *(f"{n}." for n in ("1", "2", "3", "4", "5", "6", "7")), ""),
    )  # fmt: skip


class Reached(KeyedProcessFunction):
    """Tells how far event time is when a record comes."""

    def process_element(self, value: Record, ctx: Any) -> Any:
        """Return the watermark of the epochs before."""
        yield ctx.timer_service().current_watermark()


def watermarks() -> Picture:
    """How far event time is, by the slower of two partitions."""
    given = [("p", "a", 4), ("q", "b", 3), ("p", "c", 9), ("q", "d", 7), ("p", "e", 8)]
    given += [("p", "f", 14), ("q", "g", 12)]
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(2))
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[2])
    stream = env.from_collection([], RECORD).assign_timestamps_and_watermarks(strategy)
    handle = collect(by_key(stream).process(Reached()))
    options = HarnessOptions(partition_of=lambda record: Partition(record[0]))
    job = JobHarness(env.build_graph(), 1, options).start()
    for record in [*given, ("p", "end", 20)]:
        job.run_epoch([record])
    reached = list(job.collected(handle)[1:])
    numbered = list(enumerate(given, 1))

    def lane(title: str, key: str, kind: str) -> Lane:
        own = ((n, r) for n, r in numbered if r[0] == key)
        return Lane(title, tuple(Event(n, f"{r[1]} at {r[2]}", kind) for n, r in own))

    behind = tuple(
        Event(n, str(mark) if mark > -(2**62) else "none yet", "fires")
        for n, mark in enumerate(reached, 1)
    )
    return Picture(
        "Records of two partitions in the order in which they come, and the watermark behind each",
        *(0, len(given) + 1),
        (
            lane("partition p", "p", "event"),
            lane("partition q", "q", "other"),
            Lane("watermark\nbound of 2 ms", behind),
        ),
        moments=("", *(f"{n}." for n, _ in numbered), ""),
    )


QUESTIONS = ("abc", "def")
ANSWERS = "cabfde"


class Answers(AsyncFunction):
    """Gets its answers in the order of `ANSWERS`: each waits for the one before it."""

    def open(self, runtime_context: Any) -> None:
        """Begin with no answers."""
        self.there = {name: asyncio.Event() for name in ANSWERS}

    async def async_invoke(self, value: str) -> list[str]:
        """Return the name of the record."""
        place = ANSWERS.index(value)
        if place:
            await self.there[ANSWERS[place - 1]].wait()
        self.there[value].set()
        return [value]


def async_order() -> Picture:
    """In which order answers leave."""

    def lane(title: str, wait: Any) -> Lane:
        env = StreamExecutionEnvironment.get_execution_environment()
        handle = collect(wait(env.from_collection([], Types.STRING()), Answers(), 0))
        job = JobHarness(env.build_graph(), 1, HarnessOptions(partitions=1)).start()
        for epoch in QUESTIONS:
            job.run_epoch(list(epoch))
        job.finish()
        return in_turn(title, job.collected(handle), "fires")

    def in_turn(title: str, names: Any, kind: str = "event") -> Lane:
        return Lane(title, tuple(Event(n, name, kind) for n, name in enumerate(names, 1)))

    epochs = (Span(0.6, 3.6, "first", "faint"), Span(3.6, 6.6, "second", "faint"))
    return Picture(
        "Six records of two epochs, and their answers in another order: ordered_wait gives results "
        "in the order of the records, unordered_wait in that of the answers",
        *(0, 7),
        (
            Lane("epochs", epochs),
            in_turn("records", "".join(QUESTIONS)),
            in_turn("answers come", ANSWERS, "other"),
            lane("ordered_wait", AsyncDataStream.ordered_wait),
            lane("unordered_wait", AsyncDataStream.unordered_wait),
        ),
        moments=("", *(f"{n}." for n in range(1, 7)), ""),
    )


ORDERS: list[Record] = [("k", "a", 2), ("k", "b", 7), ("k", "c", 9)]
PAYMENTS: list[Record] = [("k", "x", 1), ("k", "y", 4), ("k", "z", 10), ("k", "u", 16)]
SHIPPED: list[Record] = [("k", "x", 1), ("k", "y", 4), ("k", "z", 8), ("k", "u", 16)]


class Pair(ProcessJoinFunction):
    """Tells who meets whom."""

    def process_element(self, left: Record, right: Record, ctx: Any) -> Any:
        """Return both times."""
        yield left[2], right[2]


def both(right: list[Record], build: Callable[[Any, Any], Any]) -> list[Any]:
    """Run a program of two streams, the left one with orders, everything in one epoch."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = timed(env)
    left = stream.filter(lambda record: record[1] in "abc")
    others = stream.filter(lambda record: record[1] in "xyzu")
    handle = collect(build(left, others))
    job = JobHarness(env.build_graph(), parallelism=1).start()
    job.run_epoch([*ORDERS, *right])
    job.finish()
    return list(job.collected(handle))


def interval_join() -> Picture:
    """Records that are close to each other."""
    pairs = both(
        PAYMENTS, lambda a, b: by_key(a).interval_join(by_key(b)).between(-1, 3).process(Pair())
    )
    return Picture(
        "An interval join from 1 ms before to 3 ms after: lines are pairs",
        *(0, 17),
        (
            Lane("left", dots(ORDERS)),
            Lane("between(-1, 3)", tuple(Span(at - 1, at + 3, n, "faint") for _, n, at in ORDERS)),
            Lane("right", dots(PAYMENTS, "other")),
        ),
        tuple(Link(0, left, 2, right) for left, right in pairs),
    )


def window_join() -> Picture:
    """Records that share a window."""

    def windowed(streams: Any) -> Any:
        keyed = streams.where(lambda record: record[0]).equal_to(lambda record: record[0])
        return keyed.window(TumblingEventTimeWindows.of(5))

    pairs = both(SHIPPED, lambda a, b: windowed(a.join(b)).apply(lambda x, y: (x[2], x[1] + y[1])))
    groups = both(SHIPPED, lambda a, b: windowed(a.co_group(b)).apply(lambda x, y: [(x, y)]))
    joined: dict[int, list[str]] = {}
    for at, name in sorted(pairs):
        joined.setdefault(at // 5 * 5, []).append(name)
    grouped = []
    for left, right in groups:
        start = [*left, *right][0][2] // 5 * 5
        sides = [" ".join(record[1] for record in side) or "none" for side in (left, right)]
        grouped.append(Span(start, start + 5, " with ".join(sides)))
    return Picture(
        "Two streams in tumbling windows of 5 ms: join gives pairs, co_group both groups",
        *(0, 20),
        (
            Lane("first", dots(ORDERS)),
            Lane("second", dots(SHIPPED, "other")),
            Lane("join\npairs", tuple(Span(s, s + 5, " ".join(n)) for s, n in joined.items())),
            Lane("co_group\nboth groups", tuple(sorted(grouped, key=lambda span: span.start))),
        ),
    )


def matches(events: str, pattern: Pattern) -> tuple[Chain, ...]:
    """Return the matches of a pattern, each as a chain of its events."""
    names = events.split()
    at = {name: number for number, name in enumerate(names, 1)}
    records = [("k", name, number) for name, number in at.items()]

    def build(stream: Any) -> Any:
        found = CEP.pattern(by_key(stream), pattern)
        return found.select(lambda match: [e for part in match.values() for e in part])

    chains = []
    for _, match in play(records, build):
        inside = sorted(record[1:] for record in match)
        ordered = sorted(inside, key=lambda pair: pair[1])
        chains.append(Chain(tuple(t for _, t in ordered), tuple(name for name, _ in ordered)))
    return tuple(sorted(chains, key=lambda chain: (chain.moments[0], len(chain.moments))))


def like(letter: str) -> Callable[[Record], bool]:
    """Return the condition that an event has a letter."""
    return lambda record: record[1].startswith(letter)


def pattern_picture(about: str, events: str, lanes: dict[str, Pattern]) -> Picture:
    """Return the matches of several patterns over the same events."""
    names = events.split()
    found = [Lane(title, matches(events, pattern)) for title, pattern in lanes.items()]
    shown = Lane("events", tuple(Event(n, name) for n, name in enumerate(names, 1)))
    return Picture(about, 0, len(names) + 1, (shown, *found), moments=("",) * (len(names) + 2))


def begin(letter: str, skip: Any = None) -> Pattern:
    """Return a pattern that begins with a letter."""
    return Pattern.begin(letter, *([skip] if skip else [])).where(like(letter))


def contiguity() -> Picture:
    """What may lie between two events."""
    return pattern_picture(
        "The pattern a, then b, over the events a, x, b1, b2: what may lie between",
        "a x b1 b2",
        {
            'next("b")\nnothing between': begin("a").next("b").where(like("b")),
            'followed_by("b")': begin("a").followed_by("b").where(like("b")),
            'followed_by_any("b")': begin("a").followed_by_any("b").where(like("b")),
        },
    )


def quantifiers() -> Picture:
    """How many events of a kind."""

    def looping(change: Callable[[Pattern], Pattern]) -> Pattern:
        middle = begin("c").followed_by("a").where(like("a")).one_or_more()
        return change(middle).followed_by("b").where(like("b"))

    return pattern_picture(
        "The pattern c, one or more a, then b, over the events c, a1, x, a2, a3, b",
        "c a1 x a2 a3 b",
        {
            "consecutive()": looping(lambda p: p.consecutive()),
            "one_or_more()\nthe default": looping(lambda p: p),
            "allow_combinations()": looping(lambda p: p.allow_combinations()),
            "optional()": looping(lambda p: p.optional()),
            "greedy()": looping(lambda p: p.greedy()),
        },
    )


def negation() -> Picture:
    """What must not come."""
    return pattern_picture(
        "The pattern a, not followed by b within 3 ms, over the events a1, b, x1, a2, x2, x3, x4",
        "a1 b x1 a2 x2 x3 x4",
        {
            "not_followed_by\nwithin(3)": begin("a")
            .not_followed_by("b")
            .where(like("b"))
            .within(3),
            "not_next": begin("a").not_next("b").where(like("b")).followed_by("x").where(like("x")),
        },
    )


def skipping() -> Picture:
    """Which of several matches that overlap remain."""
    skips = {
        "no_skip()\nthe default": AfterMatchSkipStrategy.no_skip(),
        'skip_to_last("a")': AfterMatchSkipStrategy.skip_to_last("a"),
        "skip_past_last_event()": AfterMatchSkipStrategy.skip_past_last_event(),
    }
    return pattern_picture(
        "The pattern one or more a, then b: which matches remain, by three strategies",
        "a1 a2 a3 b",
        {
            title: begin("a", skip).one_or_more().consecutive().next("b").where(like("b"))
            for title, skip in skips.items()
        },
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "watermarks": watermarks,
    "tumbling": tumbling,
    "sliding": sliding,
    "sessions": sessions,
    "count": count,
    "global": global_windows,
    "triggers": triggers,
    "evictors": evictors,
    "lateness": lateness,
    "async-order": async_order,
    "interval-join": interval_join,
    "window-join": window_join,
    "pattern-contiguity": contiguity,
    "pattern-quantifiers": quantifiers,
    "pattern-negation": negation,
    "pattern-skipping": skipping,
}


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        text = render(picture())
        if "--write" in sys.argv:
            (FOLDER / f"{name}.svg").write_text(text, "utf-8")
        else:
            sys.stdout.write(text)
