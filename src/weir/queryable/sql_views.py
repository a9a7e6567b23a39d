"""Which view of SQL shows which state: "operator"."state", as long as that means one.

The engine takes names that differ only in case for one. Where several states would have one view,
each is found under the id of its operator, or there by its name for queries; and the view that
they would share raises. So no name shows a state that was not meant, and none breaks other queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from weir.queryable.catalog import KnownState

At = tuple[str, str]
"""The schema and the name of a view."""
_OF_THE_ENGINE: Final = ("information_schema", "pg_catalog")
_WAYS: Final[tuple[Callable[[KnownState], At | None], ...]] = (
    lambda state: None if _folded(state.place) in _OF_THE_ENGINE else _named(state, state.place),
    lambda state: _named(state, state.operator.id),
    lambda state: _by_queryable_name(state),
)


@dataclass(frozen=True)
class Refusal:
    """A view that raises: its columns, and what it says."""

    columns: Any
    text: str


@dataclass(frozen=True)
class Views:
    """The views of some states, and those that raise."""

    states: dict[At, KnownState] = field(default_factory=dict)
    refusals: dict[At, Refusal] = field(default_factory=dict)

    @classmethod
    def of(cls, states: Iterable[KnownState]) -> Views:
        """Find a view for every state that can have one."""
        views, left, taken = cls(), list(states), set[At]()
        for way in _WAYS:
            left = views._take(left, way, taken)
        return views

    def _take(
        self, states: list[KnownState], way: Callable[[KnownState], At | None], taken: set[At]
    ) -> list[KnownState]:
        """Give views to states that are alone by a way of naming them; return the others."""
        wanted: dict[At, list[tuple[At, KnownState]]] = {}
        left: list[KnownState] = []
        for state in states:
            at = way(state)
            if at is None:
                left.append(state)
            else:
                wanted.setdefault((_folded(at[0]), _folded(at[1])), []).append((at, state))
        for folded, several in wanted.items():
            at, state = several[0]
            if folded in taken or len(several) > 1:
                left += [state for _, state in several]
            if folded not in taken and len(several) == 1:
                self.states[at] = state
            elif folded not in taken:
                self.refusals[at] = _refusal(at, [state for _, state in several])
            taken.add(folded)
        return left


def unread(at: At, state: KnownState) -> Refusal:
    """Return what stands for a state that was not read for a query."""
    schema, name = at
    text = f"state {schema}.{name} was not read for this query: name it in the text of the query"
    return Refusal(state.layout.schema, text)


def _refusal(at: At, states: list[KnownState]) -> Refusal:
    several = " and ".join(f"{s.described.name!r} of operator {s.operator.id}" for s in states)
    text = (
        f"the view {at[0]}.{at[1]} would be of several states, {several}: name the id of the "
        "operator as the schema, give operators uids or names that differ in more than case, or "
        "call set_queryable"
    )
    return Refusal(states[0].layout.schema, text)


def _named(state: KnownState, schema: str) -> At:
    return schema, state.described.name


def _by_queryable_name(state: KnownState) -> At | None:
    name = state.described.queryable_name
    return None if name is None else (state.operator.id, name)


def _folded(name: str) -> str:
    return name.casefold()
