"""Metrics of jobs: under Flink's names for its REST, and as a page for Prometheus.

The page has what Flink counts under the names of Flink's reporter, and everything under names of
Weir, in units that Prometheus recommends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from weir.jobmanager.epoch_times import Spread
from weir.jobmanager.history import HistoryView
from weir.jobmanager.operations import JobView, SubtaskView
from weir.notices import warn_once
from weir.rest.cluster import ENDED, is_over
from weir.rest.latency_metrics import LATENCY, latency_summary
from weir.rest.user_metrics import PREFIX, Sample, samples_by_name

log = logging.getLogger("weir.rest")

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class MetricFamily:
    """One name with all its samples; `samples` gives those of a job, without the job's labels."""

    name: str
    kind: str
    text: str
    samples: Callable[[JobView, HistoryView], Iterable[Sample]]


def job_metrics(view: JobView, history: HistoryView) -> dict[str, str]:
    """Return the metrics of a job under Flink's names; what never happened is -1, as in Flink."""
    last = history.latest("COMPLETED", savepoint=False)
    restored = history.latest_restored
    running = view.status == "RUNNING"
    numbers: dict[str, int | str] = {
        "numRestarts": view.attempt,
        "fullRestarts": view.attempt,
        "uptime": view.now_ms - view.start_ms if running else -1,
        "runningTime": view.now_ms - view.start_ms if running else 0,
        "downtime": _downtime(view),
        "totalNumberOfCheckpoints": history.triggered,
        "numberOfInProgressCheckpoints": history.in_progress,
        "numberOfCompletedCheckpoints": history.completed,
        "numberOfFailedCheckpoints": history.failed,
        "lastCompletedCheckpointId": last.checkpoint_id if last else -1,
        "lastCheckpointDuration": last.duration_ms if last else -1,
        "lastCheckpointSize": last.written if last else -1,
        "lastCheckpointFullSize": last.size if last else -1,
        "lastCheckpointPersistedData": last.in_flight_bytes if last else -1,
        "lastCheckpointExternalPath": (last.path or "n/a") if last else "n/a",
        "lastCheckpointCompletedTimestamp": last.trigger_ms + last.duration_ms if last else -1,
        "lastCheckpointRestoreTimestamp": restored.restored_ms if restored else -1,
        "numRecordsIn": sum(v.records_in for v in view.vertices if v.id in _beginnings(view)),
        "numRecordsOut": sum(v.records_in for v in view.vertices if v.id in _ends(view)),
    }
    return {name: str(value) for name, value in numbers.items()}


def _beginnings(view: JobView) -> set[str]:
    """Level 0 does not count, so a job's input is what its slots are given first."""
    outside = {vertex.id for vertex in view.vertices if vertex.level == 0}
    return {
        vertex.id
        for vertex in view.vertices
        if vertex.level > 0 and any(sender in outside for sender, _ in vertex.inputs)
    }


def _ends(view: JobView) -> set[str]:
    read = {sender for vertex in view.vertices for sender, _ in vertex.inputs}
    return {vertex.id for vertex in view.vertices} - read


def _downtime(view: JobView) -> int:
    if view.status == "RUNNING":
        return 0
    if is_over(view) or not view.exceptions:
        return -1
    return view.now_ms - max(x.timestamp_ms for x in view.exceptions)


def prometheus(jobs: Iterable[tuple[JobView, HistoryView]]) -> str:
    """Return the page of all jobs."""
    known = list(jobs)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(known))
    return generate_latest(registry).decode()


