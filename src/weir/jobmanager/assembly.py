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
    PartitionRecord,
    SourcePositions,
    SubtaskRecord,
)
from weir.checkpoint.retention import CheckpointRef
from weir.errors import JobExecutionError
from weir.graph.plan import JobPlan
from weir.slot.messages import Acknowledge, OperatorShare
from weir.snapshot import FileHandle


@dataclass(frozen=True)
class EpochFacts:
    """What the driver knows of a checkpoint: what it knew when the barrier was sent, and the cut.

    `epoch` carried the barrier. `cut_level` is where the barrier overtook rows, if it did; with
    `replayed` the sources read the epoch again after a restore, and `positions` are those before.
    """

    epoch: int
    positions: SourcePositions
    timestamp_ms: int
    savepoint_format: str | None = None
    cut_level: int | None = None
    replayed: bool = False

    @property
    def read_epoch(self) -> int:
        """Return the last epoch that the sources do not read again after a restore."""
        return self.epoch - 1 if self.replayed else self.epoch

    @property
    def shown_epoch(self) -> int:
        """Return the last epoch whose results do not come again after a restore.

        Where the barrier overtook rows, results of its epoch come again.
        """
        return self.epoch if self.cut_level is None else self.epoch - 1


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
                FileRecord(
                    handle.path, handle.size, handle.crc32, subtask=subtask, data=handle.data
                )
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
    records: dict[str, list[SubtaskRecord]] = {}
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
            in_flight.append(
                InFlightRecord(subtask, own, rows.level, records=rows.records, size=rows.size)
            )
        for share in message.operators:
            records.setdefault(share.operator, []).append(_subtask(share, subtask, own, files))
    operators = tuple(
        OperatorRecord(
            id=op.id,
            uid=op.uid,
            name=op.name,
            parallelism=op.parallelism,
            max_parallelism=op.max_parallelism,
            has_state=any(map(_has_state, records.get(op.id, []))),
            subtasks=tuple(records.get(op.id, [])),
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
        epoch=facts.read_epoch,
        sources=facts.positions,
        operators=operators,
        files=tuple(files.records),
        in_flight=tuple(in_flight),
        savepoint_format=facts.savepoint_format,
        partitions=_partitions(acks, facts),
    )


def _partitions(acks: Mapping[int, Ack], facts: EpochFacts) -> tuple[PartitionRecord, ...]:
    """Return how far the partitions of the sources were; whoever knows it knows the same.

    That an epoch is read again is known to those alone that took part where rows were overtaken.
    """
    messages: list[Acknowledge] = [a.payload for a in acks.values() if a.payload is not None]
    told = (m.partitions for m in messages if m.cut or not facts.replayed)
    first = next(filter(None, told), [])
    return tuple(PartitionRecord(*found) for found in sorted(first))


def _subtask(share: OperatorShare, subtask: int, own: int, files: _Files) -> SubtaskRecord:
    return SubtaskRecord(
        index=subtask,
        file=own,
        keyed_range=share.keyed_range,
        keyed_states=tuple(share.keyed_states),
        operator_states={
            name: OperatorStateRecord(mode, count)  # type: ignore[arg-type]
            for name, (mode, count) in share.operator_states.items()
        },
        layers=tuple(files.index(handle, subtask) for handle in share.layers),
        attachments=tuple(files.index(handle, subtask) for handle in share.attachments),
        watermark=share.watermark,
    )


def _has_state(record: SubtaskRecord) -> bool:
    # The own file names only what it holds itself; keyed state may be in older files alone.
    keyed = record.keyed_states or record.layers or record.attachments
    return bool(keyed or record.operator_states)
