"""Routes that the page needs: jobs over time, logs of driver and slots, threads of the driver.

Paths of logs and threads are Flink's. A part of a log is asked for by `start` and `size` in bytes,
so that a client follows it by asking for what came behind what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weir.jobmanager.logs import LogFile, read_part
from weir.jobmanager.operations import JobHandle
from weir.jobmanager.timeline import Point
from weir.rest import page_models as m
from weir.rest.async_routes import outcome, status_of
from weir.rest.cluster import Cluster
from weir.rest.job_routes import vertex_of
from weir.rest.operation_models import StartInfo, StartResult, StartTrigger, TriggerResponse
from weir.rest.routing import Part, RefusedError, Request, Route
from weir.slot.stacks import DURATION_MAX_MS, Stack, current_stacks

PART_MAX: Final = 1 << 20
PART: Final = 256 << 10
SAMPLED_MS: Final = 1_000
_TEXT: Final = "text/plain; charset=utf-8"
_DRIVER: Final = "driver.log"


def page(cluster: Cluster, _: Request) -> m.Page:
    """Tell what the page has to know of its server."""
    return cluster.page()


def start_again(cluster: Cluster, request: Request) -> TriggerResponse:
    """Start the program of a job that has ended from a savepoint or checkpoint."""
    job, body = cluster.job(request.path["jobid"]), request.body
    if not body.savepoint_path.strip():
        raise RefusedError(400, "savepoint-path is empty, expected the path of a savepoint.")
    trigger = cluster.operations.start(
        "start-again",
        job.job_id,
        body.trigger_id,
        lambda: cluster.start_again(job.job_id, body.savepoint_path, body.parallelism),
    )
    return TriggerResponse(trigger)


def started(cluster: Cluster, request: Request) -> StartResult:
    """Tell how a start went."""
    done, result, failure = outcome(cluster, "start-again", request)
    return StartResult(status_of(done), StartInfo(result, failure) if done else None)


def timeline(cluster: Cluster, request: Request) -> m.Timeline:
    """Tell how a job was over time."""
    view = cluster.job(request.path["jobid"]).timeline()
    return m.Timeline(
        recent=series(view.recent),
        whole=series(view.whole),
        events=[m.TimelineEvent(each.at_ms, each.kind, each.text) for each in view.events],
    )


def sources(cluster: Cluster, request: Request) -> m.Sources:
    """Tell how far the sources of a job are behind."""
    found = cluster.job(request.path["jobid"]).sources()
    return m.Sources(
        [
            m.SourceInfo(
                description=each.description,
                rows=each.rows,
                rows_per_second=each.rows_per_second,
                handled_per_second=each.handled_per_second,
                read_to=each.read_to,
                latest=each.latest,
                behind=each.behind,
            )
            for each in found.sources
        ],
        steps=dict(found.steps),
    )


def series(points: Sequence[Point]) -> m.Series:
    """Return points as columns."""
    subtasks = sorted({slot.subtask for point in points for slot in point.slots})
    return m.Series(
        at=[point.at_ms for point in points],
        span=[point.span_ms for point in points],
        records_in_rate=[_rate(point.records_in, point) for point in points],
        records_out_rate=[_rate(point.records_out, point) for point in points],
        epochs=[point.epochs for point in points],
        epoch_duration=[point.epoch_ms for point in points],
        slot_duration=[point.slot_ms for point in points],
        level_0_duration=[point.level_0_ms for point in points],
        spark_duration=[point.spark_ms for point in points],
        shuffle_duration=[point.shuffle_ms for point in points],
        commit_duration=[point.commit_ms for point in points],
        latency=[point.latency_ms for point in points],
        state_entries=[point.state_entries for point in points],
        state_size=[point.state_bytes for point in points],
        lag=[point.lag_ms for point in points],
        slots=[_slot_series(points, subtask) for subtask in subtasks],
    )


def _rate(count: int, point: Point) -> float:
    return round(count * 1000 / point.span_ms, 3)


def _slot_series(points: Sequence[Point], subtask: int) -> m.SlotSeries:
    found = [next((s for s in point.slots if s.subtask == subtask), None) for point in points]
    return m.SlotSeries(
        subtask=subtask,
        memory_bytes=[None if slot is None else slot.memory_bytes for slot in found],
        cpu=[None if slot is None else slot.cpu for slot in found],
        busy=[None if slot is None else slot.busy for slot in found],
    )


def driver_logs(cluster: Cluster, _: Request) -> m.Logs:
    """List the driver's logs: the one in memory."""
    return m.Logs([m.LogInfo(_DRIVER, cluster.log.end(), cluster.clock.now_ms())])


