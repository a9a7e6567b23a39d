"""`Pattern`: what is looked for, built stage by stage.

A call that adds a stage returns a new object that knows the one before; all other calls change the
last stage and return the same object, as in Java.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import replace
from typing import Any

from weir.cep._conditions import as_check, subtype_check
from weir.cep._skip import AfterMatchSkipStrategy, skip_of
from weir.common.time import Duration, Time, to_ms
from weir.errors import UsageError
from weir.nfa.condition import ALWAYS, All, Some
from weir.nfa.spec import NEGATIONS, Contiguity, PatternSpec, Stage, check_neighbours

Length = Duration | Time | datetime.timedelta | int
"""A length of time; a number is milliseconds."""


class WithinType(enum.Enum):
    """Which events the time of `within` lies between.

    Example:
        Pattern.begin("a").next("b").within(Duration.of_seconds(5), WithinType.PREVIOUS_AND_CURRENT)
    """

    FIRST_AND_LAST = "FIRST_AND_LAST"
    PREVIOUS_AND_CURRENT = "PREVIOUS_AND_CURRENT"


class Pattern:
    """A sequence of stages; make one with `Pattern.begin`.

    Example:
        small = Pattern.begin("small").where(lambda r: r[1] < 10)
        large = small.followed_by("large").where(lambda r: r[1] > 100)
        large.within(Duration.of_minutes(1))
    """

    def __init__(
        self,
        stage: Stage,
        previous: Pattern | None = None,
        skip: AfterMatchSkipStrategy | None = None,
    ) -> None:
        """Hold the last stage and what leads to it; programs call `begin` instead."""
        self._stage = stage
        self._previous = previous
        self._skip = skip
        self._quantified = False
        self._inner_chosen = False

    @staticmethod
    def begin(
        name: str | Pattern, after_match_skip_strategy: AfterMatchSkipStrategy | None = None
    ) -> Pattern:
        """Begin a pattern with a name, or with a pattern as a group.

        Raises:
            TypeError: the skip strategy is none.
            UsageError: the name cannot be one.
        """
        skip = after_match_skip_strategy
        if skip is not None and not isinstance(skip, AfterMatchSkipStrategy):
            msg = f"begin() expects an AfterMatchSkipStrategy, found {skip!r}"  # type: ignore[unreachable]
            raise TypeError(msg)
        return Pattern(_stage(name, Contiguity.STRICT, "begin"), None, skip)

    def next(self, name: str | Pattern) -> Pattern:
        """Add a stage or group whose event comes directly after the one before."""
        return self._then(name, Contiguity.STRICT, "next")

    def followed_by(self, name: str | Pattern) -> Pattern:
        """Add a stage or group; events that do not match may come between."""
        return self._then(name, Contiguity.RELAXED, "followed_by")

    def followed_by_any(self, name: str | Pattern) -> Pattern:
        """Add a stage or group; any events may come between, also some that match."""
        return self._then(name, Contiguity.ANY, "followed_by_any")

    def not_next(self, name: str) -> Pattern:
        """Demand that the next event does not match."""
        return self._then_not(name, Contiguity.NOT_NEXT, "not_next")

    def not_followed_by(self, name: str) -> Pattern:
        """Demand that no event matches before the next stage has one, or until `within` ends."""
        return self._then_not(name, Contiguity.NOT_FOLLOWED_BY, "not_followed_by")

    def where(self, condition: Any) -> Pattern:
        """Let an event fit only if this is true as well as what was said before.

        Args:
            condition: a callable of (event) or of (event, context), a `SimpleCondition` or an
                `IterativeCondition`.
        """
        self._no_group("where")
        check, before = as_check(condition, "where"), self._stage.condition
        return self._set(condition=check if before == ALWAYS else All((before, check)))

    def or_(self, condition: Any) -> Pattern:
        """Let an event fit if this is true, or what was said before."""
        self._no_group("or_")
        check, before = as_check(condition, "or_"), self._stage.condition
        return self._set(condition=check if before == ALWAYS else Some((before, check)))

    def subtype(self, subtype: type) -> Pattern:
        """Let only events of a class fit."""
        self._no_group("subtype")
        check, before = subtype_check(subtype), self._stage.condition
        return self._set(condition=check if before == ALWAYS else All((before, check)))

    def until(self, condition: Any) -> Pattern:
        """End a stage without an upper bound before the first event for which this is true."""
        if self._stage.until is not None:
            msg = f"Only one until condition can be applied: {self._who()} has one"
            raise UsageError(msg)
        if self._stage.most is not None:
            msg = (
                "The until condition is only applicable to looping states. "
                f"Call one_or_more() or times_or_more() on {self._who()} before until()"
            )
            raise UsageError(msg)
        return self._set(until=as_check(condition, "until"))

    def within(
        self, window_time: Length, within_type: WithinType = WithinType.FIRST_AND_LAST
    ) -> Pattern:
        """Bound the time that a match may take: less than this, not as much.

        With FIRST_AND_LAST the smallest bound of all stages holds for the whole pattern; with
        PREVIOUS_AND_CURRENT it holds between the events of this stage and the one before each.

        Raises:
            UsageError: the time is not positive.
        """
        length = _positive_ms(window_time, "within")
        if within_type is WithinType.FIRST_AND_LAST:
            return self._set(within_ms=length)
        if within_type is WithinType.PREVIOUS_AND_CURRENT:
            return self._set(step_ms=length)
        msg = f"within() expects a WithinType, found {within_type!r}"  # type: ignore[unreachable]
        raise TypeError(msg)

    def one_or_more(self, window_time: Length | None = None) -> Pattern:
        """Let the stage have any number of events, at least one.

        `window_time` bounds the time between two of them, and that of waiting behind the last one:
        what has found one of several possible events, and no further one in time, is given up.
        """
        return self._quantify("one_or_more", 1, None, window_time)

    def times_or_more(self, times: int, window_time: Length | None = None) -> Pattern:
        """Let the stage have at least so many events."""
        _whole(times, "times_or_more", "times", 1)
        return self._quantify("times_or_more", times, None, window_time)

    def times(
        self, from_times: int, to_times: int | None = None, window_time: Length | None = None
    ) -> Pattern:
        """Let the stage have exactly so many events, or from so many to so many.

        From 0 is the same as from 1 and optional.
        """
        if to_times is None:
            _whole(from_times, "times", "times", 1)
            return self._quantify("times", from_times, from_times, window_time)
        _whole(from_times, "times", "from_times", 0)
        _whole(to_times, "times", "to_times", max(1, from_times))
        quantified = self._quantify("times", max(1, from_times), to_times, window_time)
        return quantified.optional() if from_times == 0 else quantified

    def optional(self) -> Pattern:
        """Let the stage be left out.

        Raises:
            UsageError: it is a negation, optional already, or behind a greedy stage.
        """
        self._no_negation("optional")
        if self._stage.optional:
            msg = f"Optional already applied! Call optional() once on {self._who()}"
            raise UsageError(msg)
        if self._previous is not None:
            check_neighbours(self._previous._stage, replace(self._stage, optional=True))
        return self._set(optional=True)

    def greedy(self) -> Pattern:
        """Let the stage have as many events as it can."""
        self._no_negation("greedy")
        if self._stage.group is not None:
            msg = "Option not applicable to group pattern: greedy() needs a pattern with a name"
            raise UsageError(msg)
        self._quantified_only("greedy")
        if self._stage.inner is Contiguity.ANY:
            msg = (
                f"Option not applicable to FollowedByAny pattern: {self._who()} allows combinations"
            )
            raise UsageError(msg)
        return self._set(greedy=True)

    def consecutive(self) -> Pattern:
        """Let nothing come between the events of the stage."""
        return self._inner("consecutive", Contiguity.STRICT)

    def allow_combinations(self) -> Pattern:
        """Let any events come between the events of the stage, also some that match."""
        if self._stage.greedy:
            msg = f"allow_combinations() cannot be joined with greedy() on {self._who()}"
            raise UsageError(msg)
        return self._inner("allow_combinations", Contiguity.ANY)

    def get_name(self) -> str:
        """Return the name of the last stage."""
        return self._stage.name

    def get_previous(self) -> Pattern | None:
        """Return the pattern before the last stage."""
        return self._previous

    def get_after_match_skip_strategy(self) -> AfterMatchSkipStrategy:
        """Return the strategy that `begin` was given."""
        first = self
        while first._previous is not None:
            first = first._previous
        return first._skip or AfterMatchSkipStrategy.no_skip()

    def __repr__(self) -> str:
        """Show the names of the stages."""
        return f"Pattern({' '.join(stage.name for stage in self._stages())})"

    def _stages(self) -> tuple[Stage, ...]:
        stages = []
        pattern: Pattern | None = self
        while pattern is not None:
            stages.append(pattern._stage)
            pattern = pattern._previous
        return tuple(reversed(stages))

    def _then(self, name: str | Pattern, contiguity: Contiguity, method: str) -> Pattern:
        return Pattern(_stage(name, contiguity, method), self)

    def _then_not(self, name: str, contiguity: Contiguity, method: str) -> Pattern:
        if isinstance(name, Pattern):
            msg = f"{method}() expects a name: a group cannot be negated"
            raise UsageError(msg)
        stage = _stage(name, contiguity, method)
        check_neighbours(self._stage, stage)
        return Pattern(stage, self)

    def _set(self, **changes: Any) -> Pattern:
        self._stage = replace(self._stage, **changes)
        return self

    def _who(self) -> str:
        return f"pattern {self._stage.name!r}"

    def _quantify(
        self, method: str, least: int, most: int | None, window_time: Length | None
    ) -> Pattern:
        self._no_negation(method)
        if self._quantified:
            msg = (
                f"Already applied quantifier to this Pattern. {self._who()} has one, "
                f"so {method}() cannot be called"
            )
            raise UsageError(msg)
        self._quantified = True
        if window_time is not None and self._stage.group is not None:
            msg = (
                f"{method}() of a group takes no window_time, found {window_time!r}: bound the "
                "patterns of the group, or the whole with within()"
            )
            raise UsageError(msg)
        gap = None if window_time is None else _positive_ms(window_time, method)
        return self._set(least=least, most=most, gap_ms=gap)

    def _inner(self, method: str, contiguity: Contiguity) -> Pattern:
        self._no_negation(method)
        self._quantified_only(method)
        if self._inner_chosen:
            msg = (
                "You can apply either combinations or consecutive, not both, and once: "
                f"{self._who()} has one, so {method}() cannot be called"
            )
            raise UsageError(msg)
        self._inner_chosen = True
        return self._set(inner=contiguity)

    def _quantified_only(self, method: str) -> None:
        if not self._quantified:
            msg = (
                "Option not applicable to singleton quantifier: call one_or_more(), times() or "
                f"times_or_more() on {self._who()} before {method}()"
            )
            raise UsageError(msg)

    def _no_negation(self, method: str) -> None:
        if self._stage.contiguity in NEGATIONS:
            msg = f"Option not applicable to NOT pattern: {method}() on {self._who()}"
            raise UsageError(msg)

    def _no_group(self, method: str) -> None:
        if self._stage.group is not None:
            msg = f"A group does not support {method}(): call it on the patterns in the group"
            raise UsageError(msg)


def spec_of(pattern: Pattern) -> PatternSpec:
    """Return a pattern as a value of the engine."""
    return PatternSpec(pattern._stages(), skip_of(pattern.get_after_match_skip_strategy()))


def _stage(name: Any, contiguity: Contiguity, method: str) -> Stage:
    if isinstance(name, Pattern):
        stages = name._stages()
        first = name
        while first._previous is not None:
            first = first._previous
        if first._skip is not None:
            msg = (
                f"the group {name!r} has a skip strategy of its own: a strategy belongs to the "
                "begin() of the whole pattern"
            )
            raise UsageError(msg)
        return Stage(f"({' '.join(s.name for s in stages)})", contiguity, group=stages)
    if not isinstance(name, str) or not name or ":" in name:
        msg = (
            f"{method}() expects a name without ':' or a Pattern as a group, found {name!r}; the "
            "events of a match are found by these names"
        )
        raise UsageError(msg)
    return Stage(name, contiguity)


def _positive_ms(length: Length, method: str) -> int:
    found = to_ms(length)
    if found <= 0:
        msg = f"{method}() expects at least one millisecond, found {length!r}"
        raise UsageError(msg)
    return found


def _whole(number: Any, method: str, parameter: str, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        msg = (
            f"{method}(): {parameter} must be a whole number of at least {least}, found {number!r}"
        )
        raise UsageError(msg)
