"""What a pattern asks for, as plain values; the door makes them, the compiler reads them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from weir.errors import UsageError
from weir.nfa.condition import ALWAYS, Condition


class Contiguity(enum.Enum):
    """What may lie between an event and the one before it."""

    STRICT = "STRICT"
    """Nothing."""
    RELAXED = "RELAXED"
    """Events that do not match."""
    ANY = "ANY"
    """Any events, also such that match: every choice is followed."""
    NOT_NEXT = "NOT_NEXT"
    """The next event must not match."""
    NOT_FOLLOWED_BY = "NOT_FOLLOWED_BY"
    """No event may match until the next stage has one."""


NEGATIONS = frozenset({Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED_BY})


@dataclass(frozen=True)
class Stage:
    """One named part of a pattern, or a group of them.

    Attributes:
        name: under which a match holds its events; that of a group is for messages alone.
        contiguity: how it follows the stage before it.
        condition: which events it takes.
        least: how many events at least.
        most: how many at most; None is no bound.
        inner: how its events follow each other.
        optional: it may be left out as a whole.
        greedy: it takes as many as it can.
        until: what ends a stage without bound.
        within_ms: first and last event of the match are less than this apart.
        step_ms: its first event is less than this behind the event before it, as are the others
            if there is no `gap_ms`.
        gap_ms: its own events are less than this apart.
        group: the stages of a group, which then has no condition.
    """

    name: str
    contiguity: Contiguity = Contiguity.STRICT
    condition: Condition = ALWAYS
    least: int = 1
    most: int | None = 1
    inner: Contiguity = Contiguity.RELAXED
    optional: bool = False
    greedy: bool = False
    until: Condition | None = None
    within_ms: int | None = None
    step_ms: int | None = None
    gap_ms: int | None = None
    group: tuple[Stage, ...] | None = None


def check_neighbours(before: Stage, stage: Stage) -> None:
    """Refuse a stage that cannot come behind another.

    Raises:
        UsageError: it is optional behind a greedy one, or a negation behind an optional one.
    """
    if stage.contiguity in NEGATIONS and before.optional:
        msg = (
            "Specifying a pattern with an optional path to NOT condition is not supported yet. "
            "You can simulate such pattern with two independent patterns, one with and the other "
            f"without the optional part: {stage.name!r} comes behind {before.name!r}"
        )
        raise UsageError(msg)
    if stage.optional and before.greedy:
        msg = (
            "Optional pattern cannot be preceded by greedy pattern: "
            f"{stage.name!r} comes behind {before.name!r}"
        )
        raise UsageError(msg)


class SkipTo(enum.Enum):
    """Which other matches a match removes."""

    NO_SKIP = "NO_SKIP"
    NEXT = "NEXT"
    """Those that begin with the same event."""
    PAST_LAST_EVENT = "PAST_LAST_EVENT"
    """Those that begin before it ended."""
    FIRST = "FIRST"
    """Those that begin before its first event of a stage."""
    LAST = "LAST"
    """Those that begin before its last event of a stage."""


@dataclass(frozen=True)
class Skip:
    """What is skipped after a match."""

    to: SkipTo = SkipTo.NO_SKIP
    stage: str | None = None
    raises: bool = False
    """Fail when there is nothing to skip to, or when it is the first event of the match."""


@dataclass(frozen=True)
class PatternSpec:
    """A whole pattern."""

    stages: tuple[Stage, ...]
    skip: Skip = Skip()
