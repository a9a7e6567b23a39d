"""Which runtime operator executes which kind of transformation."""

from __future__ import annotations

from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.runtime import connected, keyed, rolling, sinks, stateless
from weir.runtime.operator import Operator, TaskFacts

SLOT_OPERATORS: dict[str, type[Operator]] = {
    "map": keyed.SlotMap,
    "flat_map": keyed.SlotFlatMap,
    "filter": keyed.SlotFilter,
    "process": keyed.SlotProcess,
    "project": stateless.ProjectOperator,
    "timestamps": stateless.TimestampsOperator,
    "reduce": rolling.SlotReduce,
    "aggregate": rolling.SlotAggregate,
    "co_map": connected.CoMap,
    "co_flat_map": connected.CoFlatMap,
    "co_process": connected.CoProcess,
    "broadcast_process": connected.BroadcastProcess,
    "sink": sinks.FunctionSink,
    "sink_v2": sinks.SinkOperator,
    "spark_sink": sinks.DriverSinkOperator,
    "print": sinks.ReportSink,
    "collect": sinks.ReportSink,
}
SOURCE_OPERATORS: dict[str, type[Operator]] = {
    "map": stateless.MapOperator,
    "flat_map": stateless.FlatMapOperator,
    "filter": stateless.FilterOperator,
    "project": stateless.ProjectOperator,
    "timestamps": stateless.TimestampsOperator,
}


def slot_operator(node: OperatorNode, facts: TaskFacts) -> Operator:
    """Create the operator that runs in a slot."""
    return _create(SLOT_OPERATORS, node, facts)


def source_operator(node: OperatorNode, facts: TaskFacts) -> Operator:
    """Create the operator that runs on the source side."""
    return _create(SOURCE_OPERATORS, node, facts)


def _create(catalog: dict[str, type[Operator]], node: OperatorNode, facts: TaskFacts) -> Operator:
    operator = catalog.get(node.kind)
    if operator is None:
        msg = f"operator '{node.name}': the runtime has no operator of kind {node.kind!r}"
        raise UsageError(msg)
    return operator(node, facts)
