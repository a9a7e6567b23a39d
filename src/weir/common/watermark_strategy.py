"""Where event time comes from: timestamp assigners, watermark strategies and generators.

A strategy is only a description; the runtime reads its attributes. The watermark follows Flink's
rule: the greatest timestamp seen, minus the allowed disorder, minus one millisecond; or it is what
a generator of the user says.
"""

from __future__ import annotations

import abc
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from weir.common._absent import GENERATOR, absent
from weir.common.time import Duration, to_ms
from weir.errors import UsageError
from weir.notices import warn_once

__all__ = [
    "TimestampAssigner",
    "Watermark",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

log = logging.getLogger("weir.time")


class TimestampAssigner(abc.ABC):
    """Gives each record its event time.

    Example:
        class SecondField(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1]

        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    """

    @abc.abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return milliseconds since the Unix epoch.

        `record_timestamp` is the timestamp that the record already has, the least 64-bit integer
        when it has none.
        """


class _FunctionAssigner(TimestampAssigner):
    """A plain function as timestamp assigner."""

    def __init__(self, function: Callable[[Any, int], int]) -> None:
        self._function = function

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Call the function."""
        return self._function(value, record_timestamp)


@dataclass(frozen=True)
class FieldTimestamps(TimestampAssigner):
    """The timestamps are in a field of the records: no function, so columns stay columns.

    The field holds milliseconds since the Unix epoch, or points in time; those without a time zone
    are taken as UTC, and what is below a millisecond is cut off towards the past.
    """

    field: str | int

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Read the field.

        Raises:
            UsageError: it holds no time.
        """
        found = value[self.field]
        if isinstance(found, datetime.datetime):
            zone = datetime.timezone.utc
            aware = found if found.tzinfo is not None else found.replace(tzinfo=zone)
            since = aware - _UNIX_EPOCH
            return since.days * _DAY_MS + since.seconds * 1000 + since.microseconds // 1000
        if not isinstance(found, int) or isinstance(found, bool):
            msg = (
                f"field {self.field!r} is to hold the timestamps, and it holds {found!r}; expected "
                "milliseconds as a whole number, or a point in time"
            )
            raise UsageError(msg)
        return found


_UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Watermark:
    """A moment of event time, in milliseconds: nothing older is expected any more.

    Example:
        Watermark(1_000).timestamp
    """

    timestamp: int

    def get_timestamp(self) -> int:
        """Return the milliseconds."""
        return self.timestamp


class WatermarkOutput(abc.ABC):
    """What a generator says watermarks to.

    Example:
        def quiet(output: WatermarkOutput):
            output.mark_idle()
    """

    @abc.abstractmethod
    def emit_watermark(self, watermark: Watermark | int) -> None:
        """Say how far event time has come; one that is not above the last changes nothing.

        It ends idleness.
        """

    @abc.abstractmethod
    def mark_idle(self) -> None:
        """Hold nobody back until the next watermark, or until `mark_active`."""

    @abc.abstractmethod
    def mark_active(self) -> None:
        """Count again, without a new watermark."""


class WatermarkGenerator(abc.ABC):
    """Makes watermarks of the records that it sees: those of one partition of a source.

    Behind the first exchange there is one for each subtask. What it knows is not part of a
    checkpoint, as in Flink: after a restore a new one begins, and operators begin at the watermark
    that they had.

    Example:
        class Hourly(WatermarkGenerator):
            def on_event(self, event, timestamp, output):
                output.emit_watermark(Watermark(timestamp - 3_600_000))

            def on_periodic_emit(self, output):
                pass
    """

    @abc.abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """See a record; may say a watermark at once, which counts at the end of the epoch."""

    @abc.abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Say a watermark at the end of an epoch, also of one without records."""


@dataclass(frozen=True)
class WatermarkAlignment:
    """How far sources of one group may run ahead of the slowest.

    Example:
        strategy = WatermarkStrategy.no_watermarks()
        strategy.with_watermark_alignment("group", Duration.of_seconds(20))
    """

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1000


@dataclass
class WatermarkStrategy:
    """How watermarks follow from records.

    Attributes:
        out_of_orderness_ms: how late a record may be; None for no watermarks at all.
        timestamp_assigner: gives records their timestamps; None keeps those they have.
        idleness_ms: after how long a silent source no longer holds the watermark back.
        alignment: bound between sources of one group; has no effect.
        generator: makes the generators of the user, in place of the bound.

    Example:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda r, _: r[1]))
    """

    out_of_orderness_ms: int | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idleness_ms: int | None = None
    alignment: WatermarkAlignment | None = None
    generator: Callable[..., Any] | None = None

    @staticmethod
    def for_generator(generator_supplier: Any) -> WatermarkStrategy:
        """Return a strategy whose watermarks are made by generators of the user.

        The supplier is called in the slots, once for every generator that is needed: without an
        argument, or with a context where it takes one, as a `WatermarkGeneratorSupplier` does. A
        subclass of `WatermarkGenerator` is a supplier of itself.
        """
        if not callable(generator_supplier):
            msg = (
                "for_generator needs a function that returns a WatermarkGenerator, or a subclass "
                f"of it, got {generator_supplier!r}"
            )
            raise UsageError(msg)
        return WatermarkStrategy(generator=generator_supplier)

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that only grow."""
        return WatermarkStrategy(out_of_orderness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Return a strategy for records that are late by no more than a bound."""
        bound = to_ms(max_out_of_orderness)
        if bound < 0:
            msg = f"the bound of the disorder must not be negative, got {max_out_of_orderness!r}"
            raise UsageError(msg)
        return WatermarkStrategy(out_of_orderness_ms=bound)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that never advances event time."""
        return WatermarkStrategy()

    def with_timestamp_assigner(self, timestamp_assigner: Any) -> WatermarkStrategy:
        """Set the assigner on this very strategy, as PyFlink does, and return it.

        Anything with an `extract_timestamp` method will do, and so will a plain function. The name
        or the position of a field says where the timestamps are: then rows that come as columns,
        such as those of a DataFrame, stay columns.
        """
        if hasattr(timestamp_assigner, "extract_timestamp"):
            self.timestamp_assigner = timestamp_assigner
        elif type(timestamp_assigner) in (str, int):
            self.timestamp_assigner = FieldTimestamps(timestamp_assigner)
        elif callable(timestamp_assigner):
            self.timestamp_assigner = _FunctionAssigner(timestamp_assigner)
        else:
            msg = (
                "a timestamp assigner has extract_timestamp(), or is a function, or names a field; "
                f"got {timestamp_assigner!r}"
            )
            raise UsageError(msg)
        return self

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Return a strategy in which a silent source stops holding the watermark back."""
        timeout = to_ms(idle_timeout)
        if timeout <= 0:
            msg = f"the idle timeout must be greater than zero, got {idle_timeout!r}"
            raise UsageError(msg)
        return replace(self, idleness_ms=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Accept the bound between sources of a group, which has no effect, and warn once.

        Spark chooses how much of every source an epoch gets.
        """
        interval = 1000 if update_interval is None else to_ms(update_interval)
        drift = to_ms(max_allowed_watermark_drift)
        if drift < 0 or interval <= 0:
            msg = (
                "watermark alignment needs a drift of at least zero and an interval above zero, "
                f"got {max_allowed_watermark_drift!r} and {update_interval!r}"
            )
            raise UsageError(msg)
        warn_once(
            log,
            f"with_watermark_alignment({watermark_group!r}) has no effect, because Spark chooses "
            "how much of every source an epoch gets; limit that at the sources instead",
        )
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))


__getattr__ = absent(__name__, {"AssignerWithPeriodicWatermarksWrapper": GENERATOR})
