"""Compilation of a program into levels, cut at every exchange.

Level 0 runs on the source side, stateless; level n runs in the slots everything between exchange
n and the next one. The plan is a plain value: it is shipped to slots and workers, it is the same
for the same program, and it names every edge by a small integer that tags rows on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weir.common.watermark_strategy import WatermarkStrategy
from weir.errors import UsageError
from weir.graph.identity import operator_ids
from weir.graph.kinds import SourceSideRule, kind_named
from weir.graph.transformation import Edge, KeySpec, Partitioning, StreamGraph, Transformation
from weir.ids import OperatorId
from weir.keygroup import MAX_PARALLELISM_BOUND, default_max_parallelism

_STATE_METHODS = ("snapshot_state", "initialize_state", "restore_state")
_RESIDENT_METHODS = (
    "open",
    "close",
    *_STATE_METHODS,
    "notify_checkpoint_complete",
    "notify_checkpoint_aborted",
)


@dataclass
class OperatorNode:
    """One operator of the plan; `index` is its position in topological order."""

    index: int
    id: OperatorId
    uid: str | None
    name: str
    kind: str
    function: Any
    options: dict[str, Any]
    output_type: Any
    side_types: dict[str, Any]
    level: int
    parallelism: int
    max_parallelism: int
    max_parallelism_explicit: bool
    keyed: bool
    key_type: Any = None
    transformation_id: int = -1
    in_batch: bool = False


@dataclass
class EdgeNode:
    """One edge of the plan.

    An edge is chained when both ends are in one level: records pass by direct call. Otherwise it
    crosses `target_level - source_level` shuffles, tagged with `id`. With `by_partition` all
    records of a source's partition go to one subtask, each with the partition's name.
    """

    id: int
    source: int
    target: int
    input_index: int
    partitioning: Partitioning
    key: KeySpec | None
    partition_fn: Callable[[Any, int], int] | None
    tag: str | None
    type: Any
    source_level: int
    target_level: int
    parallelism: int
    max_parallelism: int
    by_partition: bool = False

    @property
    def chained(self) -> bool:
        """Tell whether records pass by direct call."""
        return self.source_level == self.target_level


@dataclass
class JobPlan:
    """The compiled program."""

    job_name: str
    operators: list[OperatorNode]
    edges: list[EdgeNode]
    level_parallelism: list[int] = field(default_factory=list)
    batch: bool = False

    @property
    def levels(self) -> int:
        """Count the levels, level 0 included."""
        return len(self.level_parallelism)

    @property
    def slots(self) -> int:
        """Count the slots that the job needs."""
        return max(self.level_parallelism[1:], default=0)

    def in_level(self, level: int) -> list[OperatorNode]:
        """Return the operators of a level in topological order."""
        return [op for op in self.operators if op.level == level]

    def inputs_of(self, index: int) -> list[EdgeNode]:
        """Return the edges that lead into an operator."""
        return [e for e in self.edges if e.target == index]

    def outputs_of(self, index: int) -> list[EdgeNode]:
        """Return the edges that leave an operator."""
        return [e for e in self.edges if e.source == index]

    def watermark_generators(self, index: int) -> list[int]:
        """Return the source-side operators whose watermarks reach an operator's output.

        A source without timestamps counts as itself: it never reports, so time stands still.
        """
        op = self.operators[index]
        if kind_named(op.kind, op.name).makes_watermarks:
            return [index]
        found = [g for e in self.inputs_of(index) for g in self.watermark_generators(e.source)]
        return sorted(set(found))

    def sources_of(self, index: int) -> list[int]:
        """Return the sources whose records come to an operator, and that operator if it is one."""
        if self.operators[index].kind == "source":
            return [index]
        found = [s for e in self.inputs_of(index) for s in self.sources_of(e.source)]
        return sorted(set(found))


def detach_sources(plan: JobPlan) -> dict[int, Any]:
    """Take source objects (DataFrames, collections) out of a plan: they stay in the driver."""
    sources: dict[int, Any] = {}
    for op in plan.operators:
        if op.kind == "source":
            sources[op.index] = op.function
            op.function = None
    return sources


def compile_plan(graph: StreamGraph, default_parallelism: int, *, batch: bool = False) -> JobPlan:
    """Compile a program; the same program gives the same plan. With `batch` it runs in BATCH mode.

    Raises:
        UsageError: two operators share a uid, a parallelism exceeds its max parallelism, or an
            operator is of a kind that does not exist or reads another number of inputs.
    """
    order = _topological(graph.transformations)
    _check_inputs(order)
    levels = _assign_levels(order, graph, default_parallelism)
    index_of = {t.id: i for i, t in enumerate(order)}
    identities = operator_ids(order)
    operators = [
        _node(
            i, t, levels[t.id], graph=graph, default=default_parallelism, identity=identities[t.id]
        )
        for i, t in enumerate(order)
    ]
    _check_uids(operators)
    edges: list[EdgeNode] = []
    for t in order:
        for input_index, group in enumerate(t.inputs):
            for edge in group:
                source = operators[index_of[edge.source.id]]
                target = operators[index_of[t.id]]
                edges.append(
                    _edge(len(edges), edge, source=source, target=target, input_index=input_index)
                )
    for node in operators:
        node.in_batch = batch
    plan = JobPlan(graph.job_name, operators, edges, batch=batch)
    for plan_edge in edges:
        operators[plan_edge.target].options.setdefault("input_type", plan_edge.type)
    _route_by_partition(plan)
    _unify_parallelism(plan)
    return plan


def _topological(transformations: Iterable[Transformation]) -> list[Transformation]:
    done: dict[int, Transformation] = {}

    def visit(t: Transformation) -> None:
        if t.id in done:
            return
        for group in t.inputs:
            for edge in group:
                visit(edge.source)
        done[t.id] = t

    for t in transformations:
        visit(t)
    return list(done.values())


def _check_inputs(order: list[Transformation]) -> None:
    for t in order:
        expected = kind_named(t.kind, t.name).inputs
        if len(t.inputs) != expected:
            msg = (
                f"operator '{t.name}' of kind {t.kind!r} has {len(t.inputs)} inputs, expected "
                f"{expected}: several streams in one input are a union"
            )
            raise UsageError(msg)


def runs_on_source_side(t: Transformation) -> bool:
    """Tell whether an operator may run in stateless Spark workers next to the source.

    Functions that keep anything between records (open, close, checkpoint hooks) need a slot.
    """
    kind = kind_named(t.kind, t.name)
    if kind.is_source:
        return True
    if kind.source_side is SourceSideRule.NEVER or t.keyed or t.side_types:
        return False
    if makes_own_watermarks(t.function):
        return False
    if kind.source_side is SourceSideRule.ALWAYS or getattr(t.function, "weir_plain", False):
        return True
    return not any(_overrides(t.function, name) for name in _RESIDENT_METHODS)


def makes_own_watermarks(function: Any) -> bool:
    """Tell whether a function is a strategy with generators of the user: those hold state."""
    return isinstance(function, WatermarkStrategy) and function.generator is not None


def keeps_operator_state(t: Transformation) -> bool:
    """Tell whether an operator's function has hooks that store and restore state of its own."""
    return any(_overrides(t.function, name) for name in _STATE_METHODS)


