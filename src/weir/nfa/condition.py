"""Conditions on an event: checks that a user wrote, joined by and, or, not.

A condition is a value. `tester` makes a function of it that the matcher calls. A check that looks
at the event alone is made once per event, one that looks at the partial match once per event and
partial match, however many edges ask: so an edge and its opposite never disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, eq=False)
class Check:
    """What a user wrote: a function of the event, or of the event and the context."""

    function: Callable[..., Any]
    with_context: bool = False


@dataclass(frozen=True)
class Not:
    """True when the other condition is false."""

    condition: Condition


@dataclass(frozen=True)
class All:
    """True when all of them are true; without any it is always true."""

    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Some:
    """True when one of them is true."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = Check | Not | All | Some
ALWAYS = All()


def asks_context(condition: Condition) -> bool:
    """Tell whether a condition depends on more than the event."""
    if isinstance(condition, Check):
        return condition.with_context
    if isinstance(condition, Not):
        return asks_context(condition.condition)
    return any(asks_context(c) for c in condition.conditions)


class Trial:
    """One event that is being tried, and what the checks said about it so far."""

    __slots__ = ("_by_event", "_by_run", "context", "event", "known", "known_of_run")

    def __init__(self, context: Any, by_event: int, by_run: int) -> None:
        """Start without an event; `context` is handed to checks that ask for it."""
        self.context = context
        self._by_event = by_event
        self._by_run = by_run
        self.event: Any = None
        self.known: list[bool | None] = []
        self.known_of_run: list[bool | None] = []

    def begin(self, event: Any) -> None:
        """Go on to another event."""
        self.event = event
        self.known = [None] * self._by_event
        self.known_of_run = [None] * self._by_run

    def next_run(self) -> None:
        """Go on to another partial match, with the same event."""
        if self._by_run:
            self.known_of_run = [None] * self._by_run


Tester: TypeAlias = Callable[[Trial], bool]


class Testers:
    """Makes testers; the same check in several conditions is one."""

    def __init__(self) -> None:
        self.by_event: dict[Check, int] = {}
        self.by_run: dict[Check, int] = {}

    def trial(self, context: Any) -> Trial:
        """Return a trial for all testers that were made."""
        return Trial(context, len(self.by_event), len(self.by_run))

    def tester(self, condition: Condition) -> Tester | None:
        """Return the function that tests a condition; None when it is always true."""
        if isinstance(condition, Check):
            return self._check(condition)
        if isinstance(condition, Not):
            return _negated(self.tester(condition.condition))
        if isinstance(condition, All):
            return _all([t for c in condition.conditions if (t := self.tester(c)) is not None])
        return _some([self.tester(c) for c in condition.conditions])

    def _check(self, check: Check) -> Tester:
        function = check.function
        if check.with_context:
            number = self.by_run.setdefault(check, len(self.by_run))

            def of_run(trial: Trial) -> bool:
                known = trial.known_of_run[number]
                if known is None:
                    known = bool(function(trial.event, trial.context))
                    trial.known_of_run[number] = known
                return known

            return of_run
        index = self.by_event.setdefault(check, len(self.by_event))

        def of_event(trial: Trial) -> bool:
            known = trial.known[index]
            if known is None:
                known = trial.known[index] = bool(function(trial.event))
            return known

        return of_event


def _negated(tester: Tester | None) -> Tester:
    if tester is None:
        return lambda trial: False
    return lambda trial: not tester(trial)


def _all(testers: list[Tester]) -> Tester | None:
    if not testers:
        return None
    if len(testers) == 1:
        return testers[0]
    if len(testers) == 2:
        first, second = testers
        return lambda trial: first(trial) and second(trial)
    return lambda trial: all(t(trial) for t in testers)


def _some(testers: list[Tester | None]) -> Tester | None:
    if any(t is None for t in testers):
        return None
    told = [t for t in testers if t is not None]
    return lambda trial: any(t(trial) for t in told)
