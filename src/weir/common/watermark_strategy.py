"""Where event time comes from: timestamp assigners and watermark strategies.

A strategy is only a description; the runtime reads its attributes. The watermark follows Flink's
rule: the greatest timestamp seen, minus the allowed disorder, minus one millisecond.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from weir.common.time import Duration, to_ms
from weir.errors import UsageError

__all__ = ["TimestampAssigner", "WatermarkAlignment", "WatermarkStrategy"]


class TimestampAssigner(abc.ABC):
    """Gives each record its event time."""

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
class WatermarkAlignment:
    """How far sources of one group may run ahead of the slowest."""

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
        alignment: bound between sources of one group.
    """

    out_of_orderness_ms: int | None = None
    timestamp_assigner: TimestampAssigner | None = None
    idleness_ms: int | None = None
    alignment: WatermarkAlignment | None = None

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

        Anything with an `extract_timestamp` method will do, and so will a plain function.
        """
        if hasattr(timestamp_assigner, "extract_timestamp"):
            self.timestamp_assigner = timestamp_assigner
        elif callable(timestamp_assigner):
            self.timestamp_assigner = _FunctionAssigner(timestamp_assigner)
        else:
            msg = f"a timestamp assigner needs extract_timestamp(), got {timestamp_assigner!r}"
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
        """Return a strategy that bounds the drift between sources of a group."""
        interval = 1000 if update_interval is None else to_ms(update_interval)
        drift = to_ms(max_allowed_watermark_drift)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))
