"""Patterns, events and matches in short notation.

A pattern: `>` next, `~` followed_by, `~~` followed_by_any, `!>` not_next, `!~` not_followed_by; a
stage is the letters of the events that it takes (`any`: all), then `+` one_or_more, `*2` times(2),
`*1-3` times(1, 3), `*2+` times_or_more(2), then `g` greedy, `c` consecutive, `x` combinations, `?`
optional. Parentheses make a group. Events: letters and a number, `/price`, `@timestamp`; without a
timestamp the position is it. Stages are named by their letters, `a_2` the second of that letter.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from weir.cep import Pattern
from weir.cep._pattern import spec_of
from weir.nfa.compiler import compile_pattern
from weir.nfa.matcher import Matcher, Memory

JOINS = {
    ">": "next",
    "~": "followed_by",
    "~~": "followed_by_any",
    "!>": "not_next",
    "!~": "not_followed_by",
}
STAGE = re.compile(r"([a-z]+|\))(?:(\*\d+(?:-\d+)?\+?|\+)([cgx]*))?(\?)?([cgx]*)")
EVENT = re.compile(r"([a-z]+)(\d*)(?:/([\d.]+))?(?:@(\d+))?")


class Event(NamedTuple):
    kind: str
    name: str
    price: float
    time: int


def events(text: str) -> list[Event]:
    found = []
    for position, word in enumerate(text.split(), 1):
        kind, number, price, time = EVENT.fullmatch(word).groups()
        found.append(Event(kind, kind + number, float(price or 0), int(time or position)))
    return found


def takes(kind):
    return lambda event: event.kind == kind


class Builder:
    def __init__(self, where, until, skip):
        self.where, self.until, self.skip = where, until, skip
        self.names = Counter()

    def sequence(self, words, outer=False):
        pattern, join = None, None
        while words:
            word = words.pop(0)
            if word in JOINS:
                join = JOINS[word]
                continue
            if word.startswith(")"):
                return pattern, word
            if word == "(":
                given, word = self.sequence(words)
                name = None
            else:
                letters = STAGE.fullmatch(word)[1]
                self.names[letters] += 1
                count = self.names[letters]
                given = name = letters if count == 1 else f"{letters}_{count}"
            if pattern is None:
                pattern = Pattern.begin(given, self.skip if outer else None)
            else:
                pattern = getattr(pattern, join)(given)
            self.finish(pattern, word, name)
        return pattern, ""

    def finish(self, pattern, word, name):
        letters, quantifier, inner, optional, more = STAGE.fullmatch(word).groups()
        if name in self.where:
            pattern.where(self.where[name])
        elif name is not None and letters != "any":
            pattern.where(takes(letters))
        if quantifier == "+":
            pattern.one_or_more()
        elif quantifier and quantifier.endswith("+"):
            pattern.times_or_more(int(quantifier[1:-1]))
        elif quantifier:
            pattern.times(*map(int, quantifier[1:].split("-")))
        for option in (inner or "") + (more or ""):
            chosen = {"g": "greedy", "c": "consecutive", "x": "allow_combinations"}[option]
            getattr(pattern, chosen)()
        if optional:
            pattern.optional()
        if name in self.until:
            pattern.until(self.until[name])


def pattern_of(text, where=None, until=None, skip=None) -> Pattern:
    words = text.replace("(", "( ").replace(")", " )").split()
    return Builder(where or {}, until or {}, skip).sequence(words, outer=True)[0]


def found(pattern, text, *, pauses=False, final=None):
    """Run events in order of time; return matches and timeouts as text, sorted.

    With `pauses` everything is put away and taken out again after each event.
    """
    automaton = compile_pattern(spec_of(pattern))
    matcher = Matcher(automaton, timeouts=True)
    memory, kept, matches, timeouts = Memory(), {}, [], []
    matcher.resume(memory, kept.__getitem__)
    times = events(text)
    for event in [*times, None]:
        if event is not None:
            matcher.advance(event.time)
            matcher.process(event, event.time)
        elif final is not None:
            matcher.advance(final)
        if pauses or event is None:
            new, dropped = matcher.pause()
            for number in dropped:
                del kept[number]
            kept.update(new)
            matches += matcher.found.matches
            timeouts += matcher.found.timeouts
            memory = matcher.memory
            assert set(kept) == {node.event for node in memory.nodes.values()}
            assert matcher.damage_of(memory) is None
            matcher.resume(
                Memory(list(memory.runs), list(memory.waiting), dict(memory.nodes)),
                kept.__getitem__,
            )
    return [named(m) for m, _ in matches], [f"{named(m)} @{t}" for m, t in timeouts]


def named(match):
    return " ".join(event.name for events in match.values() for event in events)


def expand(text, letter):
    """Turn `c12b` into `c a1 a2 b`."""
    return " ".join(letter + char if char.isdigit() else char for char in text)
