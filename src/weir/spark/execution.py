"""Submitting a program: from a graph and a configuration to a running job."""

from __future__ import annotations

from weir.common.configuration import Configuration
from weir.graph.transformation import StreamGraph
from weir.jobmanager.settings import JobSettings
from weir.spark.job import SparkJob
from weir.spark.session import get_spark


def submit(graph: StreamGraph, configuration: Configuration) -> SparkJob:
    """Start a job in the active Spark session and return its handle at once.

    Raises:
        UsageError: the program or its configuration cannot run; nothing was started.
    """
    settings = JobSettings.of([configuration.to_dict()])
    spark = get_spark(graph.job_name)
    job = SparkJob(graph, settings, spark)
    job.start()
    return job
