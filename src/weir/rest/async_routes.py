"""Routes that change something: savepoints, checkpoints, stop, cancel, rescale, disposal.

Each answers at once with an id; the outcome is read by asking again. What can be refused without
asking the job is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Any, Final

import msgspec

from weir import errors
from weir.jobmanager.operations import JobHandle
from weir.rest.cluster import Cluster, is_over
from weir.rest.operation_models import (
    Bounds,
    CheckpointInfo,
    CheckpointResult,
    CheckpointTrigger,
    DisposalRequest,
    FailureCause,
    Nothing,
    OperationInfo,
    OperationResult,
    QueueStatus,
    SavepointInfo,
    SavepointResult,
    SavepointTrigger,
    StopTrigger,
    TriggerResponse,
    VertexRequirements,
)
from weir.rest.routing import RefusedError, Request, Route

_PARALLELISM_MAX: Final = 32768


def trigger_savepoint(cluster: Cluster, request: Request) -> TriggerResponse:
    """Take a savepoint; cancel the job afterwards if the body says so."""
    job, body = cluster.job(request.path["jobid"]), request.body
    _require_directory(job, body.target_directory, "target-directory")
    call = job.cancel_with_savepoint if body.cancel_job else job.savepoint
    return _start(
        cluster,
        ("savepoint", job.job_id, body.trigger_id),
        lambda: call(body.target_directory, body.format_type),
    )


def stop(cluster: Cluster, request: Request) -> TriggerResponse:
    """Stop the job with a savepoint."""
    job, body = cluster.job(request.path["jobid"]), request.body
    _require_directory(job, body.target_directory, "targetDirectory")
    return _start(
        cluster,
        ("savepoint", job.job_id, body.trigger_id),
        lambda: job.stop(body.target_directory, drain=body.drain, form=body.format_type),
    )


def savepoint_result(cluster: Cluster, request: Request) -> SavepointResult:
    """Tell how a savepoint or a stop went."""
    done, result, failure = outcome(cluster, "savepoint", request)
    return SavepointResult(status_of(done), SavepointInfo(result, failure) if done else None)


def trigger_checkpoint(cluster: Cluster, request: Request) -> TriggerResponse:
    """Take a checkpoint now."""
    job, body = cluster.job(request.path["jobid"]), request.body
    return _start(
        cluster,
        ("checkpoint", job.job_id, body.trigger_id),
        lambda: job.checkpoint(full=body.checkpoint_type == "FULL"),
    )


def checkpoint_result(cluster: Cluster, request: Request) -> CheckpointResult:
    """Tell how a checkpoint went."""
    done, result, failure = outcome(cluster, "checkpoint", request)
    return CheckpointResult(status_of(done), CheckpointInfo(result, failure) if done else None)


def cancel(cluster: Cluster, request: Request) -> Nothing:
    """Cancel the job; it may still be ending when this returns."""
    job, mode = cluster.job(request.path["jobid"]), request.query.get("mode", "cancel")
    if mode == "stop":
        raise RefusedError(400, "Mode 'stop' is no more: use POST /jobs/:jobid/stop.")
    if mode != "cancel":
        raise RefusedError(400, f"Unknown termination mode {mode!r}, expected 'cancel'.")
    view = job.view()
    if is_over(view) and view.status != "CANCELED":
        raise RefusedError(409, f"The job cannot be canceled, it is {view.status} already.")
    if view.status != "CANCELED":
        future = job.cancel()
        if future.done():
            future.result()
    return Nothing()


def rescale(cluster: Cluster, request: Request) -> TriggerResponse:
    """Go on with another parallelism."""
    job, text = cluster.job(request.path["jobid"]), request.query.get("parallelism", "")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _PARALLELISM_MAX):
        raise RefusedError(
            400, f"parallelism is {text!r}, expected a number from 1 to {_PARALLELISM_MAX}."
        )
    return _start(cluster, ("rescale", job.job_id, None), lambda: job.rescale(int(text)))


def rescale_result(cluster: Cluster, request: Request) -> OperationResult:
    """Tell how a rescaling went."""
    done, _, failure = outcome(cluster, "rescale", request)
    return OperationResult(status_of(done), OperationInfo(failure) if done else None)


def requirements(cluster: Cluster, request: Request) -> dict[str, VertexRequirements]:
    """Tell the parallelism of every vertex."""
    view = cluster.job(request.path["jobid"]).view()
    return {v.id: VertexRequirements(Bounds(1, v.parallelism)) for v in view.vertices}


def require(cluster: Cluster, request: Request) -> Nothing:
    """Rescale to the parallelism that the vertices are given; all of them get one parallelism."""
    job = cluster.job(request.path["jobid"])
    view, wanted = job.view(), request.body
    known = {vertex.id: vertex.parallelism for vertex in view.vertices}
    if set(wanted) != set(known):
        raise RefusedError(400, f"Vertices are {sorted(wanted)}, expected all of {sorted(known)}.")
    bounds = {vertex: wanted[vertex].parallelism for vertex in wanted}
    if any(bound.lower > bound.upper for bound in bounds.values()):
        raise RefusedError(400, "A lowerBound is greater than its upperBound.")
    # A vertex that does not follow the job's parallelism keeps its own.
    follows = {bounds[v].upper for v, p in known.items() if p == view.parallelism}
    kept = all(bounds[v].upper == p for v, p in known.items() if p != view.parallelism)
    if len(follows) > 1 or not kept:
        raise RefusedError(
            400, "All vertices of a job have one parallelism: give them the same upperBound."
        )
    if follows and follows != {view.parallelism}:
        parallelism = follows.pop()
        _start(cluster, ("rescale", job.job_id, None), lambda: job.rescale(parallelism))
    return Nothing()


def dispose(cluster: Cluster, request: Request) -> TriggerResponse:
    """Delete a savepoint."""
    path = request.body.savepoint_path
    if not path.strip():
        raise RefusedError(400, "savepoint-path is empty, expected the path of a savepoint.")
    return _start(cluster, ("disposal", "", request.body.trigger_id), lambda: cluster.dispose(path))


def disposal_result(cluster: Cluster, request: Request) -> OperationResult:
    """Tell how a disposal went."""
    done, _, failure = outcome(cluster, "disposal", request)
    return OperationResult(status_of(done), OperationInfo(failure) if done else None)


def _require_directory(job: JobHandle, directory: str | None, name: str) -> None:
    if directory is None and job.view().savepoint_dir is None:
        raise RefusedError(
            400, f"No default directory for savepoints is configured: {name!r} has to be given."
        )
    if directory is not None and not directory.strip():
        raise RefusedError(400, f"{name!r} is empty, expected a directory.")


def _start(
    cluster: Cluster, key: tuple[str, str, str | None], call: Callable[[], Future[Any]]
) -> TriggerResponse:
    kind, job_id, trigger_id = key
    return TriggerResponse(cluster.operations.start(kind, job_id, trigger_id, call))


def outcome(cluster: Cluster, kind: str, request: Request) -> tuple[bool, Any, FailureCause | None]:
    """Return whether an operation is over, and with what result or failure."""
    job_id = request.path.get("jobid", "")
    if job_id:
        cluster.job(job_id)
    future = cluster.operations.find(kind, job_id, request.path["triggerid"])
    if not future.done():
        return False, None, None
    if future.cancelled():
        return True, None, FailureCause("weir.errors.WeirError", "The operation was given up.")
    error = future.exception()
    if error is None:
        return True, future.result(), None
    # Clients know the branches of the tree of errors, not every leaf.
    public = (c for c in type(error).__mro__ if c.__module__ == errors.__name__)
    branch = next(public, type(error))
    return True, None, FailureCause(f"{branch.__module__}.{branch.__qualname__}", str(error))


def status_of(done: bool) -> QueueStatus:
    """Return the status of an operation as answers have it."""
    return QueueStatus("COMPLETED" if done else "IN_PROGRESS")


def _post(path: str, handle: Any, summary: str, body: Any) -> Route:
    return Route("POST", path, handle, summary, response=TriggerResponse, body=body, status=202)


_JOB: Final = "/jobs/:jobid"
_REQUIREMENTS: Final = f"{_JOB}/resource-requirements"
_PER_VERTEX = dict[str, VertexRequirements]
_SOME_VERTICES = Annotated[_PER_VERTEX, msgspec.Meta(min_length=1)]

ROUTES: Final[tuple[Route, ...]] = (
    _post(f"{_JOB}/savepoints", trigger_savepoint, "Take a savepoint.", SavepointTrigger),
    Route(
        "GET",
        f"{_JOB}/savepoints/:triggerid",
        savepoint_result,
        "Outcome of a savepoint or a stop.",
        response=SavepointResult,
    ),
    _post(f"{_JOB}/stop", stop, "Stop a job with a savepoint.", StopTrigger),
    _post(f"{_JOB}/checkpoints", trigger_checkpoint, "Take a checkpoint.", CheckpointTrigger),
    Route(
        "GET",
        f"{_JOB}/checkpoints/:triggerid",
        checkpoint_result,
        "Outcome of a checkpoint.",
        response=CheckpointResult,
    ),
    Route(
        "PATCH",
        _JOB,
        cancel,
        "Cancel a job.",
        response=Nothing,
        status=202,
        query={"mode": "How to end the job: cancel, which is the default."},
    ),
    Route(
        "PATCH",
        f"{_JOB}/rescaling",
        rescale,
        "Change the parallelism of a job.",
        response=TriggerResponse,
        status=202,
        query={"parallelism": "The new parallelism."},
    ),
    Route(
        "GET",
        f"{_JOB}/rescaling/:triggerid",
        rescale_result,
        "Outcome of a rescaling.",
        response=OperationResult,
    ),
    Route("GET", _REQUIREMENTS, requirements, "Parallelism of every vertex.", response=_PER_VERTEX),
    Route("PUT", _REQUIREMENTS, require, "Rescale a job.", response=Nothing, body=_SOME_VERTICES),
    _post("/savepoint-disposal", dispose, "Delete a savepoint.", DisposalRequest),
    Route(
        "GET",
        "/savepoint-disposal/:triggerid",
        disposal_result,
        "Outcome of a disposal.",
        response=OperationResult,
    ),
)
