"""Splits that a planner names, as a stream of Spark: a small Python data source.

Its rows are the names of splits alone; workers read the data, behind it, in level 0. Its offsets
are the planner's positions as they are, so Spark's own log holds them and nothing grows with the
job, as a folder of split files would.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from weir import errors
from weir.checkpoint.metadata import SourcePositions
from weir.connector.position import position_text
from weir.connector.source import SplitPlanner
from weir.errors import JobExecutionError, WeirError
from weir.ids import unique_suffix
from weir.spark.positions import offset_of
from weir.spark.source_logs import NO_OFFSET

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1 reads all that is there in one batch.

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """What later versions call a source that can stop at an end."""


@dataclass
class _Task(InputPartition):
    """The splits of one task."""

    splits: tuple[str, ...]


class _PlannedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's view of a planner, in the process in which Spark plans a query."""

    def __init__(self, planner: SplitPlanner, tasks: int) -> None:
        self._planner = planner
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.begin()

    def latestOffset(self, *given: Any) -> dict[str, Any]:
        """Spark 4.2 and later give the position to go on from, 4.1 gives nothing."""
        return self._planner.advance(given[0] if given else None)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.bound()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Task(splits) for splits in self._planner.plan(start, end, self._tasks)]

    def read(self, partition: Any) -> Iterator[tuple[str]]:
        return ((split,) for split in partition.splits)

    def stop(self) -> None:
        self._planner.close()


def raised_by_planner(text: str) -> WeirError | None:
    """Return what a planner raised, of which Spark has but the traceback; None for others."""
    found = re.search(r"^weir\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, WeirError):
        return None
    return None if kind is errors.UserFunctionError else kind(found[2])


def refuse_unread(planners: Mapping[int, SplitPlanner], positions: SourcePositions) -> None:
    """Refuse the end of a query that has not come to the end of its input.

    To Spark a position that stays the same is an end. What is left would be left out in silence.

    Raises:
        JobExecutionError: it says how far the source was read.
    """
    for index, planner in planners.items():
        line = offset_of(positions, index)
        at = planner.begin() if line == NO_OFFSET else json.loads(line)
        if not planner.is_over(at):
            msg = (
                f"Spark has ended the query before its input was over: source {index} was read up "
                f"to {position_text(json.dumps(at))}; what is left is not there yet, or was not "
                "asked for. The restart strategy decides how often it is tried again"
            )
            raise JobExecutionError(msg)


def planned_stream(spark: SparkSession, planner: SplitPlanner) -> DataFrame:
    """Return the stream of the names of splits.

    The planner travels inside of the class: options would show up in plans and on Spark's pages.
    """
    unique, count = f"weir_{unique_suffix()}", spark.sparkContext.defaultParallelism

    class Planned(DataSource):
        """A planner's splits."""

        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> str:
            return "split string"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return _PlannedReader(planner, count)

    spark.dataSource.register(Planned)
    return spark.readStream.format(unique).load()
