"""The sources of a job in the harness: lists of records, read from a position on.

What a source gives is read through the source SPI when the job is made: the splits of collections,
sequences and other sources with splits, planned ones as far as they are planned then, files that
workers read, and the records of source functions, which run to their end. What Spark itself would
read, DataFrames and text files, is refused. A test may let more records arrive at a source that was
read; with `weir.connector.decoder.END` among them it says that nothing follows. Planned sources say
that themselves.

Invariant: a position is the index of the next record of a source. It travels through checkpoint
metadata as text, so a job that resumes knows nothing but what was written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from weir.checkpoint.metadata import SourcePositions, layout_of
from weir.clock import SystemClock
from weir.codec.arrow import batch_to_rows
from weir.connector import decoder
from weir.connector.source import (
    FileRows,
    Journal,
    Opening,
    PlannedSplits,
    Source,
    SplitRows,
    Splits,
)
from weir.errors import UsageError
from weir.graph.plan import JobPlan, OperatorNode
from weir.runtime.context import InitializationContext, RuntimeContext
from weir.runtime.metrics import OperatorMetrics
from weir.runtime.operator import TaskFacts
from weir.state.operator_state import OperatorStateStore

Records = Sequence[Any] | Mapping[int, Sequence[Any]]
_HEAD = ("v1", "{}")
PIECES = (decoder.Mark, decoder.Partition, decoder.Undecoded)
"""What may stand among the records of a source, beside them: what it says of itself."""


class HarnessSources:
    """All records of all sources, and how far this execution has read them."""

    def __init__(self, plan: JobPlan) -> None:
        """Take the sources out of a plan, as the engine does before it ships one."""
        self.indexes: list[int] = []
        self._uids: list[str] = []
        self._records: list[list[Any]] = []
        for node in plan.operators:
            if node.kind == "source":
                self.indexes.append(node.index)
                self._uids.append(node.uid or node.id)
                self._records.append(_elements(plan, node))
                node.function = None
        self._next = [0] * len(self.indexes)

    def arrive(self, records: Records) -> None:
        """Append records to sources; a plain list is for the first one."""
        arriving = records if isinstance(records, Mapping) else {0: records}
        for source, values in arriving.items():
            self._records[source].extend(values)

    def inherit(self, other: HarnessSources) -> None:
        """Take over the records that arrived in an earlier job of the same program."""
        self._records = [list(records) for records in other._records]

    def take(self, limit: int | None = None) -> dict[int, list[Any]]:
        """Read on: at most `limit` records of every source, by operator index."""
        taken: dict[int, list[Any]] = {}
        for i, index in enumerate(self.indexes):
            start = self._next[i]
            stop = len(self._records[i]) if limit is None else start + limit
            taken[index] = self._records[i][start:stop]
            self._next[i] = start + len(taken[index])
        return taken

    @property
    def exhausted(self) -> bool:
        """Tell whether every record was read."""
        return all(n == len(r) for n, r in zip(self._next, self._records, strict=True))

    def positions(self, epoch: int) -> SourcePositions:
        """Return where the sources are now."""
        lines = tuple(json.dumps({"next": n}) for n in self._next)
        layout = layout_of(self._uids)
        return SourcePositions(batch_id=epoch, offset_lines=(*_HEAD, *lines), layout=layout)

    def rewind(self, positions: SourcePositions | None) -> None:
        """Go back to positions of a checkpoint; a source that it does not know starts over."""
        self._next = [0] * len(self.indexes)
        if positions is None:
            return
        before = {entry.uid: entry.index for entry in positions.layout}
        for i, uid in enumerate(self._uids):
            if uid in before:
                line = positions.offset_lines[len(_HEAD) + before[uid]]
                self._next[i] = json.loads(line)["next"]


def _elements(plan: JobPlan, node: OperatorNode) -> list[Any]:
    """Return all records of a source."""
    source = node.function
    with TemporaryDirectory(prefix="weir-harness-") as directory:
        if isinstance(source, Source):
            tags = frozenset(e.tag for e in plan.outputs_of(node.index) if e.tag)
            stream = source.open(
                Opening(node.name, Path(directory), type_info=node.output_type, side_outputs=tags)
            )
            if isinstance(stream, FileRows) and stream.format == "binaryFile":
                return _read_files(stream)
            if isinstance(stream, Splits):
                return _read(stream)
            if isinstance(stream, PlannedSplits):
                return _read_planned(stream)
            if isinstance(stream, Journal):
                return _run(plan, node, stream.function)
    msg = (
        f"source '{node.name}': the harness reads sources with splits, such as collections and "
        f"sequences, and source functions; found {source!r}"
    )
    raise UsageError(msg)


def _read(stream: Splits) -> list[Any]:
    records: list[Any] = []
    for path in sorted(stream.folder.iterdir(), key=lambda path: path.stat().st_mtime):
        for split_ in path.read_text().splitlines():
            for batch in stream.reader.read(split_):
                for decoded in stream.decoder.decode(batch):
                    records += _values(decoded)
    return records


def _read_planned(stream: PlannedSplits) -> list[Any]:
    """Read what is there now; later input does not come into a harness."""
    planner = stream.planner
    start, rows = planner.begin(), SplitRows(stream.reader, stream.decoder)
    try:
        planned = planner.plan(start, planner.advance(None), 1)
    finally:
        planner.close()
    names = pa.record_batch({"split": pa.array([s for task in planned for s in task], pa.string())})
    found: list[Any] = []
    for decoded in rows.decode(names):
        found += [decoded] if isinstance(decoded, decoder.Mark) else _values(decoded)
    return found


def _read_files(stream: FileRows) -> list[Any]:
    """Read files whole, in the order of their names; hidden ones are left out, as by Spark."""
    below = [stream.path] if stream.path.is_file() else sorted(stream.path.rglob("*"))
    paths = [str(path) for path in below if path.is_file() and path.name[0] not in "._"]
    names = pa.record_batch({"path": pa.array(paths, pa.string())})
    return [value for decoded in stream.decoder.decode(names) for value in _values(decoded)]


def _values(decoded: decoder.Piece) -> list[Any]:
    """Return the records of a piece; what was left out stands among them as it is."""
    if isinstance(decoded, decoder.Columns):
        return batch_to_rows(decoded.batch, decoded.type_info)
    if isinstance(decoded, decoder.Undecoded):
        return [decoded]
    return decoded.values if isinstance(decoded, decoder.Records) else []


def _run(plan: JobPlan, node: OperatorNode, function: Any) -> list[Any]:
    """Run a source function to its end, with the life cycle that it has in a job."""
    facts = TaskFacts(
        "",
        plan.job_name,
        attempt=0,
        subtask=0,
        clock=SystemClock(),
        report=lambda index, kind, values: None,
    )
    collected = CollectingContext()
    if hasattr(function, "initialize_state"):
        function.initialize_state(InitializationContext(None, OperatorStateStore(), None))
    try:
        function.open(RuntimeContext(node, facts, OperatorMetrics(node.name).group, None))
        function.run(collected)
    finally:
        function.close()
    return collected.records


class CollectingContext:
    """The `ctx` of a source function in the harness: takes records, refuses their time.

    Positions of the harness are numbers of records, so that timestamps and watermarks have no
    place in them; assign them behind the source.
    """

    def __init__(self) -> None:
        self.records: list[Any] = []

    def collect(self, element: Any) -> None:
        """Take a record."""
        self.records.append(element)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        """Refuse."""
        self._refuse("collect_with_timestamp")

    def emit_watermark(self, timestamp: int) -> None:
        """Refuse."""
        self._refuse("emit_watermark")

    def mark_as_temporarily_idle(self) -> None:
        """Refuse."""
        self._refuse("mark_as_temporarily_idle")

    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """Return a lock; nobody else wants it."""
        return nullcontext()

    @staticmethod
    def _refuse(method: str) -> None:
        msg = (
            f"SourceContext.{method}: the harness takes records without times from source "
            "functions; assign timestamps behind the source, or test it on Spark"
        )
        raise UsageError(msg)


def split(values: list[Any], parts: int) -> list[list[Any]]:
    """Cut a list into contiguous parts of nearly equal length; order is kept."""
    bounds = [len(values) * i // parts for i in range(parts + 1)]
    return [values[a:b] for a, b in pairwise(bounds)]