def _overrides(function: Any, name: str) -> bool:
    for cls in type(function).__mro__:
        if name in cls.__dict__:
            return not cls.__module__.startswith("weir.datastream")
    return False


def _parallelism(t: Transformation, graph: StreamGraph, default: int) -> int:
    return t.parallelism or graph.parallelism or default


def _assign_levels(order: list[Transformation], graph: StreamGraph, default: int) -> dict[int, int]:
    levels: dict[int, int] = {}
    for t in order:
        level = 0
        for group in t.inputs:
            for edge in group:
                level = max(
                    level,
                    levels[edge.source.id]
                    + _crosses(edge, t, levels=levels, graph=graph, default=default),
                )
        if level == 0 and not runs_on_source_side(t):
            level = 1
        levels[t.id] = level
    if not any(levels.values()):
        # Nothing needs a slot: who has no sink is read by nobody, and is run all the same.
        read = {edge.source.id for t in order for group in t.inputs for edge in group}
        for t in order:
            if t.id not in read and not kind_named(t.kind, t.name).is_source:
                levels[t.id] = 1
    return levels


def _crosses(
    edge: Edge, target: Transformation, levels: dict[int, int], graph: StreamGraph, default: int
) -> int:
    if edge.partitioning is not Partitioning.FORWARD:
        return 1
    if levels[edge.source.id] == 0:
        return 0
    same = _parallelism(edge.source, graph, default) == _parallelism(target, graph, default)
    return 0 if same else 1


