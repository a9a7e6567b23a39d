"""Rows in flight: what a barrier overtakes at one subtask, and what of it is kept.

A checkpoint may be cut in the middle of an epoch, at one level, the same for all subtasks. Then
rows are on their way: those that the level has not handled yet, those that it has sent on, those
that pass through it to later levels, and records already reported for print and collect. All of
them are frames with an address (edge and target subtask), or reports.

Invariant: state as of the cut plus rows in flight is the whole effect of the epoch, nothing twice.
Watermarks are not among them: what sources said is known in every slot, and a checkpoint has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from weir.graph.plan import JobPlan
from weir.runtime.frame import (
    REPORT_EDGE,
    Chunk,
    Frame,
    Incoming,
    pack_chunk,
    payload_kind,
    read_batch,
    unpack_data,
    unpack_report,
)
from weir.runtime.report import Rows, SubtaskReport

GENERATION: Final = 1 << 52
"""Origins of restored frames are lower by this, so that they come before everything newer."""


@dataclass(frozen=True)
class ReportedRows:
    """Records of a print or collect operator, by operator id."""

    operator: str
    kind: str
    values: list[Any]


@dataclass(frozen=True)
class InFlight:
    """What one subtask had on its way when a checkpoint was cut at a level."""

    level: int
    frames: list[Frame]
    reports: list[ReportedRows]

    def __bool__(self) -> bool:
        """Tell whether there is anything."""
        return bool(self.frames or self.reports)


@dataclass
class LevelProgress:
    """How far a subtask is in a level.

    `waiting[next:]` has not been touched; `begun` is the frame that is being handled, its records,
    and how many of them are done; `sent` passes through the level.
    """

    waiting: list[Incoming]
    sent: list[Frame]
    next: int = 0
    begun: tuple[Incoming, Chunk, int] | None = None

    def frames(self, subtask: int) -> list[Frame]:
        """Return what waits and what passes through, in the order of its handling."""
        frames = []
        if self.begun is not None:
            frame, chunk, done = self.begun
            payload = frame.payload if done == 0 else pack_chunk(chunk.rows(done))
            frames.append(Frame(subtask, frame.edge, frame.origin, payload))
        rest = self.waiting[self.next :]
        frames += [Frame(subtask, f.edge, f.origin, f.payload) for f in rest]
        return frames + self.sent


def keep(
    plan: JobPlan,
    level: int,
    frames: Iterable[Frame],
    reported: Iterable[Rows],
    *,
    replayed: bool,
) -> InFlight:
    """Return what of frames and reports has to be stored.

    With `replayed` the epoch will be read again: frames straight from the sources come again, and
    only those that went through state, or were restored, are kept.
    """
    kept: list[Frame] = []
    reports = list(reported)
    for frame in frames:
        if frame.edge == REPORT_EDGE:
            report = unpack_report(frame.payload)
            if isinstance(report, SubtaskReport):
                reports += report.rows
        elif payload_kind(frame.payload) == b"C":
            continue
        elif not (replayed and plan.edges[frame.edge].source_level == 0 and frame.origin >= 0):
            kept.append(frame)
    operators = plan.operators
    rows = [ReportedRows(operators[i].id, kind, list(v)) for i, kind, v in reports if v]
    return InFlight(level, kept, rows)


def count_records(plan: JobPlan, frames: Iterable[Frame]) -> int:
    """Count the records in frames."""
    count = 0
    for frame in frames:
        payload = as_buffer(frame.payload)
        if payload_kind(payload) == b"A":
            count += read_batch(payload).num_rows
        else:
            count += len(unpack_data(payload, plan.edges[frame.edge]).values)
    return count


def as_buffer(payload: bytes | pa.Buffer) -> pa.Buffer:
    """Return a payload as a buffer, without copying it."""
    return payload if isinstance(payload, pa.Buffer) else pa.py_buffer(payload)