def driver_log(cluster: Cluster, request: Request) -> Part:
    """Return a part of what loggers of Weir wrote in this process."""
    return Part(*cluster.log.part(*_part(request)))


def log_of_driver(cluster: Cluster, request: Request) -> Part:
    """Return a part of the log of a job's driver; the server of a host has those of ended ones."""
    return Part(*cluster.driver_log(request.path["jobid"], *_part(request)))


def slot_log_list(cluster: Cluster, request: Request) -> m.Logs:
    """List the logs of a slot, of all attempts."""
    found = _slot_logs(cluster, request)
    return m.Logs([m.LogInfo(log.name, log.size, log.modified_ms) for log in found])


def slot_log(cluster: Cluster, request: Request) -> bytes:
    """Return a part of the newest log of a slot."""
    found = _slot_logs(cluster, request)
    if not found:
        raise RefusedError(404, f"Slot {request.path['taskmanagerid']} has no log on this host.")
    return _read(found[0], request)


def named_log(cluster: Cluster, request: Request) -> bytes:
    """Return a part of one of the logs of a slot."""
    wanted = request.path["logname"]
    for log in _slot_logs(cluster, request):
        if log.name == wanted:
            return _read(log, request)
    raise RefusedError(404, f"Log {wanted} not found.")


def _slot_logs(cluster: Cluster, request: Request) -> list[LogFile]:
    prefix, _, subtask = request.path["taskmanagerid"].partition("-")
    job = _job_of(cluster, prefix)
    return [log for log in job.logs() if log.subtask == int(subtask)]


def _job_of(cluster: Cluster, prefix: str) -> JobHandle:
    for job in reversed(cluster.jobs()):
        if job.job_id.startswith(prefix):
            return job
    raise RefusedError(404, f"No job has task managers {prefix}-….")


def _read(log: LogFile, request: Request) -> bytes:
    start, size = _part(request)
    try:
        return read_part(log.path, start, size)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RefusedError(404, f"Log {log.name} cannot be read: {reason}.") from error


def _part(request: Request) -> tuple[int, int]:
    return number(request, "start", 0, low=-(2**53)), number(request, "size", PART, high=PART_MAX)


def number(request: Request, name: str, default: int, *, low: int = 0, high: int = 2**53) -> int:
    """Return a number of the query.

    Raises:
        RefusedError: 400, it is none, or out of its bounds.
    """
    text = request.query.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 17):
        raise RefusedError(400, f"{name} is {text!r}, expected a number.")
    if not low <= int(text) <= high:
        raise RefusedError(400, f"{name} is {text}, expected a number from {low} to {high}.")
    return int(text)


def driver_threads(_cluster: Cluster, _request: Request) -> m.ThreadDump:
    """Tell where the threads of the driver are."""
    return _dump(current_stacks())


def slot_threads(cluster: Cluster, request: Request) -> m.ThreadDump:
    """Tell where the threads of a slot are."""
    prefix, _, subtask = request.path["taskmanagerid"].partition("-")
    return _dump(_job_of(cluster, prefix).stacks(int(subtask)))


def _dump(found: Sequence[Stack]) -> m.ThreadDump:
    infos = [m.ThreadInfo(stack.thread, "\n".join(reversed(stack.frames))) for stack in found]
    return m.ThreadDump(sorted(infos, key=lambda info: info.thread_name))


