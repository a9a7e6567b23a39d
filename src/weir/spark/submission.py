"""The way of a program to Spark: first whatever may refuse it, then Spark itself.

Importing this module imports no Spark. A program that is refused is refused before a JVM starts,
unless only Spark's own configuration could tell.
"""

from __future__ import annotations

from weir.common.configuration import Configuration
from weir.config import ambient
from weir.graph.transformation import StreamGraph
from weir.jobmanager.client import LocalJob
from weir.jobmanager.preparation import Prepared, prepare
from weir.spark.expected import expected_settings, refuse_shared_threads


def submit(graph: StreamGraph, configuration: Configuration) -> LocalJob:
    """Start a job in the active Spark session and return its handle at once.

    Settings come from the configuration file, Spark's configuration, the environment, the command
    line and the program, each stronger than the one before.

    Raises:
        WeirError: the program or its configuration cannot run; nothing was started.
    """
    refuse_shared_threads()
    program = ambient.program_layer(configuration.to_dict())

    def prepared(spark_settings: dict[str, str]) -> Prepared:
        return prepare(graph, [*ambient.layers(spark_settings), program])

    expected = expected_settings()
    early = None if expected is None else prepared(expected)
    from weir.spark.execution import start

    return start(graph, lambda said: early if early and said == expected else prepared(said))
