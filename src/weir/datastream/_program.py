"""`Program`: the operators declared so far, and their way to the engine.

Owns the numbering of operators. Invariant: a graph holds every operator that was declared since the
last submission, and whatever those read from, in order of declaration.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from weir.common.configuration import Configuration
from weir.common.job_client import JobClient
from weir.datastream._checks import check_text
from weir.errors import UsageError
from weir.graph.kinds import (
    BATCH_SINK,
    COLLECT,
    FUNCTION_SINK,
    PRINT,
    SOURCE,
    WRITER_SINK,
    Kind,
)
from weir.graph.transformation import DEFAULT_JOB_NAME, Edge, StreamGraph, Transformation

_SINKS = {kind.name for kind in (BATCH_SINK, COLLECT, FUNCTION_SINK, PRINT, WRITER_SINK)}


class ProgramEngine(Protocol):
    """What runs a graph."""

    def submit(self, graph: StreamGraph, configuration: Configuration) -> JobClient:
        """Start a job and return its handle at once."""


class Program:
    """A growing graph."""

    def __init__(self, configuration: Configuration, engine: ProgramEngine) -> None:
        """Start without operators."""
        self._configuration = configuration
        self._engine = engine
        self._declared: list[Transformation] = []
        self._last_id = 0

    def declare(
        self, kind: Kind, name: str, inputs: list[list[Edge]] | None = None, **fields: Any
    ) -> Transformation:
        """Add an operator to the program; `fields` are those of `Transformation`."""
        self._last_id += 1
        operator = Transformation(self._last_id, kind.name, name, inputs=inputs or [], **fields)
        self._declared.append(operator)
        return operator

    def default_parallelism(self) -> int:
        """Return the parallelism of operators without their own; 0 lets the engine choose."""
        return 0

    def default_max_parallelism(self) -> int | None:
        """Return the max parallelism of operators without their own; None derives it."""
        return None

    def effective_configuration(self) -> Configuration:
        """Return the configuration that a job submitted now would get, as a copy."""
        copy = Configuration()
        copy.add_all(self._configuration)
        return copy

    def build_graph(self, job_name: str = DEFAULT_JOB_NAME) -> StreamGraph:
        """Return the program as a graph; declares nothing and forgets nothing.

        Raises:
            UsageError: there is no operator, a uid is used twice, a name cannot be one, or a
                parallelism exceeds its max parallelism.
        """
        check_text(job_name, "a job's name")
        wanted = [t for t in self._declared if t.kind != SOURCE.name]
        if not wanted:
            msg = "No operators defined in streaming topology. Cannot execute."
            raise UsageError(msg)
        transformations = _with_inputs(wanted)
        for operator in transformations:
            check_text(operator.name, "an operator's name")
            check_text(operator.uid or "", "a uid")
        graph = StreamGraph(
            job_name=job_name,
            transformations=transformations,
            parallelism=self.default_parallelism(),
            max_parallelism=self.default_max_parallelism(),
        )
        _check_uids(transformations)
        _check_parallelism(graph)
        return graph

    def detach(self, last: Transformation) -> StreamGraph:
        """Return the part of the program that ends in an operator, and forget it.

        Raises:
            UsageError: as `build_graph` does.
        """
        kept, self._declared = self._declared, _with_inputs([last])
        try:
            graph = self.build_graph()
        finally:
            taken = {operator.id for operator in self._declared}
            self._declared = [operator for operator in kept if operator.id not in taken]
        return graph

    def submit(self, job_name: str) -> JobClient:
        """Hand the program to the engine; the next program starts without these operators."""
        graph = self.build_graph(job_name)
        configuration = self.effective_configuration()
        self._declared = []
        return self._engine.submit(graph, configuration)

    def execution_plan(self) -> str:
        """Return the program as JSON: nodes with their predecessors, as Flink prints it."""
        graph = self.build_graph()
        return json.dumps({"nodes": [_plan_node(t, graph) for t in graph.transformations]})


def _with_inputs(wanted: list[Transformation]) -> list[Transformation]:
    found: dict[int, Transformation] = {}
    todo = list(wanted)
    while todo:
        operator = todo.pop()
        if operator.id not in found:
            found[operator.id] = operator
            todo.extend(edge.source for edges in operator.inputs for edge in edges)
    return [found[number] for number in sorted(found)]


def _check_uids(transformations: list[Transformation]) -> None:
    seen: dict[str, Transformation] = {}
    for operator in transformations:
        for kind, found in (("uid", operator.uid), ("uid hash", operator.uid_hash)):
            if found is None:
                continue
            other = seen.setdefault(f"{kind} {found}", operator)
            if other is not operator:
                msg = (
                    f"{kind} {found!r} is given to two operators, '{other.name}' and "
                    f"'{operator.name}'; state is found by it, so it must be unique in a program"
                )
                raise UsageError(msg)


def _check_parallelism(graph: StreamGraph) -> None:
    for operator in graph.transformations:
        parallelism = operator.parallelism or graph.parallelism
        maximum = operator.max_parallelism or graph.max_parallelism
        if maximum is not None and parallelism > maximum:
            msg = (
                f"operator '{operator.name}': parallelism {parallelism} is above its max "
                f"parallelism {maximum}; lower the one or raise the other"
            )
            raise UsageError(msg)


def _pact(operator: Transformation) -> str:
    if operator.kind == SOURCE.name:
        return "Data Source"
    return "Data Sink" if operator.kind in _SINKS else "Operator"


def _plan_node(operator: Transformation, graph: StreamGraph) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": operator.id,
        "type": operator.name,
        "pact": _pact(operator),
        "contents": operator.options.get("description", operator.name),
        "parallelism": operator.parallelism or graph.parallelism or None,
    }
    predecessors = [
        {
            "id": edge.source.id,
            "ship_strategy": edge.partitioning.name,
            "side": "second" if index else "first",
        }
        for index, edges in enumerate(operator.inputs)
        for edge in edges
    ]
    if predecessors:
        node["predecessors"] = predecessors
    return node
