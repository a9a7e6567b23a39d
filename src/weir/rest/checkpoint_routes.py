"""Routes that tell about checkpoints: statistics, settings, one checkpoint, one operator in it.

Sizes of an operator are the bytes that the checkpoint wrote for it. Durations and rows in flight
belong to slots, so all operators of a slot show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from weir.checkpoint.settings import Retention
from weir.config import ConfigOption
from weir.config import backend as b
from weir.config.state_backends import state_backend
from weir.jobmanager.history import CheckpointEntry, HistoryView, SubtaskEntry
from weir.jobmanager.operations import JobView, VertexView
from weir.rest import checkpoint_models as m
from weir.rest.cluster import Cluster
from weir.rest.job_routes import vertex_of
from weir.rest.routing import RefusedError, Request, Route

NEVER_MS: Final = 2**63 - 1


def statistics(cluster: Cluster, request: Request) -> m.CheckpointStatistics:
    """Tell counts, spreads, the newest of each kind, and the history."""
    history = cluster.history(request.path["jobid"])
    counts = m.Counts(
        restored=history.restored,
        total=history.triggered,
        in_progress=history.in_progress,
        completed=history.completed,
        failed=history.failed,
    )
    shown = [_checkpoint(entry) for entry in history.entries]
    return m.CheckpointStatistics(counts, _summary(history), _latest(history), shown)


def settings(cluster: Cluster, request: Request) -> m.CheckpointConfig:
    """Tell the settings of checkpoints."""
    view = cluster.job(request.path["jobid"]).view()
    given = view.checkpoint_settings
    kept = given.retention is Retention.RETAIN_ON_CANCELLATION
    storage = "FileSystem" if view.checkpoint_dir else "JobManager"
    mode: Any = given.mode.name.lower()
    return m.CheckpointConfig(
        mode=mode,
        interval=NEVER_MS if given.interval_ms is None else given.interval_ms,
        timeout=given.timeout_ms,
        min_pause=given.min_pause_ms,
        max_concurrent=given.max_concurrent,
        externalization=m.Externalization(
            given.retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS, not kept
        ),
        state_backend=state_backend(view.state_backend).flink_class,
        checkpoint_storage=f"{storage}CheckpointStorage",
        unaligned_checkpoints=given.unaligned,
        tolerable_failed_checkpoints=given.tolerable_failures,
        aligned_checkpoint_timeout=given.aligned_timeout_ms,
        checkpoints_after_tasks_finish=True,
        state_changelog_enabled=_setting(view, b.CHANGELOG),
        changelog_periodic_materialization_interval=_setting(
            view, b.CHANGELOG_MATERIALIZE_INTERVAL
        ),
        changelog_storage="filesystem",
        num_retained=given.num_retained,
    )


def details(cluster: Cluster, request: Request) -> m.AnyCheckpoint:
    """Tell about one checkpoint, operator by operator."""
    job = cluster.job(request.path["jobid"])
    entry, view = _entry(cluster.history(job.job_id), request), job.view()
    tasks = {each.id: m.TaskCheckpoint(**_task(entry, each)) for each in view.vertices}
    return _checkpoint(entry, tasks)


def state_sizes(cluster: Cluster, request: Request) -> m.StateSizes:
    """Tell how large each state was in checkpoint after checkpoint, as slots told it."""
    job = cluster.job(request.path["jobid"])
    names = {vertex.id: vertex.name for vertex in job.view().vertices}
    entries = [e for e in reversed(job.history().entries) if e.status == "COMPLETED" and e.acks]
    sizes = [entry.state_sizes() for entry in entries]
    known = sorted({place for found in sizes for place in found})
    return m.StateSizes(
        at=[entry.trigger_ms for entry in entries],
        checkpoints=[entry.checkpoint_id for entry in entries],
        states=[
            m.StateSeries(
                operator,
                names.get(operator, operator),
                state,
                bytes=[found.get((operator, state)) for found in sizes],
            )
            for operator, state in known
        ],
    )


def subtasks(cluster: Cluster, request: Request) -> m.TaskCheckpointDetails:
    """Tell about one operator in one checkpoint, subtask by subtask."""
    job = cluster.job(request.path["jobid"])
    entry, vertex = _entry(job.history(), request), vertex_of(job.view(), request)
    acks = _acks(entry, vertex)
    shown: list[m.PendingSubtask | m.CompletedSubtask] = []
    for index in range(vertex.parallelism):
        ack = acks.get(index)
        shown.append(m.PendingSubtask(index=index) if ack is None else _subtask(entry, vertex, ack))
    summary = _task_summary(entry, vertex, acks.values())
    return m.TaskCheckpointDetails(**_task(entry, vertex), summary=summary, subtasks=shown)


def spread(values: Iterable[float]) -> m.Stats:
    """Return smallest, greatest, mean and percentiles, interpolated as Flink does."""
    ordered = sorted(values)
    if not ordered:
        return m.Stats()
    count = len(ordered)

    def percentile(p: float) -> float:
        place = p * (count + 1) / 100
        if place < 1:
            return float(ordered[0])
        if place >= count:
            return float(ordered[-1])
        low, high = ordered[int(place) - 1], ordered[int(place)]
        return low + (place - int(place)) * (high - low)

    points = [percentile(p) for p in (50, 90, 95, 99, 99.9)]
    return m.Stats(int(ordered[0]), int(ordered[-1]), int(sum(ordered) / count), *points)


def _entry(history: HistoryView, request: Request) -> CheckpointEntry:
    wanted = int(request.path["checkpointid"])
    entry = history.find(wanted)
    if entry is None:
        raise RefusedError(404, f"Checkpoint {wanted} is not known, or not remembered any more.")
    return entry


def _latest_ack(entry: CheckpointEntry) -> int:
    return entry.latest_ack_ms if entry.acks else -1


def _duration(entry: CheckpointEntry) -> int:
    if entry.status != "IN_PROGRESS":
        return entry.duration_ms
    return entry.latest_ack_ms - entry.trigger_ms if entry.acks else -1


def _type(entry: CheckpointEntry) -> Any:
    if entry.is_savepoint:
        return "SAVEPOINT"
    return "UNALIGNED_CHECKPOINT" if entry.overtook else "CHECKPOINT"


def _checkpoint(
    entry: CheckpointEntry, tasks: dict[str, m.TaskCheckpoint] | None = None
) -> m.AnyCheckpoint:
    common: dict[str, Any] = {
        "id": entry.checkpoint_id,
        "status": entry.status,
        "is_savepoint": entry.is_savepoint,
        "savepoint_format": entry.savepoint_format,
        "trigger_timestamp": entry.trigger_ms,
        "latest_ack_timestamp": _latest_ack(entry),
        "checkpointed_size": entry.written,
        "state_size": entry.size,
        "end_to_end_duration": _duration(entry),
        "persisted_data": entry.in_flight_bytes,
        "num_subtasks": entry.num_subtasks,
        "num_acknowledged_subtasks": len(entry.acks),
        "checkpoint_type": _type(entry),
        "tasks": tasks or {},
        "reused_size": entry.reused,
    }
    if entry.status == "COMPLETED":
        return m.CompletedCheckpoint(
            **common, external_path=entry.path or "", discarded=entry.discarded
        )
    if entry.status == "FAILED":
        when = entry.trigger_ms if entry.failure_ms is None else entry.failure_ms
        return m.FailedCheckpoint(**common, failure_timestamp=when, failure_message=entry.failure)
    return m.Checkpoint(**common)


def _latest(history: HistoryView) -> m.Latest:
    def newest(status: Any, savepoint: bool | None) -> Any:
        entry = history.latest(status, savepoint=savepoint)
        return None if entry is None else _checkpoint(entry)

    last, restored = history.latest_restored, None
    if last is not None:
        restored = m.Restored(last.checkpoint_id, last.restored_ms, last.is_savepoint, last.path)
    return m.Latest(
        completed=newest("COMPLETED", False),
        savepoint=newest("COMPLETED", True),
        failed=newest("FAILED", None),
        restored=restored,
    )


def _summary(history: HistoryView) -> m.Summary:
    done = [entry for entry in history.entries if entry.status == "COMPLETED"]

    def over(number: Callable[[CheckpointEntry], float]) -> m.Stats:
        return spread(map(number, done))

    return m.Summary(
        checkpointed_size=over(lambda entry: entry.written),
        state_size=over(lambda entry: entry.size),
        end_to_end_duration=over(lambda entry: entry.duration_ms),
        alignment_buffered=over(lambda entry: 0),
        processed_data=over(lambda entry: 0),
        persisted_data=over(lambda entry: entry.in_flight_bytes),
    )


def _acks(entry: CheckpointEntry, vertex: VertexView) -> dict[int, SubtaskEntry]:
    """Level 0 keeps nothing in slots: the driver acknowledges for it, as the checkpoint's last."""
    if vertex.level == 0:
        return {}
    return {i: ack for i, ack in entry.acks.items() if 0 <= i < vertex.parallelism}