def _node(
    index: int,
    t: Transformation,
    level: int,
    graph: StreamGraph,
    default: int,
    identity: OperatorId,
) -> OperatorNode:
    parallelism = _parallelism(t, graph, default)
    explicit = t.max_parallelism or graph.max_parallelism
    maximum = explicit or default_max_parallelism(parallelism)
    if not 1 <= maximum <= MAX_PARALLELISM_BOUND:
        msg = (
            f"operator '{t.name}': max parallelism must be between 1 and "
            f"{MAX_PARALLELISM_BOUND}, found {maximum}"
        )
        raise UsageError(msg)
    if parallelism > maximum:
        msg = (
            f"operator '{t.name}': parallelism {parallelism} is above its max parallelism "
            f"{maximum}; lower the parallelism or raise set_max_parallelism"
        )
        raise UsageError(msg)
    keys = [e.key for group in t.inputs for e in group if e.partitioning is Partitioning.HASH]
    return OperatorNode(
        index=index,
        id=identity,
        uid=t.uid,
        name=t.name,
        kind=t.kind,
        function=t.function,
        options=dict(t.options),
        output_type=t.output_type,
        side_types=dict(t.side_types),
        level=level,
        parallelism=parallelism,
        max_parallelism=maximum,
        max_parallelism_explicit=bool(explicit),
        keyed=bool(keys),
        key_type=keys[0].key_type if keys and keys[0] else None,
        transformation_id=t.id,
    )


def _check_uids(operators: list[OperatorNode]) -> None:
    seen: dict[str, OperatorNode] = {}
    for op in operators:
        other = seen.setdefault(op.id, op)
        if other is not op:
            shown = f"uid {op.uid!r}" if op.uid else f"uid hash {op.id!r}"
            msg = (
                f"operators '{other.name}' and '{op.name}' have the same {shown}; "
                "a uid must be unique in a program, because state is found by it"
            )
            raise UsageError(msg)


def _edge(
    number: int, edge: Edge, source: OperatorNode, target: OperatorNode, input_index: int
) -> EdgeNode:
    declared = source.output_type if edge.tag is None else source.side_types.get(edge.tag)
    partitioning = edge.partitioning
    if (
        partitioning is Partitioning.FORWARD
        and source.level > 0
        and source.level != target.level
        and source.parallelism != target.parallelism
    ):
        partitioning = Partitioning.REBALANCE
    return EdgeNode(
        id=number,
        source=source.index,
        target=target.index,
        input_index=input_index,
        partitioning=partitioning,
        key=edge.key,
        partition_fn=edge.partition_fn,
        tag=edge.tag,
        type=declared,
        source_level=source.level,
        target_level=target.level,
        parallelism=target.parallelism,
        max_parallelism=target.max_parallelism,
    )


def _route_by_partition(plan: JobPlan) -> None:
    """Let generators of the user see whole partitions where they are next to sources."""
    for op in plan.operators:
        edges = plan.inputs_of(op.index)
        beside = all(e.source_level == 0 and e.partitioning is Partitioning.FORWARD for e in edges)
        if makes_own_watermarks(op.function) and beside and not plan.batch:
            op.options["by_partition"] = True
            for edge in edges:
                edge.by_partition = True


def _unify_parallelism(plan: JobPlan) -> None:
    """A level has as many partitions as its widest operator or any edge passing through."""
    depth = max((op.level for op in plan.operators), default=0)
    widths = [1] * (depth + 1)
    for op in plan.operators:
        widths[op.level] = max(widths[op.level], op.parallelism)
    for edge in plan.edges:
        for level in range(edge.source_level + 1, edge.target_level):
            widths[level] = max(widths[level], edge.parallelism)
    plan.level_parallelism = widths
