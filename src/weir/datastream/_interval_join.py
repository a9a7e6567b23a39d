"""Interval joins: `left.interval_join(right).between(lower, upper).process(function)`.

A join is a value: every call returns a new one, and only `process` adds to the program.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

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
Self = TypeVar("Self", bound="BoundedPairs[Any]")
Timed = TypeVar("Timed", bound="Pairs[Any]")


class Pairs(Generic[S]):
    """Two keyed streams whose records are paired by time."""

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
        self.left = left
        self.right = right
        self.result = result

    def in_event_time(self: Timed) -> Timed:
        """Pair records by event time, as it is anyway."""
        return self

    def in_processing_time(self: Timed) -> Timed:
        """Refuse, as Flink does: records are paired by their timestamps.

        Raises:
            UsageError: always.
        """
        msg = (
            "in_processing_time(): an interval join is only supported in event time, as in Flink; "
            "call assign_timestamps_and_watermarks() on both streams, or join() them in "
            "processing-time windows"
        )
        raise UsageError(msg)

    def _settings(self, lower_bound: Length, upper_bound: Length) -> JoinSettings:
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
        return JoinSettings(lower, upper)


@dataclass(frozen=True)
class JoinSettings:
    """The bounds of a join, which of them are left out, and where late records go."""

    lower_ms: int
    upper_ms: int
    without_lower: bool = False
    without_upper: bool = False
    late_left: OutputTag | None = None
    late_right: OutputTag | None = None


class BoundedPairs(Generic[S]):
    """Pairs within bounds of time."""

    def __init__(self, join: Pairs[S], settings: JoinSettings) -> None:
        """Hold the streams and how they are joined; made by `IntervalJoin.between`."""
        self._join = join
        self._settings = settings

    def lower_bound_exclusive(self: Self) -> Self:
        """Leave out pairs that are exactly at the lower bound."""
        return self._with(without_lower=True)

    def upper_bound_exclusive(self: Self) -> Self:
        """Leave out pairs that are exactly at the upper bound."""
        return self._with(without_upper=True)

    def side_output_left_late_data(self: Self, output_tag: OutputTag) -> Self:
        """Send late records of the left stream to a side output instead of dropping them."""
        require_type(output_tag, OutputTag, "an OutputTag")
        return self._with(late_left=output_tag)

    def side_output_right_late_data(self: Self, output_tag: OutputTag) -> Self:
        """Send late records of the right stream to a side output instead of dropping them."""
        require_type(output_tag, OutputTag, "an OutputTag")
        return self._with(late_right=output_tag)

    def _with(self: Self, **changed: Any) -> Self:
        return type(self)(self._join, replace(self._settings, **changed))

    def _process(self, process_join_function: Any, output_type: Any) -> S:
        require_instance(process_join_function, "ProcessJoinFunction")
        require_type(process_join_function, ProcessJoinFunction, "a ProcessJoinFunction")
        given, join = self._settings, self._join
        lower, upper = given.lower_ms + given.without_lower, given.upper_ms - given.without_upper
        if lower > upper:
            msg = (
                f"an interval join between {given.lower_ms} ms and {given.upper_ms} ms has no "
                "pairs without its bounds: widen the interval, or keep the bounds"
            )
            raise UsageError(msg)
        late = (given.late_left, given.late_right)
        operator = join.left.env.declare(
            kinds.INTERVAL_JOIN,
            "Interval Join",
            inputs=[list(join.left.edges), list(join.right.edges)],
            function=process_join_function,
            output_type=declared_type(output_type),
            options={
                "bounds": (lower, upper),
                "types": (join.left.record_type, join.right.record_type),
                "late": tuple(None if tag is None else tag.tag_id for tag in late),
            },
        )
        return join.result(operator)


def _key_type(stream: Stream) -> Any:
    spec = stream.edges[0].key
    return None if spec is None else spec.key_type
