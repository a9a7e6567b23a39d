"""Which class executes which kind of operator, in slots and next to sources."""

from __future__ import annotations

from collections.abc import Callable

from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.kinds import Kind
from weir.graph.plan import OperatorNode
from weir.runtime import (
    async_wait,
    connected,
    final_aggregates,
    generators,
    interval_join,
    keyed,
    patterns,
    rolling,
    sinks,
    stateless,
    window_operator,
)
from weir.runtime.operator import Operator, TaskFacts


def _timestamps(node: OperatorNode, facts: TaskFacts) -> Operator:
    if node.in_batch or node.function.generator is None:
        return stateless.TimestampsOperator(node, facts)
    return generators.GeneratorOperator(node, facts)


def _reduce(node: OperatorNode, facts: TaskFacts) -> Operator:
    made = final_aggregates.FinalReduce if node.in_batch else rolling.RollingReduce
    return made(node, facts)


def _aggregate(node: OperatorNode, facts: TaskFacts) -> Operator:
    made = final_aggregates.FinalAggregate if node.in_batch else rolling.RollingAggregate
    return made(node, facts)


SLOT_OPERATORS: dict[Kind, Callable[[OperatorNode, TaskFacts], Operator]] = {
    kinds.MAP: keyed.ResidentMap,
    kinds.FLAT_MAP: keyed.ResidentFlatMap,
    kinds.FILTER: keyed.ResidentFilter,
    kinds.PROCESS: keyed.ResidentProcess,
    kinds.PROJECT: stateless.ProjectOperator,
    kinds.TIMESTAMPS: _timestamps,
    kinds.REDUCE: _reduce,
    kinds.AGGREGATE: _aggregate,
    kinds.WINDOW: window_operator.WindowOperator,
    kinds.CEP: patterns.PatternOperator,
    kinds.CO_MAP: connected.CoMap,
    kinds.CO_FLAT_MAP: connected.CoFlatMap,
    kinds.CO_PROCESS: connected.CoProcess,
    kinds.BROADCAST_PROCESS: connected.BroadcastProcess,
    kinds.INTERVAL_JOIN: interval_join.IntervalJoin,
    kinds.ASYNC_WAIT: async_wait.AsyncWait,
    kinds.FUNCTION_SINK: sinks.FunctionSink,
    kinds.WRITER_SINK: sinks.SinkOperator,
    kinds.BATCH_SINK: sinks.DriverSinkOperator,
    kinds.PRINT: sinks.ReportSink,
    kinds.COLLECT: sinks.ReportSink,
}
SOURCE_OPERATORS: dict[Kind, Callable[[OperatorNode, TaskFacts], Operator]] = {
    kinds.MAP: stateless.MapOperator,
    kinds.FLAT_MAP: stateless.FlatMapOperator,
    kinds.FILTER: stateless.FilterOperator,
    kinds.PROJECT: stateless.ProjectOperator,
    kinds.TIMESTAMPS: stateless.TimestampsOperator,
}


def slot_operator(node: OperatorNode, facts: TaskFacts) -> Operator:
    """Create the operator that runs in a slot."""
    return _create(SLOT_OPERATORS, node, facts)


def source_operator(node: OperatorNode, facts: TaskFacts) -> Operator:
    """Create the operator that runs on the source side."""
    return _create(SOURCE_OPERATORS, node, facts)


def _create(
    catalog: dict[Kind, Callable[[OperatorNode, TaskFacts], Operator]],
    node: OperatorNode,
    facts: TaskFacts,
) -> Operator:
    operator = catalog.get(kinds.kind_named(node.kind, node.name))
    if operator is None:
        msg = f"operator '{node.name}': no class here executes operators of kind {node.kind!r}"
        raise UsageError(msg)
    return operator(node, facts)
