"""Which operators need a uid: those whose state or position must be found again.

State belongs to an operator by its id. Without a uid the id is made from the shape of the program,
so a changed program may look for the state under another id.
"""

from __future__ import annotations

import logging

from weir.errors import UsageError
from weir.graph.kinds import KindState, kind_named
from weir.graph.plan import keeps_operator_state
from weir.graph.transformation import StreamGraph, Transformation
from weir.notices import warn_once

log = logging.getLogger("weir.graph")


def is_stateful(t: Transformation) -> bool:
    """Tell whether an operator may have keyed state, operator state or prepared transactions."""
    kind = kind_named(t.kind, t.name)
    if kind.is_source:
        return False
    if kind.state is KindState.ALWAYS or keeps_operator_state(t):
        return True
    plain = getattr(t.function, "weir_plain", False)
    by_key = kind.state is KindState.BY_KEY or (kind.state is KindState.MAYBE and not plain)
    return t.keyed and by_key


def without_uid(graph: StreamGraph, *, sources: bool) -> list[Transformation]:
    """Return the operators that have state but no uid, in order of declaration.

    Sources have positions. With `sources` all of them count, else only when there are several: the
    only one is found in any case.
    """
    readers = [t for t in graph.transformations if kind_named(t.kind, t.name).is_source]
    counted = sources or len(readers) > 1
    return [
        t
        for t in graph.transformations
        if t.uid is None and t.uid_hash is None and (is_stateful(t) or (counted and t in readers))
    ]


def check_uids(graph: StreamGraph, *, auto_generate: bool = True) -> None:
    """Look whether all operators that need a uid have one, if ids must not be generated.

    Raises:
        UsageError: there are others.
    """
    found = [] if auto_generate else without_uid(graph, sources=True)
    if found:
        msg = (
            f"pipeline.auto-generate-uids is false, but these operators have state or a position "
            f'and no uid: {_names(found)}; give each one with .uid("...")'
        )
        raise UsageError(msg)


def warn_of_missing_uids(graph: StreamGraph) -> None:
    """Say once which operators have state and no uid, where that state is to outlive the job."""
    found = without_uid(graph, sources=False)
    if found:
        warn_once(
            log,
            f"operators with state and without a uid: {_names(found)}; a savepoint finds their "
            "state by ids made from the program's shape, so a changed program may not find it: "
            'give each one with .uid("...")',
        )


def _names(operators: list[Transformation]) -> str:
    return ", ".join(f"'{t.name}'" for t in operators)
