"""Rolling aggregates of keyed streams: reduce, sum, min, max, min_by, max_by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.codec.arrow import batch_to_rows, rows_to_batch
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.common.types import Row
from weir.errors import UsageError
from weir.graph.plan import EdgeNode, OperatorNode
from weir.runtime.columnar import (
    ColumnarChunk,
    ColumnInput,
    Grouped,
    can_encode_keys,
    encode_keys,
    fits,
    running,
    values_of,
)
from weir.runtime.frame import Chunk, field_positions
from weir.runtime.keyed import keyed_stride
from weir.runtime.operator import TaskFacts
from weir.runtime.stateful import StatefulOperator
from weir.state.descriptor import ValueStateDescriptor


class RollingReduce(StatefulOperator):
    """Combines every record with the last result of its key and emits the new result."""

    def open(self) -> None:
        """Register the state that holds the last result."""
        super().open()
        self._state = self.runtime_context.get_state(
            ValueStateDescriptor("_reduce", self.node.output_type)
        )

    def combiner(self) -> Callable[[Any, Any], Any]:
        """Return the function of (last result, record)."""
        combine: Callable[[Any, Any], Any] = self.function.reduce
        return combine

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Reduce every record into the state of its key."""
        self.records_in += len(chunk.values)
        state, combine = self._state, self.combiner()
        if self.backend is None:
            msg = f"operator '{self.node.name}' needs a keyed stream: call key_by before it"
            raise UsageError(msg)
        current = self.backend.current
        value, update = state.value, state.update
        out: list[Any] = []
        append = out.append
        try:
            for v, k, g in keyed_stride(self.backend, chunk, self.ttl):
                current.key = k
                current.group = g
                last = value()
                new = v if last is None else combine(last, v)
                update(new)
                append(new)
        except BaseException as error:
            raise self.failed(error, chunk.values[len(out)]) from None
        self.end_stride()
        self.emit(out, chunk.timestamps)


class RollingAggregate(RollingReduce):
    """sum, min, max keep the first record and replace one field; *_by keep the whole record."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._op: str = node.options["op"]
        self._combine = field_combiner(self._op, node.options["field"])

    def combiner(self) -> Callable[[Any, Any], Any]:
        """Return the function of (last result, record)."""
        return self._combine

    def takes_columns(self, edge: EdgeNode) -> bool:
        """Tell whether records of an edge may come as columns: keys and the field are columns."""
        return aggregates_columns(self._op, edge, self.node.output_type)

    def process_columns(self, given: ColumnInput, edge: EdgeNode) -> bool:
        """Aggregate a batch; False when that would not be exact, and nothing was touched."""
        batch = given.batch
        grouped = grouped_field(self.node, batch, edge)
        if grouped is None:
            return False
        (key, field), values, keys, rows = grouped
        owners = given.groups[rows.first].tolist()
        records = self._results(keys, owners)
        known = np.array([record is not None for record in records])
        so_far = [0 if r is None else r[field] for r in records]
        before = np.array(so_far, dtype=values.dtype)
        results = running(self._op, rows, values, before=before, known=known)
        if results is None or not fits(results, batch.column(field).type):
            return False
        self.records_in += batch.num_rows
        firsts = batch_to_rows(batch.take(pa.array(rows.first)), edge.type)
        kept = [first if r is None else r for r, first in zip(records, firsts, strict=True)]
        last = results[rows.order[rows.starts + rows.counts - 1]].tolist()
        self._update(keys, owners, kept, field=field, last=last)
        out = _with_results(
            batch, rows, kept, own=(key, field), results=results, type_info=edge.type
        )
        self.records_out += out.num_rows
        chunk = ColumnarChunk(out, edge.type, given.timestamps)
        for consumer in self.consumers:
            consumer(chunk)
        return True

    def _results(self, keys: list[Any], owners: list[int]) -> list[Any]:
        current = self.backend.current  # type: ignore[union-attr]
        value = self._state.value
        records = []
        for k, g in zip(keys, owners, strict=True):
            current.key = k
            current.group = g
            records.append(value())
        return records

    def _update(
        self, keys: list[Any], owners: list[int], kept: list[Any], field: int, last: list[Any]
    ) -> None:
        current = self.backend.current  # type: ignore[union-attr]
        update = self._state.update
        replace = _replace_in_tuple if type(kept[0]) is tuple else with_field
        for k, g, record, result in zip(keys, owners, kept, last, strict=True):
            current.key = k
            current.group = g
            update(replace(record, field, result))


def _with_results(
    batch: pa.RecordBatch,
    rows: Grouped,
    kept: list[Any],
    own: tuple[int, int],
    results: Any,
    type_info: Any,
) -> pa.RecordBatch:
    """Return the records with results: the other fields are those of each key's first record."""
    key, field = own
    columns = list(batch.columns)
    columns[field] = pa.array(results, columns[field].type)
    if len(columns) > 2:
        codes = pa.array(rows.codes)
        firsts = rows_to_batch(kept, type_info)
        for i in range(len(columns)):
            if i not in (key, field):
                columns[i] = firsts.column(i).take(codes)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


