"""Metrics that user functions registered: Flink's names for them, in REST and for Prometheus.

In REST a metric of operator `Count` in group `g` is `Count.g.name`, with the subtask in front where
several are listed. For Prometheus it is `flink_taskmanager_job_task_operator_g_name`, all of them
gauges as in Flink; subtask and variables are labels.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from weir.jobmanager.operations import JobView, VertexView
from weir.notices import warn_once
from weir.runtime.metrics import SubtaskMetric

log = logging.getLogger("weir.rest")
Sample = tuple[Mapping[str, str], float]
PREFIX: Final = "flink_taskmanager_job_task_operator_"
# As long as Flink lets the name of an operator be in that of a metric.
_OPERATOR_MAX: Final = 80
_NOT_IN_ID: Final = re.compile(r"[ .:,]")
_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")
_NOT_IN_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


def metric_id(vertex: VertexView, metric: SubtaskMetric) -> str:
    """Return the name of a metric within a subtask; blanks and the like become underscores."""
    parts = (vertex.name[:_OPERATOR_MAX], *metric.scope.path, metric.name)
    return ".".join(_NOT_IN_ID.sub("_", part) for part in parts)


def texts_of(vertex: VertexView, subtask: int | None = None) -> dict[str, str]:
    """Return metrics of a subtask by name; of all, with the subtask in front, if none is given."""
    if subtask is None:
        return {f"{m.subtask}.{metric_id(vertex, m)}": _text(m) for m in vertex.metrics}
    return {metric_id(vertex, m): _text(m) for m in vertex.metrics if m.subtask == subtask}


def _text(metric: SubtaskMetric) -> str:
    value = metric.value
    return str(value).lower() if isinstance(value, bool) else str(value)


def aggregates_of(vertex: VertexView) -> dict[str, dict[str, float]]:
    """Return each metric over the subtasks; what is no number cannot be aggregated."""
    values: dict[str, list[float]] = {}
    for metric in vertex.metrics:
        number = _number(metric)
        if number is not None and math.isfinite(number):
            values.setdefault(metric_id(vertex, metric), []).append(number)
    return {
        name: {"min": min(v), "max": max(v), "avg": sum(v) / len(v), "sum": sum(v)}
        for name, v in values.items()
    }


def _number(metric: SubtaskMetric) -> float | None:
    return None if isinstance(metric.value, str) else float(metric.value)


def samples_by_name(views: Iterable[JobView]) -> dict[str, list[Sample]]:
    """Return the samples of all jobs for Prometheus, by the name of the metric."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for view in views:
        for vertex in view.vertices:
            for metric in vertex.metrics:
                number = _number(metric)
                if number is None:
                    continue
                samples = found.setdefault(_name(metric), {})
                labels = tuple(_labels(view, vertex, metric).items())
                if labels in samples:
                    # Twice the same sample, and Prometheus would refuse the page.
                    warn_once(log, f"two metrics are {_name(metric)!r}: one of them is left out")
                samples.setdefault(labels, number)
    return {
        name: [(dict(labels), number) for labels, number in samples.items()]
        for name, samples in found.items()
    }


def _name(metric: SubtaskMetric) -> str:
    return PREFIX + _NOT_IN_NAME.sub("_", "_".join((*metric.scope.logical, metric.name)))


def _labels(view: JobView, vertex: VertexView, metric: SubtaskMetric) -> dict[str, str]:
    labels = {
        "job_id": view.job_id,
        "job_name": view.name,
        "operator_id": vertex.id,
        "operator_name": vertex.name,
        "subtask_index": str(metric.subtask),
    }
    for key, value in metric.scope.variables:
        label = _NOT_IN_LABEL.sub("_", key)
        # Labels of ours stay what they are, and those with two underscores are Prometheus' own.
        while label in labels or label[0].isdigit() or label.startswith("__"):
            label = f"user_{label}"
        labels[label] = value
    return labels