class _Page(Collector):
    """All metrics of some jobs, each name once."""

    def __init__(self, jobs: list[tuple[JobView, HistoryView]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Give our own metrics, then those of functions, whose names may not be ours."""
        named = set()
        for family in FAMILIES:
            metric = Metric(family.name.removesuffix("_total"), family.text, family.kind)
            for view, history in self._jobs:
                labels = {"job_id": view.job_id, "job_name": view.name}
                for own, value in family.samples(view, history):
                    metric.add_sample(family.name, {**labels, **own}, value)
            named.add(family.name)
            yield metric
        yield from self._histograms()
        yield latency_summary(view for view, _ in self._jobs)
        named.add(LATENCY)
        for name, samples in sorted(samples_by_name(view for view, _ in self._jobs).items()):
            if name in named:
                warn_once(log, f"a function has a metric {name!r}, which is one of Weir's own")
                continue
            metric = Metric(name, "A metric of a user function.", "gauge")
            for own, value in samples:
                metric.add_sample(name, dict(own), value)
            yield metric

    def _histograms(self) -> Iterator[Metric]:
        for name, text, spread in HISTOGRAMS:
            metric = Metric(name, text, "histogram")
            for view, history in self._jobs:
                labels = {"job_id": view.job_id, "job_name": view.name}
                found = spread(view, history)
                for bound, count in found.buckets():
                    metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
                metric.add_sample(f"{name}_count", labels, found.count)
                metric.add_sample(f"{name}_sum", labels, found.sum_ms / 1000)
            yield metric


def _one(
    number: Callable[[JobView, HistoryView], float | None],
) -> Callable[[JobView, HistoryView], Iterator[Sample]]:
    """Return the samples of a number that a job has once, or does not have yet."""

    def samples(view: JobView, history: HistoryView) -> Iterator[Sample]:
        value = number(view, history)
        if value is not None:
            yield {}, value

    return samples


def _last(
    number: Callable[[HistoryView], float | None],
) -> Callable[[JobView, HistoryView], Iterator[Sample]]:
    return _one(
        lambda _, history: number(history) if history.latest("COMPLETED", savepoint=False) else None
    )


def _newest(history: HistoryView, name: str) -> float:
    return float(getattr(history.latest("COMPLETED", savepoint=False), name))


def _completed_s(history: HistoryView) -> float:
    return (_newest(history, "trigger_ms") + _newest(history, "duration_ms")) / 1000


def _states(view: JobView, _: HistoryView) -> Iterator[Sample]:
    for status in ("RUNNING", "RESTARTING", *ENDED):
        yield {"status": status}, float(view.status == status)


def _per_operator(name: str) -> Callable[[JobView, HistoryView], Iterator[Sample]]:
    def samples(view: JobView, _: HistoryView) -> Iterator[Sample]:
        for vertex in view.vertices:
            labels = {"operator": vertex.name, "operator_id": vertex.id}
            yield labels, float(getattr(vertex, name))

    return samples


def _per_slot(name: str, scale: float = 1.0) -> Callable[[JobView, HistoryView], Iterator[Sample]]:
    def samples(view: JobView, _: HistoryView) -> Iterator[Sample]:
        for slot in view.slots:
            value = getattr(slot, name)
            if value is not None:
                yield {"subtask": str(slot.subtask), "host": slot.host}, value * scale

    return samples


def _state_sizes(view: JobView, history: HistoryView) -> Iterator[Sample]:
    newest = history.latest("COMPLETED", savepoint=False)
    names = {vertex.id: vertex.name for vertex in view.vertices}
    sizes = {} if newest is None else newest.state_sizes()
    for (operator, state), size in sizes.items():
        labels = {"operator": names.get(operator, operator), "operator_id": operator}
        yield {**labels, "state": state}, float(size)


def _uptime_s(view: JobView, _: HistoryView) -> float:
    return ((view.now_ms if view.end_ms is None else view.end_ms) - view.start_ms) / 1000


_J, _C, _S = "weir_job_", "weir_checkpoint_", "weir_slot_"
FLINK: Final = "flink_jobmanager_job_"
HISTOGRAMS: Final[tuple[tuple[str, str, Callable[[JobView, HistoryView], Spread]], ...]] = (
    (
        _J + "epoch_duration_seconds",
        "How long epochs took.",
        lambda view, _: view.epochs.spread,
    ),
    (
        _J + "latency_seconds",
        "How long epochs took from the reading of their records to the commit of their results.",
        lambda view, _: view.epochs.latency,
    ),
    (
        _C + "duration_seconds",
        "How long checkpoints and savepoints took that completed.",
        lambda _, history: history.durations,
    ),
)


def _of_flink(name: str, view: JobView, history: HistoryView) -> Iterator[Sample]:
    yield {}, float(job_metrics(view, history)[name])


def _of_subtasks(
    number: Callable[[SubtaskView], int | None], view: JobView, _: HistoryView
) -> Iterator[Sample]:
    """Give a number of every subtask of every operator that has it, with Flink's labels."""
    for vertex in view.vertices:
        for subtask in vertex.subtasks:
            value = number(subtask)
            if value is not None:
                labels = {"operator_id": vertex.id, "operator_name": vertex.name}
                yield {**labels, "subtask_index": str(subtask.subtask)}, float(value)


_FLINKS: Final = {
    "numRestarts": "Restarts after failures.",
    "uptime": "Milliseconds since the job runs, -1 while it does not.",
    "downtime": "Milliseconds since the job failed, 0 while it runs, -1 when it has ended.",
    "totalNumberOfCheckpoints": "Checkpoints that were triggered.",
    "numberOfInProgressCheckpoints": "Checkpoints under way.",
    "numberOfCompletedCheckpoints": "Checkpoints that completed.",
    "numberOfFailedCheckpoints": "Checkpoints that failed.",
    "lastCheckpointDuration": "Milliseconds that the last checkpoint took.",
    "lastCheckpointSize": "Bytes that the last checkpoint wrote.",
    "lastCheckpointFullSize": "Bytes that the last checkpoint refers to.",
    "lastCheckpointPersistedData": "Bytes of rows in flight in the last checkpoint.",
    "lastCheckpointRestoreTimestamp": "When the job was restored last, -1 if never.",
}

FAMILIES: Final[tuple[MetricFamily, ...]] = (
    MetricFamily(_J + "status", "gauge", "1 for the state that the job is in.", _states),
    MetricFamily(_J + "uptime_seconds", "gauge", "Time since the job started.", _one(_uptime_s)),
    MetricFamily(
        _J + "restarts_total", "counter", "Restarts after failures.", _one(lambda v, _: v.attempt)
    ),
    MetricFamily(
        _J + "parallelism", "gauge", "Parallelism of the job.", _one(lambda v, _: v.parallelism)
    ),
    MetricFamily(
        _J + "epoch", "gauge", "Last epoch that was finished.", _one(lambda v, _: v.epoch)
    ),
    MetricFamily(
        _J + "records_in_total",
        "counter",
        "Records that an operator was given.",
        _per_operator("records_in"),
    ),
    MetricFamily(
        _J + "records_out_total",
        "counter",
        "Records that an operator sent on.",
        _per_operator("records_out"),
    ),
    MetricFamily(
        _C + "triggered_total",
        "counter",
        "Checkpoints and savepoints that were triggered.",
        _one(lambda _, h: h.triggered),
    ),
    MetricFamily(
        _C + "completed_total",
        "counter",
        "Checkpoints and savepoints that completed.",
        _one(lambda _, h: h.completed),
    ),
    MetricFamily(
        _C + "failed_total",
        "counter",
        "Checkpoints and savepoints that failed.",
        _one(lambda _, h: h.failed),
    ),
    MetricFamily(
        _C + "restored_total",
        "counter",
        "Restores from a checkpoint or savepoint.",
        _one(lambda _, h: h.restored),
    ),
    MetricFamily(
        _C + "in_progress", "gauge", "Checkpoints under way.", _one(lambda _, h: h.in_progress)
    ),
    MetricFamily(
        _C + "last_id",
        "gauge",
        "Id of the last completed checkpoint.",
        _last(lambda h: _newest(h, "checkpoint_id")),
    ),
    MetricFamily(
        _C + "last_duration_seconds",
        "gauge",
        "Duration of the last completed checkpoint.",
        _last(lambda h: _newest(h, "duration_ms") / 1000),
    ),
    MetricFamily(
        _C + "last_size_bytes",
        "gauge",
        "Bytes that the last completed checkpoint wrote.",
        _last(lambda h: _newest(h, "written")),
    ),
    MetricFamily(
        _C + "last_full_size_bytes",
        "gauge",
        "Bytes that the last completed checkpoint refers to.",
        _last(lambda h: _newest(h, "size")),
    ),
    MetricFamily(
        _C + "last_completed_timestamp_seconds",
        "gauge",
        "When the last checkpoint completed, since the Unix epoch.",
        _last(_completed_s),
    ),
    MetricFamily(
        _C + "state_size_bytes",
        "gauge",
        "Bytes of a state in the last completed checkpoint.",
        _state_sizes,
    ),
    MetricFamily(_S + "ready", "gauge", "1 for a slot that takes records.", _per_slot("ready")),
    MetricFamily(
        _S + "silence_seconds",
        "gauge",
        "Time since a slot was heard of.",
        _per_slot("silent_ms", 0.001),
    ),
    MetricFamily(
        _S + "state_entries", "gauge", "Entries of keyed state.", _per_slot("state_entries")
    ),
    MetricFamily(
        _S + "watermark_milliseconds", "gauge", "Watermark of a slot.", _per_slot("watermark")
    ),
    MetricFamily(
        _S + "memory_bytes", "gauge", "Memory that a slot occupies.", _per_slot("memory_bytes")
    ),
    MetricFamily(
        _S + "cpu_seconds_total",
        "counter",
        "Processor time of a slot.",
        _per_slot("cpu_ms", 0.001),
    ),
    MetricFamily(
        _S + "busy_seconds_total",
        "counter",
        "Time in which a slot applied epochs.",
        _per_slot("busy_ms", 0.001),
    ),
    *(
        MetricFamily(FLINK + name, "gauge", text, partial(_of_flink, name))
        for name, text in _FLINKS.items()
    ),
    MetricFamily(
        PREFIX + "numRecordsIn",
        "gauge",
        "Records that a subtask was given in this attempt.",
        partial(_of_subtasks, lambda subtask: subtask.records_in),
    ),
    MetricFamily(
        PREFIX + "numRecordsOut",
        "gauge",
        "Records that a subtask sent on in this attempt.",
        partial(_of_subtasks, lambda subtask: subtask.records_out),
    ),
    MetricFamily(
        PREFIX + "currentInputWatermark",
        "gauge",
        "Watermark of a subtask.",
        partial(_of_subtasks, lambda subtask: subtask.watermark),
    ),
)
