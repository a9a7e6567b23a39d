"""Bodies and answers of asynchronous operations, with Flink's names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

TriggerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Parallelism = Annotated[int, msgspec.Meta(ge=1, le=32768)]


class SavepointTrigger(msgspec.Struct, forbid_unknown_fields=True):
    """Body that asks for a savepoint; with `cancel-job` the job is canceled afterwards."""

    target_directory: str | None = msgspec.field(default=None, name="target-directory")
    cancel_job: bool = msgspec.field(default=False, name="cancel-job")
    format_type: Literal["CANONICAL", "NATIVE"] = msgspec.field(
        default="CANONICAL", name="formatType"
    )
    trigger_id: TriggerId | None = msgspec.field(default=None, name="triggerId")


class StopTrigger(msgspec.Struct, forbid_unknown_fields=True):
    """Body that stops a job with a savepoint; with `drain` time goes to its end first."""

    target_directory: str | None = msgspec.field(default=None, name="targetDirectory")
    drain: bool = False
    format_type: Literal["CANONICAL", "NATIVE"] = msgspec.field(
        default="CANONICAL", name="formatType"
    )
    trigger_id: TriggerId | None = msgspec.field(default=None, name="triggerId")


class CheckpointTrigger(msgspec.Struct, forbid_unknown_fields=True):
    """Body that asks for a checkpoint; Flink's third type, INCREMENTAL, cannot be asked for."""

    checkpoint_type: Literal["CONFIGURED", "FULL"] = msgspec.field(
        default="CONFIGURED", name="checkpointType"
    )
    trigger_id: TriggerId | None = msgspec.field(default=None, name="triggerId")


class DisposalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body that asks for the deletion of a savepoint."""

    savepoint_path: str = msgspec.field(name="savepoint-path")
    trigger_id: TriggerId | None = msgspec.field(default=None, name="triggerId")


class StartTrigger(msgspec.Struct, forbid_unknown_fields=True):
    """Body that asks for a job that has ended to be started again, from state that it left."""

    savepoint_path: str = msgspec.field(name="savepoint-path")
    parallelism: Parallelism | None = None
    trigger_id: TriggerId | None = msgspec.field(default=None, name="triggerId")


class Bounds(msgspec.Struct, forbid_unknown_fields=True):
    """A parallelism between two bounds."""

    lower: Parallelism = msgspec.field(default=1, name="lowerBound")
    upper: Parallelism = msgspec.field(default=1, name="upperBound")


class VertexRequirements(msgspec.Struct, forbid_unknown_fields=True):
    """What one vertex wants."""

    parallelism: Bounds


class TriggerResponse(msgspec.Struct):
    """The id to ask about an operation with."""

    request_id: TriggerId = msgspec.field(name="request-id")


class QueueStatus(msgspec.Struct):
    """Whether an operation is over, well or not."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


class FailureCause(msgspec.Struct):
    """Why an operation failed: the kind of error and its message, never a stack trace."""

    kind: str = msgspec.field(name="class")
    message: str = msgspec.field(name="stack-trace")


class SavepointInfo(msgspec.Struct, omit_defaults=True):
    """The savepoint that was taken, or why there is none."""

    location: str | None = None
    failure_cause: FailureCause | None = msgspec.field(default=None, name="failure-cause")


class CheckpointInfo(msgspec.Struct, omit_defaults=True):
    """The checkpoint that was taken, or why there is none."""

    checkpoint_id: int | None = msgspec.field(default=None, name="checkpointId")
    failure_cause: FailureCause | None = msgspec.field(default=None, name="failureCause")


class OperationInfo(msgspec.Struct, omit_defaults=True):
    """Why an operation without a result failed; nothing if it did not."""

    failure_cause: FailureCause | None = msgspec.field(default=None, name="failure-cause")


class SavepointResult(msgspec.Struct):
    """State of a savepoint."""

    status: QueueStatus
    operation: SavepointInfo | None = None


class CheckpointResult(msgspec.Struct):
    """State of a checkpoint that was asked for."""

    status: QueueStatus
    operation: CheckpointInfo | None = None


class OperationResult(msgspec.Struct):
    """State of a disposal or of a rescaling."""

    status: QueueStatus
    operation: OperationInfo | None = None


class StartInfo(msgspec.Struct, omit_defaults=True):
    """The job that was started, or why there is none."""

    job_id: str | None = msgspec.field(default=None, name="job-id")
    failure_cause: FailureCause | None = msgspec.field(default=None, name="failure-cause")


class StartResult(msgspec.Struct):
    """State of a start."""

    status: QueueStatus
    operation: StartInfo | None = None


class Nothing(msgspec.Struct):
    """An empty object."""
