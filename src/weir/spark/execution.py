"""Submitting a program: from a graph and a configuration to a running job."""

from __future__ import annotations

import logging

from weir.common.configuration import Configuration
from weir.config import ambient
from weir.config import execution as e
from weir.config import rest as r
from weir.config.effective import Settings
from weir.errors import UsageError
from weir.graph.transformation import StreamGraph
from weir.graph.uids import check_uids
from weir.jobmanager.settings import JobSettings
from weir.rest.server import RestServer, endpoint
from weir.rest.settings import RestSettings
from weir.spark.job import SparkJob
from weir.spark.session import get_spark

log = logging.getLogger("weir.job")


def submit(graph: StreamGraph, configuration: Configuration) -> SparkJob:
    """Start a job in the active Spark session and return its handle at once.

    Settings come from the configuration file, Spark's configuration, the environment, the command
    line and the program, each stronger than the one before.

    Raises:
        UsageError: the program or its configuration cannot run; nothing was started.
    """
    program = ambient.program_layer(configuration.to_dict())
    Settings([*ambient.layers(), program]).validate()  # before Spark is started for nothing
    spark = get_spark(graph.job_name)
    layers = [*ambient.layers(spark.conf.getAll), program]
    settings = JobSettings.of(layers)
    resolved = Settings(layers)
    check_uids(graph, auto_generate=resolved.get(e.AUTO_GENERATE_UIDS))
    most = resolved.get(e.MAX_PARALLELISM)
    if graph.max_parallelism is None and most > 0:
        graph.max_parallelism = most
    rest = _rest(resolved)
    job = SparkJob(graph, settings, spark, resolved.shown())
    job.start()
    if rest is not None:
        rest.register(job.control)
        job.announce(rest.local_url, rest.token or "")
    return job


def _rest(settings: Settings) -> RestServer | None:
    """Return what serves the jobs of this process; a job can do without, unless it was asked for.

    Raises:
        UsageError: it was asked for, and cannot listen.
    """
    try:
        return endpoint(RestSettings.of(settings))
    except UsageError as error:
        if any(settings.is_set(o) for o in (r.BIND_ADDRESS, r.BIND_PORT, r.ADDRESS, r.TOKEN)):
            raise
        log.warning("the job cannot be reached by commands: %s", error)
        return None
