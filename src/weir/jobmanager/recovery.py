"""Choosing the checkpoint to start from, and dealing its state out to the slots."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weir.checkpoint.metadata import CheckpointMetadata
from weir.checkpoint.paths import (
    checkpoint_id_of,
    is_uri,
    metadata_path,
    rebase,
    split_location,
)
from weir.checkpoint.restore import OperatorRestore as PlannedRestore
from weir.checkpoint.restore import ProgramOperator, plan_restore
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import list_completed, load_checkpoint, verify_files
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    StorageError,
    UsageError,
    WeirError,
)
from weir.graph.plan import JobPlan
from weir.jobmanager.owner import has_ended
from weir.slot.messages import InFlightSource, KeyedSource, OperatorRestore
from weir.snapshot import FileHandle
from weir.storage.base import Storage
from weir.storage.local import LocalStorage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage

log = logging.getLogger("weir.recovery")


@dataclass(frozen=True)
class RestorePoint:
    """A checkpoint whose files were found whole."""

    storage_uri: str
    directory: str
    metadata: CheckpointMetadata


def load_restore_point(location: str, options: StorageOptions | None = None) -> RestorePoint:
    """Load and verify what the user asked to restore.

    Raises:
        UsageError: there is no checkpoint at that place.
        CorruptStateError: it is damaged; the message names the files.
    """
    uri, directory = split_location(location)
    storage = open_storage(uri, options)
    metadata = load_checkpoint(storage, directory)
    if any(f.data is None and f.path.startswith("../../") for f in metadata.files):
        # It refers to files of a job before it, which lie beside the job's own directory.
        uri, job = split_location(uri)
        storage, directory = open_storage(uri, options), f"{job}/{directory}"
    problems = verify_files(storage, directory, metadata)
    if problems:
        raise CorruptStateError("; ".join(problems))
    return RestorePoint(uri, directory, metadata)


def newest_valid(
    storage: Storage,
    uri: str,
    refs: Sequence[CheckpointRef],
    options: StorageOptions | None = None,
) -> tuple[RestorePoint | None, list[str]]:
    """Return the newest checkpoint that is whole, and what was wrong with newer ones."""
    problems: list[str] = []
    for ref in sorted(refs, key=lambda r: r.checkpoint_id, reverse=True):
        try:
            if is_uri(ref.directory):
                return load_restore_point(ref.directory, options), problems
            metadata = load_checkpoint(storage, ref.directory)
            found = verify_files(storage, ref.directory, metadata)
        except (CorruptStateError, UsageError) as error:
            found = [str(error)]
        if not found:
            return RestorePoint(uri, ref.directory, metadata), problems
        problems.append(f"checkpoint {ref.checkpoint_id} cannot be used: {'; '.join(found)}")
    return None, problems


def rebased(point: RestorePoint, job_id: str) -> RestorePoint:
    """Name the shared files of another job's checkpoint so that this job's may refer to them."""
    files = tuple(
        replace(file, path=rebase(point.directory, file.path, job_id))
        for file in point.metadata.files
    )
    return replace(point, metadata=replace(point.metadata, files=files))


def retained_checkpoint(
    storage: Storage, work_root: Path, job_name: str, job_id: str
) -> str | None:
    """Return where the newest complete checkpoint of an ended job of that name is, if any.

    Looks at jobs whose work directory is here: of others nobody can tell that they have ended.
    """
    newest: tuple[int, str] | None = None
    for job in storage.list():
        if job == job_id or not has_ended(work_root / job):
            continue
        try:
            found = list_completed(storage, job)[:1]
        except WeirError as error:
            log.debug("%s", error)
            continue
        for checkpoint in found:
            facts = checkpoint.metadata
            if facts.job_name == job_name and (newest is None or facts.timestamp_ms > newest[0]):
                newest = (facts.timestamp_ms, checkpoint.directory)
    return None if newest is None else f"{storage.uri}/{newest[1]}"


def remove_abandoned(point: RestorePoint, work_root: Path, options: StorageOptions) -> str | None:
    """Delete checkpoints that the restored job began and, having ended, will never complete.

    Returns that job's id when it has ended for certain, None when nothing was touched.
    """
    job = point.metadata.job_id
    storage = open_storage(point.storage_uri, options)
    folder = "" if storage.uri.rstrip("/").endswith(f"/{job}") else job
    job_dir = work_root / job
    if isinstance(storage, LocalStorage) and not job_dir.is_dir():
        job_dir = Path(storage.root) / folder
    if not has_ended(job_dir):
        return None
    try:
        for name in storage.list(folder):
            directory = f"{folder}/{name}".lstrip("/")
            abandoned = not storage.exists(metadata_path(directory))
            if checkpoint_id_of(name) is not None and abandoned:
                storage.delete_tree(directory)
    except StorageError as error:
        log.warning("remains of job %s stay: %s", job, error)
    return job


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
) -> dict[str, PlannedRestore]:
    program = [
        ProgramOperator(
            op.id,
            op.name,
            op.parallelism,
            op.max_parallelism if op.max_parallelism_explicit else None,
            op.uid,
        )
        for op in plan.operators
        if op.level > 0
    ]
    return plan_restore(point.metadata, program, allow_non_restored=allow_non_restored)


def _assignment(
    operator: str, point: RestorePoint, restore: PlannedRestore, subtask: int
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
