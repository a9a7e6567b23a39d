"""The workloads as Bytewax dataflows; `bytewax.run` imports `flow` from here.

A key is a string in Bytewax, so integer keys are converted. State is a Python object for each key,
snapshotted whole. There is no TTL: expiry is written by hand, as its user would.
"""

from __future__ import annotations

import json
import operator
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.contenders.progress import Progress
from benchmarks.contenders.protocol import Task
from benchmarks.workloads.catalogue import CLOSING_KEY, FLUSH_AT, REGIONS, TTL_MS, WINDOW_MS
from benchmarks.workloads.rows import PARTITIONS

BATCH = 2_000
START = datetime(1970, 1, 1, tzinfo=timezone.utc)
# In event time. Bytewax moves a key's watermark with the wall clock too; slower than the event
# clock it would call rows late.
PATIENCE = timedelta(seconds=2)


class Files(FixedPartitionedSource):
    """The input files of each partition."""

    def __init__(self, directory: Path) -> None:
        """Remember where."""
        self._directory = directory

    def list_parts(self) -> list[str]:
        """Name the partitions."""
        return [str(part) for part in range(PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> FilePart:
        """Open one."""
        files = sorted(self._directory.glob("*.parquet"))[int(for_part) :: PARTITIONS]
        return FilePart(files, resume_state or 0)


class FilePart(StatefulSourcePartition):
    """Reads the files of one partition in order."""

    def __init__(self, files: list[Path], position: int) -> None:
        """Begin at a position, counted in rows."""
        self._files = iter(files)
        self._rows: list[Any] = []
        self._at = 0
        self._position = 0
        while self._position < position:
            self.next_batch()

    def next_batch(self) -> list[Any]:
        """Return some rows."""
        if self._at >= len(self._rows):
            table = pq.read_table(next(self._files))
            self._rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
            self._at = 0
        batch = self._rows[self._at : self._at + BATCH]
        self._at += len(batch)
        self._position += len(batch)
        return batch

    def snapshot(self) -> int:
        """Return the position."""
        return self._position


class Results(DynamicSink):
    """Counts what arrives, and fingerprints it in a verifying run."""

    def __init__(self, directory: str, groups: Any) -> None:
        """Remember where to note."""
        self._directory = directory
        self._groups = groups

    def build(self, step_id: str, worker_index: int, worker_count: int) -> ResultPart:
        """Begin."""
        return ResultPart(Progress(self._directory, self._groups))


class ResultPart(StatelessSinkPartition):
    """One worker's end of the sink."""

    def __init__(self, progress: Progress) -> None:
        """Take the notebook."""
        self._progress = progress

    def write_batch(self, items: list[Any]) -> None:
        """Count; the key that a stream of a stateful step carries is no part of the result."""
        self._progress.batch([row for _, row in items])

    def close(self) -> None:
        """End."""
        self._progress.close()


def least(state: Any, row: Any) -> Any:
    """Every row with the least value of its key so far."""
    if state is None or row[1] < state:
        state = row[1]
    return state, (row[0], row[1], state)


def wide(state: Any, row: Any) -> Any:
    """Every wide row with the least value of its key so far."""
    if state is None or row[1] < state:
        state = row[1]
    return state, (*row, state)


def running_sum(state: Any, row: Any) -> Any:
    """The sum of each key so far."""
    state = (state or 0) + row[1]
    return state, (row[0], state)


def distinct(state: Any, row: Any) -> Any:
    """A user of a site, the first time on a day; entries live as long as the TTL says."""
    seen = {} if state is None else state
    user = (row[2], row[1])
    now = time.time() * 1000
    if seen.get(user, 0) > now:
        return seen, ()
    seen[user] = now + TTL_MS
    return seen, (row,)


def flush(state: Any, row: Any) -> Any:
    """The average of every so many values of a key."""
    values = [] if state is None else state
    values.append(row[1])
    if len(values) < FLUSH_AT:
        return values, ()
    return None, ((row[0], sum(values) // FLUSH_AT),)


def by_region(state: Any, row: Any) -> Any:
    """Counts the rows of a region."""
    count = (state or 0) + 1
    return count, (row[1] % REGIONS, count, row[0], row[2])


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "least": least,
    "reduce": running_sum,
    "wide": wide,
    "distinct": distinct,
    "flush": flush,
}
MANY = {"distinct", "flush"}


def key_of(row: Any) -> str:
    """Return the first field as a key."""
    return str(row[0])


@lru_cache(maxsize=100_000)
def _at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def event_time(row: Any) -> datetime:
    """Return the second field as a time."""
    return _at(row[1])


def windows(rows: Any) -> Any:
    """Count rows in event-time windows: Bytewax's way to a timer in event time."""
    real = op.filter("real", rows, lambda row: row[0] != CLOSING_KEY)
    keyed = op.key_on("key", real, key_of)
    counted = windowing.fold_window(
        "count",
        keyed,
        windowing.EventClock(event_time, PATIENCE),
        windowing.TumblingWindower(timedelta(milliseconds=WINDOW_MS), START),
        int,
        lambda count, row: count + 1,
        operator.add,
    )

    def result(key_and_window: Any) -> Any:
        key, (window, count) = key_and_window
        return key, (int(key), (window + 1) * WINDOW_MS, count)

    return op.map("result", counted.down, result)


def build(task: Task) -> Dataflow:
    """Return the dataflow of one task."""
    dataset = task.input
    kind = dataset.workload.kind
    flow = Dataflow("benchmark")
    rows = op.input("input", flow, Files(dataset.parquet))
    if kind == "timers":
        results = windows(rows)
    elif kind == "stages":
        first = op.stateful_map("first", op.key_on("key", rows, key_of), least)
        region = op.key_on("region", first, lambda pair: str(pair[1][1] % REGIONS))
        unkeyed = op.map_value("row", region, lambda pair: pair[1])
        results = op.stateful_map("work", unkeyed, by_region)
    else:
        keyed = op.key_on("key", rows, key_of)
        step = op.stateful_flat_map if kind in MANY else op.stateful_map
        results = step("work", keyed, STEPS[kind])
    groups = dataset.workload.groups if task.verify else None
    op.output("output", results, Results(str(task.folder("marks")), groups))
    return flow


flow = build(Task(**json.loads(os.environ["BENCHMARK_TASK"])))
