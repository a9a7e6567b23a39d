"""Routes that tell about the process, its slots, and metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from weir.jobmanager.operations import JobView, SlotView, VertexView
from weir.rest import cluster_models as m
from weir.rest.cluster import Cluster, is_over
from weir.rest.job_routes import vertex_of
from weir.rest.metrics import MEDIA, job_metrics, prometheus
from weir.rest.routing import RefusedError, Request, Route
from weir.rest.secrecy import hidden
from weir.rest.tasks import endpoint, slot_id
from weir.rest.user_metrics import aggregates_of, texts_of
from weir.version import __version__

REFRESH_MS: Final = 3000
_AGGREGATIONS: Final = ("min", "max", "avg", "sum")
_WATERMARK: Final = "currentInputWatermark"


def dashboard(cluster: Cluster, _: Request) -> m.Dashboard:
    """Tell what a web front end has to know."""
    local = time.localtime(cluster.clock.now_ms() / 1000)
    return m.Dashboard(
        refresh_interval=REFRESH_MS,
        timezone_name=local.tm_zone,
        timezone_offset=local.tm_gmtoff * 1000,
        flink_version=__version__,
        flink_revision="weir",
        features=m.Features(),
    )


def overview(cluster: Cluster, _: Request) -> m.Overview:
    """Count slots and jobs."""
    views = cluster.views()
    states = [view.status for view in views]
    slots = len(_slots(views))
    return m.Overview(
        taskmanagers=slots,
        slots_total=slots,
        slots_available=0,
        jobs_running=sum(not is_over(view) for view in views),
        jobs_finished=states.count("FINISHED"),
        jobs_cancelled=states.count("CANCELED"),
        jobs_failed=states.count("FAILED"),
        flink_version=__version__,
        flink_commit="weir",
    )


def configuration(cluster: Cluster, _: Request) -> list[m.Setting]:
    """Tell the settings of the newest job."""
    views = cluster.views()
    settings = hidden(views[-1].configuration) if views else {}
    return [m.Setting(key, value) for key, value in settings.items()]


def task_managers(cluster: Cluster, _: Request) -> m.TaskManagers:
    """List the slots of all jobs that run."""
    found = _slots(cluster.views())
    return m.TaskManagers([m.TaskManager(**_slot(view, slot)) for view, slot in found])


def task_manager(cluster: Cluster, request: Request) -> m.TaskManagerDetails:
    """Tell about one slot."""
    wanted = request.path["taskmanagerid"]
    for view, slot in _slots(cluster.views()):
        if slot_id(view, slot.subtask) == wanted:
            facts = _slot(view, slot)
            return m.TaskManagerDetails(
                **facts,
                allocated_slots=[m.AllocatedSlot(view.job_id, facts["assigned_tasks"])],
            )
    raise RefusedError(404, f"Task manager {wanted} not found.")


def metrics_of_job(cluster: Cluster, request: Request) -> list[m.Metric]:
    """Tell metrics of a job by name, or all names."""
    job = cluster.job(request.path["jobid"])
    return _chosen(job_metrics(job.view(), job.history()), request)


def metrics_of_process(cluster: Cluster, request: Request) -> list[m.Metric]:
    """Tell metrics of the JobManager by name, or all names."""
    views = cluster.views()
    slots = len(_slots(views))
    values = {
        "numRunningJobs": sum(not is_over(view) for view in views),
        "numRegisteredTaskManagers": slots,
        "taskSlotsTotal": slots,
        "taskSlotsAvailable": 0,
        "uptime": cluster.clock.now_ms() - cluster.started_ms,
    }
    return _chosen({name: str(value) for name, value in values.items()}, request)


def metrics_of_vertex(cluster: Cluster, request: Request) -> list[m.Metric]:
    """Tell metrics of all subtasks of an operator by name, or all names."""
    view = cluster.job(request.path["jobid"]).view()
    vertex = vertex_of(view, request)
    marks = {f"{index}.{_WATERMARK}": str(mark) for index, mark in _marks(view, vertex).items()}
    return _chosen({**marks, **texts_of(vertex)}, request)


def metrics_of_subtask(cluster: Cluster, request: Request) -> list[m.Metric]:
    """Tell metrics of one subtask by name, or all names."""
    view = cluster.job(request.path["jobid"]).view()
    vertex = vertex_of(view, request)
    index = subtask_of(vertex, request)
    marks = _marks(view, vertex)
    known = {_WATERMARK: str(marks[index])} if index in marks else {}
    return _chosen({**known, **texts_of(vertex, index)}, request)


def subtask_of(vertex: VertexView, request: Request) -> int:
    """Return the subtask that a path names.

    Raises:
        RefusedError: 404, the operator has no such subtask.
    """
    index = int(request.path["subtaskindex"])
    if index >= vertex.parallelism:
        raise RefusedError(404, f"Subtask {index} not found in vertex {vertex.id}.")
    return index


def metrics_of_subtasks(cluster: Cluster, request: Request) -> list[m.AggregatedMetric]:
    """Tell metrics over the subtasks of an operator, or all names.

    Records are counted by operator, so only their sum is known.
    """
    view = cluster.job(request.path["jobid"]).view()
    known = _subtask_metrics(view, vertex_of(view, request))
    wanted = _names(request, "get")
    if wanted is None:
        return [m.AggregatedMetric(name) for name in known]
    modes = _names(request, "agg") or list(_AGGREGATIONS)
    unknown = [mode for mode in modes if mode.lower() not in _AGGREGATIONS]
    if unknown:
        raise RefusedError(400, f"agg has {unknown}, expected some of {list(_AGGREGATIONS)}.")
    kept = {mode.lower() for mode in modes}
    return [
        m.AggregatedMetric(name, **{k: v for k, v in known[name].items() if k in kept})
        for name in wanted
        if name in known
    ]


def prometheus_page(cluster: Cluster, _: Request) -> str:
    """Return all metrics for Prometheus."""
    return prometheus((job.view(), job.history()) for job in cluster.jobs())


def _slots(views: list[JobView]) -> list[tuple[JobView, SlotView]]:
    return [(view, slot) for view in views if not is_over(view) for slot in view.slots]


def _slot(view: JobView, slot: SlotView) -> dict[str, Any]:
    tasks = sum(v.level > 0 and slot.subtask < v.parallelism for v in view.vertices)
    return {
        "id": slot_id(view, slot.subtask),
        "path": endpoint(slot),
        "time_since_last_heartbeat": view.now_ms - slot.silent_ms,
        "assigned_tasks": tasks,
        "host": slot.host,
        "pid": slot.pid,
        "ready": slot.ready,
        "job_id": view.job_id,
        "subtask": slot.subtask,
        "state_entries": slot.state_entries,
        "watermark": slot.watermark,
        "memory_bytes": slot.memory_bytes,
        "cpu_ms": slot.cpu_ms,
        "busy_ms": slot.busy_ms,
    }


def _subtask_metrics(view: JobView, vertex: VertexView) -> dict[str, dict[str, float]]:
    known = {
        "numRecordsIn": {"sum": float(vertex.records_in)},
        "numRecordsOut": {"sum": float(vertex.records_out)},
    }
    marks = _marks(view, vertex).values()
    if marks:
        known[_WATERMARK] = {
            "min": float(min(marks)),
            "max": float(max(marks)),
            "avg": sum(marks) / len(marks),
            "sum": float(sum(marks)),
        }
    return {**known, **aggregates_of(vertex)}


def _marks(view: JobView, vertex: VertexView) -> dict[int, int]:
    """Return the watermarks by subtask; level 0 has no slots, and a slot may not know one yet."""
    if not vertex.level:
        return {}
    slots = [slot for slot in view.slots if slot.subtask < vertex.parallelism]
    return {slot.subtask: slot.watermark for slot in slots if slot.watermark is not None}


def _names(request: Request, parameter: str) -> list[str] | None:
    text = request.query.get(parameter)
    return None if text is None else [name for name in text.split(",") if name]


def _chosen(values: Mapping[str, str], request: Request) -> list[m.Metric]:
    wanted = _names(request, "get")
    if wanted is None:
        return [m.Metric(name) for name in values]
    return [m.Metric(name, values[name]) for name in wanted if name in values]


_GET: Final = {"get": "Names of metrics, with commas; without it all names are listed."}
_VERTEX: Final = "/jobs/:jobid/vertices/:vertexid"

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/config", dashboard, "What a web front end has to know.", response=m.Dashboard),
    Route("GET", "/overview", overview, "Counts of slots and jobs.", response=m.Overview),
    Route(
        "GET",
        "/jobmanager/config",
        configuration,
        "Settings of the newest job, secrets hidden.",
        response=list[m.Setting],
    ),
    Route(
        "GET",
        "/jobmanager/metrics",
        metrics_of_process,
        "Metrics of the JobManager.",
        response=list[m.Metric],
        query=_GET,
    ),
    Route("GET", "/taskmanagers", task_managers, "All slots.", response=m.TaskManagers),
    Route(
        "GET",
        "/taskmanagers/:taskmanagerid",
        task_manager,
        "A slot.",
        response=m.TaskManagerDetails,
    ),
    Route(
        "GET",
        "/jobs/:jobid/metrics",
        metrics_of_job,
        "Metrics of a job.",
        response=list[m.Metric],
        query=_GET,
    ),
    Route(
        "GET",
        f"{_VERTEX}/metrics",
        metrics_of_vertex,
        "Metrics of all subtasks of an operator.",
        response=list[m.Metric],
        query=_GET,
    ),
    Route(
        "GET",
        f"{_VERTEX}/subtasks/:subtaskindex/metrics",
        metrics_of_subtask,
        "Metrics of a subtask.",
        response=list[m.Metric],
        query=_GET,
    ),
    Route(
        "GET",
        f"{_VERTEX}/subtasks/metrics",
        metrics_of_subtasks,
        "Metrics over the subtasks of an operator.",
        response=list[m.AggregatedMetric],
        query={**_GET, "agg": "Some of min, max, avg, sum, with commas; all by default."},
    ),
    Route("GET", "/metrics", prometheus_page, "Metrics for Prometheus.", response=str, media=MEDIA),
)
