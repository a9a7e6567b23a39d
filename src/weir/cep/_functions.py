"""The functions that users write for matches, and callables in their place.

A match is a dict: the name of each stage that has events, with the list of them, in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from weir.datastream import Function, OutputTag, RuntimeContext


class PatternProcessFunction(Function):
    """Any number of outputs per match, with side outputs.

    Yield a value for the main output, `tag, value` with an `OutputTag` for a side output. Functions
    of a pattern have no state of their own.

    Example:
        class Alert(PatternProcessFunction):
            def process_match(self, match, ctx):
                yield f"{len(match['large'])} large ones"
    """

    class Context(ABC):
        """Given to both methods: the time of the match, and side outputs."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the timestamp of the last event, or when the match timed out.

            In processing time that is when it was found.
            """

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it stands still during an epoch."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit a record to a side output."""

    @abstractmethod
    def process_match(
        self, match: dict[str, list[Any]], ctx: PatternProcessFunction.Context
    ) -> Any:
        """Handle a match; return or yield the outputs."""


class TimedOutPartialMatchHandler(ABC):
    """Makes a `PatternProcessFunction` hear of partial matches that `within` ended.

    Example:
        class Alert(PatternProcessFunction, TimedOutPartialMatchHandler):
            def process_match(self, match, ctx):
                yield "complete"

            def process_timed_out_match(self, match, ctx):
                yield OutputTag("late", Types.STRING()), "timed out"
    """

    @abstractmethod
    def process_timed_out_match(
        self, match: dict[str, list[Any]], ctx: PatternProcessFunction.Context
    ) -> Any:
        """Handle a partial match; call `ctx.output`, or yield `tag, value`."""


class PatternSelectFunction(Function):
    """One output per match.

    Example:
        class First(PatternSelectFunction):
            def select(self, match):
                return match["large"][0]
    """

    @abstractmethod
    def select(self, pattern: dict[str, list[Any]]) -> Any:
        """Return the record for a match."""


class PatternFlatSelectFunction(Function):
    """Any number of outputs per match.

    Example:
        class Each(PatternFlatSelectFunction):
            def flat_select(self, match):
                yield from match["large"]
    """

    @abstractmethod
    def flat_select(self, pattern: dict[str, list[Any]]) -> Any:
        """Return or yield the records for a match."""


class PatternTimeoutFunction(Function):
    """One output per timed-out partial match.

    Example:
        class Late(PatternTimeoutFunction):
            def timeout(self, match, timeout_timestamp):
                return sorted(match), timeout_timestamp
    """

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Any:
        """Return the record for a partial match that ended at a time."""


class PatternFlatTimeoutFunction(Function):
    """Any number of outputs per timed-out partial match.

    Example:
        class Lost(PatternFlatTimeoutFunction):
            def timeout(self, match, timeout_timestamp):
                yield from match.get("large", [])
    """

    @abstractmethod
    def timeout(self, pattern: dict[str, list[Any]], timeout_timestamp: int) -> Any:
        """Return or yield the records for a partial match that ended at a time."""


class _Selecting(PatternProcessFunction):
    """What `select` and `flat_select` make of their functions."""

    def __init__(self, functions: list[Any]) -> None:
        self._functions = [f for f in functions if isinstance(f, Function)]

    def open(self, runtime_context: RuntimeContext) -> None:
        for function in self._functions:
            function.open(runtime_context)

    def close(self) -> None:
        for function in self._functions:
            function.close()


class Select(_Selecting):
    """A select function as a process function."""

    def __init__(self, function: Any, *others: Any) -> None:
        """Take a `PatternSelectFunction` or a callable."""
        super().__init__([function, *others])
        self._select = method_of(function, PatternSelectFunction, "select", "select")

    def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Any:
        """Return one record."""
        return [self._select(match)]


class FlatSelect(_Selecting):
    """A flat select function as a process function."""

    def __init__(self, function: Any, *others: Any) -> None:
        """Take a `PatternFlatSelectFunction` or a callable."""
        super().__init__([function, *others])
        kind = PatternFlatSelectFunction
        self._select = method_of(function, kind, "flat_select", "flat_select")

    def process_match(self, match: dict[str, list[Any]], ctx: Any) -> Any:
        """Return what the function returns."""
        return self._select(match)


class SelectWithTimeouts(Select, TimedOutPartialMatchHandler):
    """A select function, and one for what timed out."""

    def __init__(self, function: Any, tag: OutputTag, timeout: Any) -> None:
        """Take both functions and the tag for the second."""
        super().__init__(function, timeout)
        self._tag = tag
        self._timeout = method_of(timeout, PatternTimeoutFunction, "timeout", "select")

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: Any) -> Any:
        """Emit one record to the side output."""
        ctx.output(self._tag, self._timeout(match, ctx.timestamp()))


class FlatSelectWithTimeouts(FlatSelect, TimedOutPartialMatchHandler):
    """A flat select function, and one for what timed out."""

    def __init__(self, function: Any, tag: OutputTag, timeout: Any) -> None:
        """Take both functions and the tag for the second."""
        super().__init__(function, timeout)
        self._tag = tag
        self._timeout = method_of(timeout, PatternFlatTimeoutFunction, "timeout", "flat_select")

    def process_timed_out_match(self, match: dict[str, list[Any]], ctx: Any) -> Any:
        """Emit any number of records to the side output."""
        for value in self._timeout(match, ctx.timestamp()) or ():
            ctx.output(self._tag, value)


def method_of(function: Any, kind: type, method: str, call: str) -> Callable[..., Any]:
    """Return the method of a function object, or the callable itself.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(function, kind):
        found: Callable[..., Any] = getattr(function, method)
        return found
    if callable(function) and not isinstance(function, (type, Function)):
        plain: Callable[..., Any] = function
        return plain
    hint = ": add parentheses" if isinstance(function, type) else ""
    msg = f"{call}() expects a {kind.__name__} or a callable, found {function!r}{hint}"
    raise TypeError(msg)
