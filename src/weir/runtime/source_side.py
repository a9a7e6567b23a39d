"""Level 0: the chain between a source and the first exchange.

Runs in stateless Spark workers, one instance per task: decode, stateless functions, timestamps,
then keys and target subtasks. Records that no Python function needs stay columns all the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from weir.codec.arrow import batch_to_rows
from weir.connector.decoder import Columns, Mark, Partition, Piece, Records, Undecoded
from weir.connector.undecoded import DEAD_LETTERS
from weir.graph.plan import EdgeNode, JobPlan
from weir.runtime.catalog import source_operator
from weir.runtime.combining import CombiningWriter, can_combine
from weir.runtime.exchange import EdgeWriter
from weir.runtime.frame import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Chunk,
    ColumnChunk,
    Control,
    Frame,
    PartitionMark,
    origin,
    pack_control,
)
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.partition_time import partition_name
from weir.runtime.stateless import TimestampsOperator


class SourceSide:
    """The level-0 operators of all sources, for one partition of one epoch."""

    def __init__(self, plan: JobPlan, facts: TaskFacts) -> None:
        """Build and wire the level; `facts.subtask` is the partition number."""
        self._plan = plan
        self._facts = facts
        self._operators: dict[int, Operator] = {}
        self._consumers: dict[int, list[Any]] = {}
        self._letter_consumers: dict[int, list[Any]] = {}
        self.undecoded: dict[int, int] = {}
        self._writers: list[EdgeWriter] = []
        self._marks: dict[int, Mark] = {}
        self._current: dict[int, str] = {}
        self._ending: set[str] = set()
        self._awaited: dict[int, set[str]] = {}
        self._over: dict[int, set[str]] = {}
        for node in plan.in_level(0):
            if node.kind != "source":
                self._operators[node.index] = source_operator(node, facts)
        for node in plan.in_level(0):
            for edge in plan.outputs_of(node.index):
                consumer = self._consumer(edge)
                if edge.tag is None:
                    self._consumers.setdefault(node.index, []).append(consumer)
                elif edge.tag == DEAD_LETTERS.tag_id:
                    # The one side output that there is on this side of an exchange.
                    self._letter_consumers.setdefault(node.index, []).append(consumer)
        for index, op in self._operators.items():
            consumers = self._consumers.get(index, [])
            op.consumers = [c if callable(c) else c.write for c in consumers]
            if all(isinstance(c, EdgeWriter) and c.checks_types for c in consumers):
                op.leave_checks()
        found = [op for op in self._operators.values() if isinstance(op, TimestampsOperator)]
        self._listeners: list[TimestampsOperator | EdgeWriter] = [*found, *self._writers]

    def _consumer(self, edge: EdgeNode) -> Any:
        if edge.chained:
            return _Chained(self._operators[edge.target])
        target, giver = self._plan.operators[edge.target], self._plan.operators[edge.source]
        sender = self._facts.subtask
        writer: EdgeWriter
        if can_combine(self._plan, edge):
            names = (target.name, giver.name)
            writer = CombiningWriter(edge, sender, names, target.options["window"])
        else:
            writer = EdgeWriter(edge, sender, target.name, giver=giver.name)
        self._writers.append(writer)
        return writer

    def take(self, source: int, decoded: Piece) -> None:
        """Take what a decoder made of rows of a source."""
        if isinstance(decoded, Records):
            self.feed(source, Chunk(decoded.values, decoded.timestamps))
        elif isinstance(decoded, Columns):
            to_rows = partial(_to_rows, decoded.type_info)
            chunk = ColumnChunk(decoded.batch, decoded.timestamps)
            self.feed_columns(source, chunk, to_rows)
        elif isinstance(decoded, Partition):
            self._enter(source, decoded)
        elif isinstance(decoded, Undecoded):
            self._leave_out(source, decoded)
        else:
            self._marks[source] = decoded

    def _leave_out(self, source: int, undecoded: Undecoded) -> None:
        """Count what could not be decoded; who wants to see it gets it."""
        self.undecoded[source] = self.undecoded.get(source, 0) + undecoded.count
        if undecoded.letters:
            self._tell_partition(source)
            for consumer in self._letter_consumers.get(source, []):
                write = consumer.write if isinstance(consumer, EdgeWriter) else consumer
                write(Chunk(undecoded.letters, None))

    def _enter(self, source: int, partition: Partition | None) -> None:
        """Note which partition of a source the next records are of."""
        name = self._partition_name(source, "" if partition is None else partition.name)
        self._current[source] = name
        if partition is not None and partition.ends:
            self._ending.add(name)
        if partition is not None and partition.awaited:
            self._awaited.setdefault(source, set()).add(name)
        if partition is not None and partition.over:
            self._over.setdefault(source, set()).add(name)

    def _partition_name(self, source: int, name: str = "") -> str:
        return partition_name(self._plan.operators[source].id, name)

    def _tell_partition(self, source: int) -> None:
        """Let watermarks be those of the partition that a source is in."""
        if source not in self._current:
            self._enter(source, None)
        for listener in self._listeners:
            listener.partition = self._current[source]

    def feed(self, source: int, chunk: Chunk) -> None:
        """Push records of a source through the level."""
        if not chunk.values:
            return
        self._tell_partition(source)
        for consumer in self._consumers.get(source, []):
            (consumer.write if isinstance(consumer, EdgeWriter) else consumer)(chunk)

    def feed_columns(self, source: int, chunk: ColumnChunk, to_rows: Any) -> None:
        """Push columns of a source through the level; rows are made only where needed."""
        self._tell_partition(source)
        self._push_columns(source, chunk, to_rows)

    def _push_columns(self, giver: int, chunk: ColumnChunk, to_rows: Any) -> None:
        rows: Chunk | None = None
        for consumer in self._consumers.get(giver, []):
            if isinstance(consumer, EdgeWriter):
                if consumer.write_columns(chunk):
                    continue
            elif isinstance(consumer.op, TimestampsOperator):
                stamped = consumer.op.stamp_columns(chunk)
                if stamped is not None:
                    self._push_columns(consumer.op.node.index, stamped, to_rows)
                    continue
            rows = rows or to_rows(chunk)
            (consumer.write if isinstance(consumer, EdgeWriter) else consumer)(rows)

    def take_frames(self) -> list[Frame]:
        """Hand over what was packed so far."""
        return [frame for writer in self._writers for frame in writer.take_frames()]

    def finish(self) -> Iterator[Frame]:
        """Return what is still held, and the control frames that close this partition's epoch."""
        for writer in self._writers:
            if isinstance(writer, CombiningWriter):
                writer.flush()
            yield from writer.take_frames()
            edge = writer.edge
            for generator in self._plan.watermark_generators(edge.source):
                marks = tuple(self._said(generator, writer))
                if not marks:
                    continue
                payload = pack_control(Control(generator, partitions=marks))
                for target in range(edge.parallelism):
                    yield Frame(target, edge.id, origin(self._facts.subtask, 0), payload)

    def _said(self, generator: int, writer: EdgeWriter) -> Iterator[PartitionMark]:
        """Return how far the partitions came that were read here, and which of them are over."""
        sources = self._plan.sources_of(generator)
        op = self._operators.get(generator)
        mark = self._marks.get(generator)
        over = {name for source in sources for name in self._over.get(source, ())}
        if isinstance(op, TimestampsOperator):
            found = self._generated(generator, op)
        elif mark is None:
            found = self._read(generator, writer)
        else:
            found = iter(())
            watermark = MIN_WATERMARK if mark.watermark is None else mark.watermark
            yield PartitionMark(
                self._partition_name(generator), watermark, ends=mark.last, idle=mark.idle
            )
        for name, watermark in found:
            if name not in over:
                yield PartitionMark(name, watermark, ends=name in self._ending)
        for name in sorted(over):
            yield PartitionMark(name, MAX_WATERMARK, ends=True)
        # Of what sources say, the end of their input is the one thing that is passed on.
        for source in sources if isinstance(op, TimestampsOperator) else ():
            if self._is_over(source):
                last = self._marks[source].last
                yield PartitionMark(self._partition_name(source), MAX_WATERMARK, ends=last)

    def _generated(self, generator: int, op: TimestampsOperator) -> Iterator[tuple[str, int]]:
        """Return the watermarks that a strategy made, by partition."""
        ended = {self._partition_name(s) for s in self._marks if self._is_over(s)}
        yield from ((name, mark) for name, mark in op.generated.items() if name not in ended)
        # Right behind a source every partition counts; functions in between might leave all out.
        givers = {edge.source for edge in self._plan.inputs_of(generator)}
        for name in sorted(n for s in givers for n in self._awaited.get(s, ())):
            if name not in op.generated:
                yield name, MIN_WATERMARK

    def _read(self, source: int, writer: EdgeWriter) -> Iterator[tuple[str, int]]:
        """Return the partitions of a source that says nothing of its time itself."""
        own = self._partition_name(source)
        for name in sorted(writer.partitions | self._awaited.get(source, set())):
            if name.startswith(own):
                yield name, MIN_WATERMARK

    def _is_over(self, source: int) -> bool:
        """Tell whether a source said that event time is over."""
        return source in self._marks and self._marks[source].watermark == MAX_WATERMARK


class _Chained:
    """The next operator of the level, as a consumer of records."""

    def __init__(self, op: Operator) -> None:
        self.op = op

    def __call__(self, chunk: Chunk) -> None:
        self.op.process(chunk, 0)


def _to_rows(type_info: Any, chunk: ColumnChunk) -> Chunk:
    stamps = None if chunk.timestamps is None else chunk.timestamps.to_pylist()
    return Chunk(batch_to_rows(chunk.batch, type_info), stamps)
