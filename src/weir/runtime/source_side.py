"""Level 0: the chain between a source and the first exchange.

Runs in stateless Spark workers, one instance per task: decode, stateless functions, timestamps,
then keys and target subtasks. Records that no Python function needs stay columns all the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from weir.graph.plan import EdgeNode, JobPlan
from weir.runtime.catalog import source_operator
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import (
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
        for node in plan.in_level(0):
            if node.kind != "source":
                self._operators[node.index] = source_operator(node, facts)
        for node in plan.in_level(0):
            for edge in plan.outputs_of(node.index):
                self._consumers.setdefault(node.index, []).append(self._consumer(edge))
        for index, op in self._operators.items():
            op.consumers = [c if callable(c) else c.write for c in self._consumers.get(index, [])]

    def _consumer(self, edge: EdgeNode) -> Any:
        if edge.chained:
            return partial(_chain, self._operators[edge.target])
        writer = EdgeWriter(edge, self._facts.subtask, self._plan.operators[edge.target].name)
        self._writers.append(writer)
        return writer

    def needs_rows(self, source: int) -> bool:
        """Tell whether any consumer of a source works on Python records."""
        return any(not isinstance(c, EdgeWriter) for c in self._consumers.get(source, []))

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

    def finish(self, barrier: int | None) -> Iterator[Frame]:
        """Return the control frames that close this partition's epoch."""
        for writer in self._writers:
            edge = writer.edge
            for generator in self._plan.watermark_generators(edge.source):
                op = self._operators.get(generator)
                if not isinstance(op, TimestampsOperator):
                    continue
                idle = op.function.idleness_ms
                control = Control(generator, op.generated, barrier, writer.records, idle)
                payload = pack_control(control)
                for target in range(edge.parallelism):
                    yield Frame(target, edge.id, origin(self._facts.subtask, 0), payload)


def _chain(target: Operator, chunk: Chunk) -> None:
    target.process(chunk, 0)
