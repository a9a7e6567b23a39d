"""From a pattern to its automaton.

Stages become states from the last to the first, so that a state knows where its edges lead. The
rules are Flink's:

* One event: TAKE on the condition; IGNORE as the contiguity allows. If the stage is optional, it
  can PROCEED past itself, and what it ignored leads to a twin that can no longer be left out.
* Several events: a chain of these; what is more than enough can PROCEED to the end.
* No bound: behind the chain a loop that takes, ignores by a twin, and can always PROCEED.
* Greedy: the states behind take and ignore nothing that the loop could have taken.
* A negation: edges to STOP, at every state that waits until the next stage has an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from weir.errors import UsageError
from weir.nfa.automaton import Action, Automaton, State, StateKind, finished
from weir.nfa.condition import ALWAYS, All, Condition, Not, Some
from weir.nfa.spec import NEGATIONS, Contiguity, PatternSpec, Skip, Stage, check_neighbours


def compile_pattern(spec: PatternSpec) -> Automaton:
    """Compile a pattern; the same pattern gives the same automaton.

    Raises:
        UsageError: the pattern cannot be.
    """
    window = window_of(spec.stages)
    _check_names(spec.stages, spec.skip)
    _check_order(spec.stages)
    _check_windows(spec.stages, window)
    compiler = _Compiler(window is not None)
    end = compiler.new("", StateKind.FINAL)
    start = compiler.sequence(spec.stages, end, None)
    names = [stage.name for stage in positive_stages(spec.stages)]
    return finished(compiler.states, start, names, window, skip=spec.skip)


def window_of(stages: Iterable[Stage]) -> int | None:
    """Return the smallest time between first and last event that any stage asks for."""
    return min((s.within_ms for s in every_stage(stages) if s.within_ms is not None), default=None)


def every_stage(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Iterate over all stages, groups and what is in them included."""
    for stage in stages:
        yield stage
        yield from every_stage(stage.group or ())


def positive_stages(stages: Iterable[Stage]) -> Iterator[Stage]:
    """Iterate over the stages that can have events in a match."""
    return (s for s in every_stage(stages) if s.group is None and s.contiguity not in NEGATIONS)


def _check_names(stages: tuple[Stage, ...], skip: Skip) -> None:
    seen: set[str] = set()
    for stage in every_stage(stages):
        if stage.group is not None:
            continue
        if stage.name in seen:
            msg = (
                f"Duplicate pattern name: {stage.name}. Names must be unique: a match holds its "
                "events by the name of the pattern"
            )
            raise UsageError(msg)
        seen.add(stage.name)
    known = [stage.name for stage in positive_stages(stages)]
    if skip.stage is not None and skip.stage not in known:
        msg = (
            f"The pattern name specified in AfterMatchSkipStrategy can not be found in the given "
            f"Pattern: found {skip.stage!r}, expected one of {', '.join(map(repr, known))}"
        )
        raise UsageError(msg)


def _check_order(stages: tuple[Stage, ...]) -> None:
    for before, stage in pairwise(stages):
        check_neighbours(before, stage)
    for stage in stages:
        _check_order(stage.group or ())


def _check_windows(stages: tuple[Stage, ...], window: int | None) -> None:
    last = stages[-1]
    if last.contiguity is Contiguity.NOT_FOLLOWED_BY and window is None:
        msg = (
            "NotFollowedBy is not supported without windowTime as a last part of a Pattern! "
            f"Nothing would say how long {last.name!r} must not come: add within()"
        )
        raise UsageError(msg)
    for stage in every_stage(stages):
        if stage.group is not None and stage.group[-1].contiguity is Contiguity.NOT_FOLLOWED_BY:
            msg = (
                f"a group must not end with not_followed_by({stage.group[-1].name!r}): call it on "
                "the pattern behind the group"
            )
            raise UsageError(msg)
        for step in (stage.step_ms, stage.gap_ms):
            if window is not None and step is not None and step > window:
                msg = (
                    "The window length between the previous and current event cannot be larger "
                    "than the window length between the first and last event for a Pattern: "
                    f"{stage.name!r} has {step} ms, the pattern {window} ms"
                )
                raise UsageError(msg)


@dataclass(frozen=True)
class _Group:
    """The group whose stages are being compiled; `first` of its repetitions or a further one."""

    stage: Stage
    first: bool
    until: Condition | None
    following: Stage | None


