"""User metrics on their way: from an operator into its subtask's report, and out of it again.

A report carries all values of the subtask, so the newest one says everything. Nothing here can
fail an epoch: a gauge that raises is missing, and its first failure is logged.
"""

from __future__ import annotations

import logging
import numbers
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from weir.metrics import Counter, Distribution, Gauge, Meter, Metric, MetricGroup, Registered, Scope

log = logging.getLogger("weir.metrics")
Number = int | float | bool | str
_MARKS = 12


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One value in a report.

    That of a meter is its count; `marks` are earlier counts with their times in milliseconds, from
    which whoever reads it computes the rate of the last `span_ms`.
    """

    path: tuple[str, ...]
    logical: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    name: str
    value: Number
    span_ms: int = 0
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SubtaskMetric:
    """A metric of one subtask as people see it; see `weir.metrics.Scope` for its place."""

    subtask: int
    scope: Scope
    name: str
    value: Number


class OperatorMetrics:
    """The metrics of one operator in one subtask."""

    def __init__(self, operator: str) -> None:
        """Start without metrics; the operator's name is for the log."""
        self._operator = operator
        self._registry: dict[tuple[str, ...], Registered] = {}
        self._marks: dict[tuple[str, ...], deque[tuple[int, int]]] = {}
        self._failed: set[tuple[str, ...]] = set()
        self.group = MetricGroup(self._registry)

    def sample(self, now_ms: int) -> list[MetricSample]:
        """Return all values of now."""
        samples: list[MetricSample] = []
        for key, entry in list(self._registry.items()):
            samples += self._read_or_say(key, entry, now_ms)
        return samples

    def _read_or_say(
        self, key: tuple[str, ...], entry: Registered, now_ms: int
    ) -> list[MetricSample]:
        try:
            return self._read(key, entry, now_ms)
        except BaseException as error:
            self._say_once(key, error)
            return []

    def _read(self, key: tuple[str, ...], entry: Registered, now_ms: int) -> list[MetricSample]:
        metric, place = entry.metric, (entry.scope.path, entry.scope.logical, entry.scope.variables)
        if isinstance(metric, Meter):
            marks = self._marks.setdefault(key, deque())
            count, span = int(metric.get_count()), round(metric.time_span_in_seconds * 1000)
            _mark(marks, now_ms, count, span)
            return [MetricSample(*place, entry.name, count, span_ms=span, marks=tuple(marks))]
        return [
            MetricSample(*place, entry.name + suffix, value) for suffix, value in _values(metric)
        ]

    def _say_once(self, key: tuple[str, ...], error: BaseException) -> None:
        if key not in self._failed:
            self._failed.add(key)
            log.warning(
                "operator '%s': metric %r cannot be read: %s: %s",
                self._operator,
                ".".join(key),
                type(error).__name__,
                error,
            )


def _mark(marks: deque[tuple[int, int]], now_ms: int, count: int, span_ms: int) -> None:
    """Remember a count, about twelve for a time span, the oldest of them older than that."""
    if not marks or now_ms - marks[-1][0] >= span_ms // _MARKS:
        marks.append((now_ms, count))
    while len(marks) > 1 and marks[1][0] <= now_ms - span_ms:
        marks.popleft()


def _values(metric: Metric) -> Iterator[tuple[str, Number]]:
    """Return the values of a metric, each with what its name has more than that of the metric."""
    if isinstance(metric, Counter):
        yield "", _plain(metric.get_count())
    elif isinstance(metric, Gauge):
        yield "", _plain(metric.function())
    elif isinstance(metric, Distribution):
        yield "_count", metric.count
        yield "_sum", _plain(metric.sum)
        if metric.count:
            yield "_min", _plain(metric.min)
            yield "_max", _plain(metric.max)
            yield "_mean", float(metric.sum / metric.count)


def _plain(value: Any) -> Number:
    """Return a number as Python's own, anything else as text."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if value is None:
        msg = "its value is None"
        raise ValueError(msg)
    return str(value)


def report_metrics(
    operators: Mapping[int, OperatorMetrics], now_ms: int
) -> dict[int, list[MetricSample]]:
    """Return what a report says about metrics, by operator; those without any are left out."""
    sampled = {index: metrics.sample(now_ms) for index, metrics in operators.items()}
    return {index: samples for index, samples in sampled.items() if samples}


class MetricReport(Protocol):
    """A report of a subtask, as far as metrics are concerned."""

    @property
    def subtask(self) -> int:
        """Return which subtask it is of."""

    @property
    def metrics(self) -> Mapping[int, Sequence[MetricSample]]:
        """Return the samples by operator index."""


def operator_metrics(
    reports: Iterable[MetricReport], operator: int, now_ms: int
) -> tuple[SubtaskMetric, ...]:
    """Return the metrics of an operator that the newest reports of all subtasks tell of."""
    found = [
        SubtaskMetric(
            report.subtask,
            Scope(sample.path, sample.logical, sample.variables),
            sample.name,
            _rate(sample, now_ms) if sample.span_ms else sample.value,
        )
        for report in reports
        for sample in report.metrics.get(operator, ())
    ]
    return tuple(sorted(found, key=lambda metric: metric.subtask))


def by_name(reports: Iterable[MetricReport], operator: int, now_ms: int) -> dict[str, list[Number]]:
    """Return the values of an operator's metrics by subtask, under names such as `group.name`."""
    found: dict[str, list[Number]] = {}
    for metric in operator_metrics(reports, operator, now_ms):
        found.setdefault(".".join((*metric.scope.path, metric.name)), []).append(metric.value)
    return found


def _rate(sample: MetricSample, now_ms: int) -> float:
    """Return events per second over the meter's time span; before it began there were none."""
    before = 0
    for time_ms, count in sample.marks:
        if time_ms <= now_ms - sample.span_ms:
            before = count
    return (int(sample.value) - before) * 1000 / sample.span_ms
