"""Functions of the state processor in Spark's workers: those that read state, those that make it.

Reading is one task for each range of key groups. Making is a stage that runs what comes before the
operator, a shuffle, and a stage with one task for each subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from weir.checkpoint.metadata import OperatorRecord
from weir.codec import pickled
from weir.connector.decoder import Decoder, Piece
from weir.keygroup import KeyGroupRange
from weir.offline.bootstrap import Bootstrap, MadeSubtask
from weir.offline.contents import read_snapshot
from weir.offline.key_readers import ReadKeys, ReadWindows
from weir.offline.writing import Target
from weir.runtime.frame import Incoming, frames_to_batch, incoming_of
from weir.spark.salts import salts
from weir.spark.savepoints import collected
from weir.spark.state_source import splits_of
from weir.storage.options import StorageOptions

RECORDS: Final = "records"
_FRAMES: Final = "salt int, edge int, origin bigint, payload binary"
_MADE: Final = "made binary"
_RECORDS_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class ReadTask:
    """Runs a reader function over the key groups that its rows name."""

    path: str
    options: dict[str, str]
    unpickle: bool
    reads: ReadKeys | ReadWindows

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield pickled lists of what the function yields."""
        contents = read_snapshot(self.path, StorageOptions.of(self.options), unpickle=self.unpickle)
        kept: list[Any] = []
        for batch in batches:
            for start, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for record in self.reads.read(contents, KeyGroupRange(start, end)):
                    kept.append(record)
                    if len(kept) == _RECORDS_AT_ONCE:
                        yield _pickles(kept)
                        kept = []
        yield _pickles(kept)


def _pickles(records: list[Any]) -> Any:
    column = pa.array([pickled.dumps(records)] if records else [], pa.binary())
    return pa.RecordBatch.from_arrays([column], [RECORDS])


def read_by_function(spark: SparkSession, task: ReadTask, max_parallelism: int) -> DataFrame:
    """Return what a reader function yields, as pickled lists of records, one in each row."""
    wanted = 2 * spark.sparkContext.defaultParallelism
    splits = splits_of(KeyGroupRange(0, max_parallelism - 1), wanted)
    rows = [split.key_groups for split in splits]
    frame = spark.createDataFrame(rows, "first int, last int")
    return frame.repartition(len(rows)).mapInArrow(task, f"{RECORDS} binary")


@dataclass(frozen=True)
class SparkInput:
    """The sources of a bootstrap as static DataFrames, by their index in the plan."""

    sources: tuple[tuple[int, DataFrame, Decoder], ...]

    def run(
        self, bootstrap: Bootstrap, target: Target, operator: OperatorRecord
    ) -> list[MadeSubtask]:
        """Run one subtask in each task."""
        width = operator.parallelism
        frames = reduce(
            DataFrame.unionAll,
            [
                frame.mapInArrow(_SourceTask(bootstrap, index, decoder, salts(width)), _FRAMES)
                for index, frame, decoder in self.sources
            ],
        )
        rows = (
            frames.repartition(width, "salt")
            .sortWithinPartitions("edge", "origin")
            .mapInArrow(_SubtaskTask(bootstrap, target), _MADE)
        )
        made: dict[int, MadeSubtask] = {}
        for row in collected(rows.collect):
            subtask, file = pickled.loads(bytes(row.made))
            made[subtask.index] = (subtask, file)
        return [
            made.get(index) or bootstrap.run_subtask(index, (), target) for index in range(width)
        ]


@dataclass(frozen=True)
class _SourceTask:
    """What comes before the operator, for the rows of one source."""

    bootstrap: Bootstrap
    source: int
    decoder: Decoder
    salts: tuple[int, ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for frames in self.bootstrap.frames(_partition(), self._pieces(batches)):
            yield frames_to_batch(frames, self.salts.__getitem__)

    def _pieces(self, batches: Iterable[Any]) -> Iterator[tuple[int, Piece]]:
        for batch in batches:
            for piece in self.decoder.decode(batch):
                yield self.source, piece


@dataclass(frozen=True)
class _SubtaskTask:
    """One subtask of the operator, over the frames that came to its partition."""

    bootstrap: Bootstrap
    target: Target

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        made = self.bootstrap.run_subtask(_partition(), self._frames(batches), self.target)
        yield pa.RecordBatch.from_arrays([pa.array([pickled.dumps(made)], pa.binary())], ["made"])

    def _frames(self, batches: Iterable[Any]) -> Iterator[Incoming]:
        for batch in batches:
            yield from incoming_of(batch)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
