"""Rolling aggregates of keyed streams: reduce, sum, min, max, min_by, max_by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weir.common.types import Row
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.runtime.frame import Chunk
from weir.runtime.keyed import keyed_rows
from weir.runtime.operator import TaskFacts
from weir.runtime.stateful import StatefulOperator
from weir.state.descriptor import ValueStateDescriptor


class SlotReduce(StatefulOperator):
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
            for v, k, g in keyed_rows(chunk):
                current.key = k
                current.group = g
                last = value()
                new = v if last is None else combine(last, v)
                update(new)
                append(new)
        except Exception as error:
            raise self.failed(error, chunk.values[len(out)]) from None
        self.emit(out, chunk.timestamps)


class SlotAggregate(SlotReduce):
    """sum, min, max keep the first record and replace one field; *_by keep the whole record."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        """Build the combining function for the field."""
        super().__init__(node, facts)
        self._combine = _combiner(node.options["op"], node.options["field"])

    def combiner(self) -> Callable[[Any, Any], Any]:
        """Return the function of (last result, record)."""
        return self._combine


_MERGE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
}


def _combiner(op: str, field: int | str) -> Callable[[Any, Any], Any]:
    if op == "min_by":
        return lambda last, v: v if get_field(v, field) < get_field(last, field) else last
    if op == "max_by":
        return lambda last, v: v if get_field(v, field) > get_field(last, field) else last
    merge = _MERGE[op]

    def combine(last: Any, v: Any) -> Any:
        return with_field(last, field, merge(get_field(last, field), get_field(v, field)))

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
