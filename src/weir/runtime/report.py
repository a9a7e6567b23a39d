"""What subtasks and partitions of level 0 tell the driver at the end of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from weir.runtime.metrics import MetricSample

UNDECODED: Final = "numRecordsInErrors"
"""Flink's name of the metric of records that a source could not decode, and left out."""
_MAX_WATERMARK: Final = (1 << 63) - 1

Rows: TypeAlias = tuple[int, str, list[Any]]
"""Records of a print or collect operator: its index in the plan, its kind, and the records."""


class SourceReport(msgspec.Struct, frozen=True):
    """Of one partition of level 0: what it read, the bytes of frames that it sent, and how long.

    `undecoded` are the records that could not be decoded and were left out, by source operator.
    It began at `begun_ms` of its host's clock.
    """

    partition: int
    rows_read: int
    bytes_read: int
    bytes_sent: int
    undecoded: dict[int, int] = {}
    busy_ms: int = 0
    begun_ms: int = 0


class SubtaskReport(msgspec.Struct, frozen=True):
    """Of the operators of one level in one slot, after an epoch.

    `records_in` and `records_out` count by operator index, since the attempt began. `bytes_sent`
    are those of frames for other subtasks. `entries` is about how many keyed entries there are,
    `watermark` the lowest of the operators', `next_timer_ms` when the next processing-time timer
    is due, `idle_from_ms` from which look at the sources on somebody is idle who was not.
    `metrics` are those of user functions, by operator index. `busy_ms` is how long the epoch took
    here, from `begun_ms` of the host's clock on. `watermarks` are those of each operator, by index;
    at level 1 also of those that make them beside the sources.
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
    busy_ms: int = 0
    begun_ms: int = 0
    watermarks: dict[int, int] = {}
    idle_from_ms: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Return level and subtask: there is one report of each in an epoch."""
        return (self.level, self.subtask)


class LevelZero:
    """Sums up what partitions of level 0 tell: when they worked, and what was no record.

    The latter is counted over all epochs of an attempt.
    """

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}

    def add(self, counts: Mapping[int, int]) -> None:
        """Take what one partition of an epoch left out, by source operator."""
        for index, count in counts.items():
            self._sums[index] = self._sums.get(index, 0) + count

    def reports(self, epoch: int, sources: Sequence[SourceReport] = ()) -> list[SubtaskReport]:
        """Return a report of level 0; none of an epoch without it if nothing was left out.

        It is from the begin of the first partition to the end of the last one.
        """
        if not self._sums and not sources:
            return []
        begun = min((source.begun_ms for source in sources), default=0)
        ended = max((source.begun_ms + source.busy_ms for source in sources), default=0)
        metrics = {
            index: [MetricSample((), (), (), UNDECODED, value=count)]
            for index, count in self._sums.items()
        }
        report = SubtaskReport(
            level=0,
            subtask=0,
            epoch=epoch,
            rows=[],
            bytes_sent=0,
            records_in={},
            records_out={},
            entries=0,
            watermark=_MAX_WATERMARK,
            next_timer_ms=None,
            metrics=metrics,
            busy_ms=ended - begun,
            begun_ms=begun,
        )
        return [report]


Report: TypeAlias = SubtaskReport | SourceReport