MERGE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
}


def aggregates_columns(op: str, edge: EdgeNode, output_type: Any) -> bool:
    """Tell whether an aggregate can take columns of an edge: keys and the field are columns."""
    key, declared = edge.key, edge.type
    if op not in MERGE or key is None or key.fields is None or len(key.fields) != 1:
        return False
    return isinstance(declared, (RowTypeInfo, TupleTypeInfo)) and declared == output_type


def grouped_field(
    node: OperatorNode, batch: pa.RecordBatch, edge: EdgeNode
) -> tuple[tuple[int, int], npt.NDArray[Any], list[Any], Grouped] | None:
    """Return where key and aggregated field are, the field's values, and the rows by key.

    None where the columns are none that can be aggregated exactly.
    """
    field = field_positions(batch.schema, [node.options["field"]])[0]
    key = field_positions(batch.schema, edge.key.fields)[0]  # type: ignore[union-attr, arg-type]
    values = values_of(batch.column(field), node.options["op"])
    if values is None or field == key or not can_encode_keys(batch.column(key)):
        return None
    codes, keys = encode_keys(batch.column(key))
    return (key, field), values, keys, Grouped.of(codes, len(keys))


def field_combiner(op: str, field: int | str) -> Callable[[Any, Any], Any]:
    """Return the function of (last result, record) of sum, min, max, min_by or max_by."""
    if op == "min_by":
        return lambda last, v: v if get_field(v, field) < get_field(last, field) else last
    if op == "max_by":
        return lambda last, v: v if get_field(v, field) > get_field(last, field) else last
    merge = MERGE[op]

    def combine(last: Any, v: Any) -> Any:
        return with_field(last, field, merge(get_field(last, field), get_field(v, field)))

    return combine


def tuple_combiner(op: str, field: int) -> Callable[[Any, Any], Any]:
    """Return what `field_combiner` does for sum, min and max of records that are tuples."""
    merge, after = MERGE[op], field + 1

    def combine(last: Any, v: Any) -> Any:
        return (*last[:field], merge(last[field], v[field]), *last[after:])

    return combine


def get_field(record: Any, field: int | str) -> Any:
    """Return a field of a tuple or row; a scalar is its own field 0."""
    if isinstance(record, (tuple, list, Row)):
        return record[field]  # type: ignore[index]
    if isinstance(record, dict):
        return record[field]
    if field == 0:
        return record
    msg = f"field {field!r} of a {type(record).__name__} is not defined: expected a tuple or Row"
    raise UsageError(msg)


def _replace_in_tuple(record: Any, field: int, value: Any) -> Any:
    return (*record[:field], value, *record[field + 1 :])


def with_field(record: Any, field: int | str, value: Any) -> Any:
    """Return a copy of the record with one field replaced."""
    if isinstance(record, Row):
        values = list(record)
        names = record._fields
        at = field if isinstance(field, int) else (list(names).index(field) if names else -1)
        values[at] = value
        return type(record)._of(tuple(values))
    if isinstance(record, tuple) and isinstance(field, int):
        return (*record[:field], value, *record[field + 1 :])
    if isinstance(record, list) and isinstance(field, int):
        return [*record[:field], value, *record[field + 1 :]]
    if isinstance(record, dict):
        return {**record, field: value}
    return value
