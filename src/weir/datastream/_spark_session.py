"""The way to Spark: imported only when a program asks for a session or runs.

Declaring a program needs no Spark, and importing Spark takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from weir.common.configuration import Configuration
from weir.common.job_client import JobClient
from weir.datastream._program import ProgramEngine
from weir.graph.transformation import StreamGraph, Transformation

_instead: ContextVar[ProgramEngine | None] = ContextVar("engine instead of Spark", default=None)


@contextmanager
def engine_instead_of_spark(engine: ProgramEngine) -> Iterator[None]:
    """Let programs that would run on Spark be handed to another engine meanwhile."""
    token = _instead.set(engine)
    try:
        yield
    finally:
        _instead.reset(token)


class ActiveSessionEngine:
    """Runs graphs in the active Spark session."""

    def submit(self, graph: StreamGraph, configuration: Configuration) -> JobClient:
        """Start a job and return its handle at once."""
        instead = _instead.get()
        if instead is not None:
            return instead.submit(graph, configuration)
        from weir.spark.submission import submit

        return submit(graph, configuration)


def active_session() -> Any:
    """Return the active Spark session, or start one."""
    from weir.spark.session import get_spark

    return get_spark()


def declare_dataframe(source: Transformation) -> None:
    """Give a DataFrame source the type of its columns, so that what follows knows its fields.

    Raises:
        UsageError: a column has a type that cannot become a field of a record.
    """
    from weir.spark.sources import declare_types

    declare_types(StreamGraph("", [source], 0))
