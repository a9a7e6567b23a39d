"""BATCH mode in a slot: the input of keyed operators waits for its end, then comes key by key.

The records of a key are handled in the order of their timestamps, then its timers fire and its
state is dropped: there is state of one key at a time. Broadcast input is handled as it comes, and
so before what waits for it. Aggregates of fields that come as columns are folded as they come; a
fold is a record like those it stands for, at the time of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weir.failpoint import reach
from weir.graph.plan import EdgeNode, JobPlan
from weir.graph.transformation import Partitioning
from weir.runtime.columnar import ColumnInput
from weir.runtime.connected import BROADCAST_INPUT
from weir.runtime.final_aggregates import FOLDED_KEYS_MAX, FinalAggregate
from weir.runtime.frame import Incoming, payload_kind, unpack_strides
from weir.runtime.key_sort import KeySort
from weir.runtime.memory import take_in
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.stateful import StatefulOperator

_SORT_SHARE = 4
"""Records are several times as large in memory as on their way."""
_STRIDE_ROWS = 1024


class BatchInput:
    """What waits at the operators of a slot."""

    def __init__(self, plan: JobPlan, operators: dict[int, Operator], facts: TaskFacts) -> None:
        self._facts = facts
        self._operators = operators
        mine = [e for e in plan.edges if e.target in operators and not e.chained]
        self._sorted = {e.id: e for e in mine if e.partitioning is Partitioning.HASH}
        self._later = {
            e.id: e
            for e in mine
            if e.id not in self._sorted
            and plan.operators[e.target].kind == "broadcast_process"
            and e.input_index != BROADCAST_INPUT
        }
        self._sorts: dict[int, KeySort] = {}
        self._held: dict[int, list[Incoming]] = {}

    def take(self, data: Iterable[Incoming]) -> list[Incoming]:
        """Keep what has to wait; return the rest."""
        rest: list[Incoming] = []
        for frame in data:
            if frame.edge in self._sorted:
                self._add(frame, self._sorted[frame.edge])
                reach("slot.epoch")
            elif frame.edge in self._later:
                self._hold(frame, self._later[frame.edge])
            else:
                rest.append(frame)
        return rest

    def _hold(self, frame: Incoming, edge: EdgeNode) -> None:
        held = [*self._held.get(edge.target, ()), frame]
        self._held[edge.target] = held

    def end_epoch(self) -> None:
        """Let what is too much for the memory lie in files."""
        facts = self._facts
        for target, frames in self._held.items():
            self._held[target] = take_in(frames, facts.memory, facts.local_dir)

    def _add(self, frame: Incoming, edge: EdgeNode) -> None:
        op = self._operators[edge.target]
        if isinstance(op, FinalAggregate) and op.takes_columns(edge):
            given = None
            if payload_kind(frame.payload) == b"A":
                given = ColumnInput.of([frame.payload])
            if given is not None and op.fold_columns(given, edge):
                if op.folded_keys > FOLDED_KEYS_MAX:
                    self._unfold(op)
                return
        sort, left = self._sort(op), frame.payload.size
        for chunk in unpack_strides(frame.payload, edge, _STRIDE_ROWS):
            sort.add(chunk, edge.input_index, left)
            left = 0

    def _sort(self, op: Operator) -> KeySort:
        facts, node = self._facts, op.node
        found = self._sorts.get(node.index)
        if found is None:
            budget = facts.memory.held // _SORT_SHARE
            found = self._sorts[node.index] = KeySort(node.key_type, budget, facts.local_dir)
        return found

    def _unfold(self, op: FinalAggregate) -> None:
        """Let folds be records among others."""
        chunk = op.take_folded()
        self._sort(op).add(chunk, 0, size=len(chunk) * _STRIDE_ROWS)

    def finish(self, op: Operator, between: Callable[[], None]) -> None:
        """Hand an operator what waited for the end of its input."""
        if not isinstance(op, StatefulOperator):
            return
        for frame in self._held.pop(op.node.index, ()):
            edge = self._later[frame.edge]
            for chunk in unpack_strides(frame.payload, edge, _STRIDE_ROWS):
                op.process(chunk, edge.input_index)
                between()
        if isinstance(op, FinalAggregate) and op.folded_keys:
            if op.node.index not in self._sorts:
                op.emit_folded()
            else:
                self._unfold(op)
        sort = self._sorts.pop(op.node.index, None)
        if sort is None:
            return
        for keyed in sort.read():
            for chunk, input_index in keyed.strides:
                op.process(chunk, input_index)
                between()
            op.end_key(keyed.group)
        op.end_keys()
