"""Answers about jobs and their operators, with Flink's names.

What Flink has and Weir cannot know is there with Flink's own word for "unknown": -1, or a flag
that says that a count is not complete.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from weir.rest.operation_models import FailureCause, QueueStatus

JobId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
JobStatus = Literal[
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
]


class JobIdWithStatus(msgspec.Struct):
    """A job's id and status."""

    id: JobId
    status: JobStatus


class JobIds(msgspec.Struct):
    """All jobs, briefly."""

    jobs: list[JobIdWithStatus]


class StatusAnswer(msgspec.Struct):
    """A job's status."""

    status: JobStatus


class JobDetails(msgspec.Struct, rename="kebab"):
    """A job in the overview; `tasks` counts subtasks by state, in small letters, and `total`."""

    jid: JobId
    name: str
    start_time: int
    end_time: int
    duration: int
    state: JobStatus
    last_modification: int
    tasks: dict[str, int]
    job_type: Literal["STREAMING"] = msgspec.field(default="STREAMING", name="jobType")
    pending_operators: int = 0


class JobsOverview(msgspec.Struct):
    """All jobs."""

    jobs: list[JobDetails]


class IOMetrics(msgspec.Struct, rename="kebab"):
    """Records in and out; bytes are never counted."""

    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    read_bytes: int = 0
    read_bytes_complete: bool = False
    write_bytes: int = 0
    write_bytes_complete: bool = False


class SubtaskCounts(msgspec.Struct, rename="kebab"):
    """What one subtask of an operator did in this attempt, and its watermark."""

    subtask: int
    read_records: int
    write_records: int
    watermark: int | None


class JobVertex(msgspec.Struct, rename="kebab"):
    """An operator of a job; from `uid` on, fields are Weir's own.

    `states` are named once a checkpoint has told them, `subtasks` are those that have reported.
    `watermark` is the lowest of the subtasks'.
    """

    id: str
    name: str
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    tasks: dict[str, int]
    metrics: IOMetrics
    max_parallelism: int = msgspec.field(name="maxParallelism")
    uid: str | None = None
    level: int = 0
    kind: str = ""
    states: list[str] = []
    subtasks: list[SubtaskCounts] = []
    watermark: int | None = None


class PlanInput(msgspec.Struct):
    """An edge of the plan."""

    num: int
    id: str
    ship_strategy: str
    exchange: str = "pipelined_bounded"


class PlanNode(msgspec.Struct):
    """An operator in the plan."""

    id: str
    parallelism: int
    description: str
    operator: str = ""
    operator_strategy: str = ""
    inputs: list[PlanInput] = []
    optimizer_properties: dict[str, str] = {}


class Plan(msgspec.Struct):
    """The graph of a job."""

    jid: JobId
    name: str
    nodes: list[PlanNode]
    type: Literal["STREAMING"] = "STREAMING"


class PlanAnswer(msgspec.Struct):
    """The graph of a job, wrapped as Flink does."""

    plan: Plan


class JobInfo(msgspec.Struct, rename="kebab"):
    """Everything about a job; what is below `pending-operators` is Weir's own."""

    jid: JobId
    name: str
    state: JobStatus
    start_time: int
    end_time: int
    duration: int
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertex]
    status_counts: dict[str, int]
    plan: Plan
    max_parallelism: int = msgspec.field(name="maxParallelism")
    stoppable: bool = msgspec.field(default=False, name="isStoppable")
    job_type: Literal["STREAMING"] = "STREAMING"
    pending_operators: int = 0
    parallelism: int = 1
    attempt: int = 0
    epoch: int | None = None
    savepoint_directory: str | None = None
    queries: bool = False


class ExecutionConfig(msgspec.Struct, rename="kebab"):
    """Settings of an execution."""

    restart_strategy: str
    job_parallelism: int
    user_config: dict[str, str]
    execution_mode: str = "PIPELINED"
    object_reuse_mode: bool = False


class JobConfig(msgspec.Struct, rename="kebab"):
    """Settings of a job; `configuration` is Weir's own: all of them, secrets hidden.

    `origins` tells by key where each of them was set.
    """

    jid: JobId
    name: str
    execution_config: ExecutionConfig
    configuration: dict[str, str]
    origins: dict[str, str] = {}


class ExceptionEntry(msgspec.Struct, rename="camel"):
    """One failure of an execution attempt; `stacktrace` is the message for people.

    If a user's function raised, `taskName` is its operator, and `record` and `userTraceback`,
    which are Weir's own, are what it was given and where it raised.
    """

    exception_name: str
    stacktrace: str
    timestamp: int
    attempt: int
    failure_labels: dict[str, str] = {}
    concurrent_exceptions: list[str] = []
    task_name: str | None = None
    record: str | None = None
    user_traceback: str | None = None


class ExceptionHistory(msgspec.Struct):
    """Failures, newest first."""

    entries: list[ExceptionEntry]
    truncated: bool


class JobExceptions(msgspec.Struct, rename="kebab"):
    """Failures of a job; the fields beside the history are those of Flink before 2.0."""

    root_exception: str | None
    timestamp: int | None
    truncated: bool
    exception_history: ExceptionHistory = msgspec.field(name="exceptionHistory")
    all_exceptions: list[ExceptionEntry] = []


class JobResult(msgspec.Struct, rename="kebab", omit_defaults=True):
    """How a job ended."""

    id: JobId
    application_status: Literal["SUCCEEDED", "FAILED", "CANCELED"]
    net_runtime: int
    accumulator_results: dict[str, str] = msgspec.field(default_factory=dict)
    failure_cause: FailureCause | None = None


class ExecutionResult(msgspec.Struct, rename="kebab", omit_defaults=True):
    """How a job ended, once it has."""

    status: QueueStatus
    job_execution_result: JobResult | None = None


class Subtask(msgspec.Struct, rename="kebab"):
    """One subtask of an operator; level 0 runs in Spark's workers and has no slot."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IOMetrics
    taskmanager_id: str
    status_duration: dict[str, int] = {}


class VertexInfo(msgspec.Struct):
    """An operator with its subtasks."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: list[Subtask]
