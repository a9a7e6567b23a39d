"""Answers about checkpoints, with Flink's names; -1 is "not yet", as in Flink."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
CheckpointType = Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]


class Counts(msgspec.Struct):
    """How many checkpoints there were, by outcome."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Stats(msgspec.Struct):
    """Spread of a number over checkpoints or subtasks; all 0 where there are none."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


class Summary(msgspec.Struct):
    """Spread over the completed checkpoints that are remembered."""

    checkpointed_size: Stats
    state_size: Stats
    end_to_end_duration: Stats
    alignment_buffered: Stats
    processed_data: Stats
    persisted_data: Stats


class TaskCheckpoint(msgspec.Struct):
    """The part of one operator in a checkpoint."""

    id: int
    status: Status
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0


class Checkpoint(msgspec.Struct, tag_field="className", tag="in_progress", kw_only=True):
    """A checkpoint under way; `tasks` only where one checkpoint is asked for.

    `reused_size` is Weir's own: the bytes in files of earlier checkpoints, none in a full one.
    """

    id: int
    status: Status
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: CheckpointType
    tasks: dict[str, TaskCheckpoint]
    reused_size: int = 0


class CompletedCheckpoint(Checkpoint, tag="completed", kw_only=True):
    """A checkpoint that exists, or existed until it was deleted."""

    external_path: str
    discarded: bool


class FailedCheckpoint(Checkpoint, tag="failed", kw_only=True):
    """A checkpoint that never came to be."""

    failure_timestamp: int
    failure_message: str | None


AnyCheckpoint = Checkpoint | CompletedCheckpoint | FailedCheckpoint


class Restored(msgspec.Struct):
    """What the job was restored from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class Latest(msgspec.Struct):
    """The newest of each kind."""

    completed: CompletedCheckpoint | None = None
    savepoint: CompletedCheckpoint | None = None
    failed: FailedCheckpoint | None = None
    restored: Restored | None = None


class CheckpointStatistics(msgspec.Struct):
    """Everything remembered about the checkpoints of a job; history newest first."""

    counts: Counts
    summary: Summary
    latest: Latest
    history: list[AnyCheckpoint]


class StateSeries(msgspec.Struct):
    """The bytes of one state in each checkpoint; null where the checkpoint does not have it.

    Without a `state` these are files of an operator whose states are not told apart, as those of a
    database.
    """

    operator: str
    name: str
    state: str
    bytes: list[int | None]


class StateSizes(msgspec.Struct):
    """How large each state was in the completed checkpoints that are remembered, oldest first."""

    at: list[int]
    checkpoints: list[int]
    states: list[StateSeries]


class Externalization(msgspec.Struct):
    """What remains of checkpoints when the job ends."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(msgspec.Struct):
    """Settings of checkpoints; an interval of 2^63 - 1 means that none is periodic."""

    mode: Literal["exactly_once", "at_least_once"]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str
    num_retained: int


class Duration(msgspec.Struct):
    """Milliseconds that a slot's phases took."""

    sync: int
    async_: int = msgspec.field(name="async")


class Alignment(msgspec.Struct):
    """Rows that the barrier overtook, in bytes."""

    persisted: int
    buffered: int = 0
    processed: int = 0
    duration: int = 0


class PendingSubtask(msgspec.Struct, tag_field="className", tag="pending", kw_only=True):
    """A slot that has not acknowledged."""

    index: int
    status: Literal["pending_or_failed"] = "pending_or_failed"


class CompletedSubtask(msgspec.Struct, tag_field="className", tag="completed", kw_only=True):
    """What a slot acknowledged."""

    index: int
    status: Literal["completed"] = "completed"
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: Duration
    alignment: Alignment
    start_delay: int = 0
    unaligned_checkpoint: bool
    aborted: bool = False


class DurationStats(msgspec.Struct):
    """Spread of the phases' durations."""

    sync: Stats
    async_: Stats = msgspec.field(name="async")


class AlignmentStats(msgspec.Struct):
    """Spread of what was overtaken."""

    buffered: Stats
    processed: Stats
    persisted: Stats
    duration: Stats


class TaskSummary(msgspec.Struct):
    """Spread over the subtasks that acknowledged."""

    checkpointed_size: Stats
    state_size: Stats
    end_to_end_duration: Stats
    checkpoint_duration: DurationStats
    alignment: AlignmentStats
    start_delay: Stats


class TaskCheckpointDetails(TaskCheckpoint, kw_only=True):
    """The part of one operator, subtask by subtask."""

    summary: TaskSummary
    subtasks: list[PendingSubtask | CompletedSubtask]
