"""Submitting a program: from a graph and a configuration to a running job."""

from __future__ import annotations

from weir.common.configuration import Configuration
from weir.config import ambient
from weir.config import execution as e
from weir.config.effective import Settings
from weir.graph.transformation import StreamGraph
from weir.graph.uids import check_uids
from weir.jobmanager.settings import JobSettings
from weir.spark.job import SparkJob
from weir.spark.session import get_spark


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
    job = SparkJob(graph, settings, spark)
    job.start()
    return job
