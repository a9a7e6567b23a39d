"""Who reads what when state is spread over another number of subtasks: pure plans.

Invariants: every key group goes to exactly one new subtask; every element of split state goes to
exactly one new subtask, and loads differ by at most one; union state goes to all; broadcast state
goes to each once. Plans name old subtasks and parts of their files; they never see a value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weir.checkpoint.metadata import OperatorRecord, OperatorStateRecord, RedistributionMode
from weir.errors import IncompatibleStateError, UsageError
from weir.keygroup import MAX_PARALLELISM_BOUND, KeyGroupRange, range_of, subtask_of


@dataclass(frozen=True)
class KeyedRead:
    """Read these key groups from the files of an old subtask, oldest first."""

    old_subtask: int
    files: tuple[int, ...]
    key_groups: KeyGroupRange
    stored: KeyGroupRange


@dataclass(frozen=True)
class ElementRead:
    """Read the elements `start` to `stop` (exclusive) of one state of an old subtask."""

    old_subtask: int
    start: int
    stop: int

    def __len__(self) -> int:
        """Count the elements."""
        return self.stop - self.start


StateReads: TypeAlias = dict[str, tuple[ElementRead, ...]]


class SubtaskMapping(enum.Enum):
    """How rows in flight on an edge go from old to new subtasks, by the edge's partitioning.

    RANGE for keyed edges (the reader keeps the rows of its own key groups), ROUND_ROBIN for
    rebalance and shuffle, FIRST for global, FULL for partitioners of the user (the reader keeps
    what the partitioner gives it).
    """

    RANGE = "RANGE"
    ROUND_ROBIN = "ROUND_ROBIN"
    FIRST = "FIRST"
    FULL = "FULL"


def plan_keyed(operator: OperatorRecord, parallelism: int) -> tuple[tuple[KeyedRead, ...], ...]:
    """Return for each new subtask which key groups it reads from which old files."""
    return tuple(
        _keyed_reads(operator, range_of(new, parallelism, operator.max_parallelism))
        for new in range(parallelism)
    )


def _keyed_reads(operator: OperatorRecord, wanted: KeyGroupRange) -> tuple[KeyedRead, ...]:
    reads = []
    for old in sorted(operator.subtasks, key=lambda subtask: subtask.index):
        if old.file is None or old.keyed_range is None:
            continue
        stored = KeyGroupRange(*old.keyed_range)
        common = wanted.intersect(stored)
        if common:
            reads.append(KeyedRead(old.index, (*old.layers, old.file), common, stored))
    return tuple(reads)


def plan_operator_state(operator: OperatorRecord, parallelism: int) -> tuple[StateReads, ...]:
    """Return for each new subtask which elements of which operator states it reads."""
    reported: list[Mapping[str, OperatorStateRecord]] = [{} for _ in range(operator.parallelism)]
    for subtask in operator.subtasks:
        reported[subtask.index] = subtask.operator_states
    try:
        return redistribute(reported, parallelism)
    except IncompatibleStateError as error:
        msg = f"operator {operator.name!r} ({operator.id}): {error}"
        raise IncompatibleStateError(msg) from error


def plan_watermarks(operator: OperatorRecord, parallelism: int) -> tuple[int | None, ...]:
    """Return for each new subtask where its event time begins, None for the minimum.

    With another parallelism that is where the slowest of the old subtasks was.
    """
    found = {subtask.index: subtask.watermark for subtask in operator.subtasks}
    stored = [found.get(index) for index in range(operator.parallelism)]
    if parallelism == operator.parallelism:
        return tuple(stored)
    known = [watermark for watermark in stored if watermark is not None]
    slowest = min(known) if len(known) == len(stored) else None
    return (slowest,) * parallelism


def redistribute(
    reported: Sequence[Mapping[str, OperatorStateRecord]], parallelism: int
) -> tuple[StateReads, ...]:
    """Spread operator states, given per old subtask, over new subtasks.

    With the same parallelism split state stays where it is. Otherwise the elements of each state,
    in the order of the old subtasks, are cut into even contiguous parts; the remainder of one
    state (in the order of names) goes to the subtasks after those that got the last remainder.

    Raises:
        IncompatibleStateError: subtasks disagree about the mode of a state.
    """
    reads: tuple[StateReads, ...] = tuple({} for _ in range(parallelism))
    first = 0
    for name in sorted({name for states in reported for name in states}):
        whole = [
            ElementRead(old, 0, states[name].elements)
            for old, states in enumerate(reported)
            if name in states
        ]
        mode = _mode_of(name, reported)
        if mode == "UNION":
            parts = [_non_empty(whole)] * parallelism
        elif mode == "BROADCAST":
            parts = [_non_empty([whole[new % len(whole)]]) for new in range(parallelism)]
        elif parallelism == len(reported):
            parts = [
                _non_empty([r for r in whole if r.old_subtask == i]) for i in range(parallelism)
            ]
        else:
            parts = _split(whole, parallelism, first)
            first = (first + sum(map(len, whole)) % parallelism) % parallelism
        for new, part in enumerate(parts):
            if part:
                reads[new][name] = part
    return reads


def map_subtasks(mapping: SubtaskMapping, old: int, new: int) -> tuple[tuple[int, ...], ...]:
    """Return for each of `new` subtasks the old subtasks whose rows in flight it takes over."""
    return tuple(_old_subtasks(mapping, old, new, i) for i in range(new))


def _old_subtasks(mapping: SubtaskMapping, old: int, new: int, i: int) -> tuple[int, ...]:
    if mapping is SubtaskMapping.RANGE:
        # The finest possible key groups: the mapping may not depend on the operator's own.
        groups = range_of(i, new, MAX_PARALLELISM_BOUND)
        start = subtask_of(groups.start, old, MAX_PARALLELISM_BOUND)
        return tuple(range(start, subtask_of(groups.end, old, MAX_PARALLELISM_BOUND) + 1))
    if mapping is SubtaskMapping.ROUND_ROBIN:
        return tuple(range(i, old, new))
    if mapping is SubtaskMapping.FIRST:
        return tuple(range(old)) if i == 0 else ()
    return tuple(range(old))


def _split(
    whole: Sequence[ElementRead], parallelism: int, first: int
) -> list[tuple[ElementRead, ...]]:
    """Cut elements into contiguous parts for the subtasks `first`, `first + 1`, … in a ring."""
    base, remainder = divmod(sum(map(len, whole)), parallelism)
    parts: list[tuple[ElementRead, ...]] = [()] * parallelism
    begin = 0
    for turn in range(parallelism):
        end = begin + base + (turn < remainder)
        parts[(first + turn) % parallelism] = _slice(whole, begin, end)
        begin = end
    return parts


def _slice(whole: Sequence[ElementRead], begin: int, end: int) -> tuple[ElementRead, ...]:
    """Return the elements `begin` to `end` of the concatenation."""
    parts = []
    offset = 0
    for read in whole:
        start, stop = max(begin - offset, 0), min(end - offset, len(read))
        if start < stop:
            parts.append(ElementRead(read.old_subtask, start, stop))
        offset += len(read)
    return tuple(parts)


def _non_empty(reads: Sequence[ElementRead]) -> tuple[ElementRead, ...]:
    return tuple(read for read in reads if len(read) > 0)


def _mode_of(
    name: str, reported: Sequence[Mapping[str, OperatorStateRecord]]
) -> RedistributionMode:
    modes = sorted({states[name].mode for states in reported if name in states})
    if len(modes) != 1:
        msg = f"subtasks stored the state {name!r} with different modes: {modes!r}"
        raise IncompatibleStateError(msg)
    return modes[0]


def check_parallelism(parallelism: int) -> None:
    """Refuse a number of subtasks that cannot be.

    Raises:
        UsageError: it is not between 1 and the bound of the max parallelism.
    """
    if not 1 <= parallelism <= MAX_PARALLELISM_BOUND:
        msg = f"parallelism is {parallelism!r}, expected 1 to {MAX_PARALLELISM_BOUND!r}"
        raise UsageError(msg)