def _task(entry: CheckpointEntry, vertex: VertexView) -> dict[str, Any]:
    acks = _acks(entry, vertex)
    latest = max((ack.ack_ms for ack in acks.values()), default=-1)
    complete = vertex.level == 0 and entry.status == "COMPLETED"
    written = sum(ack.operators.get(vertex.id, 0) for ack in acks.values())
    return {
        "id": entry.checkpoint_id,
        "status": entry.status,
        "latest_ack_timestamp": latest,
        "checkpointed_size": written,
        "state_size": written,
        "end_to_end_duration": latest - entry.trigger_ms if acks else -1,
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": vertex.parallelism if complete else len(acks),
        "persisted_data": sum(ack.in_flight_bytes for ack in acks.values()),
    }


def _subtask(entry: CheckpointEntry, vertex: VertexView, ack: SubtaskEntry) -> m.CompletedSubtask:
    written = ack.operators.get(vertex.id, 0)
    return m.CompletedSubtask(
        index=ack.subtask,
        ack_timestamp=ack.ack_ms,
        end_to_end_duration=ack.ack_ms - entry.trigger_ms,
        checkpointed_size=written,
        state_size=written,
        checkpoint=m.Duration(round(ack.sync_ms), round(ack.async_ms)),
        alignment=m.Alignment(ack.in_flight_bytes),
        unaligned_checkpoint=entry.overtook,
    )


