"""Level 0: the chain between a source and the first exchange.

Runs in stateless Spark workers, one instance per task: decode, stateless functions, timestamps,
then keys and target subtasks. Records that no Python function needs stay columns all the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from weir.codec.arrow import batch_to_rows
from weir.connector.decoder import Columns, Mark, Records
from weir.graph.plan import EdgeNode, JobPlan
from weir.runtime.catalog import source_operator
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import (
    IDLE_NOW,
    MAX_WATERMARK,
    MIN_WATERMARK,
    Chunk,
    ColumnChunk,
    Control,
    Frame,
    origin,
    pack_control,
)
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.stateless import TimestampsOperator


class SourceSide:
    """The level-0 operators of all sources, for one partition of one epoch."""

    def __init__(self, plan: JobPlan, facts: TaskFacts) -> None:
        """Build and wire the level; `facts.subtask` is the partition number."""
        self._plan = plan
        self._facts = facts
        self._operators: dict[int, Operator] = {}
        self._consumers: dict[int, list[Any]] = {}
        self._writers: list[EdgeWriter] = []
        self._marks: dict[int, Mark] = {}
        for node in plan.in_level(0):
            if node.kind != "source":
                self._operators[node.index] = source_operator(node, facts)
        for node in plan.in_level(0):
            for edge in plan.outputs_of(node.index):
                self._consumers.setdefault(node.index, []).append(self._consumer(edge))
        for index, op in self._operators.items():
            consumers = self._consumers.get(index, [])
            op.consumers = [c if callable(c) else c.write for c in consumers]
            if all(isinstance(c, EdgeWriter) and c.checks_types for c in consumers):
                op.leave_checks()

    def _consumer(self, edge: EdgeNode) -> Any:
        if edge.chained:
            return partial(_chain, self._operators[edge.target])
        operators = self._plan.operators
        writer = EdgeWriter(
            edge,
            self._facts.subtask,
            operators[edge.target].name,
            giver=operators[edge.source].name,
        )
        self._writers.append(writer)
        return writer

    def take(self, source: int, decoded: Records | Columns | Mark) -> None:
        """Take what a decoder made of rows of a source."""
        if isinstance(decoded, Records):
            self.feed(source, Chunk(decoded.values, decoded.timestamps))
        elif isinstance(decoded, Columns):
            to_rows = partial(_to_rows, decoded.type_info)
            self.feed_columns(source, ColumnChunk(decoded.batch), to_rows)
        else:
            self._marks[source] = decoded

    def feed(self, source: int, chunk: Chunk) -> None:
        """Push records of a source through the level."""
        for consumer in self._consumers.get(source, []):
            (consumer.write if isinstance(consumer, EdgeWriter) else consumer)(chunk)

    def feed_columns(self, source: int, chunk: ColumnChunk, to_rows: Any) -> None:
        """Push columns of a source through the level; rows are made only where needed."""
        rows: Chunk | None = None
        for consumer in self._consumers.get(source, []):
            if isinstance(consumer, EdgeWriter) and consumer.write_columns(chunk):
                continue
            rows = rows or to_rows(chunk)
            (consumer.write if isinstance(consumer, EdgeWriter) else consumer)(rows)

    def take_frames(self) -> list[Frame]:
        """Hand over what was packed so far."""
        return [frame for writer in self._writers for frame in writer.take_frames()]

    def finish(self) -> Iterator[Frame]:
        """Return the control frames that close this partition's epoch."""
        for writer in self._writers:
            edge = writer.edge
            for generator in self._plan.watermark_generators(edge.source):
                said = self._said(generator)
                if said is None:
                    continue
                watermark, idle = said
                payload = pack_control(Control(generator, watermark, idle))
                for target in range(edge.parallelism):
                    yield Frame(target, edge.id, origin(self._facts.subtask, 0), payload)

    def _said(self, generator: int) -> tuple[int, int | None] | None:
        """Return how far a generator came and when it counts as idle; None if it said nothing."""
        mark = self._marks.get(generator)
        if mark is not None:
            watermark = MIN_WATERMARK if mark.watermark is None else mark.watermark
            return watermark, IDLE_NOW if mark.idle else None
        op = self._operators.get(generator)
        if not isinstance(op, TimestampsOperator):
            return None
        # Of what sources say, the end of their input is the one thing that is passed on.
        watermark = MAX_WATERMARK if self._ended(generator) else op.generated
        return watermark, op.function.idleness_ms

    def _ended(self, index: int) -> bool:
        """Tell whether all sources before an operator said that event time is over."""
        inputs = self._plan.inputs_of(index)
        if inputs:
            return all(self._ended(edge.source) for edge in inputs)
        return index in self._marks and self._marks[index].watermark == MAX_WATERMARK


def _chain(target: Operator, chunk: Chunk) -> None:
    target.process(chunk, 0)


def _to_rows(type_info: Any, chunk: ColumnChunk) -> Chunk:
    return Chunk(batch_to_rows(chunk.batch, type_info))
