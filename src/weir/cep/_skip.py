"""`AfterMatchSkipStrategy`: which other matches a match removes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from weir.errors import UsageError
from weir.nfa.spec import Skip, SkipTo


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """What happens to matches that share events with one that was found.

    A strategy is given to `Pattern.begin`. With any but `no_skip` a match waits until no earlier
    partial match is left that could remove it.

    Example:
        skip = AfterMatchSkipStrategy.skip_past_last_event()
        Pattern.begin("large", skip).where(lambda r: r[1] > 9)
    """

    _skip: Skip | None = None

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Emit every match. This is the default."""
        return AfterMatchSkipStrategy()

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Remove matches that begin with the same event."""
        return AfterMatchSkipStrategy(Skip(SkipTo.NEXT))

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Remove matches that begin before the match ended: no event is in two matches."""
        return AfterMatchSkipStrategy(Skip(SkipTo.PAST_LAST_EVENT))

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Remove matches that begin before the first event under a name."""
        return AfterMatchSkipStrategy(Skip(SkipTo.FIRST, _named(pattern_name, "skip_to_first")))

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Remove matches that begin before the last event under a name."""
        return AfterMatchSkipStrategy(Skip(SkipTo.LAST, _named(pattern_name, "skip_to_last")))

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Fail when a match has no event under the name, or begins with it.

        Without this nothing is skipped then.

        Raises:
            UsageError: the strategy does not skip to a name.
        """
        skip = skip_of(self)
        if skip.stage is None:
            msg = (
                "throw_exception_on_miss() belongs to skip_to_first() and skip_to_last(): "
                f"{skip.to.value} skips to no pattern that could be missing"
            )
            raise UsageError(msg)
        return AfterMatchSkipStrategy(replace(skip, raises=True))


def skip_of(strategy: AfterMatchSkipStrategy | None) -> Skip:
    """Return a strategy as a value of the engine."""
    return Skip() if strategy is None or strategy._skip is None else strategy._skip


def _named(name: Any, method: str) -> str:
    if not isinstance(name, str) or not name:
        msg = f"{method}() expects the name of a pattern, found {name!r}"
        raise UsageError(msg)
    return name
