"""Which rows of a state are wanted: keys in a range, or those of one namespace.

What cannot be compared with the columns of a state is refused, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.jobmanager.queries import KeyRange, QueryError
from weir.offline.tables import KEY, NAMESPACE, WINDOW
from weir.queryable.catalog import KnownState

Wanted = Callable[[Any], Any]
"""Leaves of a table, or of a batch, the rows that are wanted."""


def rows_wanted(known: KnownState, wanted: KeyRange) -> Wanted | None:
    """Return what leaves the rows that are wanted; None for all.

    Raises:
        QueryError: the state has no such keys or namespaces.
    """
    inside = _key_filter(known, wanted)
    if wanted.namespace is None:
        return None if inside is None else lambda rows: rows.filter(inside(rows.column(KEY)))
    spaces = _namespace_filter(known, wanted.namespace)

    def left(rows: Any) -> Any:
        found = spaces(rows)
        return rows.filter(
            found if inside is None else pc.and_kleene(found, inside(rows.column(KEY)))
        )

    return left


def is_ordered(known: KnownState) -> bool:
    """Tell whether keys have the order of the column that shows them."""
    key = known.layout.key
    return bool(key.shown == key.type_info and not pa.types.is_nested(key.arrow))


def is_ordered_in_slots(known: KnownState) -> bool:
    """Tell whether Python orders keys as the column that shows them does."""
    arrow = known.layout.key.arrow
    return is_ordered(known) and bool(pa.types.is_integer(arrow) or pa.types.is_string(arrow))


def _namespace_filter(known: KnownState, namespace: Any) -> Callable[[Any], Any]:
    """Return what tells the rows of one namespace; a window is its start and end."""
    schema = known.layout.schema
    if WINDOW[0] in schema.names:
        if not isinstance(namespace, (list, tuple)) or len(namespace) != len(WINDOW):
            msg = f"the namespace {namespace!r} is no window: expected its start and end"
            raise QueryError(msg)
        ends = dict(zip(WINDOW, namespace, strict=True))
    elif NAMESPACE in schema.names:
        ends = {NAMESPACE: namespace}
    else:
        msg = f"state {known.name!r} has no namespaces, and {namespace!r} was asked for"
        raise QueryError(msg)
    scalars = {name: _scalar(value, schema.field(name).type) for name, value in ends.items()}

    def inside(rows: Any) -> Any:
        found = None
        for name, scalar in scalars.items():
            same = pc.equal(rows.column(name), scalar)
            found = same if found is None else pc.and_kleene(found, same)
        return found

    return inside


def _key_filter(known: KnownState, wanted: KeyRange) -> Callable[[Any], Any] | None:
    """Return what tells by the column of keys which are in a range; None for all."""
    if (wanted.prefix, wanted.low, wanted.high) == (None, None, None):
        return None
    arrow = known.layout.key.arrow
    if wanted.prefix is not None and not pa.types.is_string(arrow):
        msg = f"keys of state {known.name!r} are {arrow}, and only texts have a prefix"
        raise QueryError(msg)
    if (wanted.low is not None or wanted.high is not None) and not is_ordered(known):
        msg = f"keys of state {known.name!r} are {known.layout.key.type_info!r}, without an order"
        raise QueryError(msg)
    low = None if wanted.low is None else _scalar(wanted.low, arrow)
    high = None if wanted.high is None else _scalar(wanted.high, arrow)

    def inside(keys: Any) -> Any:
        found = pc.is_valid(keys)
        if wanted.prefix is not None:
            found = pc.and_(found, pc.starts_with(keys, wanted.prefix))
        if low is not None:
            found = pc.and_(found, pc.greater_equal(keys, low))
        if high is not None:
            found = pc.and_(found, pc.less(keys, high))
        return found

    return inside


def _scalar(value: Any, arrow: Any) -> Any:
    try:
        return pa.scalar(value, arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        msg = f"{value!r} is no {arrow}: {error}"
        raise QueryError(msg) from error