@dataclass(frozen=True)
class _Place:
    """A stage among its neighbours."""

    stages: tuple[Stage, ...]
    index: int
    group: _Group | None

    @property
    def stage(self) -> Stage:
        return self.stages[self.index]

    @property
    def heads(self) -> _Group | None:
        """The group that begins with this stage."""
        return self.group if self.index == 0 else None

    @property
    def following(self) -> Stage | None:
        """The stage that comes next, also behind the end of a group."""
        if self.index + 1 < len(self.stages):
            return self.stages[self.index + 1]
        return None if self.group is None else self.group.following

    @property
    def until(self) -> Condition | None:
        return None if self.group is None else self.group.until

    def bounded(self, condition: Condition) -> Condition:
        """Let a condition end where the group ends."""
        return condition if self.until is None else _both(Not(self.until), condition)

    def takes(self, stage: Stage) -> Condition:
        return self.bounded(stage.condition)

    def ignores(self, contiguity: Contiguity) -> Condition | None:
        if contiguity is Contiguity.STRICT:
            return None
        relaxed = contiguity is Contiguity.RELAXED
        return self.bounded(Not(self.stage.condition) if relaxed else ALWAYS)

    @property
    def contiguity(self) -> Contiguity:
        """How the first event of the stage follows what is before it."""
        group = self.heads
        if group is None:
            return self.stage.contiguity
        return group.stage.contiguity if group.first else group.stage.inner

    def negations(self) -> list[Stage]:
        """Return what must not come while this stage waits for its first event."""
        found = []
        for stage in reversed(self.stages[: self.index]):
            if stage.contiguity is Contiguity.NOT_FOLLOWED_BY:
                found.append(stage)
            elif not stage.optional and stage.contiguity is not Contiguity.NOT_NEXT:
                break
        return found


@dataclass(frozen=True)
class _Part:
    """One event of a stage: which it is, and whether there must be one."""

    take: Condition
    ignore: Condition | None
    optional: bool
    first: bool


