"""Interval joins: `left.interval_join(right).between(lower, upper).process(function)`.

A join is a value: every call returns a new one, and only `process` adds to the program.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias

from weir.common.time import Duration, Time, to_ms
from weir.datastream._checks import require_type
from weir.datastream._connected_streams import Result, S
from weir.datastream._plain_functions import require_instance
from weir.datastream._stream import Stream, check_same_program, declared_type
from weir.datastream.functions import ProcessJoinFunction
from weir.datastream.output_tag import OutputTag
from weir.errors import UsageError
from weir.graph import kinds

Length: TypeAlias = Duration | Time | datetime.timedelta | int
_BOUND_MS = 1 << 63


class IntervalJoin(Generic[S]):
    """Two keyed streams whose records are paired by time; `between` says how."""

    def __init__(self, left: Stream, right: Stream, result: Result[S]) -> None:
        """Hold two keyed streams of one program.

        Raises:
            UsageError: they are of different environments, or keyed by different types.
        """
        check_same_program(left, right, "interval_join")
        first, second = (_key_type(stream) for stream in (left, right))
        if first is not None and second is not None and first != second:
            msg = (
                f"interval_join() needs equal keys on both sides, found the key types {first!r} "
                f"and {second!r}: key both streams by the same type"
            )
            raise UsageError(msg)
        self._left = left
        self._right = right
        self._result = result

    def between(self, lower_bound: Length, upper_bound: Length) -> IntervalJoined[S]:
        """Pair a left record with the right ones from `lower_bound` to `upper_bound` behind it.

        Two records with the same key are a pair if and only if `left.timestamp + lower_bound <=
        right.timestamp <= left.timestamp + upper_bound`. Bounds may be negative.

        Raises:
            UsageError: a bound is no length of time, or the lower one is above the upper one.
        """
        lower, upper = to_ms(lower_bound), to_ms(upper_bound)
        if lower > upper:
            msg = (
                f"between() needs a lower bound that is not above the upper bound, found "
                f"{lower} ms and {upper} ms"
            )
            raise UsageError(msg)
        for bound in (lower, upper):
            if not -_BOUND_MS < bound < _BOUND_MS:
                msg = f"between() needs bounds of 64 bits of milliseconds, found {bound}"
                raise UsageError(msg)
        return IntervalJoined(
            self._left, self._right, self._result, _lower_ms=lower, _upper_ms=upper
        )


@dataclass(frozen=True)
class IntervalJoined(Generic[S]):
    """An interval join with bounds, in milliseconds; `process` declares it."""

    _left: Stream
    _right: Stream
    _result: Result[S]
    _lower_ms: int
    _upper_ms: int
    _without_lower: bool = False
    _without_upper: bool = False
    _late_left: OutputTag | None = None
    _late_right: OutputTag | None = None

    def lower_bound_exclusive(self) -> IntervalJoined[S]:
        """Leave out pairs that are exactly at the lower bound."""
        return replace(self, _without_lower=True)

    def upper_bound_exclusive(self) -> IntervalJoined[S]:
        """Leave out pairs that are exactly at the upper bound."""
        return replace(self, _without_upper=True)

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined[S]:
        """Send late records of the left stream to a side output instead of dropping them."""
        require_type(output_tag, OutputTag, "an OutputTag")
        return replace(self, _late_left=output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined[S]:
        """Send late records of the right stream to a side output instead of dropping them."""
        require_type(output_tag, OutputTag, "an OutputTag")
        return replace(self, _late_right=output_tag)

    def process(self, process_join_function: ProcessJoinFunction, output_type: Any = None) -> S:
        """Apply a `ProcessJoinFunction` to every pair.

        Guarantee: every pair is handled once, whichever of its records comes first, unless one of
        them is late: older than the watermark that the join had reached before the epoch in which
        the record came. A record is kept until the watermark says that no partner can follow.

        Raises:
            TypeError: it is no `ProcessJoinFunction`.
            UsageError: without its bounds the interval is empty.
        """
        require_instance(process_join_function, "ProcessJoinFunction")
        require_type(process_join_function, ProcessJoinFunction, "a ProcessJoinFunction")
        lower = self._lower_ms + self._without_lower
        upper = self._upper_ms - self._without_upper
        if lower > upper:
            msg = (
                f"an interval join between {self._lower_ms} ms and {self._upper_ms} ms has no "
                "pairs without its bounds: widen the interval, or keep the bounds"
            )
            raise UsageError(msg)
        late = (self._late_left, self._late_right)
        operator = self._left.env.declare(
            kinds.INTERVAL_JOIN,
            "Interval Join",
            inputs=[list(self._left.edges), list(self._right.edges)],
            function=process_join_function,
            output_type=declared_type(output_type),
            options={
                "bounds": (lower, upper),
                "types": (self._left.record_type, self._right.record_type),
                "late": tuple(None if tag is None else tag.tag_id for tag in late),
            },
        )
        return self._result(operator)


def _key_type(stream: Stream) -> Any:
    spec = stream.edges[0].key
    return None if spec is None else spec.key_type
