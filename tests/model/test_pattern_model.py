"""Patterns against a search that tries every choice of events.

The search knows no states: a match is a choice of events for every stage, each of which fits, and
which lie apart as the contiguity allows. It covers next, followed_by and followed_by_any, with
times and optional stages; events come out of order, and the job is restarted on the way.

Patterns of every kind are compared with themselves: it changes nothing how often a matcher is put
away and taken out again, nor in how many steps time moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment, started
from tests.unit.nfa.notation import Event, named, pattern_of

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern, WithinType
from weir.cep._pattern import spec_of
from weir.common import Duration, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.errors import UsageError
from weir.nfa.compiler import compile_pattern
from weir.nfa.matcher import Matcher, Memory
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import collect

STRICT, RELAXED, ANY = "next", "followed_by", "followed_by_any"
INNER = {STRICT: "consecutive", ANY: "allow_combinations"}
EVENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
"""Key, letter, number, timestamp."""
DISORDER = 30


@dataclass(frozen=True)
class Stage:
    letters: str
    contiguity: str
    least: int
    most: int
    inner: str
    optional: bool

    def fits(self, letter):
        return letter in self.letters

    def counts(self):
        return [*([0] if self.optional else []), *range(self.least, self.most + 1)]


@st.composite
def stages(draw):
    least = draw(st.integers(1, 2))
    return Stage(
        letters=draw(st.sampled_from(["a", "b", "c", "ab", "bc", "abc"])),
        contiguity=draw(st.sampled_from([STRICT, RELAXED, ANY])),
        least=least,
        most=draw(st.integers(least, 3)),
        inner=draw(st.sampled_from([STRICT, RELAXED, ANY])),
        optional=draw(st.booleans()),
    )


PATTERNS = st.lists(stages(), min_size=1, max_size=3)
LETTERS = st.lists(st.sampled_from("abcx"), min_size=1, max_size=8)


def searched(pattern, letters):
    """Return all matches: for every stage the positions of its events, by stage."""
    found = []

    def choose(stage, chosen, taken):
        """Choose events for all stages from this one on, behind the last event that was taken."""
        if stage == len(pattern):
            if taken:
                found.append(tuple(chosen))
            return
        for count in pattern[stage].counts():
            for more in several(pattern[stage], count, taken[-1:]):
                choose(stage + 1, [*chosen, more], [*taken, *more])

    def several(stage, count, last, number=0):
        if number == count:
            yield ()
            return
        contiguity = stage.inner if number else stage.contiguity
        for position in following(stage, contiguity, last):
            for rest in several(stage, count, [position], number + 1):
                yield (position, *rest)

    def following(stage, contiguity, last):
        if not last:
            return [i for i, letter in enumerate(letters) if stage.fits(letter)]
        behind = range(last[0] + 1, len(letters))
        fitting = [i for i in behind if stage.fits(letters[i])]
        if contiguity == STRICT:
            return [i for i in fitting if i == last[0] + 1]
        return fitting[:1] if contiguity == RELAXED else fitting

    choose(0, [], [])
    return sorted(found)


def built(pattern, letter):
    """Build the pattern; `letter` takes it out of an event."""
    made = None
    for number, stage in enumerate(pattern):
        name = f"s{number}"
        made = Pattern.begin(name) if made is None else getattr(made, stage.contiguity)(name)
        made.where(lambda event, stage=stage: stage.fits(letter(event)))
        if stage.most > 1:
            made.times(stage.least, stage.most)
            if stage.inner in INNER:
                getattr(made, INNER[stage.inner])()
        if stage.optional:
            made.optional()
    return made


def positions(pattern, match, number):
    return tuple(tuple(number(e) for e in match.get(f"s{i}", ())) for i, _ in enumerate(pattern))


@settings(max_examples=examples(400), deadline=None)
@given(PATTERNS, LETTERS, st.sets(st.integers(0, 8)))
def test_the_matcher_finds_what_a_search_finds_with_pauses_anywhere(pattern, letters, pauses):
    matcher = Matcher(compile_pattern(spec_of(built(pattern, lambda e: e[0]))))
    kept, matches = {}, []
    for number, letter in enumerate(letters):
        matcher.process((letter, number), number)
        if number in pauses:
            new, dropped = matcher.pause()
            kept = {k: v for k, v in {**kept, **new}.items() if k not in dropped}
            matches += matcher.found.matches
            memory = matcher.memory
            matcher = Matcher(compile_pattern(spec_of(built(pattern, lambda e: e[0]))))
            resumed = Memory(list(memory.runs), list(memory.waiting), dict(memory.nodes))
            matcher.resume(resumed, kept.__getitem__)
    matches += matcher.found.matches
    found = sorted(positions(pattern, match, lambda e: e[1]) for match, _ in matches)
    assert found == searched(pattern, letters)


@st.composite
def disordered(draw):
    """Events of two keys, with times of their own, and an order in which they come."""
    found = []
    for key in ("k", "l"):
        for number, letter in enumerate(draw(LETTERS)):
            found.append((key, letter, number, number * 10))
    return sorted(found, key=lambda e: (e[3] + draw(st.integers(0, DISORDER)), e))


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    PATTERNS,
    disordered(),
    st.integers(1, 5),
    st.integers(0, 8),
    st.sampled_from(["hashmap", "hashmap-changelog", "hashmap-incremental", "rocksdb"]),
)
def test_a_job_that_is_restarted_finds_what_a_search_finds(pattern, events, take, before, backend):
    env = environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER))
    strategy = strategy.with_timestamp_assigner(lambda e, _: e[3])
    stream = env.from_collection(events, EVENT).assign_timestamps_and_watermarks(strategy)
    stream = stream.key_by(lambda e: e[0], Types.STRING())
    found = CEP.pattern(stream, built(pattern, lambda e: e[1])).select(
        lambda match: (
            next(iter(match.values()))[0][0],
            positions(pattern, match, lambda e: e[2]),
        )
    )
    collect(found.uid("pattern"))
    job = started(env, 2, backend=settings_of(backend), wait_for_checkpoints=True)
    if before:
        job.run_epoch(take=before, checkpoint=True)
        job.run_epoch(take=1)
        job.fail_over()
    job.run_epoch(take=take, checkpoint=True)
    first = list(job.collected())
    later = job.restart(3).run(take)
    expected = []
    for key in ("k", "l"):
        letters = [e[1] for e in sorted(events, key=lambda e: e[3]) if e[0] == key]
        expected += [(key, match) for match in searched(pattern, letters)]
    assert sorted([*first, *later.collected()]) == sorted(expected)


JOINS = st.sampled_from([">", "~", "~~", "~", "!>", "!~"])
COUNTS = st.sampled_from(["", "", "+", "*2", "*1-2", "*2+"])
OPTIONS = st.sampled_from(["", "", "c", "x", "g"])
SKIPS = st.sampled_from(
    [
        None,
        AfterMatchSkipStrategy.skip_to_next(),
        AfterMatchSkipStrategy.skip_past_last_event(),
        AfterMatchSkipStrategy.skip_to_first("b"),
        AfterMatchSkipStrategy.skip_to_last("a"),
    ]
)


@st.composite
def any_patterns(draw):
    """Patterns with everything that there is, in the notation of the golden cases."""
    words = []
    for letter in draw(st.permutations("abc").map(lambda p: p[: draw(st.integers(1, 3))])):
        words += [draw(JOINS)] if words else []
        if words and words[-1].startswith("!"):
            words.append(letter)
            continue
        count = draw(COUNTS)
        options = draw(OPTIONS) if count else ""
        optional = draw(st.sampled_from(["", "", "?"]))
        words.append(f"{letter}{count}{options}{optional}")
    if len(words) > 1 and draw(st.booleans()):
        tail = draw(st.sampled_from(["", "", "*2", "+", "?"]))
        words = ["(", *words, f"){tail}", ">", "d"]
    try:
        pattern = pattern_of(" ".join(words), skip=draw(SKIPS))
        if draw(st.booleans()):
            pattern.within(draw(st.integers(1, 8)), draw(st.sampled_from(list(WithinType))))
        compile_pattern(spec_of(pattern))
    except UsageError:
        reject()
    return pattern


def run_in_steps(pattern, events, pauses, stops):
    """Return matches and timeouts with their times; `stops` are times that are gone through."""
    matcher = Matcher(compile_pattern(spec_of(pattern)), timeouts=True)
    kept, found = {}, []
    for number, event in enumerate(events):
        for time in sorted(stops):
            if event.time - 3 <= time < event.time:
                matcher.advance(time)
        matcher.advance(event.time)
        matcher.process(event, event.time)
        if number in pauses:
            new, dropped = matcher.pause()
            kept = {k: v for k, v in {**kept, **new}.items() if k not in dropped}
            found.append(matcher.found)
            memory = matcher.memory
            matcher.resume(
                Memory(list(memory.runs), list(memory.waiting), dict(memory.nodes)),
                kept.__getitem__,
            )
    matcher.advance(1_000)
    found.append(matcher.found)
    return (
        [(named(m), t) for f in found for m, t in f.matches],
        [(named(m), t) for f in found for m, t in f.timeouts],
    )


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(
    any_patterns(),
    st.lists(st.tuples(st.sampled_from("aabbcd"), st.integers(0, 3)), max_size=9),
    st.sets(st.integers(0, 9)),
    st.sets(st.integers(0, 30)),
)
def test_pauses_and_steps_of_time_change_nothing(pattern, letters, pauses, stops):
    time, events = 0, []
    for number, (letter, gap) in enumerate(letters):
        time += gap
        events.append(Event(letter, f"{letter}{number}", 0, time))
    at_once = run_in_steps(pattern, events, (), ())
    assert run_in_steps(pattern, events, pauses, stops) == at_once
