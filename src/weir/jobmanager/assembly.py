"""From the acknowledgements of all subtasks to the metadata of a checkpoint: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.checkpoint.actions import Ack
from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    InFlightRecord,
    OperatorRecord,
    OperatorStateRecord,
    SourcePositions,
    SubtaskRecord,
)
from weir.checkpoint.retention import CheckpointRef
from weir.errors import JobExecutionError
from weir.graph.plan import JobPlan
from weir.slot.messages import Acknowledge, OperatorPart
from weir.snapshot import FileHandle


@dataclass(frozen=True)
class EpochFacts:
    """What the driver knew when the barrier of a checkpoint was sent.

    `cut_level` is where the barrier overtook rows, if it did.
    """

    epoch: int
    positions: SourcePositions
    timestamp_ms: int
    savepoint_format: str | None = None
    cut_level: int | None = None


class _Files:
    """The files of a checkpoint, each once per subtask."""

    def __init__(self) -> None:
        self.records: list[FileRecord] = []
        self._indices: dict[tuple[int, str], int] = {}

    def index(self, handle: FileHandle, subtask: int) -> int:
        key = (subtask, handle.path)
        found = self._indices.get(key)
        if found is None:
            found = self._indices[key] = len(self.records)
            self.records.append(
                FileRecord(handle.path, handle.size, handle.crc32, subtask, handle.data)
            )
        return found


def assemble(
    plan: JobPlan, job_id: str, ref: CheckpointRef, acks: Mapping[int, Ack], facts: EpochFacts
) -> CheckpointMetadata:
    """Return the metadata of a checkpoint that all subtasks acknowledged.

    Raises:
        JobExecutionError: some subtasks took part where the barrier overtook rows, others did not.
    """
    files = _Files()
    parts: dict[str, list[SubtaskRecord]] = {}
    in_flight: list[InFlightRecord] = []
    for subtask, ack in sorted(acks.items()):
        message: Acknowledge | None = ack.payload
        if message is not None and message.cut and facts.cut_level is None:
            msg = f"subtask {subtask} let the barrier overtake rows, which was not agreed on"
            raise JobExecutionError(msg)
        if message is None or message.file is None:
            continue
        own = files.index(message.file, subtask)
        rows = message.in_flight
        # A slot that was done with an earlier level keeps rows that others have received.
        if rows is not None and rows.level == facts.cut_level:
            in_flight.append(InFlightRecord(subtask, own, rows.level, rows.records, rows.size))
        for part in message.operators:
            parts.setdefault(part.operator, []).append(_subtask(part, subtask, own, files))
    operators = tuple(
        OperatorRecord(
            id=op.id,
            uid=op.uid,
            name=op.name,
            parallelism=op.parallelism,
            max_parallelism=op.max_parallelism,
            has_state=any(map(_has_state, parts.get(op.id, []))),
            subtasks=tuple(parts.get(op.id, [])),
        )
        for op in plan.operators
        if op.level > 0
    )
    return CheckpointMetadata(
        checkpoint_id=ref.checkpoint_id,
        job_id=job_id,
        job_name=plan.job_name,
        timestamp_ms=facts.timestamp_ms,
        kind=ref.kind,
        epoch=facts.epoch,
        sources=facts.positions,
        operators=operators,
        files=tuple(files.records),
        in_flight=tuple(in_flight),
        savepoint_format=facts.savepoint_format,
    )


def _subtask(part: OperatorPart, subtask: int, own: int, files: _Files) -> SubtaskRecord:
    return SubtaskRecord(
        index=subtask,
        file=own,
        keyed_range=part.keyed_range,
        keyed_states=tuple(part.keyed_states),
        operator_states={
            name: OperatorStateRecord(mode, count)  # type: ignore[arg-type]
            for name, (mode, count) in part.operator_states.items()
        },
        layers=tuple(files.index(handle, subtask) for handle in part.layers),
        attachments=tuple(files.index(handle, subtask) for handle in part.attachments),
    )


def _has_state(record: SubtaskRecord) -> bool:
    # The own file names only what it holds itself; keyed state may be in older files alone.
    keyed = record.keyed_states or record.layers or record.attachments
    return bool(keyed or record.operator_states)
