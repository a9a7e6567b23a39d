"""The keyed states of a job that can be queried, as its slots describe them.

What was known once stays known: a job that fails over has the same states, and committed ones can
be read meanwhile. What is known of a state that the program has not asked for yet, only restored,
is asked anew each time. A name means one state: one that several have is refused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from weir.codec.codec import codec_for
from weir.errors import WeirError
from weir.graph.plan import JobPlan, OperatorNode
from weir.jobmanager.queries import (
    QueryError,
    StateUnavailableError,
    StateView,
    UnknownStateError,
)
from weir.keygroup import key_group
from weir.offline.keyed import Layout, StoredKind
from weir.offline.tables import KEY, MAP_KEY, NAMESPACE, VALUE
from weir.offline.text import kind_text, types_text
from weir.queryable.protocol import ReadBy
from weir.slot.lookup import SlotState, SlotStates, types_mark


@dataclass(frozen=True)
class KnownState:
    """One keyed state: how slots describe it, its operator, and how its entries are decoded.

    It is `alone` where no other operator of that name has a state of that name.
    """

    described: SlotState
    operator: OperatorNode
    layout: Layout
    alone: bool = True

    @classmethod
    def of(cls, described: SlotState, operator: OperatorNode) -> KnownState:
        """Find out how entries are decoded; nothing that was pickled ever is."""
        stored = StoredKind(described.kind, described.types)
        layout = Layout.of(stored, unpickle=False, in_windows=described.windowed)
        return cls(described, operator, layout)

    @property
    def place(self) -> str:
        """The operator by which users know it."""
        return self.operator.uid or self.operator.name

    @property
    def name(self) -> str:
        """What queries call it."""
        place = self.place if self.alone else self.operator.id
        return self.described.queryable_name or f"{place}.{self.described.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """By what it is found: the first of them that some state has decides."""
        state = self.described.name
        by_place, by_id = f"{self.place}.{state}", f"{self.operator.id}.{state}"
        return (self.described.queryable_name or by_id, by_place, by_id, state)

    @property
    def spaced(self) -> bool:
        """Tell whether entries may be in namespaces."""
        return self.layout.namespace is not None

    @cached_property
    def opaque(self) -> frozenset[str]:
        """The columns that hold pickles, which nobody looks into."""
        layout = self.layout
        parts = {KEY: layout.key, VALUE: layout.value, MAP_KEY: layout.map_key}
        parts[NAMESPACE] = layout.namespace
        return frozenset(
            name
            for name, part in parts.items()
            if part is not None and not codec_for(part.type_info).safe
        )

    @cached_property
    def types_mark(self) -> int:
        """The mark of the types by which entries are read."""
        return types_mark(self.described.types)

    @cached_property
    def key_type(self) -> Any:
        """The type of keys, as callers tell theirs."""
        return self.layout.key.type_info.to_json()

    @cached_property
    def read_by(self) -> ReadBy | None:
        """By what entries are read; None where they are pickles, or in namespaces."""
        layout = self.layout
        if self.opaque or self.spaced or self.described.windowed:
            return None
        map_key = None if layout.map_key is None else layout.map_key.type_info.to_json()
        return ReadBy(self.described.kind, layout.value.type_info.to_json(), map_key)

    def group_of(self, key: Any) -> int:
        """Return the key group of a key.

        Raises:
            UsageError: it cannot be a key.
        """
        return key_group(key, self.operator.max_parallelism)

    def view(self) -> StateView:
        """Return what others may know about the state."""
        types = {r: t for r, t in types_text(self.described.types).items() if r != "namespace"}
        return StateView(
            name=self.name,
            operator=self.place,
            state=self.described.name,
            kind=kind_text(self.described.kind),
            types=types,
            columns=tuple(self.layout.schema.names),
            expires=self.described.ttl_ms is not None,
            opaque=VALUE in self.opaque,
        )


class Catalog:
    """The states that can be queried; thread-safe."""

    def __init__(
        self, plan: Callable[[], JobPlan], ask: Callable[[], list[SlotStates]], *, everything: bool
    ) -> None:
        """Learn from slots by `ask`; with `everything` states need not be declared queryable."""
        self._plan = plan
        self._ask = ask
        self._everything = everything
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], KnownState] = {}
        self._by_name: dict[str, KnownState] = {}
        self._blind: set[str] = set()

    def states(self) -> list[KnownState]:
        """Return all states, in the order of names.

        Raises:
            StateUnavailableError: nobody knows them now.
        """
        self._learn()
        return sorted(self._shown(), key=lambda state: state.name)

    def find(self, name: str) -> KnownState:
        """Return the state of a name.

        Raises:
            UnknownStateError: there is none.
            QueryError: several have it.
            StateUnavailableError: nobody knows it now.
        """
        found = self._by_name.get(name) or self._named(name)
        if found is None or found.described.restored:
            # It may be one that a record has led to in the meantime.
            self._learn()
            found = self._named(name)
        if found is None:
            raise UnknownStateError(self._nothing(name))
        self._by_name[name] = found
        return found

    def at(self, operator: str, state: str) -> KnownState:
        """Return a state of an operator, given its uid or name."""
        return self.find(f"{operator}.{state}")

    def _named(self, name: str) -> KnownState | None:
        shown = self._shown()
        for names in zip(*(state.names for state in shown), strict=True):
            found = [state for state, own in zip(shown, names, strict=True) if own == name]
            if len(found) > 1:
                several = " and ".join(f"{s.name!r} of operator {s.place!r}" for s in found)
                msg = (
                    f"{name!r} is the name of several states, {several}: ask for one of them, and "
                    "give the operators uids or names of their own, or call set_queryable"
                )
                raise QueryError(msg)
            if found:
                return found[0]
        return None

    def _shown(self) -> list[KnownState]:
        with self._lock:
            known = list(self._known.values())
        declared = (s for s in known if self._everything or s.described.queryable_name is not None)
        shown = [state for state in declared if not state.described.name.startswith("_timer")]
        count = Counter((state.place, state.described.name) for state in shown)
        return [
            s if count[s.place, s.described.name] == 1 else replace(s, alone=False) for s in shown
        ]

    def _learn(self) -> None:
        try:
            answers = self._ask()
        except WeirError as error:
            if self._known:
                return  # what is known can be read from checkpoints meanwhile
            msg = f"the states of the job are not known yet ({error}): ask again in a moment"
            raise StateUnavailableError(msg) from error
        operators: dict[str, OperatorNode] = {op.id: op for op in self._plan().operators}
        found = _distinct(answers)
        with self._lock:
            self._blind = {operator for answer in answers for operator in answer.blind}
            self._by_name = {}
            for at, described in found.items():
                known = self._known.get(at)
                if known is not None and described.restored > known.described.restored:
                    continue  # a new attempt has not asked for it yet
                if at[0] in operators:
                    self._known[at] = KnownState.of(described, operators[at[0]])

    def _nothing(self, name: str) -> str:
        names = ", ".join(repr(state.name) for state in self._shown()) or "none"
        hint = (
            ""
            if self._everything
            else "; a state is one after descriptor.set_queryable(name), "
            "or all are with weir.queryable-state.states: all"
        )
        blind = "; the state backend lets nobody look at its states" if self._blind else ""
        return (
            f"UnknownKvStateLocation: No KvStateLocation found for KvState instance with name "
            f"'{name}'. States that can be queried are {names}{hint}{blind}"
        )


def _distinct(answers: Iterable[SlotStates]) -> dict[tuple[str, str], SlotState]:
    """Return states by operator and name, as those describe them that have asked for them."""
    every = [state for answer in answers for state in answer.states]
    every.sort(key=lambda state: not state.restored)
    return {(state.operator, state.name): state for state in every}
