"""State that expires, tied to an operator: its backend, its clocks, the timestamps of its records.

Operators do not hold the timestamp of the record they handle, because hardly any needs it. When a
state expires by event time, the key groups of every chunk are handed out one by one, and with each
the timestamp of its record becomes current.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weir.backend.base import KeyedBackend
from weir.runtime.frame import Chunk
from weir.runtime.operator import Operator
from weir.state.ttl import TtlStates
from weir.state.ttl.rules import EventTime


def ttl_states(operator: Operator, backend: KeyedBackend) -> TtlStates:
    """Return the place for an operator's states that expire."""
    facts = operator.facts
    states = TtlStates(
        backend,
        facts.clock,
        operator.node.max_parallelism,
        lambda: _follow_records(operator, states.event_time),
        facts.backend.kind,
        facts.backend.options,
    )
    return states


def _follow_records(operator: Operator, time: EventTime) -> None:
    """Let event time know the record that the operator handles, from the next chunk on."""
    process = operator.process

    def process_timed(chunk: Chunk, input_index: int) -> None:
        if chunk.groups is not None and chunk.timestamps is not None:
            groups = _TimedGroups(chunk.groups, chunk.timestamps, time)
            chunk = Chunk(chunk.values, chunk.timestamps, chunk.keys, groups)
        try:
            process(chunk, input_index)
        finally:
            time.record = None

    operator.process = process_timed  # type: ignore[method-assign]


class _TimedGroups(list[int]):
    """The key groups of a chunk, each of which makes its record's timestamp current."""

    def __init__(
        self, groups: Sequence[int], timestamps: Sequence[int | None], time: EventTime
    ) -> None:
        super().__init__(groups)
        self._timestamps = timestamps
        self._time = time

    def __iter__(self) -> Iterator[Any]:
        time = self._time
        for group, timestamp in zip(super().__iter__(), self._timestamps, strict=True):
            time.record = timestamp
            yield group