def flame_graph(cluster: Cluster, request: Request) -> m.FlameGraph:
    """Look at a slot for a while and tell where its threads were; all operators share a slot."""
    job = cluster.job(request.path["jobid"])
    vertex = vertex_of(job.view(), request)
    index = number(request, "subtaskindex", 0, high=vertex.parallelism - 1)
    duration = number(request, "duration", SAMPLED_MS, low=10, high=DURATION_MAX_MS)
    if vertex.level == 0:
        raise RefusedError(409, f"{vertex.name} runs in Spark's workers, which have no slot.")
    found = job.stacks(index, duration)
    return m.FlameGraph(cluster.clock.now_ms(), flames(found))


def flames(found: Sequence[Stack]) -> m.Flame:
    """Return stacks as one tree, below the threads that they belong to."""
    root = m.Flame("all threads", 0, [])
    for stack in found:
        root.value += stack.count
        node = root
        for frame in (stack.thread, *stack.frames):
            below = next((child for child in node.children if child.name == frame), None)
            if below is None:
                below = m.Flame(frame, 0, [])
                node.children.append(below)
            below.value += stack.count
            node = below
    return root


_PART: Final = {
    "start": "First byte; from the end if it is negative.",
    "size": f"Number of bytes, at most {PART_MAX}.",
}
_SLOT: Final = "/taskmanagers/:taskmanagerid"

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/page", page, "What the page has to know of its server.", response=m.Page),
    Route(
        "POST",
        "/jobs/:jobid/start-again",
        start_again,
        "Start the program of a job that has ended again; only a host's server does.",
        response=TriggerResponse,
        body=StartTrigger,
        status=202,
    ),
    Route(
        "GET",
        "/jobs/:jobid/start-again/:triggerid",
        started,
        "Outcome of a start.",
        response=StartResult,
    ),
    Route(
        "GET",
        "/jobs/:jobid/timeline",
        timeline,
        "How a job was over time.",
        response=m.Timeline,
    ),
    Route(
        "GET",
        "/jobs/:jobid/sources",
        sources,
        "How far the sources of a job are behind.",
        response=m.Sources,
    ),
    Route("GET", "/jobmanager/logs", driver_logs, "The driver's logs.", response=m.Logs),
    Route(
        "GET",
        "/jobmanager/log",
        driver_log,
        "What loggers of Weir wrote in the driver.",
        response=str,
        query=_PART,
        media=_TEXT,
    ),
    Route(
        "GET",
        "/jobs/:jobid/driver-log",
        log_of_driver,
        "What loggers of Weir wrote in the driver of a job, also of one that has ended.",
        response=str,
        query=_PART,
        media=_TEXT,
    ),
    Route(
        "GET",
        "/jobmanager/thread-dump",
        driver_threads,
        "Where the threads of the driver are.",
        response=m.ThreadDump,
    ),
    Route(
        "GET",
        f"{_SLOT}/thread-dump",
        slot_threads,
        "Where the threads of a slot are.",
        response=m.ThreadDump,
    ),
    Route(
        "GET",
        "/jobs/:jobid/vertices/:vertexid/flamegraph",
        flame_graph,
        "Where the threads of the slot of a subtask were for a while.",
        response=m.FlameGraph,
        query={
            "subtaskindex": "The subtask; 0 by default.",
            "duration": f"Milliseconds to look; {SAMPLED_MS} by default.",
        },
    ),
    Route("GET", f"{_SLOT}/logs", slot_log_list, "Logs of a slot.", response=m.Logs),
    Route(
        "GET",
        f"{_SLOT}/log",
        slot_log,
        "The newest log of a slot.",
        response=str,
        query=_PART,
        media=_TEXT,
    ),
    Route(
        "GET",
        f"{_SLOT}/logs/:logname",
        named_log,
        "A log of a slot.",
        response=str,
        query=_PART,
        media=_TEXT,
    ),
)
