"""What subtasks and partitions of level 0 tell the driver at the end of an epoch."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from weir.runtime.metrics import MetricSample

Rows: TypeAlias = tuple[int, str, list[Any]]
"""Records of a print or collect operator: its index in the plan, its kind, and the records."""


class SourceReport(msgspec.Struct, frozen=True):
    """Of one partition of level 0: what it read, and the bytes of frames that it sent to slots."""

    partition: int
    rows_read: int
    bytes_read: int
    bytes_sent: int


class SubtaskReport(msgspec.Struct, frozen=True):
    """Of the operators of one level in one slot, after an epoch.

    `records_in` and `records_out` count by operator index, since the attempt began. `bytes_sent`
    are those of frames for other subtasks. `entries` is about how many keyed entries there are,
    `watermark` the lowest of the operators', `next_timer_ms` when the next processing-time timer
    is due. `metrics` are those of user functions, by operator index.
    """

    level: int
    subtask: int
    epoch: int
    rows: list[Rows]
    bytes_sent: int
    records_in: dict[int, int]
    records_out: dict[int, int]
    entries: int
    watermark: int
    next_timer_ms: int | None
    metrics: dict[int, list[MetricSample]]

    @property
    def place(self) -> tuple[int, int]:
        """Return level and subtask: there is one report of each in an epoch."""
        return (self.level, self.subtask)


Report: TypeAlias = SubtaskReport | SourceReport
