"""Conditions that users write: objects, or callables of the event, with or without a context."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from weir.nfa.condition import Check


class IterativeCondition(ABC):
    """A condition that may look at the partial match.

    It must be a function of the event and of what the context says: it is asked once for an event
    and a partial match.

    Example:
        class Warmer(IterativeCondition):
            def filter(self, value, ctx):
                return all(value[1] > before[1] for before in ctx.get_events_for_pattern("warm"))

        Pattern.begin("warm").one_or_more().where(Warmer())
    """

    class Context(ABC):
        """Given to `filter`: what has happened so far."""

        @abstractmethod
        def get_events_for_pattern(self, name: str) -> list[Any]:
            """Return the events of the partial match under a name; the present one is not there."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the timestamp of the event; in processing time that of the epoch."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it stands still during an epoch."""

    @abstractmethod
    def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
        """Return whether the event fits."""


class SimpleCondition(ABC):
    """A condition on the event alone; it is asked once for an event.

    Example:
        class Large(SimpleCondition):
            def filter(self, value):
                return value[1] > 100

        Pattern.begin("large").where(Large())
    """

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether the event fits."""


def as_check(condition: Any, method: str) -> Check:
    """Return what a user gave to `where` and its like.

    Raises:
        TypeError: it is neither a condition nor a callable of one or two arguments.
    """
    if isinstance(condition, IterativeCondition):
        return Check(condition.filter, with_context=True)
    if isinstance(condition, SimpleCondition):
        return Check(condition.filter)
    if not callable(condition) or isinstance(condition, type):
        hint = ": add parentheses" if isinstance(condition, type) else ""
        raise TypeError(_expected(method, condition) + hint)
    return Check(condition, with_context=_takes_context(condition, method))


def subtype_check(subtype: Any) -> Check:
    """Return the check for instances of a class.

    Raises:
        TypeError: it is no class.
    """
    if not isinstance(subtype, type):
        msg = f"subtype() expects a class, found {subtype!r}"
        raise TypeError(msg)
    return Check(lambda event: isinstance(event, subtype))


def _takes_context(function: Callable[..., Any], method: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # a builtin that does not tell: those take the value
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [p for p in parameters if p.kind in positional]
    needed = [p for p in places if p.default is inspect.Parameter.empty]
    any_number = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    if len(needed) > 2 or not (places or any_number):
        raise TypeError(_expected(method, function))
    return len(needed) == 2


def _expected(method: str, found: Any) -> str:
    return (
        f"{method}() expects a function of (event) or (event, context), a SimpleCondition or an "
        f"IterativeCondition, found {found!r}"
    )
