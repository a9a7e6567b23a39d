"""Starting a job: from a program that nothing refuses to what runs it on Spark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from weir.checkpoint.retention import JobEnd
from weir.clock import SystemClock
from weir.config import ambient
from weir.config import rest as r
from weir.config.effective import Settings
from weir.config.security import REST_ENABLED
from weir.errors import UsageError
from weir.graph.plan import JobPlan, compile_plan
from weir.graph.transformation import StreamGraph
from weir.ids import new_job_id
from weir.jobmanager.announcement import Announcement, refuse_twin
from weir.jobmanager.background import BackgroundThread
from weir.jobmanager.client import LocalJob
from weir.jobmanager.gateway import FlightNetwork, SlotPlace
from weir.jobmanager.operations import JobHandle
from weir.jobmanager.origin import find_origin
from weir.jobmanager.past import keep
from weir.jobmanager.postmortem import HostProcesses
from weir.jobmanager.preparation import Prepared
from weir.jobmanager.recovery import RestorePoint
from weir.jobmanager.registry import SlotRegistry
from weir.jobmanager.restoration import JobSpec
from weir.jobmanager.results import Results
from weir.jobmanager.settings import JobSettings
from weir.jobmanager.supervisor import Supervisor
from weir.jobmanager.surroundings import Surroundings
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer, query_endpoint
from weir.queryable.settings import QuerySettings
from weir.rest.assets import page_link
from weir.rest.server import RestServer, endpoint
from weir.rest.settings import RestSettings
from weir.spark.code import directory_of
from weir.spark.engine import SparkEngine
from weir.spark.internals import stop_progress_bar
from weir.spark.resume import Resume
from weir.spark.session import get_spark, is_local
from weir.spark.sources import declare_types
from weir.spark.workers_python import check_workers
from weir.spark.workspace import Workspace
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

log = logging.getLogger("weir.job")
_ASKED_FOR = (r.BIND_ADDRESS, r.BIND_PORT, r.ADDRESS, r.TOKEN, REST_ENABLED)


def start(graph: StreamGraph, prepare: Callable[[dict[str, str]], Prepared]) -> LocalJob:
    """Start a job in the active Spark session and return its handle at once.

    `prepare` gets the settings for Weir in Spark's configuration.

    Raises:
        WeirError: the program or its configuration cannot run; no job was started.
    """
    spark = get_spark(graph.job_name)
    stop_progress_bar(spark.sparkContext)
    said = {k: v for k, v in spark.conf.getAll.items() if k.startswith(ambient.SPARK_PREFIX)}
    prepared = prepare(said)
    check_workers(spark)
    settings, resolved = prepared.settings, prepared.resolved
    rest = _rest(resolved)
    announcement = None if rest is None else _announcement(rest, spark)
    queries = _queries(resolved)
    declare_types(graph)
    default = settings.parallelism or spark.sparkContext.defaultParallelism
    plan = compile_plan(graph, default, batch=prepared.batch)
    refuse_twin(plan.job_name, settings)  # again: starting Spark takes long enough for one
    submission = Submission(
        graph,
        plan,
        settings,
        shown=resolved.shown(),
        origins=resolved.origins(),
        announcement=announcement,
    )
    workspace = Workspace(new_job_id(), settings)
    try:
        supervisor, engine = _supervisor(submission, spark, workspace)
        writes = None if rest is None else _writing(rest, workspace)
        link = None if rest is None else page_link(rest.local_url, rest.token, workspace.job_id)
        job = LocalJob(supervisor, writes, link, engine)
        job.supervisor.open()
    except BaseException:
        # A job that was refused, or whose sources cannot be read, leaves nothing behind.
        workspace.leave(JobEnd.FAILED)
        raise
    if queries is not None and not plan.batch:
        _serve_queries(job, queries, rest, announcement)
    job.start()
    if rest is not None:
        rest.register(job.control)
    if announcement is not None:
        announcement.update(job.supervisor)
    if link is not None:
        _tell(link)
    return job


def _tell(link: str) -> None:
    """Show people the link to the job's page; it holds the token, so it goes to no log."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"weir: the page of the job: {link}\n")
        sys.stderr.flush()


@dataclass(frozen=True)
class Submission:
    """A program as it is to run; `shown` are its settings for people, `origins` their places."""

    graph: StreamGraph
    plan: JobPlan
    settings: JobSettings
    shown: Mapping[str, str]
    origins: Mapping[str, str]
    announcement: Announcement | None


