"""Aggregates of a field for many pairs of results at once: field by field, not record by record.

The results are those of `weir.runtime.rolling.field_combiner` for each pair, and have the declared
type: what it cannot hold is refused with the words of the state that holds it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from weir.backend.admission import INT_BOUNDS, Admit, admission
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo
from weir.common.types import row_class
from weir.runtime.rolling import MERGE
from weir.runtime.window_contents import CONTENTS
from weir.window.spec import COUNT, Contents

Merges = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Makes admitted values of what is held and of what comes, for pairs of them."""
_values = attrgetter("_values")
_BUILT_IN: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "min": min, "max": max}


def merges_of(contents: Contents, add: Callable[[Any, Any], Any]) -> Merges:
    """Return what merges the values that windows hold; `add` does it for a held one and a record.

    `contents` say by what aggregate of a field the values are made.
    """
    aggregate, declared = contents.aggregate, contents.value_type
    admit = admission(CONTENTS, declared)
    op = "" if aggregate is None else aggregate.op
    if op == COUNT:
        return _Numbers(declared, admit)
    if op.endswith("_by"):
        return _Single(add, _as_it_is)  # one of two that were admitted
    single = _Single(add, admit)
    if aggregate is None or op not in MERGE:
        return single
    if not isinstance(declared, (RowTypeInfo, TupleTypeInfo)):
        return single
    field = aggregate.field
    names = declared.get_field_names()
    position = field if isinstance(field, int) else names.index(str(field))
    return _Fields(op, declared, position, single)


class _Single:
    """Pair by pair."""

    def __init__(self, add: Callable[[Any, Any], Any], admit: Admit) -> None:
        self._add = add
        self._admit = admit

    def __call__(self, held: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        add, admit = self._add, self._admit
        return [admit(add(h, v)) for h, v in zip(held, values, strict=True)]


class _Numbers:
    """Sums of counts."""

    def __init__(self, declared: Any, admit: Admit) -> None:
        self._admit = admit
        self._bounds = INT_BOUNDS.get(declared)

    def __call__(self, held: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        made = list(map(operator.add, held, values))
        return made if _within(made, self._bounds) else list(map(self._admit, made))


class _Fields:
    """Records as columns: all but one field stay as they are."""

    def __init__(
        self, op: str, declared: RowTypeInfo | TupleTypeInfo, position: int, single: _Single
    ) -> None:
        self._merge = _BUILT_IN[op]
        self._position = position
        self._bounds = INT_BOUNDS.get(declared.get_field_types()[position])
        self._checks = op == "sum"
        rows = isinstance(declared, RowTypeInfo)
        self._class: Any = row_class(declared.row_names) if rows else tuple  # type: ignore[union-attr]
        self._single = single

    def __call__(self, held: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        made_of = self._class
        if {*map(type, held), *map(type, values)} != {made_of}:
            return self._single(held, values)
        rows = made_of is not tuple
        columns: list[Any] = list(zip(*(map(_values, held) if rows else held), strict=True))
        added = map(itemgetter(self._position), map(_values, values) if rows else values)
        made = list(map(self._merge, columns[self._position], added))
        if self._checks and (self._bounds is None or not _within(made, self._bounds)):
            return self._single(held, values)
        columns[self._position] = made
        tuples = list(zip(*columns, strict=True))
        return made_of._of_many(tuples) if rows else tuples


def _as_it_is(value: Any) -> Any:
    return value


def _within(numbers: list[Any], bounds: tuple[int, int] | None) -> bool:
    """Tell whether a type with these bounds holds all numbers, which are integers."""
    if bounds is None or not numbers:
        return False
    return bool(bounds[0] <= min(numbers) and max(numbers) <= bounds[1])
