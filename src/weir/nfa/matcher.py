"""Runs an automaton over the events of one key.

A partial match is a run: the state that it is in, and the last of its events. Events of a run are
nodes that point to the one before, so that runs share what they have in common. Numbers of events
grow in the order in which events are processed, which is their order in time. Runs are kept in the
order of their first events; every event may begin a new one.

Nothing here depends on when it is called: what ends by time ends at its own deadline, in order,
however far time has moved on since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from weir.errors import UsageError
from weir.nfa.automaton import Action, Automaton, State, StateKind
from weir.nfa.spec import Skip, SkipTo

NOTHING = -1
"""The node of a run that has no event yet, and the one before the first."""
_GARBAGE_FROM = 1024
_LONG_AGO, _NEVER = -(1 << 65), 1 << 65
PROCEED, IGNORE = Action.PROCEED, Action.IGNORE

Match = dict[str, list[Any]]
"""Events by the name of their stage, in the order of the match."""


class Run(NamedTuple):
    """A partial match: its state, its last node, its first event, the times of both ends."""

    state: int
    node: int
    first: int
    first_ms: int
    last_ms: int


class Complete(NamedTuple):
    """A match that waits for an earlier partial match, which may yet remove it."""

    node: int
    first: int


class Node(NamedTuple):
    """An event in its place: the stage that took it, and the node before."""

    stage: int
    event: int
    previous: int


class Move(NamedTuple):
    """What an event makes of a run: taken by a stage or passed over, on to a state or complete."""

    stage: int
    target: int
    goes_on: bool
    completes: bool


_STAYS: Sequence[Move] = ()
"""The one move that leaves a run as it is; that nothing is open is an empty list."""


@dataclass
class Memory:
    """What is kept of one key between calls."""

    runs: list[Run] = field(default_factory=list)
    waiting: list[Complete] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Tell whether nothing has begun."""
        return not self.runs and not self.waiting


@dataclass
class Found:
    """What came of a call: matches and timed-out partial matches, with their times."""

    matches: list[tuple[Match, int]] = field(default_factory=list)
    timeouts: list[tuple[Match, int]] = field(default_factory=list)


