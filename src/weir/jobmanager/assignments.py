"""Dealing the state of a checkpoint out to the slots of a program, which may not fit it."""

from __future__ import annotations

from weir.checkpoint.restore import OperatorPlan, ProgramOperator, plan_restore
from weir.errors import IncompatibleStateError
from weir.graph.plan import JobPlan
from weir.jobmanager.recovery import RestorePoint
from weir.slot.messages import InFlightSource, KeyedSource, OperatorRestore
from weir.snapshot import FileHandle


def adopt_max_parallelism(plan: JobPlan, point: RestorePoint, allow_non_restored: bool) -> None:
    """Give operators the max parallelism of their state; refuse what does not fit."""
    for op in plan.operators:
        planned = _planned(plan, point, allow_non_restored).get(op.id)
        if planned is not None and op.max_parallelism != planned.max_parallelism:
            op.max_parallelism = planned.max_parallelism
            for edge in plan.inputs_of(op.index):
                edge.max_parallelism = planned.max_parallelism


def refuse_lost_sources(plan: JobPlan, point: RestorePoint, allow_non_restored: bool) -> None:
    """Refuse a program that lacks a source whose position was stored: the position is state.

    Raises:
        IncompatibleStateError: there is such a source, and leaving it behind was not allowed.
    """
    known = {op.uid or op.id for op in plan.operators if op.kind == "source"}
    positions = point.metadata.sources
    if allow_non_restored or positions.batch_id is None:
        return
    for entry in positions.layout:
        if entry.uid not in known:
            facts = point.metadata
            msg = (
                f"{facts.kind} {facts.checkpoint_id} holds the position of source {entry.uid!r}, "
                f"which the program does not have (it has {sorted(known)!r}): give the source its "
                "old uid back, or leave its position behind with --allowNonRestoredState"
            )
            raise IncompatibleStateError(msg)


def assignments(
    plan: JobPlan, point: RestorePoint, allow_non_restored: bool
) -> list[list[OperatorRestore]]:
    """Return for every slot what each of its operators reads."""
    planned = _planned(plan, point, allow_non_restored)
    slots: list[list[OperatorRestore]] = [[] for _ in range(plan.slots)]
    for op in plan.operators:
        restore = planned.get(op.id)
        if restore is None or restore.record is None:
            continue
        for subtask in range(op.parallelism):
            slots[subtask].append(_assignment(op.id, point, restore, subtask))
    return slots


def in_flight_sources(point: RestorePoint | None, without: int) -> list[InFlightSource]:
    """Return where the rows in flight of a checkpoint are, for all slots alike.

    Those of the checkpoint `without` are left out, as the user asked for.
    """
    if point is None or point.metadata.checkpoint_id == without:
        return []
    rows = point.metadata.in_flight
    return [InFlightSource(row.subtask, _file(point, row.file)) for row in rows]


def _planned(
    plan: JobPlan, point: RestorePoint, allow_non_restored: bool
) -> dict[str, OperatorPlan]:
    program = [
        ProgramOperator(
            op.id,
            op.name,
            parallelism=op.parallelism,
            max_parallelism=op.max_parallelism if op.max_parallelism_explicit else None,
            uid=op.uid,
        )
        for op in plan.operators
        if op.level > 0
    ]
    return plan_restore(point.metadata, program, allow_non_restored=allow_non_restored)


def _assignment(
    operator: str, point: RestorePoint, restore: OperatorPlan, subtask: int
) -> OperatorRestore:
    reads = restore.subtasks[subtask]
    keyed = [
        KeyedSource(
            [_file(point, index) for index in read.files],
            read.key_groups.start,
            read.key_groups.end,
            (read.stored.start, read.stored.end),
        )
        for read in reads.keyed
    ]
    by_old: dict[int, dict[str, list[int]]] = {}
    for name, parts in (reads.operator_states or {}).items():
        for part in parts:
            positions = by_old.setdefault(part.old_subtask, {}).setdefault(name, [])
            positions.extend(range(part.start, part.stop))
    files = {s.index: s.file for s in restore.record.subtasks} if restore.record else {}
    elements: list[tuple[FileHandle, dict[str, list[int]]]] = []
    for old, wanted in sorted(by_old.items()):
        file = files[old]
        if file is not None:
            elements.append((_file(point, file), wanted))
    return OperatorRestore(operator, keyed, elements)


def _file(point: RestorePoint, index: int) -> FileHandle:
    record = point.metadata.files[index]
    return FileHandle(record.path, record.size, record.crc32, record.data)