def _supervisor(
    submission: Submission, spark: SparkSession, workspace: Workspace
) -> tuple[Supervisor, SparkEngine]:
    """Find what the job starts from, and put together what runs it."""
    plan, settings = submission.plan, submission.settings
    job_id, clock = workspace.job_id, SystemClock()
    in_memory = settings.state_files.in_memory and settings.checkpoint_dir is None
    storage = MemoryStorage() if in_memory else workspace.storage
    origin = find_origin(job_id, plan, settings, storage, work_root=workspace.root)
    place = SlotPlace(
        workspace.socket_dir,
        workspace.log_dir,
        local=is_local(spark),
        default_logs=settings.log_dir is None,
        tls=settings.tls,
        archives=directory_of(settings.python_archives),
    )
    processes = HostProcesses(place.host, workspace.log_dir, clock)
    network = FlightNetwork(SlotRegistry(clock, settings.lease_ms, processes), clock, place)
    resume = _resume(origin.claim.point, settings)
    engine = SparkEngine(spark, settings, workspace, network, clock=clock, resume=resume)
    spec = JobSpec(
        job_id=job_id,
        plan=plan,
        settings=settings,
        storage=storage,
        graph=submission.graph,
        claim=origin.claim,
        lineage=origin.lineage,
        configuration=submission.shown,
        origins=submission.origins,
        one_host=place.local,
    )
    surroundings = Surroundings(
        clock=clock,
        background=BackgroundThread("weir-checkpoints"),
        commit=engine.sinks.commit,
        changed=partial(_changed, workspace, submission.announcement),
        leave=workspace.leave,
    )
    results = Results(plan.batch or settings.checkpoint.interval_ms is not None)
    return Supervisor(spec, engine, network, results, surroundings=surroundings), engine


def _changed(workspace: Workspace, announcement: Announcement | None, job: Supervisor) -> None:
    """Let others know how the job is now, and let go what it does not need any more."""
    if announcement is not None:
        announcement.update(job)
    coordinator = job.checkpoints.coordinator
    workspace.completed(coordinator.attempt, [ref.checkpoint_id for ref in coordinator.completed])


def _resume(point: RestorePoint | None, settings: JobSettings) -> Resume:
    """Return where the sources begin: behind what the job before this one has read."""
    if point is None:
        return Resume()
    storage = open_storage(point.storage_uri, settings.storage)
    return Resume(point.metadata.sources, storage, point.directory)


def _announcement(rest: RestServer, spark: SparkSession) -> Announcement:
    master = spark.sparkContext.master
    return Announcement(rest.local_url, rest.token or "", rest.files, master)


def _writing(rest: RestServer, workspace: Workspace) -> Callable[[JobHandle], None]:
    """Return what writes the job down, for who looks at it when it has ended."""
    return partial(keep, log_dir=workspace.log_dir, driver_log=rest.cluster.log)


def _queries(settings: Settings) -> tuple[QueryServer, QuerySettings] | None:
    """Return what takes queries of state and how, None when that is switched off.

    Raises:
        UsageError: it is switched on, and cannot listen, or listens otherwise for another job.
    """
    wanted = QuerySettings.of(settings)
    return None if wanted is None else (query_endpoint(wanted), wanted)


def _serve_queries(
    job: LocalJob,
    taken: tuple[QueryServer, QuerySettings],
    rest: RestServer | None,
    announcement: Announcement | None,
) -> None:
    """Answer queries about the job until it ends, also by REST."""
    server, settings = taken
    queries = StateQueries(job.supervisor, settings.limits)
    server.register(job.job_id, queries, settings)
    job.control.queries = queries
    job.supervisor.ended.add_done_callback(lambda _: server.forget(job.job_id))
    if rest is not None:
        rest.state_token = server.token
    if announcement is not None:
        announcement.query_url, announcement.query_token = server.location, server.token


def _rest(settings: Settings) -> RestServer | None:
    """Return what serves the jobs of this process; a job can do without, unless it was asked for.

    Raises:
        UsageError: it was asked for, and cannot listen.
    """
    try:
        return endpoint(RestSettings.of(settings))
    except UsageError as error:
        if any(settings.is_set(option) for option in _ASKED_FOR):
            raise
        log.warning("the job cannot be reached by commands: %s", error)
        return None
