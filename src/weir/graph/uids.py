"""Which operators need a uid: those whose state or position must be found again.

State belongs to an operator by its id. Without a uid the id is made from the shape of the program,
so a changed program may look for the state under another id.
"""

from __future__ import annotations

import logging

from weir.errors import UsageError
from weir.graph.plan import keeps_operator_state
from weir.graph.transformation import StreamGraph, Transformation

log = logging.getLogger("weir.graph")

_STATEFUL = frozenset({"sink_v2", "spark_sink", "broadcast_process"})
_STATEFUL_BY_KEY = frozenset({"process", "co_process", "reduce", "aggregate"})
# With keys these may have state in `open`; a bare callable has no such method.
_PERHAPS_BY_KEY = frozenset({"map", "flat_map", "filter", "co_map", "co_flat_map"})


def is_stateful(t: Transformation) -> bool:
    """Tell whether an operator may have keyed state, operator state or prepared transactions."""
    if t.kind == "source":
        return False
    if t.kind in _STATEFUL or keeps_operator_state(t):
        return True
    if not t.keyed:
        return False
    plain = getattr(t.function, "weir_plain", False)
    return t.kind in _STATEFUL_BY_KEY or (t.kind in _PERHAPS_BY_KEY and not plain)


def without_uid(graph: StreamGraph, *, sources: bool) -> list[Transformation]:
    """Return the operators that have state but no uid, in order of declaration.

    Sources have positions. With `sources` all of them count, else only when there are several: the
    only one is found in any case.
    """
    readers = [t for t in graph.transformations if t.kind == "source"]
    counted = sources or len(readers) > 1
    return [
        t
        for t in graph.transformations
        if t.uid is None
        and t.uid_hash is None
        and (is_stateful(t) or (counted and t.kind == "source"))
    ]


def check_uids(graph: StreamGraph, *, auto_generate: bool = True) -> None:
    """Warn once about all operators with state and without a uid.

    Raises:
        UsageError: there are such operators and ids must not be generated.
    """
    found = without_uid(graph, sources=not auto_generate)
    if not found:
        return
    names = ", ".join(f"'{t.name}'" for t in found)
    if not auto_generate:
        msg = (
            f"pipeline.auto-generate-uids is false, but these operators have state or a position "
            f'and no uid: {names}; give each one with .uid("...")'
        )
        raise UsageError(msg)
    log.warning(
        "operators with state and without a uid: %s; a savepoint finds their state by ids made "
        "from the program's shape, so a changed program may not find it: give each one with "
        '.uid("...")',
        names,
    )
