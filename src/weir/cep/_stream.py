"""`CEP` and `PatternStream`: a pattern on a stream, and what becomes of its matches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from weir.cep._functions import (
    FlatSelect,
    FlatSelectWithTimeouts,
    PatternProcessFunction,
    Select,
    SelectWithTimeouts,
)
from weir.cep._pattern import Pattern, spec_of
from weir.common.typeinfo import Types
from weir.datastream import DataStream, KeyedStream, OutputTag
from weir.datastream._stream import declared_type
from weir.datastream.functions import NullByteKeySelector
from weir.errors import UsageError
from weir.graph import kinds
from weir.nfa.compiler import compile_pattern
from weir.nfa.spec import PatternSpec


class EventComparator(ABC):
    """Orders events of one timestamp.

    Example:
        class ByAmount(EventComparator):
            def compare(self, o1, o2):
                return o1[1] - o2[1]

        CEP.pattern(keyed, Pattern.begin("any"), ByAmount())
    """

    @abstractmethod
    def compare(self, value1: Any, value2: Any) -> int:
        """Return a negative number when the first comes first, a positive one when the second."""


class CEP:
    """The way to patterns on streams.

    Example:
        large = Pattern.begin("large").where(lambda r: r[1] > 100)
        CEP.pattern(keyed, large).select(lambda match: match["large"][0], Types.STRING())
    """

    @staticmethod
    def pattern(
        input: DataStream,
        pattern: Pattern,
        comparator: EventComparator | Callable[[Any, Any], int] | None = None,
    ) -> PatternStream:
        """Look for a pattern in a stream: by key in a keyed one, in one subtask otherwise.

        Args:
            input: the stream.
            pattern: the pattern, which is checked here.
            comparator: orders events of one timestamp; without it they come in order of arrival.

        Raises:
            TypeError: an argument is of another kind.
            UsageError: the pattern cannot be.
        """
        if not isinstance(input, DataStream):
            msg = f"CEP.pattern() expects a DataStream, found {input!r}"  # type: ignore[unreachable]
            raise TypeError(msg)
        if not isinstance(pattern, Pattern):
            msg = f"CEP.pattern() expects a Pattern, found {pattern!r}"  # type: ignore[unreachable]
            raise TypeError(msg)
        spec = spec_of(pattern)
        compile_pattern(spec)
        return PatternStream(input, spec, _compare(comparator))


@dataclass(frozen=True)
class PatternStream:
    """A stream in which a pattern is looked for; nothing runs before a function takes matches.

    Example:
        found = CEP.pattern(keyed, Pattern.begin("large").where(lambda r: r[1] > 100))
        found.select(lambda match: len(match["large"]), Types.INT()).print()
    """

    _stream: DataStream
    _pattern: PatternSpec
    _comparator: Callable[[Any, Any], int] | None = None
    _processing_time: bool = False
    _late_tag: OutputTag | None = None

    def in_event_time(self) -> PatternStream:
        """Take events in the order of their timestamps, when the watermark has passed them.

        This is the default. Events behind the watermark are late: they are dropped and counted, or
        go to the side output for them.
        """
        return replace(self, _processing_time=False)

    def in_processing_time(self) -> PatternStream:
        """Take events when they come."""
        return replace(self, _processing_time=True)

    def side_output_late_data(self, late_data_output_tag: OutputTag) -> PatternStream:
        """Send events that are late to a side output."""
        return replace(self, _late_tag=_tag(late_data_output_tag, "side_output_late_data"))

    def process(
        self, pattern_process_function: PatternProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Hand matches to a `PatternProcessFunction`.

        If it is a `TimedOutPartialMatchHandler` too, it gets partial matches that timed out.
        """
        function: Any = pattern_process_function
        if not isinstance(function, PatternProcessFunction):
            hint = ": add parentheses" if isinstance(function, type) else ""
            msg = f"process() expects a PatternProcessFunction, found {function!r}{hint}"
            raise TypeError(msg)
        return self._apply(function, output_type)

    def select(
        self,
        pattern_select_function: Any,
        output_type: Any = None,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_timeout_function: Any = None,
    ) -> DataStream:
        """Replace each match by the result of a `PatternSelectFunction` or callable of it.

        With a tag and a `PatternTimeoutFunction`, or a callable of (match, timestamp), partial
        matches that timed out go to a side output.
        """
        tag, timeout = timed_out_partial_matches_tag, pattern_timeout_function
        function: PatternProcessFunction
        if _has_timeouts(tag, timeout, "select"):
            function = SelectWithTimeouts(pattern_select_function, _tag(tag, "select"), timeout)
        else:
            function = Select(pattern_select_function)
        return self._apply(function, output_type)

    def flat_select(
        self,
        pattern_flat_select_function: Any,
        output_type: Any = None,
        timed_out_partial_matches_tag: OutputTag | None = None,
        pattern_flat_timeout_function: Any = None,
    ) -> DataStream:
        """Replace each match by any number of records; the arguments are those of `select`."""
        tag, timeout = timed_out_partial_matches_tag, pattern_flat_timeout_function
        function: PatternProcessFunction
        if _has_timeouts(tag, timeout, "flat_select"):
            given = pattern_flat_select_function
            function = FlatSelectWithTimeouts(given, _tag(tag, "flat_select"), timeout)
        else:
            function = FlatSelect(pattern_flat_select_function)
        return self._apply(function, output_type)

    def _apply(self, function: PatternProcessFunction, output_type: Any) -> DataStream:
        options = {
            "pattern": self._pattern,
            "comparator": self._comparator,
            "processing_time": self._processing_time,
            "late_tag": self._late_tag,
        }
        keyed = isinstance(self._stream, KeyedStream)
        stream = self._stream if keyed else self._stream.key_by(NullByteKeySelector(), Types.BYTE())
        operator = stream._declare(
            kinds.CEP,
            "CepOperator",
            function=function,
            output_type=declared_type(output_type),
            options=options,
        )
        found = stream._after(operator)
        return found if keyed else found.force_non_parallel()


def _compare(comparator: Any) -> Callable[[Any, Any], int] | None:
    if isinstance(comparator, EventComparator):
        return comparator.compare
    if comparator is not None and (not callable(comparator) or isinstance(comparator, type)):
        msg = (
            "CEP.pattern() expects an EventComparator or a function of two events that returns a "
            f"number, found {comparator!r}"
        )
        raise TypeError(msg)
    found: Callable[[Any, Any], int] | None = comparator
    return found


def _tag(tag: Any, method: str) -> OutputTag:
    if not isinstance(tag, OutputTag):
        msg = f"{method}() expects an OutputTag, found {tag!r}"
        raise TypeError(msg)
    return tag


def _has_timeouts(tag: Any, timeout: Any, method: str) -> bool:
    if (tag is None) != (timeout is None):
        msg = (
            f"{method}() needs both a tag and a function for partial matches that time out, or "
            "neither"
        )
        raise UsageError(msg)
    return tag is not None
