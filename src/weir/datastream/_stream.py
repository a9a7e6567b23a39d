"""`Stream`: edges of the graph, and how the next operator or the next edge is attached to them.

The base of all stream classes. A stream is a value: calls return new streams and only add to the
program, never change an existing edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weir.common._html import facts
from weir.common.typeinfo import TypeInformation, Types
from weir.connector.undecoded import DEAD_LETTERS
from weir.datastream._operator_handle import OperatorHandle
from weir.datastream._program import Program
from weir.errors import UsageError
from weir.graph.kinds import SOURCE, Kind
from weir.graph.output_tag import OutputTag
from weir.graph.transformation import Edge, KeySpec, Partitioning, Transformation


class Stream(OperatorHandle):
    """Records on their way: one edge, or several for a union."""

    def __init__(
        self, env: Program, edges: list[Edge], operators: tuple[Transformation, ...] = ()
    ) -> None:
        """Hold the edges that the next operator will get as an input.

        Args:
            env: the program that the stream belongs to.
            edges: where the records come from; one record type for all.
            operators: the operators that this very call declared, first the one with the name.
        """
        super().__init__(operators)
        self.env = env
        self.edges = edges

    @property
    def record_type(self) -> TypeInformation | None:
        """Return the declared type of the records, None for any Python value."""
        return edge_type(self.edges[0])

    @property
    def keyed(self) -> bool:
        """Tell whether the stream is partitioned by key."""
        return all(edge.partitioning is Partitioning.HASH for edge in self.edges)

    def get_type(self) -> TypeInformation:
        """Return the type of the records; pickled objects when none was declared."""
        return self.record_type or Types.PICKLED_BYTE_ARRAY()

    def get_execution_environment(self) -> Any:
        """Return the environment that the stream was created in."""
        return self.env

    def get_execution_config(self) -> Any:
        """Return the execution settings of the stream's environment."""
        return self.get_execution_environment().get_config()

    def _repr_html_(self) -> str:
        """Show a notebook where the records come from and what they are."""
        sources = ", ".join(edge.source.name for edge in self.edges)
        keyed = "by key" if self.keyed else None
        own = self._operators[0] if self._operators else None
        rows = [
            ("records of", sources),
            ("uid", None if own is None else own.uid),
            ("type", self.record_type or "any Python object"),
            ("partitioned", keyed),
        ]
        return facts(type(self).__name__, rows)

    def _declare(self, kind: Kind, name: str, **fields: Any) -> Transformation:
        return self.env.declare(kind, name, inputs=[list(self.edges)], **fields)

    def _unkeyed_edges(self) -> list[Edge]:
        return self.edges

    def _united(self, others: tuple[Stream, ...]) -> list[Edge]:
        edges = list(self._unkeyed_edges())
        for stream in others:
            check_same_program(self, stream, "union")
            for edge in stream._unkeyed_edges():
                if edge_type(edge) != self.record_type:
                    msg = (
                        "union() needs streams of one type, found "
                        f"{self.record_type!r} and {edge_type(edge)!r}; map one to the other"
                    )
                    raise UsageError(msg)
                edges.append(edge)
        return edges

    def _tagged(self, output_tag: OutputTag) -> list[Edge]:
        if output_tag == DEAD_LETTERS:
            return self._dead_letters(output_tag)
        operator = self._operators[-1] if self._operators else self._operator("get_side_output")
        return [self._side_edge(operator, output_tag)]

    def _dead_letters(self, output_tag: OutputTag) -> list[Edge]:
        """Return what sources could not decode: they are the ones that emit it."""
        sources = [operator for operator in self._operators if operator.kind == SOURCE.name]
        if not sources:
            msg = (
                f"get_side_output({output_tag!r}): sources emit it; call it on the stream that "
                "env.from_source() returned"
            )
            raise UsageError(msg)
        return [self._side_edge(source, DEAD_LETTERS) for source in sources]

    @staticmethod
    def _side_edge(operator: Transformation, output_tag: OutputTag) -> Edge:
        tag_type = declared_type(output_tag.type_info, "type_info")
        known = operator.side_types.setdefault(output_tag.tag_id, tag_type)
        if known != tag_type:
            msg = (
                f"operator '{operator.name}': side output {output_tag.tag_id!r} was declared "
                f"with type {known!r} before, now with {tag_type!r}; use one type"
            )
            raise UsageError(msg)
        return Edge(operator, tag=output_tag.tag_id)

    def _spread(
        self,
        partitioning: Partitioning,
        key: KeySpec | None = None,
        partition_fn: Callable[[Any, int], int] | None = None,
    ) -> list[Edge]:
        return [
            replace(edge, partitioning=partitioning, key=key, partition_fn=partition_fn)
            for edge in self.edges
        ]


def edge_type(edge: Edge) -> TypeInformation | None:
    """Return the declared type of the records on an edge."""
    source = edge.source
    found: TypeInformation | None = (
        source.output_type if edge.tag is None else source.side_types.get(edge.tag)
    )
    return found


def declared_type(type_info: Any, parameter: str = "output_type") -> TypeInformation | None:
    """Return a declared type as a value of the graph; a list of types stands for a row.

    Raises:
        TypeError: it is neither None, a list nor a `TypeInformation`.
    """
    if type_info is None or isinstance(type_info, TypeInformation):
        return type_info
    if isinstance(type_info, list):
        return Types.ROW(type_info)
    msg = (
        f"{parameter} must be None, list or TypeInformation, "
        f"found {type(type_info).__name__}: {type_info!r}"
    )
    raise TypeError(msg)


def check_same_program(first: Stream, second: Stream, call: str) -> None:
    """Refuse to join streams of two environments: no job could run both."""
    if first.env is not second.env:
        msg = f"{call}() joins streams of different environments; create both from one environment"
        raise UsageError(msg)