class _Compiler:
    """Makes states; numbers them in the order in which it does."""

    def __init__(self, windowed: bool) -> None:
        self.states: list[State] = []
        self._windowed = windowed
        self._stops: dict[str, State] = {}
        self._unrestricted: dict[int, State] = {}
        """By number, the copy of a state from before a greedy loop restricted it."""

    def new(
        self, stage: str, kind: StateKind = StateKind.NORMAL, step_ms: int | None = None
    ) -> State:
        state = State(len(self.states), stage, kind, step_ms)
        self.states.append(state)
        return state

    def sequence(self, stages: tuple[Stage, ...], sink: State, group: _Group | None) -> State:
        """Compile stages that lead to a state; return the state that they begin with."""
        for index in reversed(range(len(stages))):
            place = _Place(stages, index, group)
            contiguity = place.stage.contiguity
            if contiguity is Contiguity.NOT_FOLLOWED_BY:
                sink = self._not_followed_by(place, sink)
            elif contiguity is Contiguity.NOT_NEXT:
                sink = self._not_next(place, sink)
            else:
                sink = self._stage(place, sink)
        return sink

    def _not_followed_by(self, place: _Place, sink: State) -> State:
        """Only at the end there is a state of its own; elsewhere those behind it have edges."""
        condition = place.takes(place.stage)
        if sink.kind is StateKind.FINAL and self._windowed:
            sink = self.new(place.stage.name, StateKind.PENDING, place.stage.step_ms)
            sink.to(Action.IGNORE, sink, Not(condition))
        if sink.kind is StateKind.PENDING:
            sink.to(Action.PROCEED, self._stop(place.stage), condition)
        return sink

    def _not_next(self, place: _Place, sink: State) -> State:
        condition = place.takes(place.stage)
        state = self.new(place.stage.name, step_ms=place.stage.step_ms)
        # At the end one more event is needed to know that it was not this one.
        action = Action.IGNORE if sink.kind is StateKind.FINAL else Action.PROCEED
        state.to(action, sink, Not(condition))
        state.to(Action.PROCEED, self._stop(place.stage), condition)
        self._add_stops(place, state)
        return state

    def _stage(self, place: _Place, sink: State) -> State:
        stage = place.stage
        if stage.most is None:
            loop = self._loop(place, self._without_negations(place, sink))
            head = self._times(place, loop, sink, most=stage.least)
        else:
            head = self._times(place, sink, sink, most=stage.most)
        self._add_stops(place, head)
        return head

    def _times(self, place: _Place, sink: State, proceed: State, most: int) -> State:
        stage = place.stage
        take = _unless(stage.until, place.takes(stage))
        ignore = place.ignores(stage.inner)
        if ignore is not None:
            ignore = _unless(stage.until, ignore)
        if stage.greedy and stage.least != most:
            self._restrict(sink, take, keep_copy=stage.until is not None)
        last = sink
        for number in reversed(range(2, most + 1)):
            part = _Part(take, ignore, optional=number > stage.least, first=False)
            last = self._one(place, last, proceed, part)
            self._stop_loop(place, last)
        first = _Part(take, place.ignores(place.contiguity), stage.optional, first=True)
        return self._one(place, last, proceed, first)

    def _one(self, place: _Place, sink: State, proceed: State, part: _Part) -> State:
        stage = place.stage
        if stage.group is not None:
            head = self.sequence(stage.group, sink, _group(place, first=part.first))
            if part.optional:
                head.to(Action.PROCEED, proceed, place.bounded(ALWAYS))
            return head
        step = stage.step_ms if part.first or stage.gap_ms is None else stage.gap_ms
        state = self.new(stage.name, step_ms=step)
        after = self._without_negations(place, sink)
        state.to(Action.TAKE, after, part.take)
        if part.optional:
            self._leave(place, state, proceed)
        if part.ignore is not None:
            twin, group = state, place.heads
            if part.optional or (group is not None and group.first and group.stage.optional):
                twin = self.new(stage.name, step_ms=step)
                twin.to(Action.TAKE, after, part.take)
                twin.to(Action.IGNORE, twin, part.ignore)
                self._add_stops(place, twin)
            state.to(Action.IGNORE, twin, part.ignore)
        return state

    def _loop(self, place: _Place, sink: State) -> State:
        stage = place.stage
        if stage.group is not None:
            again = self.new(stage.name)
            head = self.sequence(stage.group, again, _group(place, first=False))
            head.to(Action.PROCEED, sink, place.bounded(ALWAYS))
            again.to(Action.PROCEED, head, place.bounded(ALWAYS))
            return head
        take = _unless(stage.until, place.takes(stage))
        step = stage.step_ms if stage.gap_ms is None else stage.gap_ms
        loop = self.new(stage.name, step_ms=step)
        if stage.greedy:
            self._restrict(sink, place.takes(stage), keep_copy=stage.until is not None)
        self._leave(place, loop, sink)
        loop.to(Action.TAKE, loop, take)
        self._stop_loop(place, loop)
        ignore = place.ignores(stage.inner)
        if ignore is not None:
            ignore = _unless(stage.until, ignore)
            twin = self.new(stage.name, step_ms=step)
            twin.to(Action.TAKE, loop, take)
            twin.to(Action.IGNORE, twin, ignore)
            loop.to(Action.IGNORE, twin, ignore)
            self._stop_loop(place, twin)
        return loop

    def _leave(self, place: _Place, state: State, sink: State) -> None:
        """Let a state be passed; a greedy loop that `until` ended restricts nobody."""
        always, until = place.bounded(ALWAYS), place.stage.until
        copy = self._unrestricted.get(sink.number)
        if not place.stage.greedy or until is None or copy is None:
            state.to(Action.PROCEED, sink, always)
            return
        state.to(Action.PROCEED, copy, _both(always, until))
        state.to(Action.PROCEED, sink, _both(always, Not(until)))

    def _restrict(self, state: State, take: Condition, *, keep_copy: bool) -> None:
        """Let a state have nothing that a greedy loop before it could take."""
        if keep_copy:
            copy = self._unrestricted[state.number] = self.new(
                state.stage, state.kind, state.step_ms
            )
            for edge in state.edges:
                copy.to(edge.action, copy if edge.target is state else edge.target, edge.condition)
        for edge in state.edges:
            edge.condition = _both(edge.condition, Not(take))

    def _stop(self, negation: Stage) -> State:
        stop = self._stops.get(negation.name)
        if stop is None:
            stop = self._stops[negation.name] = self.new(negation.name, StateKind.STOP)
        return stop

    def _add_stops(self, place: _Place, state: State) -> None:
        for negation in place.negations():
            state.to(Action.PROCEED, self._stop(negation), place.takes(negation))

    def _stop_loop(self, place: _Place, state: State) -> None:
        """Let a negation that comes next end a stage that could still go on."""
        negation = place.following
        if negation is not None and negation.contiguity is Contiguity.NOT_FOLLOWED_BY:
            state.to(Action.PROCEED, self._stop(negation), place.takes(negation))

    def _without_negations(self, place: _Place, sink: State) -> State:
        """Return where an optional stage leads that took an event.

        Negations before it hold on if it was left out, and are over if it was not.
        """
        names = {negation.name for negation in place.negations()}
        if not names or not place.stage.optional:
            return sink
        return self._copy_without(sink, names, {})

    def _copy_without(self, state: State, names: set[str], done: dict[int, State]) -> State:
        if state.number in done:
            return done[state.number]
        copy = done[state.number] = self.new(state.stage, state.kind, state.step_ms)
        for edge in state.edges:
            target = edge.target
            if edge.action is Action.PROCEED:
                if target.kind is StateKind.STOP:
                    if target.stage in names:
                        continue
                else:
                    target = self._copy_without(target, names, done)
            elif target is state:
                target = copy
            copy.to(edge.action, target, edge.condition)
        return copy


def _group(place: _Place, *, first: bool) -> _Group:
    own, outer = place.stage.until, place.until
    until = Some((own, outer)) if own is not None and outer is not None else own or outer
    return _Group(place.stage, first, until, place.following)


def _unless(until: Condition | None, condition: Condition) -> Condition:
    return condition if until is None else _both(Not(until), condition)


def _both(first: Condition, second: Condition) -> Condition:
    if second == ALWAYS:
        return first
    return second if first == ALWAYS else All((first, second))