def _task_summary(
    entry: CheckpointEntry, vertex: VertexView, acks: Iterable[SubtaskEntry]
) -> m.TaskSummary:
    known = list(acks)
    sizes = spread(ack.operators.get(vertex.id, 0) for ack in known)
    zero = spread(0 for _ in known)
    return m.TaskSummary(
        checkpointed_size=sizes,
        state_size=sizes,
        end_to_end_duration=spread(ack.ack_ms - entry.trigger_ms for ack in known),
        checkpoint_duration=m.DurationStats(
            spread(ack.sync_ms for ack in known), spread(ack.async_ms for ack in known)
        ),
        alignment=m.AlignmentStats(zero, zero, spread(ack.in_flight_bytes for ack in known), zero),
        start_delay=zero,
    )


def _setting(view: JobView, option: ConfigOption) -> Any:
    text = view.configuration.get(option.key)
    return option.default if text is None else option.parse(text)


_CHECKPOINTS: Final = "/jobs/:jobid/checkpoints"
_DETAILS: Final = f"{_CHECKPOINTS}/details/:checkpointid"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET", _CHECKPOINTS, statistics, "Checkpoint statistics.", response=m.CheckpointStatistics
    ),
    Route(
        "GET",
        f"{_CHECKPOINTS}/config",
        settings,
        "Settings of checkpoints.",
        response=m.CheckpointConfig,
    ),
    Route(
        "GET",
        f"{_CHECKPOINTS}/state-sizes",
        state_sizes,
        "How large each state was in checkpoint after checkpoint.",
        response=m.StateSizes,
    ),
    Route("GET", _DETAILS, details, "One checkpoint.", response=m.AnyCheckpoint),
    Route(
        "GET",
        f"{_DETAILS}/subtasks/:vertexid",
        subtasks,
        "One operator in one checkpoint.",
        response=m.TaskCheckpointDetails,
    ),
)
