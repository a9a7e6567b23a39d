"""The automaton that a pattern is compiled to: states, joined by edges that events open.

An edge has an action: TAKE makes the event part of the match, IGNORE passes over it, PROCEED tries
the state at its end with the same event. States are numbered in the order in which the compiler
made them, so the same pattern always has the same numbers, and `signature` tells patterns apart
whose numbers mean different things.
"""

from __future__ import annotations

import enum
import zlib
from dataclasses import dataclass, field

from weir.nfa.condition import Condition, Tester, Testers, asks_context
from weir.nfa.spec import Skip


class Action(enum.IntEnum):
    """What an edge does with the event."""

    TAKE = 0
    IGNORE = 1
    PROCEED = 2


class StateKind(enum.Enum):
    """What it means to be in a state."""

    NORMAL = "NORMAL"
    FINAL = "FINAL"
    """A match is complete."""
    STOP = "STOP"
    """Something happened that must not."""
    PENDING = "PENDING"
    """A match is complete unless something happens within the window."""


@dataclass(eq=False)
class State:
    """One state; `stage` is the name under which an event is kept that is taken from here.

    With `by_event`, what happens here depends on the event alone, so it is the same for all runs.
    """

    number: int
    stage: str
    kind: StateKind = StateKind.NORMAL
    step_ms: int | None = None
    edges: list[Edge] = field(default_factory=list)
    by_event: bool = True

    def to(self, action: Action, target: State, condition: Condition) -> None:
        """Add an edge."""
        self.edges.append(Edge(action, target, condition))


@dataclass(eq=False)
class Edge:
    """One way out of a state."""

    action: Action
    target: State
    condition: Condition
    tester: Tester | None = None


@dataclass(frozen=True)
class Automaton:
    """A compiled pattern."""

    states: tuple[State, ...]
    start: State
    stages: tuple[str, ...]
    window_ms: int | None
    skip: Skip
    testers: Testers
    signature: int

    @property
    def has_windows(self) -> bool:
        """Tell whether partial matches end by time."""
        return self.window_ms is not None or any(s.step_ms is not None for s in self.states)


def finished(
    states: list[State], start: State, stages: list[str], window_ms: int | None, skip: Skip
) -> Automaton:
    """Make the testers of all edges and the signature."""
    testers = Testers()
    for state in states:
        for edge in state.edges:
            edge.tester = testers.tester(edge.condition)
    for state in states:
        state.by_event = not any(asks_context(e.condition) for e in _edges_asked(state))
    return Automaton(
        states=tuple(states),
        start=start,
        stages=tuple(stages),
        window_ms=window_ms,
        skip=skip,
        testers=testers,
        signature=_signature(states, start, stages),
    )


def _edges_asked(state: State) -> list[Edge]:
    """Return all edges that are looked at when an event comes to a state."""
    asked: list[Edge] = []
    for at in _passed(state):
        asked += at.edges
        for edge in at.edges:
            if edge.action is Action.TAKE:
                # Behind what is taken, only the way to the end is asked for.
                behind = (e for s in _passed(edge.target) for e in s.edges)
                asked += [e for e in behind if e.action is Action.PROCEED]
    return asked


def _passed(state: State) -> list[State]:
    """Return a state and all that it may PROCEED to."""
    found = [state]
    for at in found:
        found += [
            e.target for e in at.edges if e.action is Action.PROCEED and e.target not in found
        ]
    return found


def _signature(states: list[State], start: State, stages: list[str]) -> int:
    """Describe names, kinds and edges: what the numbers in stored partial matches refer to."""
    lines = [f"{start.number} {stages!r}"]
    for state in states:
        edges = " ".join(f"{e.action.value}:{e.target.number}" for e in state.edges)
        lines.append(f"{state.number} {state.stage!r} {state.kind.value} {edges}")
    return zlib.crc32("\n".join(lines).encode())