class MatchContext:
    """What a condition may ask: the partial match, the time of the event, processing time."""

    __slots__ = ("_events", "_matcher", "_now", "run", "time_ms")

    def __init__(self, matcher: Matcher, now: Callable[[], int]) -> None:
        self._matcher = matcher
        self._now = now
        self._events: Match | None = None
        self.run: Run | None = None
        self.time_ms = 0

    def begin(self, run: Run) -> None:
        """Go on to another partial match."""
        self.run = run
        self._events = None

    def get_events_for_pattern(self, name: str) -> list[Any]:
        """Return the events that the partial match has so far under a name.

        Raises:
            UsageError: no pattern has that name.
        """
        if self._events is None:
            node = NOTHING if self.run is None else self.run.node
            self._events = self._matcher.match_of(node)
        found = self._events.get(name)
        if found is None and name not in self._matcher.automaton.stages:
            names = ", ".join(map(repr, self._matcher.automaton.stages))
            msg = f"get_events_for_pattern({name!r}): there is no such pattern, only {names}"
            raise UsageError(msg)
        return [] if found is None else list(found)

    def timestamp(self) -> int:
        """Return the timestamp of the event; in processing time that of the epoch."""
        return self.time_ms

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds; it stands still during an epoch."""
        return self._now()


class Matcher:
    """Finds matches in the events of one key at a time; `resume` goes on to another key."""

    def __init__(
        self, automaton: Automaton, *, now: Callable[[], int] = lambda: 0, timeouts: bool = False
    ) -> None:
        """Bind to an automaton; without `timeouts` partial matches end by time unheard."""
        self.automaton = automaton
        self._states = automaton.states
        self._windowed = automaton.has_windows
        self._has_steps = any(state.step_ms is not None for state in automaton.states)
        self._timeouts = timeouts
        self._stage_numbers = {name: i for i, name in enumerate(automaton.stages)}
        self.context = MatchContext(self, now)
        self._trial = automaton.testers.trial(self.context)
        self._start = Run(automaton.start.number, NOTHING, first=NOTHING, first_ms=0, last_ms=0)
        self.resume(Memory(), _no_event)

    def resume(self, memory: Memory, stored: Callable[[int], Any]) -> None:
        """Go on with what was kept of a key; `stored` returns an event of it by number."""
        self.memory = memory
        self.fresh: dict[int, Any] = {}
        self._stored = stored
        self._kept = {node.event for node in memory.nodes.values()}
        self._next_event = max(self._kept, default=-1) + 1
        self._next_node = max(memory.nodes, default=-1) + 1
        self._collect_at = len(memory.nodes) * 2 + _GARBAGE_FROM
        self._last_ms = _LONG_AGO
        self._nothing_due_before = _LONG_AGO if self._windowed else _NEVER
        self.found = Found()

    def damage_of(self, memory: Memory) -> str | None:
        """Tell what in a memory `pause` never leaves there, or None if nothing is.

        A memory without damage can be gone on with: every path ends at a first event, and all
        states and stages are some of this automaton.
        """
        states, stages = len(self._states), len(self.automaton.stages)
        # By number, the first event of each path. A node may only come behind an earlier one: in
        # a circle a path would have no end, and a node that is missing is one that is yet to be
        # made, perhaps behind itself.
        nodes, first_of = memory.nodes, {}
        for number in sorted(nodes):
            stage, event, previous = nodes[number]
            if number < 0 or event < 0 or not 0 <= stage < stages:
                return f"node {number} is event {event} in stage {stage}, which cannot be"
            if previous == NOTHING:
                first_of[number] = event
            elif previous in first_of and nodes[previous][1] < event:
                first_of[number] = first_of[previous]
            else:
                return f"node {number} comes behind node {previous}, which is none before it"
        for state, node, first, _, _ in memory.runs:
            if not 0 <= state < states:
                return f"a partial match is in state {state}, of {states}"
            if node not in first_of or first_of[node] != first:
                return f"a partial match from event {first} ends with node {node}, of another path"
        for node, first in memory.waiting:
            if node not in first_of or first_of[node] != first:
                return f"a match from event {first} ends with node {node}, of another path"
        return None

    def pause(self) -> tuple[dict[int, Any], set[int]]:
        """Forget what nothing needs any more; return new events to keep, and kept ones to drop."""
        live = self._collect()
        new = {number: event for number, event in self.fresh.items() if number in live}
        return new, self._kept - live

    def next_deadline(self) -> int | None:
        """Return when the next partial match ends by time; None when none does."""
        return min(
            (d for run in self.memory.runs if (d := self._deadline(run)) is not None), default=None
        )

    def match_of(self, node: int) -> Match:
        """Return the events that lead to a node, by the names of their stages."""
        match: Match = {}
        stages, fresh, stored = self.automaton.stages, self.fresh, self._stored
        for stage, event, _ in self._path(node):
            value = fresh[event] if event in fresh else stored(event)
            match.setdefault(stages[stage], []).append(value)
        return match

    def _path(self, node: int) -> list[Node]:
        nodes, path = self.memory.nodes, []
        while node != NOTHING:
            found = nodes[node]
            path.append(found)
            node = found.previous
        path.reverse()
        return path

    def process(self, event: Any, time_ms: int) -> None:
        """Let an event happen; time has been advanced to it before."""
        memory, start = self.memory, self._start
        self.context.time_ms = time_ms
        if time_ms < self._last_ms and self._windowed:
            self._nothing_due_before = time_ms
        self._last_ms = time_ms
        self._trial.begin(event)
        step = _Step(event, time_ms)
        moves_of, runs = step.moves, step.runs
        for run in memory.runs:
            moves = moves_of.get(run.state)
            if moves is None:
                moves = self._moves(run, step)
            if moves is _STAYS:
                runs.append(run)
            else:
                self._follow(run, moves, step)
        self._follow(start, self._moves(start, step), step)
        memory.runs = runs
        if step.complete or memory.waiting:
            self._finish(step.complete, time_ms)
        if len(memory.nodes) > self._collect_at:
            self._collect()
            self._collect_at = len(memory.nodes) * 2 + _GARBAGE_FROM

    def _moves(self, run: Run, step: _Step) -> Sequence[Move]:
        """Return what an event makes of a run; where all runs are alike, it is found once."""
        state = self._states[run.state]
        if state.by_event:
            moves = step.moves[run.state] = self._open_moves(state)
            return moves
        self.context.begin(run)
        self._trial.next_run()
        return self._open_moves(state)

    def _open_moves(self, state: State) -> Sequence[Move]:
        """Follow all open edges from a state; PROCEED leads on to further ones."""
        trial, begin = self._trial, state.number
        moves: list[Move] = []
        stops = False
        seen, todo = {begin}, [state]
        while todo:
            state = todo.pop()
            for edge in state.edges:
                tester = edge.tester
                if tester is not None and not tester(trial):
                    continue
                target = edge.target
                if edge.action is PROCEED:
                    if target.kind is StateKind.STOP:
                        stops = True
                    elif target.number not in seen:
                        seen.add(target.number)
                        todo.append(target)
                    continue
                final = target.kind is StateKind.FINAL
                if edge.action is IGNORE:
                    moves.append(Move(NOTHING, target.number, not final, final))
                else:
                    stage = self._stage_numbers[state.stage]
                    completes = final or self._ends_here(target)
                    moves.append(Move(stage, target.number, not final, completes))
        if stops:
            return [move._replace(goes_on=False) for move in moves if move.completes]
        if len(moves) == 1 and moves[0].stage == NOTHING and moves[0].target == begin:
            return _STAYS
        return moves

    def _follow(self, run: Run, moves: Sequence[Move], step: _Step) -> None:
        begins = run.node == NOTHING
        for stage, target, goes_on, completes in moves:
            if stage != NOTHING:
                node, first = self._take(run, stage, step)
                if goes_on:
                    first_ms = step.time_ms if begins else run.first_ms
                    step.runs.append(Run(target, node, first, first_ms, last_ms=step.time_ms))
                if completes:
                    step.complete.append(Complete(node, first))
            elif not begins:
                if completes:
                    step.complete.append(Complete(run.node, run.first))
                elif goes_on:
                    step.runs.append(run if target == run.state else run._replace(state=target))

    def _take(self, run: Run, stage: int, step: _Step) -> tuple[int, int]:
        """Make the event part of a run; return the new node and the first event."""
        number = step.number
        if number is None:
            number = step.number = self._next_event
            self._next_event += 1
            self.fresh[number] = step.event
        node = self._next_node
        self._next_node = node + 1
        self.memory.nodes[node] = Node(stage, number, run.node)
        return node, number if run.node == NOTHING else run.first

    def _ends_here(self, state: State) -> bool:
        """Tell whether the rest of the pattern may be left out."""
        seen, todo = {state.number}, [state]
        while todo:
            for edge in todo.pop().edges:
                target = edge.target
                if edge.action is not PROCEED or target.number in seen:
                    continue
                if edge.tester is None or edge.tester(self._trial):
                    if target.kind is StateKind.FINAL:
                        return True
                    seen.add(target.number)
                    todo.append(target)
        return False

    def advance(self, time_ms: int) -> None:
        """Let time pass: end what is over by then, each at its own deadline."""
        if not self.memory.runs or time_ms < self._nothing_due_before:
            return
        due = self.next_deadline()
        if due is None or due > time_ms:
            # With steps a run may come to a state in which it has less time than before.
            if due is not None and not self._has_steps:
                self._nothing_due_before = due
            return
        runs = [(self._deadline(run), run) for run in self.memory.runs]
        ended = sorted(((d, run) for d, run in runs if d is not None and d <= time_ms), key=_time)
        if self.automaton.skip.to is SkipTo.NO_SKIP:
            self.memory.runs = [run for d, run in runs if d is None or d > time_ms]
        for deadline, together in groupby(ended, key=_time):
            # A match that is emitted meanwhile may have removed some of those that end later.
            still = set(self.memory.runs) if self.automaton.skip.to is not SkipTo.NO_SKIP else None
            self._end([run for _, run in together if still is None or run in still], deadline)

    def _end(self, ended: list[Run], time_ms: int) -> None:
        if self.automaton.skip.to is not SkipTo.NO_SKIP:
            over = set(ended)
            self.memory.runs = [run for run in self.memory.runs if run not in over]
        complete = []
        for run in ended:
            if self._states[run.state].kind is StateKind.PENDING:
                complete.append(Complete(run.node, run.first))
            elif self._timeouts:
                self.found.timeouts.append((self.match_of(run.node), time_ms))
        self._finish(complete, time_ms)

    def _deadline(self, run: Run) -> int | None:
        window, step = self.automaton.window_ms, self._states[run.state].step_ms
        if step is None:
            return None if window is None else run.first_ms + window
        if window is None:
            return run.last_ms + step
        return min(run.first_ms + window, run.last_ms + step)

    def _finish(self, complete: list[Complete], time_ms: int) -> None:
        skip, memory = self.automaton.skip, self.memory
        if skip.to is SkipTo.NO_SKIP:
            for match in complete:
                self.found.matches.append((self.match_of(match.node), time_ms))
            return
        if complete:
            memory.waiting = sorted([*memory.waiting, *complete], key=_first_of)
        while memory.waiting:
            earliest = memory.waiting[0]
            if memory.runs and memory.runs[0].first < earliest.first:
                return
            del memory.waiting[0]
            self.found.matches.append((self.match_of(earliest.node), time_ms))
            until = self._skipped_to(skip, earliest)
            if until is not None:
                memory.runs = [run for run in memory.runs if run.first >= until]
                memory.waiting = [match for match in memory.waiting if match.first >= until]

    def _skipped_to(self, skip: Skip, match: Complete) -> int | None:
        """Return the first event with which other matches may begin; None is any."""
        if skip.to is SkipTo.NEXT:
            return match.first + 1
        path = self._path(match.node)
        if skip.to is SkipTo.PAST_LAST_EVENT:
            return path[-1].event + 1
        stage = self._stage_numbers[skip.stage or ""]
        events = [node.event for node in path if node.stage == stage]
        if not events:
            if skip.raises:
                msg = (
                    f"Could not skip to {skip.stage!r}: the match {self.match_of(match.node)!r} "
                    "has no such event; leave out throw_exception_on_miss() to skip nothing then"
                )
                raise UsageError(msg)
            return None
        chosen = events[0] if skip.to is SkipTo.FIRST else events[-1]
        if skip.raises and chosen == match.first:
            msg = (
                f"Could not skip to first element of a match: {skip.stage!r} is the first event "
                f"of {self.match_of(match.node)!r}; skip_to_next() goes on behind it"
            )
            raise UsageError(msg)
        return chosen

    def _collect(self) -> set[int]:
        """Forget nodes and events that no run leads to; return the events that are left."""
        memory = self.memory
        nodes, live = memory.nodes, set()
        for end in _ends(memory):
            node = end
            while node != NOTHING and node not in live:
                live.add(node)
                node = nodes[node].previous
        if len(live) < len(nodes):
            memory.nodes = {number: node for number, node in nodes.items() if number in live}
        events = {node.event for node in memory.nodes.values()}
        self.fresh = {number: event for number, event in self.fresh.items() if number in events}
        return events


class _Step:
    """What an event leads to."""

    __slots__ = ("complete", "event", "moves", "number", "runs", "time_ms")

    def __init__(self, event: Any, time_ms: int) -> None:
        self.event = event
        self.time_ms = time_ms
        self.number: int | None = None
        self.moves: dict[int, Sequence[Move]] = {}
        self.runs: list[Run] = []
        self.complete: list[Complete] = []


def _ends(memory: Memory) -> Iterable[int]:
    yield from (run.node for run in memory.runs)
    yield from (match.node for match in memory.waiting)


def _time(ended: tuple[int, Run]) -> int:
    return ended[0]


def _first_of(match: Complete) -> int:
    return match.first


def _no_event(number: int) -> Any:
    msg = f"event {number} of a partial match was not kept"
    raise UsageError(msg)
