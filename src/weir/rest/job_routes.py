"""Routes that tell about jobs: list, details, plan, settings, failures, operators."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from weir.config import execution as e
from weir.errors import UsageError
from weir.jobmanager.operations import ExceptionView, JobView, VertexView
from weir.rest import job_models as m
from weir.rest.cluster import Cluster, is_over
from weir.rest.operation_models import FailureCause, QueueStatus
from weir.rest.routing import RefusedError, Request, Route
from weir.rest.secrecy import hidden
from weir.rest.tasks import (
    STATES,
    endpoint,
    slot_id,
    slot_of,
    state_counts,
    subtask_state,
    vertex_state,
)

_EXCEPTIONS_SHOWN: Final = 20
_OUTCOMES: Final = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}


def list_jobs(cluster: Cluster, _: Request) -> m.JobIds:
    """List ids and states."""
    jobs = [m.JobIdWithStatus(v.job_id, v.status) for v in cluster.views()]  # type: ignore[arg-type]
    return m.JobIds(jobs)


def overview(cluster: Cluster, _: Request) -> m.JobsOverview:
    """List jobs with their times and tasks."""
    return m.JobsOverview([_details(view) for view in cluster.views()])


def job(cluster: Cluster, request: Request) -> m.JobInfo:
    """Tell everything about a job."""
    handle = cluster.job(request.path["jobid"])
    view = handle.view()
    states = Counter(vertex_state(view, vertex) for vertex in view.vertices)
    return m.JobInfo(
        jid=view.job_id,
        name=view.name,
        state=view.status,  # type: ignore[arg-type]
        start_time=view.start_ms,
        end_time=_end(view),
        duration=_duration(view),
        now=view.now_ms,
        timestamps=_timestamps(view),
        vertices=[_vertex(view, vertex) for vertex in view.vertices],
        status_counts={state: states[state] for state in STATES},
        plan=_plan(view),
        max_parallelism=view.max_parallelism,
        stoppable=not is_over(view),
        parallelism=view.parallelism,
        attempt=view.attempt,
        epoch=view.epoch,
        savepoint_directory=view.savepoint_dir,
        queries=handle.queries is not None,
    )


def status(cluster: Cluster, request: Request) -> m.StatusAnswer:
    """Tell the status of a job."""
    return m.StatusAnswer(_view(cluster, request).status)  # type: ignore[arg-type]


def plan(cluster: Cluster, request: Request) -> m.PlanAnswer:
    """Tell the graph of a job."""
    return m.PlanAnswer(_plan(_view(cluster, request)))


def config(cluster: Cluster, request: Request) -> m.JobConfig:
    """Tell the settings of a job."""
    view = _view(cluster, request)
    settings = hidden(view.configuration)
    strategy = settings.get(e.RESTART_STRATEGY.key)
    default = "exponential-delay" if view.checkpoint_settings.interval_ms else "none"
    execution = m.ExecutionConfig(
        restart_strategy=strategy or default,
        job_parallelism=view.parallelism,
        user_config=hidden(_parameters(view)),
    )
    return m.JobConfig(
        view.job_id, view.name, execution, configuration=settings, origins=dict(view.origins)
    )


def exceptions(cluster: Cluster, request: Request) -> m.JobExceptions:
    """Tell the failures of a job, newest first."""
    view, text = _view(cluster, request), request.query.get("maxExceptions")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RefusedError(400, f"maxExceptions is {text!r}, expected a number.")
    limit = _EXCEPTIONS_SHOWN if text is None else int(text)
    newest = sorted(view.exceptions, key=lambda x: x.timestamp_ms, reverse=True)
    shown = [_exception(x) for x in newest[:limit]]
    truncated = len(newest) > len(shown)
    return m.JobExceptions(
        root_exception=newest[0].message if newest else None,
        timestamp=newest[0].timestamp_ms if newest else None,
        truncated=truncated,
        exception_history=m.ExceptionHistory(shown, truncated),
    )


def _exception(view: ExceptionView) -> m.ExceptionEntry:
    return m.ExceptionEntry(
        view.kind,
        view.message,
        view.timestamp_ms,
        view.attempt,
        task_name=view.operator or None,
        record=view.record or None,
        user_traceback=view.traceback or None,
    )


def execution_result(cluster: Cluster, request: Request) -> m.ExecutionResult:
    """Tell how a job ended."""
    view = _view(cluster, request)
    if not is_over(view):
        return m.ExecutionResult(QueueStatus("IN_PROGRESS"))
    cause = None
    if view.status == "FAILED" and view.exceptions:
        last = max(view.exceptions, key=lambda x: x.timestamp_ms)
        cause = FailureCause(last.kind, last.message)
    outcome: Any = _OUTCOMES[view.status]
    result = m.JobResult(view.job_id, outcome, _duration(view), failure_cause=cause)
    return m.ExecutionResult(QueueStatus("COMPLETED"), result)


def vertex(cluster: Cluster, request: Request) -> m.VertexInfo:
    """Tell the subtasks of an operator."""
    view = _view(cluster, request)
    found = vertex_of(view, request)
    subtasks = [_subtask(view, found, index) for index in range(found.parallelism)]
    return m.VertexInfo(
        id=found.id,
        name=found.name,
        parallelism=found.parallelism,
        max_parallelism=found.max_parallelism,
        now=view.now_ms,
        subtasks=subtasks,
    )


def vertex_of(view: JobView, request: Request) -> VertexView:
    """Return the operator that a path names.

    Raises:
        RefusedError: 404, the job has no such operator.
    """
    for candidate in view.vertices:
        if candidate.id == request.path["vertexid"]:
            return candidate
    raise RefusedError(404, f"Vertex {request.path['vertexid']} not found in job {view.job_id}.")


def _view(cluster: Cluster, request: Request) -> JobView:
    return cluster.job(request.path["jobid"]).view()


def _end(view: JobView) -> int:
    return -1 if view.end_ms is None else view.end_ms


def _duration(view: JobView) -> int:
    return (view.now_ms if view.end_ms is None else view.end_ms) - view.start_ms


def _timestamps(view: JobView) -> dict[str, int]:
    """Flink names all states, with 0 for those that were never reached."""
    known = dict.fromkeys(m.JobStatus.__args__, 0)  # type: ignore[attr-defined]
    known |= {"INITIALIZING": view.start_ms, "CREATED": view.start_ms, "RUNNING": view.start_ms}
    if view.end_ms is not None:
        known[view.status] = view.end_ms
    return known


def _details(view: JobView) -> m.JobDetails:
    counts: Counter[str] = Counter()
    for each in view.vertices:
        counts.update(state_counts(view, each))
    tasks = {state.lower(): counts[state] for state in STATES}
    return m.JobDetails(
        jid=view.job_id,
        name=view.name,
        start_time=view.start_ms,
        end_time=_end(view),
        duration=_duration(view),
        state=view.status,  # type: ignore[arg-type]
        last_modification=view.start_ms if view.end_ms is None else view.end_ms,
        tasks={"total": sum(tasks.values()), **tasks},
    )


def _vertex(view: JobView, vertex: VertexView) -> m.JobVertex:
    counted = vertex.level > 0
    return m.JobVertex(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        status=vertex_state(view, vertex),
        start_time=view.start_ms,
        end_time=_end(view),
        duration=_duration(view),
        tasks=state_counts(view, vertex),
        metrics=m.IOMetrics(vertex.records_in, counted, vertex.records_out, counted),
        max_parallelism=vertex.max_parallelism,
        uid=vertex.uid,
        level=vertex.level,
        kind=vertex.kind,
        states=list(vertex.states),
        subtasks=[
            m.SubtaskCounts(x.subtask, x.records_in, x.records_out, x.watermark)
            for x in vertex.subtasks
        ],
        watermark=vertex.watermark,
    )


def _plan(view: JobView) -> m.Plan:
    nodes = [
        m.PlanNode(
            id=each.id,
            parallelism=each.parallelism,
            description=each.name,
            operator=each.kind,
            inputs=[m.PlanInput(n, sender, how) for n, (sender, how) in enumerate(each.inputs)],
        )
        for each in view.vertices
    ]
    return m.Plan(view.job_id, view.name, nodes)


def _parameters(view: JobView) -> dict[str, str]:
    text = view.configuration.get(e.GLOBAL_JOB_PARAMETERS.key)
    try:
        return {} if text is None else dict(e.GLOBAL_JOB_PARAMETERS.parse(text))
    except UsageError:
        return {}


def _subtask(view: JobView, vertex: VertexView, index: int) -> m.Subtask:
    slot = slot_of(view, index) if vertex.level else None
    counts = next((each for each in vertex.subtasks if each.subtask == index), None)
    known = m.IOMetrics(0, False, 0, False)
    if counts is not None:
        known = m.IOMetrics(counts.records_in, True, counts.records_out, True)
    return m.Subtask(
        subtask=index,
        status=subtask_state(view, vertex, index),
        attempt=view.attempt,
        endpoint=endpoint(slot),
        start_time=view.start_ms,
        end_time=_end(view),
        duration=_duration(view),
        metrics=known,
        taskmanager_id=slot_id(view, index) if slot else "(unassigned)",
    )


_JOB: Final = "/jobs/:jobid"

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/jobs", list_jobs, "Ids and states of all jobs.", response=m.JobIds),
    Route("GET", "/jobs/overview", overview, "All jobs.", response=m.JobsOverview),
    Route("GET", _JOB, job, "Everything about a job.", response=m.JobInfo),
    Route("GET", f"{_JOB}/status", status, "Status of a job.", response=m.StatusAnswer),
    Route("GET", f"{_JOB}/plan", plan, "Graph of a job.", response=m.PlanAnswer),
    Route("GET", f"{_JOB}/config", config, "Settings of a job.", response=m.JobConfig),
    Route(
        "GET",
        f"{_JOB}/exceptions",
        exceptions,
        "Failures of a job, newest first.",
        response=m.JobExceptions,
        query={"maxExceptions": "How many to show; 20 by default."},
    ),
    Route(
        "GET",
        f"{_JOB}/execution-result",
        execution_result,
        "How a job ended.",
        response=m.ExecutionResult,
    ),
    Route(
        "GET",
        f"{_JOB}/vertices/:vertexid",
        vertex,
        "Subtasks of an operator.",
        response=m.VertexInfo,
    ),
)
