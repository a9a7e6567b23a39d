"""Loops, negations, time and skipping of patterns, against a search that tries every choice.

The search knows no states and no partial matches: a match is a choice of events for every stage.
What a negation forbids is looked for in the events between; what is too far apart is left out; and
a strategy removes matches by the events that they begin with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.cep import AfterMatchSkipStrategy as Skip
from weir.cep import Pattern
from weir.cep._pattern import spec_of
from weir.errors import UsageError
from weir.nfa.compiler import compile_pattern
from weir.nfa.matcher import Matcher

STRICT, RELAXED, ANY = "next", "followed_by", "followed_by_any"
NEXT, LATER = "not_next", "not_followed_by"
INNER = {STRICT: "consecutive", ANY: "allow_combinations"}
CONTIGUITIES = st.sampled_from([STRICT, RELAXED, ANY])
NEGATIONS = st.sampled_from([None, None, (NEXT, "x"), (LATER, "x"), (NEXT, "y"), (LATER, "y")])
ENDS = st.sampled_from([None, None, None, (NEXT, "x"), (LATER, "x")])
TIMES = st.integers(1, 9)
FOREVER = 1_000_000


@dataclass(frozen=True)
class Stage:
    """`most` is None for a loop without a bound; `negation` stands before the stage."""

    letters: str
    contiguity: str
    least: int
    most: int | None
    inner: str
    optional: bool
    negation: tuple[str, str] | None


class Whole(NamedTuple):
    """A pattern: its stages, the time that it may take, and a negation at its end."""

    stages: list[Stage]
    within: int | None
    end: tuple[str, str] | None


class Match(NamedTuple):
    """Events by stage, and the event that completed it; time does it where that is FOREVER."""

    events: tuple[tuple[int, ...], ...]
    complete: int

    @property
    def first(self):
        return min(e for stage in self.events for e in stage)

    @property
    def last(self):
        return max(e for stage in self.events for e in stage)


@st.composite
def stages(draw, first):
    least = draw(st.integers(1, 2))
    return Stage(
        letters=draw(st.sampled_from(["a", "b", "c", "ab", "bc", "abc", "ax"])),
        contiguity=draw(CONTIGUITIES),
        least=least,
        most=draw(st.none() | st.integers(least, 3)),
        inner=draw(CONTIGUITIES),
        optional=draw(st.booleans()),
        negation=None if first else draw(NEGATIONS),
    )


@st.composite
def patterns(draw, within):
    """Patterns whose negations have letters of their own: else several rules meet in one event."""
    found = [draw(stages(number == 0)) for number in range(draw(st.integers(1, 3)))]
    for number in range(1, len(found)):
        if not is_told_apart(found[number - 1], *found[number:]):
            found[number] = replace(found[number], negation=None)
    whole = Whole(found, draw(within), draw(ENDS))
    return whole if can_end(whole) else whole._replace(end=None)


def is_told_apart(before, stage, *later):
    """Tell whether an event means one thing: what a negation forbids, or what a stage takes."""
    kind, letters = stage.negation or (NEXT, "")
    taking = [stage, *later[:1]] if stage.optional else [stage]
    if before.optional or any(set(letters) & set(each.letters) for each in taking):
        return False
    if set(letters) & set(before.letters) and (kind == LATER or stage.optional):
        return False
    # Who waits in Flink for an optional stage behind an optional one that was taken goes on
    # watching for the negation once an event was passed over.
    if kind == LATER and stage.optional and any(each.optional for each in later):
        return False
    # Of times(1, 2) Flink forgets the negation when it has passed over another event.
    return kind == NEXT or before.most in (None, before.least)


def can_end(pattern):
    kind, letters = pattern.end or (NEXT, "")
    last = pattern.stages[-1]
    if last.optional or last.most != 1 or set(letters) & set(last.letters):
        return False
    return kind == NEXT or pattern.within is not None


class Search:
    """All matches of a pattern among letters with times."""

    def __init__(self, pattern, letters, times):
        self.pattern, self.letters, self.times = pattern, letters, times
        self.found = []
        self.choose(0, [], [])

    def choose(self, number, chosen, forbidden):
        """Choose events for all stages from this one on.

        `forbidden` are letters that must not come before the next event is taken, and where: from
        a position on, or just there. If no event follows, nobody asks for them.
        """
        if number == len(self.pattern.stages):
            if any(chosen):
                self.finish(chosen)
            return
        stage, taken = self.pattern.stages[number], [e for part in chosen for e in part]
        kind, letters = stage.negation or (None, "")
        if kind == NEXT:
            forbidden = [*forbidden, (letters, taken[-1] + 1, taken[-1] + 2)]
        elif kind == LATER:
            forbidden = [*forbidden, (letters, taken[-1] + 1, None)]
        if stage.optional:
            self.choose(number + 1, [*chosen, ()], forbidden)
        most = len(self.letters) if stage.most is None else stage.most
        for count in range(stage.least, most + 1):
            for events in self.several(stage, count, taken[-1:], stage.contiguity):
                if not self.has(forbidden, events[0]) and not self.is_stopped(number, events):
                    self.choose(number + 1, [*chosen, events], [])

    def is_stopped(self, number, events):
        """Tell whether what must not follow a stage came while it could still go on."""
        stages = self.pattern.stages
        kind, letters = (number + 1 < len(stages) and stages[number + 1].negation) or (None, "")
        if kind == LATER:
            return self.has([(letters, events[0] + 1, None)], events[-1])
        # With each of these the stage might have been over.
        ends = events[stages[number].least - 1 : -1]
        return kind == NEXT and any(self.letters[event + 1] in letters for event in ends)

    def has(self, forbidden, before):
        """Tell whether something came that must not, when an event is taken."""
        return any(
            letter in letters
            for letters, start, stop in forbidden
            for letter in self.letters[start : before if stop is None else stop]
        )

    def several(self, stage, count, last, contiguity):
        if count == 0:
            yield ()
            return
        for position in self.following(stage, last, contiguity):
            for rest in self.several(stage, count - 1, [position], stage.inner):
                yield (position, *rest)

    def following(self, stage, last, contiguity):
        behind = last[0] + 1 if last else 0
        fitting = [i for i in range(behind, len(self.letters)) if self.letters[i] in stage.letters]
        if not last or contiguity == ANY:
            return fitting
        if contiguity == STRICT:
            return [i for i in fitting if i == behind]
        return fitting[:1]

    def finish(self, chosen):
        match = Match(tuple(chosen), max(e for part in chosen for e in part))
        kind, letters = self.pattern.end or (None, "")
        if kind == NEXT:
            # It takes one more event to know that it was another one.
            match = match._replace(complete=match.complete + 1)
            if match.complete == len(self.letters) or self.letters[match.complete] in letters:
                return
        if not self.is_near(match.first, match.complete):
            return
        if kind == LATER:
            since = match.events[-1][-1] + 1
            if any(
                self.letters[i] in letters and self.is_near(match.first, i)
                for i in range(since, len(self.letters))
            ):
                return
            match = match._replace(complete=FOREVER)
        self.found.append(match)

    def is_near(self, first, event):
        within = self.pattern.within
        return within is None or self.times[event] - self.times[first] < within


def built(pattern, skip):
    made = None
    for number, stage in enumerate(pattern.stages):
        name = f"s{number}"
        if stage.negation is not None:
            made = negated(made, f"n{number}", *stage.negation)
        made = Pattern.begin(name, skip) if made is None else getattr(made, stage.contiguity)(name)
        made.where(lambda event, stage=stage: event[0] in stage.letters)
        if stage.most is None:
            made.times_or_more(stage.least)
        elif stage.most > 1:
            made.times(stage.least, stage.most)
        if stage.most != 1 and stage.inner in INNER:
            getattr(made, INNER[stage.inner])()
        if stage.optional:
            made.optional()
    if pattern.end is not None:
        made = negated(made, "end", *pattern.end)
    return made if pattern.within is None else made.within(pattern.within)


def negated(made, name, kind, letters):
    return getattr(made, kind)(name).where(lambda event: event[0] in letters)


def matched(pattern, skip, letters, times):
    """Return the events of the matches that the matcher finds, in the order in which it does."""
    try:
        matcher = Matcher(compile_pattern(spec_of(built(pattern, skip))))
    except UsageError:
        reject()
    for number, (letter, time) in enumerate(zip(letters, times, strict=True)):
        matcher.advance(time)
        matcher.process((letter, number), time)
    matcher.advance(FOREVER)
    names = [f"s{number}" for number, _ in enumerate(pattern.stages)]
    return [
        tuple(tuple(number for _, number in match.get(name, ())) for name in names)
        for match, _ in matcher.found.matches
    ]


def times_of(gaps):
    return [sum(gaps[: number + 1]) for number, _ in enumerate(gaps)]


LETTERS = st.lists(st.tuples(st.sampled_from("aabbcxy"), st.integers(0, 3)), min_size=1, max_size=8)


@settings(max_examples=examples(500), deadline=None)
@given(patterns(st.none() | TIMES), LETTERS)
def test_loops_negations_and_time_give_what_a_search_finds(pattern, rows):
    letters, times = [letter for letter, _ in rows], times_of([gap for _, gap in rows])
    expected = [match.events for match in Search(pattern, letters, times).found]
    assert sorted(matched(pattern, None, letters, times)) == sorted(expected)


# What a strategy is, and with which event matches may begin that are left behind a match.
SKIPS = {
    "to next": (lambda last: Skip.skip_to_next(), lambda match: match.first + 1),
    "past last": (lambda last: Skip.skip_past_last_event(), lambda match: match.last + 1),
    "to first": (
        lambda last: Skip.skip_to_first(last),
        lambda match: match.events[-1][0] if match.events[-1] else 0,
    ),
    "to last": (
        lambda last: Skip.skip_to_last("s0"),
        lambda match: match.events[0][-1] if match.events[0] else 0,
    ),
}


@settings(max_examples=examples(300), deadline=None)
@given(patterns(TIMES), LETTERS, st.sampled_from(list(SKIPS)))
def test_strategies_leave_the_matches_of_a_search_that_they_should(pattern, rows, name):
    """In patterns with a time: in others a partial match may live for ever, and others wait."""
    letters, times = [letter for letter, _ in rows], times_of([gap for _, gap in rows])
    strategy, begin = SKIPS[name]
    left = Search(pattern, letters, times).found
    for events in matched(pattern, strategy(f"s{len(pattern.stages) - 1}"), letters, times):
        # The one that begins first; of those the one that was complete first.
        order = min((match.first, match.complete) for match in left)
        match = next(m for m in left if m.events == events)
        assert (match.first, match.complete) == order
        left.remove(match)
        left = [m for m in left if m.first >= begin(match)]
    assert left == []
