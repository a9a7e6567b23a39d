"""Operator ids: the hash of the uid, or one made from what leads to the operator.

Without a uid an operator's id is made from its kind, the ids of the operators that it reads from
and its position among operators that are equal so far. Whatever comes later in the stream, and
branches that do not lead to it, do not change it. A new, removed or swapped operator before it
does, unless one with a uid lies between; and so does a new equal operator that is declared
earlier.
"""

from __future__ import annotations

from collections.abc import Iterable

from weir.graph.kinds import SOURCE
from weir.graph.transformation import Transformation
from weir.ids import OperatorId, operator_id


def operator_ids(order: Iterable[Transformation]) -> dict[int, OperatorId]:
    """Return the id of every transformation by its number; inputs come before their readers."""
    found: dict[int, OperatorId] = {}
    equals: dict[str, int] = {}
    for t in order:
        if t.uid_hash:
            found[t.id] = OperatorId(t.uid_hash)
        elif t.uid:
            found[t.id] = operator_id(t.uid)
        else:
            signature = _signature(t, found)
            position = equals.get(signature, 0)
            equals[signature] = position + 1
            found[t.id] = operator_id(f"{signature}#{position}")
    return found


def _signature(t: Transformation, found: dict[int, OperatorId]) -> str:
    # A source has nothing before it; what it reads tells it from others instead.
    own = f"source:{type(t.function).__name__}" if t.kind == SOURCE.name else t.kind
    groups = (
        # A union has no order.
        "+".join(sorted(f"{found[edge.source.id]}/{edge.tag or ''}" for edge in edges))
        for edges in t.inputs
    )
    return f"auto:{own}({','.join(groups)})"
