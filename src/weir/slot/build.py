"""From an assignment to a subtask with its state: the same in a process and in the harness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weir.clock import Clock
from weir.ids import JobId
from weir.runtime.frame import load_program
from weir.runtime.operator import TaskFacts
from weir.runtime.queryable import QueryableNames
from weir.runtime.subtask import Subtask
from weir.slot.copies import HostCopies, SlotCopies, open_copies
from weir.slot.files import SlotFiles
from weir.slot.messages import Assignment
from weir.slot.restore import restore_subtask
from weir.storage.base import Storage
from weir.storage.uri import open_storage


@dataclass(frozen=True)
class SlotIdentity:
    """Which slot of which attempt; `driver_pid` is the driver's process if it is on this host."""

    attempt: int
    subtask: int
    driver_pid: int | None = None


def build_slot(
    assignment: Assignment,
    identity: SlotIdentity,
    clock: Clock,
    *,
    adapt: Callable[[TaskFacts], TaskFacts] = lambda facts: facts,
    storage: Storage | None = None,
    reach: Callable[[str], None] = lambda step: None,
) -> tuple[Subtask, SlotFiles]:
    """Restore and open all operators of a slot.

    `adapt` may change what operators are told about their surroundings. Files are read and written
    on `storage` where it is given, else on the storages that the assignment names.

    Raises:
        Exception: state cannot be read, or a user function cannot be opened.
    """
    own = storage or open_storage(assignment.storage_uri, assignment.storage)
    made, found = _copies(assignment, identity)
    files = SlotFiles(
        own,
        JobId(assignment.job_id),
        identity.subtask,
        identity.attempt,
        inline_bytes=assignment.inline_bytes,
        compress=assignment.compress,
        in_memory=assignment.in_memory,
        options=assignment.storage,
        copies=made,
    )
    facts = TaskFacts(
        job_id=assignment.job_id,
        job_name=assignment.job_name,
        attempt=identity.attempt,
        subtask=identity.subtask,
        clock=clock,
        report=lambda index, kind, values: None,
        lineage=tuple(assignment.lineage),
        job_parameters=assignment.job_parameters,
        backend=assignment.backend,
        shared_files=files.shared,
        newer_output=assignment.newer_output,
        from_savepoint=assignment.from_savepoint,
        memory=assignment.memory,
        queryable=QueryableNames(assignment.queryable),
    )
    reach("slot starts")
    subtask = Subtask(load_program(assignment.plan), adapt(facts))
    restore_subtask(subtask, assignment, storage, found, known=files.known)
    reach("slot restored")
    subtask.open()
    return subtask, files


def _copies(
    assignment: Assignment, identity: SlotIdentity
) -> tuple[SlotCopies | None, HostCopies | None]:
    """Open the copies of state files on this host, to make some and to read; None if unwanted."""
    if assignment.copies is None:
        return None, None
    return open_copies(
        assignment.copies,
        subtask=identity.subtask,
        attempt=identity.attempt,
        driver_pid=identity.driver_pid,
    )
