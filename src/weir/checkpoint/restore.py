"""From a checkpoint and a program to a plan of the restore, or a refusal that says what to do.

Owns the rules that decide whether state fits a program: operators are matched by id, state is
never dropped silently, and the max parallelism, which fixes the key groups, is the state's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weir.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from weir.checkpoint.rescale import (
    KeyedRead,
    StateReads,
    check_parallelism,
    plan_keyed,
    plan_operator_state,
    plan_watermarks,
)
from weir.errors import IncompatibleStateError, UsageError
from weir.keygroup import default_max_parallelism


@dataclass(frozen=True)
class ProgramOperator:
    """An operator of the program that is starting; `max_parallelism` only if it was set."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int | None = None
    uid: str | None = None


@dataclass(frozen=True)
class OperatorMatch:
    """Which stored operator each operator of the program continues, and what is left out."""

    restored: Mapping[str, OperatorRecord]
    skipped: tuple[OperatorRecord, ...] = ()


@dataclass(frozen=True)
class SubtaskRestore:
    """What one new subtask of an operator reads, and where its event time begins."""

    keyed: tuple[KeyedRead, ...] = ()
    operator_states: StateReads = field(default_factory=dict)
    watermark: int | None = None


@dataclass(frozen=True)
class OperatorPlan:
    """How one operator of the program starts; without a record it starts empty."""

    record: OperatorRecord | None
    max_parallelism: int
    subtasks: tuple[SubtaskRestore, ...]


def match_operators(
    metadata: CheckpointMetadata,
    program: Iterable[ProgramOperator],
    *,
    allow_non_restored: bool = False,
) -> OperatorMatch:
    """Match stored operators with those of the program by id.

    Stored operators without state are left out when the program has none of their id; operators
    that are new in the program start empty.

    Raises:
        IncompatibleStateError: state would be lost, and that was not allowed.
        UsageError: two operators of the program have the same id.
    """
    known = _by_id(program)
    restored: dict[str, OperatorRecord] = {}
    skipped = []
    for record in metadata.operators:
        if record.id in known:
            restored[record.id] = record
            continue
        if record.has_state and not allow_non_restored:
            raise IncompatibleStateError(_unknown(metadata, record))
        skipped.append(record)
    return OperatorMatch(restored, tuple(skipped))


def resolve_max_parallelism(
    records: Sequence[OperatorRecord], parallelism: int, configured: int | None = None
) -> int:
    """Return the max parallelism of a restored operator, or of operators chained together.

    State fixes it. A program that set none adopts the state's; one that set another is refused,
    because its key groups would not be those of the state.

    Raises:
        IncompatibleStateError: the max parallelisms contradict, or are below the parallelism.
    """
    check_parallelism(parallelism)
    stateful = [record for record in records if record.has_state]
    stored = sorted({record.max_parallelism for record in stateful})
    if not stored:
        return default_max_parallelism(parallelism) if configured is None else configured
    names = ", ".join(repr(record.name) for record in stateful)
    if len(stored) > 1:
        msg = (
            f"operators {names} are chained but their state has the max parallelisms {stored!r}: "
            "start a new chain between them"
        )
        raise IncompatibleStateError(msg)
    if configured is not None and configured != stored[0]:
        msg = (
            f"the state of operator {names} has the max parallelism {stored[0]!r}, but the program "
            f"sets {configured!r}: set {stored[0]!r}, or none to take over the state's"
        )
        raise IncompatibleStateError(msg)
    if stored[0] < parallelism:
        msg = (
            f"the state of operator {names} has the max parallelism {stored[0]!r}, which is lower "
            f"than the parallelism {parallelism!r}: start with at most {stored[0]!r} subtasks"
        )
        raise IncompatibleStateError(msg)
    return stored[0]


def plan_restore(
    metadata: CheckpointMetadata,
    program: Sequence[ProgramOperator],
    *,
    allow_non_restored: bool = False,
) -> dict[str, OperatorPlan]:
    """Return for every operator of the program, by id, what each of its subtasks reads."""
    match = match_operators(metadata, program, allow_non_restored=allow_non_restored)
    return {
        operator.id: _plan_operator(operator, match.restored.get(operator.id))
        for operator in program
    }


def _plan_operator(operator: ProgramOperator, record: OperatorRecord | None) -> OperatorPlan:
    maximum = resolve_max_parallelism(
        [] if record is None else [record], operator.parallelism, operator.max_parallelism
    )
    if record is None:
        return OperatorPlan(record, maximum, (SubtaskRestore(),) * operator.parallelism)
    times = plan_watermarks(record, operator.parallelism)
    if not record.has_state:
        return OperatorPlan(record, maximum, tuple(SubtaskRestore(watermark=t) for t in times))
    keyed = plan_keyed(record, operator.parallelism)
    states = plan_operator_state(record, operator.parallelism)
    subtasks = tuple(SubtaskRestore(*parts) for parts in zip(keyed, states, times, strict=True))
    return OperatorPlan(record, maximum, subtasks)


def _by_id(program: Iterable[ProgramOperator]) -> dict[str, ProgramOperator]:
    known: dict[str, ProgramOperator] = {}
    for operator in program:
        other = known.setdefault(operator.id, operator)
        if other is not operator:
            msg = (
                f"operators {other.name!r} and {operator.name!r} have the same id {operator.id!r} "
                f"(uid {operator.uid!r}): give each operator a uid of its own"
            )
            raise UsageError(msg)
    return known


def _unknown(metadata: CheckpointMetadata, record: OperatorRecord) -> str:
    uid = f"uid {record.uid!r}" if record.uid is not None else "no uid"
    return (
        f"{metadata.kind} {metadata.checkpoint_id} holds state of the operator {record.name!r} "
        f"({uid}, id {record.id!r}), which the program does not have: give the operator its old "
        "uid back, or leave its state behind with --allowNonRestoredState"
    )
