"""States of operators and subtasks, derived from the state of the job and of its slots.

Weir knows the state of a job and whether its slots are ready; Flink shows a state for every
subtask. Both are told from the same facts, so they never contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from weir.jobmanager.operations import JobView, SlotView, VertexView

STATES: Final = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
_BY_JOB: Final[Mapping[str, str]] = {
    "INITIALIZING": "CREATED",
    "CREATED": "CREATED",
    "FAILING": "FAILED",
    "FAILED": "FAILED",
    "CANCELLING": "CANCELING",
    "CANCELED": "CANCELED",
    "FINISHED": "FINISHED",
    "RESTARTING": "SCHEDULED",
    "SUSPENDED": "CANCELED",
    "RECONCILING": "RECONCILING",
}


def slot_of(view: JobView, subtask: int) -> SlotView | None:
    """Return the slot of a subtask, if there is one now."""
    return next((slot for slot in view.slots if slot.subtask == subtask), None)


def subtask_state(view: JobView, vertex: VertexView, subtask: int) -> str:
    """Return the state of one subtask."""
    if view.status != "RUNNING":
        return _BY_JOB.get(view.status, "CREATED")
    if vertex.level == 0:
        return "RUNNING"
    slot = slot_of(view, subtask)
    if slot is None:
        return "SCHEDULED"
    return "RUNNING" if slot.ready else "INITIALIZING"


def state_counts(view: JobView, vertex: VertexView) -> dict[str, int]:
    """Count the subtasks of an operator by state; every state is there."""
    found = Counter(subtask_state(view, vertex, i) for i in range(vertex.parallelism))
    return {state: found[state] for state in STATES}


def vertex_state(view: JobView, vertex: VertexView) -> str:
    """Return the state of an operator: that of its least advanced subtask."""
    counts = state_counts(view, vertex)
    return next((state for state in STATES if counts[state]), "CREATED")


def slot_id(view: JobView, subtask: int) -> str:
    """Return the id under which a slot is a task manager."""
    return f"{view.job_id[:8]}-{subtask}"


def endpoint(slot: SlotView | None) -> str:
    """Return where a slot runs: host and process."""
    if slot is None:
        return "(unassigned)"
    return f"{slot.host}:{slot.pid}" if slot.pid is not None else slot.host
