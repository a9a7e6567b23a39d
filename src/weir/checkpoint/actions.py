"""What the coordinator wants done: values that the JobManager carries out, in order.

The coordinator itself touches no storage, no network and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from weir.checkpoint.decider import CheckpointRequest
from weir.checkpoint.failure import FailureReason
from weir.checkpoint.retention import CheckpointRef


@dataclass(frozen=True)
class Ack:
    """A subtask has stored its share of a checkpoint.

    `files` are the storage paths that this subtask wrote for this checkpoint alone or first;
    files of older checkpoints that it refers to are not among them. `payload` is whatever goes
    into the metadata; the coordinator does not look into it.
    """

    checkpoint_id: int
    subtask: int
    attempt: int
    files: tuple[str, ...] = ()
    payload: Any = None


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Call `on_trigger`, then send the barrier of this checkpoint with the next epoch.

    With `overtaking` the barrier may overtake rows.
    """

    ref: CheckpointRef
    request: CheckpointRequest
    overtaking: bool


@dataclass(frozen=True)
class RejectRequest:
    """Tell who asked that there will be no checkpoint."""

    request: CheckpointRequest
    reason: FailureReason


@dataclass(frozen=True)
class WriteMetadata:
    """All subtasks have acknowledged: write `_metadata`, then call `on_metadata_written`."""

    ref: CheckpointRef
    request: CheckpointRequest
    started_ms: int
    acks: Mapping[int, Ack] = field(hash=False)


@dataclass(frozen=True)
class CheckpointCompleted:
    """The checkpoint exists: tell who asked for it."""

    ref: CheckpointRef
    request: CheckpointRequest


@dataclass(frozen=True)
class NotifyComplete:
    """Tell all subtasks, so that sinks commit."""

    checkpoint_id: int


@dataclass(frozen=True)
class NotifyAborted:
    """Tell all subtasks and who asked that this checkpoint will never complete."""

    checkpoint_id: int
    request: CheckpointRequest
    reason: FailureReason
    detail: str = ""


@dataclass(frozen=True)
class DiscardPending:
    """Delete what an aborted checkpoint left: its directory and these files."""

    ref: CheckpointRef
    files: tuple[str, ...]


@dataclass(frozen=True)
class DeleteCheckpoint:
    """Delete a completed checkpoint that is not needed any more, then call `on_cleaned`."""

    ref: CheckpointRef


@dataclass(frozen=True)
class DeleteFiles:
    """Delete files of an acknowledgement that came too late to be used."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class FailJob:
    """Fail the current execution of the job."""

    message: str


Action: TypeAlias = (
    TriggerCheckpoint
    | RejectRequest
    | WriteMetadata
    | CheckpointCompleted
    | NotifyComplete
    | NotifyAborted
    | DiscardPending
    | DeleteCheckpoint
    | DeleteFiles
    | FailJob
)
