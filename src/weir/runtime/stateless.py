"""Operators without state of their own: map, flat_map, filter, project, timestamps.

They run on the source side in Spark workers, and in slots. In a slot behind `key_by` the same
user functions may use keyed state; `weir.runtime.keyed` handles those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

import pyarrow.compute as pc

from weir.common.types import Row
from weir.common.watermark_strategy import FieldTimestamps
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.runtime.columnar import milliseconds_of
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, Chunk, ColumnChunk, field_positions
from weir.runtime.looks import IdleTimer
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.raised import shorten, whole
from weir.runtime.watermarks import is_moment


def flatten(
    function: Callable[[Any], Iterable[Any] | None], chunk: Chunk, done: list[int]
) -> tuple[list[Any], list[int | None] | None]:
    """Apply a flat-map function to a chunk; `done[0]` tells how many records succeeded."""
    out: list[Any] = []
    extend = out.extend
    if chunk.timestamps is None:
        for v in chunk.values:
            result = function(v)
            if result is not None:
                extend(result if result.__class__ is list else whole(result))
            done[0] += 1
        return out, None
    stamps: list[int | None] = []
    for v, t in zip(chunk.values, chunk.timestamps, strict=True):
        before = len(out)
        result = function(v)
        if result is not None:
            extend(result if result.__class__ is list else whole(result))
        stamps.extend([t] * (len(out) - before))
        done[0] += 1
    return out, stamps


class MapOperator(Operator):
    """One record in, one out."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the function to every record."""
        self.records_in += len(chunk.values)
        out = self.results(self.function.map, chunk.values)
        self.emit_results(out, chunk.timestamps, chunk.values)


class FlatMapOperator(Operator):
    """One record in, any number out."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the function to every record and flatten."""
        self.records_in += len(chunk.values)
        done = [0]
        try:
            out, stamps = flatten(self.function.flat_map, chunk, done)
        except BaseException as error:
            raise self.failed(error, chunk.values[done[0]]) from None
        self.emit_results(out, stamps)


class FilterOperator(Operator):
    """Keeps the records for which the function is true."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the function to every record."""
        self.records_in += len(chunk.values)
        self.emit(*self.kept(self.function.filter, chunk))


class ProjectOperator(Operator):
    """Keeps some fields of tuples and rows."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._fields: list[int] = list(node.options["fields"])

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Project every record."""
        self.records_in += len(chunk.values)
        fields = self._fields
        out: list[Any] = []
        try:
            for v in chunk.values:
                kept = tuple(v[i] for i in fields)
                out.append(Row(*kept) if isinstance(v, Row) else kept)
        except BaseException as error:
            raise self.failed(error, chunk.values[len(out)]) from None
        self.emit(out, chunk.timestamps)


def assigned(op: Operator, chunk: Chunk) -> list[int | None] | None:
    """Return the timestamps of a chunk's records, by the assigner of an operator's strategy."""
    assigner = op.function.timestamp_assigner
    if assigner is None:
        return chunk.timestamps
    extract = assigner.extract_timestamp
    before: Iterable[int | None] = chunk.timestamps or [None] * len(chunk.values)
    out: list[int] = []
    try:
        # Flink hands Long.MIN_VALUE to the assigner of a record without a timestamp.
        for v, t in zip(chunk.values, before, strict=True):
            found = extract(v, MIN_WATERMARK if t is None else t)
            out.append(found if found.__class__ is int else _moment(found))
    except BaseException as error:
        raise op.failed(error, chunk.values[len(out)]) from None
    # All at once: most are fine, and looking at each would cost as much as reading it.
    if min(out, default=0) < MIN_WATERMARK or max(out, default=0) > MAX_WATERMARK:
        value, found = next(p for p in zip(chunk.values, out, strict=True) if not is_moment(p[1]))
        try:
            _moment(found)
        except UsageError as error:
            raise op.failed(error, value) from None
    return cast("list[int | None]", out)


def _moment(found: Any) -> int:
    """Return a moment of event time from what an assigner gave that is no such number.

    Raises:
        UsageError: it cannot be one.
    """
    with suppress(TypeError, ValueError, OverflowError):
        moment = int(found)
        if is_moment(moment):
            return moment
    msg = (
        f"extract_timestamp() returned {shorten(found)}: expected the time of the record, in whole "
        "milliseconds of 64 bits"
    )
    raise UsageError(msg)


class TimestampsOperator(Operator):
    """Assigns event timestamps and generates bounded-out-of-orderness watermarks.

    Next to a source there is a watermark for every partition that was read; `partition` is the one
    that the next records are of. In a slot all records are of one partition.
    """

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._out_of_orderness = self.function.out_of_orderness_ms
        self._silence = IdleTimer(facts.looks, self.function.idleness_ms)
        self._heard = False
        self.partition = ""
        self.generated: dict[str, int] = {}

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Stamp every record and note the highest timestamp."""
        self.records_in += len(chunk.values)
        stamps = assigned(self, chunk)
        self._note(max((t for t in stamps or () if t is not None), default=None))
        self.emit(chunk.values, stamps)

    def stamp_columns(self, chunk: ColumnChunk) -> ColumnChunk | None:
        """Stamp records that are columns; None when only records tell their timestamps."""
        assigner, batch = self.function.timestamp_assigner, chunk.batch
        if not isinstance(assigner, FieldTimestamps) or not batch.num_rows:
            return None
        [position] = field_positions(batch.schema, [assigner.field])
        if not 0 <= position < batch.num_columns:
            return None
        stamps = milliseconds_of(batch.column(position))
        if stamps is None:
            return None
        self.records_in += batch.num_rows
        self.records_out += batch.num_rows
        self._note(pc.max(stamps).as_py())
        return ColumnChunk(batch, stamps)

    def _note(self, highest: int | None) -> None:
        """Take note of the highest timestamp of some records."""
        self._heard = True
        candidate = self.generated.get(self.partition, MIN_WATERMARK)
        if highest is not None and self._out_of_orderness is not None:
            candidate = max(candidate, highest - self._out_of_orderness - 1)
        self.generated[self.partition] = candidate

    def end_records(self) -> None:
        """Begin to wait for the next record."""
        if self._heard:
            self._silence.active()
            self._heard = False

    def output_time(self) -> tuple[int, bool]:
        """Return the watermark of the records; of what came before only the end counts."""
        if self.watermark == MAX_WATERMARK:
            return MAX_WATERMARK, False
        return max(self.generated.values(), default=MIN_WATERMARK), self._silence.expired

    def idle_from_ms(self) -> int | None:
        """Return when silence makes the stream idle, which takes an epoch."""
        return None if self._silence.expired else self._silence.due_ms()
