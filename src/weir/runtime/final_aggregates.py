"""Reduce and field aggregates in BATCH mode: one result per key, when all its records are there.

Results have the greatest timestamp, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from weir.codec.arrow import batch_to_rows
from weir.graph.plan import EdgeNode, OperatorNode
from weir.runtime.columnar import (
    Array,
    ColumnInput,
    Grouped,
    folded,
)
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, Chunk
from weir.runtime.operator import TaskFacts
from weir.runtime.rolling import (
    MERGE,
    aggregates_columns,
    field_combiner,
    grouped_field,
    with_field,
)
from weir.runtime.stateful import StatefulOperator

FOLDED_KEYS_MAX: Final = 1 << 20
"""Of so many keys folds may be in memory."""
_BATCH = 1024
_NOTHING: Final = object()


class FinalReduce(StatefulOperator):
    """Combines the records of a key, and emits the result when the key is through."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._result: Any = _NOTHING
        self._results: list[Any] = []

    def combiner(self) -> Callable[[Any, Any], Any]:
        """Return the function of (result so far, record)."""
        combine: Callable[[Any, Any], Any] = self.function.reduce
        return combine

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Reduce records of one key."""
        self.records_in += len(chunk.values)
        combine, result = self.combiner(), self._result
        current = self.current_key()
        current.key, current.group = chunk.keys[0], chunk.groups[0]  # type: ignore[index]
        rest = iter(chunk.values)
        if result is _NOTHING:
            result = next(rest)
        v: Any = None
        try:
            for v in rest:
                result = combine(result, v)
        except BaseException as error:
            raise self.failed(error, v) from None
        self._result = result

    def end_key(self, group: int) -> None:
        """Emit the result of the key."""
        self._results.append(self._result)
        self._result = _NOTHING
        if len(self._results) >= _BATCH:
            self.end_keys()
        super().end_key(group)

    def end_keys(self) -> None:
        """Send on the results of all keys."""
        results, self._results = self._results, []
        self.emit(results, [MAX_WATERMARK] * len(results))


class FinalAggregate(FinalReduce):
    """sum, min, max, min_by, max_by of one field; whole columns where they are exact."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._op: str = node.options["op"]
        self._combine = field_combiner(self._op, node.options["field"])
        # By key: the time of its earliest record, its key group, that record, and the fold.
        self._folded: dict[Any, list[Any]] = {}
        self._field = 0

    def combiner(self) -> Callable[[Any, Any], Any]:
        """Return the function of (result so far, record)."""
        return self._combine

    def takes_columns(self, edge: EdgeNode) -> bool:
        """Tell whether records of an edge may be folded as columns."""
        return aggregates_columns(self._op, edge, self.node.output_type)

    @property
    def folded_keys(self) -> int:
        """Count the keys that have a fold."""
        return len(self._folded)

    def fold_columns(self, given: ColumnInput, edge: EdgeNode) -> bool:
        """Fold a batch; False when that would not be exact, and nothing was touched."""
        batch = given.batch
        grouped = grouped_field(self.node, batch, edge)
        if grouped is None:
            return False
        (_, field), values, keys, rows = grouped
        results = folded(self._op, rows, values)
        if results is None:
            return False
        self.records_in += batch.num_rows
        times, first = _earliest(rows, given.timestamps)
        records = batch_to_rows(batch.take(pa.array(first)), edge.type)
        self._field = field
        merge, known = MERGE[self._op], self._folded
        owners = given.groups[rows.first].tolist()
        found = zip(keys, times, owners, strict=True)
        for (k, t, g), record, result in zip(found, records, results.tolist(), strict=True):
            before = known.get(k)
            if before is None:
                known[k] = [t, g, record, result]
                continue
            before[3] = merge(before[3], result)
            if t < before[0]:
                before[0], before[2] = t, record
        return True

    def take_folded(self) -> Chunk:
        """Take the folds out, as records of the key at the time of the earliest."""
        found, self._folded = self._folded, {}
        field = self._field
        records = [with_field(record, field, result) for _, _, record, result in found.values()]
        times = [None if t == MIN_WATERMARK else t for t, _, _, _ in found.values()]
        return Chunk(records, times, list(found), [g for _, g, _, _ in found.values()])

    def emit_folded(self) -> None:
        """Send the folds on as the results that they are: no other record has their keys."""
        records = self.take_folded().values
        self.emit(records, [MAX_WATERMARK] * len(records))


def _earliest(rows: Grouped, timestamps: list[int | None] | None) -> tuple[list[int], Array]:
    """Return the least timestamp of each key, and the first row that has it."""
    if timestamps is None:
        return [MIN_WATERMARK] * len(rows.counts), rows.first
    stamps = np.array([MIN_WATERMARK if t is None else t for t in timestamps], np.int64)
    in_order = stamps[rows.order]
    least = np.minimum.reduceat(in_order, rows.starts)
    at_least = np.flatnonzero(in_order == np.repeat(least, rows.counts))
    owners = np.repeat(np.arange(len(rows.counts)), rows.counts)[at_least]
    _, firsts = np.unique(owners, return_index=True)
    return least.tolist(), rows.order[at_least[firsts]]
