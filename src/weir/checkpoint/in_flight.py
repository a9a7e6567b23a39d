"""Who takes over rows in flight when a job goes on, with the same or another parallelism: pure.

Rows in flight are frames that were on their way to one subtask of an edge's target. Invariant:
every row goes to exactly one new subtask, a broadcast row to each new subtask exactly once. Where
the records themselves decide (keys, a partitioner of the user), all candidates read the frame and
keep what is theirs. An edge is known by the operators at its ends, never by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from weir.checkpoint.rescale import SubtaskMapping, map_subtasks
from weir.graph.plan import EdgeNode, JobPlan
from weir.graph.transformation import Partitioning
from weir.keygroup import range_of

_MAPPINGS: Final = {
    Partitioning.GLOBAL: SubtaskMapping.FIRST,
    Partitioning.CUSTOM: SubtaskMapping.FULL,
}


@dataclass(frozen=True)
class StoredEdge:
    """An edge as a checkpoint knows it: operators' ids, input, side output, routing, widths."""

    source: str
    target: str
    input_index: int
    tag: str | None
    partitioning: str
    parallelism: int
    max_parallelism: int

    @classmethod
    def of(cls, plan: JobPlan, edge: EdgeNode) -> StoredEdge:
        """Describe an edge of a program."""
        return cls(
            source=plan.operators[edge.source].id,
            target=plan.operators[edge.target].id,
            input_index=edge.input_index,
            tag=edge.tag,
            partitioning=edge.partitioning.value,
            parallelism=edge.parallelism,
            max_parallelism=edge.max_parallelism,
        )

    def find(self, plan: JobPlan) -> EdgeNode | None:
        """Return this edge in a program, None when the program has no such edge.

        Of several between the same operators it is the one with the same routing.
        """
        crossing = [edge for edge in plan.edges if not edge.chained]
        named = [e for e in crossing if StoredEdge.of(plan, e).identity == self.identity]
        alike = [e for e in named if e.partitioning.value == self.partitioning]
        return next(iter(alike or named), None)

    @property
    def identity(self) -> tuple[str, str, int, str | None]:
        """Return what makes it the same edge in another program."""
        return self.source, self.target, self.input_index, self.tag


def is_taken(stored: StoredEdge, edge: EdgeNode, target: int, subtask: int) -> bool:
    """Tell whether a subtask reads frames that were on their way to an old subtask `target`."""
    if edge.partitioning is Partitioning.BROADCAST:
        return target == subtask % stored.parallelism
    if not is_routed_anew(stored, edge):
        return target == subtask
    if edge.partitioning is Partitioning.HASH:
        return _may_hold_keys_of(stored, edge, target, subtask)
    mapping = _MAPPINGS.get(edge.partitioning, SubtaskMapping.ROUND_ROBIN)
    return target in _mapped(mapping, stored.parallelism, edge.parallelism)[subtask]


def is_routed_anew(stored: StoredEdge, edge: EdgeNode) -> bool:
    """Tell whether old subtasks are other ones now."""
    before = (stored.parallelism, stored.max_parallelism)
    return before != (edge.parallelism, edge.max_parallelism)


def is_chosen_by_record(edge: EdgeNode) -> bool:
    """Tell whether only the records of a frame say whose they are."""
    return edge.partitioning in (Partitioning.HASH, Partitioning.CUSTOM)


def _may_hold_keys_of(stored: StoredEdge, edge: EdgeNode, target: int, subtask: int) -> bool:
    if stored.max_parallelism != edge.max_parallelism:
        return True
    old = range_of(target, stored.parallelism, stored.max_parallelism)
    new = range_of(subtask, edge.parallelism, edge.max_parallelism)
    return bool(old.intersect(new))


@cache
def _mapped(mapping: SubtaskMapping, old: int, new: int) -> tuple[tuple[int, ...], ...]:
    return map_subtasks(mapping, old, new)
