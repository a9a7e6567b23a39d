"""Metrics of jobs: under Flink's names for its REST, and as a page for Prometheus.

The page is in Prometheus' text format 0.0.4: one HELP and TYPE per name, then its samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from weir.jobmanager.history import HistoryView
from weir.jobmanager.operations import JobView
from weir.rest.cluster import ENDED, is_over
from weir.rest.user_metrics import Sample, samples_by_name

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
    lines: list[str] = []
    for family in FAMILIES:
        lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        for view, history in known:
            labels = {"job_id": view.job_id, "job_name": view.name}
            for own, value in family.samples(view, history):
                lines.append(f"{family.name}{_labels({**labels, **own})} {_number(value)}")
    lines += _of_functions([view for view, _ in known])
    return "\n".join(lines) + "\n"


def _of_functions(views: list[JobView]) -> Iterator[str]:
    for name, samples in sorted(samples_by_name(views).items()):
        yield f"# HELP {name} A metric of a user function."
        yield f"# TYPE {name} gauge"
        for labels, value in samples:
            yield f"{name}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


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


def _uptime_s(view: JobView, _: HistoryView) -> float:
    return ((view.now_ms if view.end_ms is None else view.end_ms) - view.start_ms) / 1000


_J, _C, _S = "weir_job_", "weir_checkpoint_", "weir_slot_"

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
)
