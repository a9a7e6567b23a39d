"""Event time in one slot: from control frames to the watermarks of its operators, and on.

What level 0 says goes into one `SourceTime` for each operator that makes watermarks there, as soon
as it arrives: all of it passes through level 1. What slots say goes straight into the valve of the
input that it is for. The inputs of an operator are combined when its level has handled all records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from weir.graph.plan import EdgeNode, JobPlan
from weir.runtime.frame import MAX_WATERMARK, Control
from weir.runtime.generators import GeneratorOperator
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.partition_time import SourceTime
from weir.runtime.watermarks import Combined, Valve

PartitionWatermark: TypeAlias = tuple[str, str, int]
"""The id of the operator that makes watermarks, the partition, and how far it is."""

_CHAINED = -1


class _OperatorInputs:
    """The inputs of one operator, each with the channels of all edges that lead into it."""

    def __init__(self, channels: Mapping[int, list[tuple[int, int]]]) -> None:
        self.valves = {number: Valve(found) for number, found in channels.items()}
        self.combined = Combined()
        for number in self.valves:
            self.combined.add(number)

    def update(self) -> None:
        for number, valve in self.valves.items():
            self.combined.emit(number, valve.value)
            self.combined.mark_idle(number, idle=valve.idle)
        self.combined.update()


class SlotTime:
    """The event time of all operators of a slot."""

    def __init__(self, plan: JobPlan, operators: Mapping[int, Operator], facts: TaskFacts) -> None:
        """Begin at the minimum."""
        self._plan = plan
        self._operators = operators
        self._looks = facts.looks
        self._over = False
        makers = {
            maker
            for edge in plan.edges
            if edge.source_level == 0 and edge.target in operators
            for maker in plan.watermark_generators(edge.source)
        }
        self._sources = {maker: self._source_time(maker) for maker in sorted(makers)}
        self._inputs = {index: self._operator_inputs(index) for index in operators}

    def _source_time(self, maker: int) -> SourceTime:
        strategy = self._plan.operators[maker].function
        sources = [self._plan.operators[s].id for s in self._plan.sources_of(maker)]
        return SourceTime(self._looks, getattr(strategy, "idleness_ms", None), sources)

    def _operator_inputs(self, index: int) -> _OperatorInputs:
        channels: dict[int, list[tuple[int, int]]] = {}
        for edge in self._plan.inputs_of(index):
            found = channels.setdefault(edge.input_index, [])
            found += [(edge.id, upstream) for upstream in self._upstreams(edge)]
        return _OperatorInputs(channels)

    def _upstreams(self, edge: EdgeNode) -> Iterable[int]:
        if edge.chained:
            return (_CHAINED,)
        if edge.source_level == 0:
            return self._plan.watermark_generators(edge.source)
        return range(self._plan.operators[edge.source].parallelism)

    def take(self, edge: EdgeNode, control: Control) -> None:
        """Take what an upstream said."""
        if self._plan.batch:
            return
        if edge.source_level == 0:
            self._sources[control.upstream].add(control.partitions)
            return
        valve = self._inputs[edge.target].valves[edge.input_index]
        valve.tell((edge.id, control.upstream), control.watermark, idle=control.idle)

    def begin(self) -> None:
        """Begin an epoch."""
        for source in self._sources.values():
            source.begin()

    def settle(self) -> None:
        """Let the sources advance: everything that they said in this epoch is known."""
        for source in self._sources.values():
            source.settle()

    def advance(self, op: Operator, *, final: bool) -> None:
        """Let an operator advance; those before it in the same level have done so.

        In BATCH mode time stands still until the end.
        """
        if isinstance(op, GeneratorOperator):
            op.know(self._partitions_of(op))
        op.end_records()
        if self._plan.batch:
            self._over = self._over or final
            if final and op.watermark < MAX_WATERMARK:
                op.on_watermark(MAX_WATERMARK)
            return
        inputs = self._inputs[op.node.index]
        for edge in self._plan.inputs_of(op.node.index):
            self._tell(edge, inputs.valves[edge.input_index])
        inputs.update()
        op.idle = inputs.combined.idle and not final
        self._over = self._over or final
        watermark = MAX_WATERMARK if final else inputs.combined.value
        if watermark > op.watermark:
            op.on_watermark(watermark)

    def _partitions_of(self, op: Operator) -> Iterator[str]:
        """Return the partitions of the sources that an operator reads straight from."""
        for edge in self._plan.inputs_of(op.node.index):
            if edge.by_partition:
                for maker in self._plan.watermark_generators(edge.source):
                    yield from self._sources[maker].partitions

    def _tell(self, edge: EdgeNode, valve: Valve) -> None:
        """Tell a valve what is known in this slot."""
        if edge.chained:
            watermark, idle = self._operators[edge.source].output_time()
            valve.tell((edge.id, _CHAINED), watermark, idle=idle)
        elif edge.source_level == 0:
            for maker in self._plan.watermark_generators(edge.source):
                source = self._sources[maker]
                valve.tell((edge.id, maker), source.value, idle=source.idle)

    def source_marks(self) -> dict[int, int]:
        """Return the watermarks of the operators that make them beside the sources."""
        return {index: source.value for index, source in self._sources.items()}

    def idle_from_ms(self) -> int | None:
        """Return from which look on the next silent partition is idle: an epoch is needed then."""
        moments = (source.idle_from_ms() for source in self._sources.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def restore(self, marks: Iterable[PartitionWatermark]) -> None:
        """Know how far the partitions of a checkpoint were."""
        by_id: dict[str, list[tuple[str, int]]] = {}
        for maker, partition, watermark in marks:
            by_id.setdefault(maker, []).append((partition, watermark))
        for index, source in self._sources.items():
            source.restore(by_id.get(self._plan.operators[index].id, ()))

    def snapshot(self, *, replayed: bool = False) -> list[PartitionWatermark]:
        """Return how far the partitions are, for a checkpoint; after the end of time, nothing.

        With `replayed` they are as before this epoch.
        """
        if self._over:
            return []
        return [
            (self._plan.operators[index].id, partition, watermark)
            for index, source in self._sources.items()
            for partition, watermark in source.watermarks(replayed=replayed)
        ]
