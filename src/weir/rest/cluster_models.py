"""Answers about the process and its slots, and metrics, with Flink's names."""

from __future__ import annotations

import msgspec


class Features(msgspec.Struct, rename="kebab"):
    """What a web front end could do."""

    web_submit: bool = False
    web_cancel: bool = True
    web_rescale: bool = True
    web_history: bool = False


class Dashboard(msgspec.Struct, rename="kebab"):
    """Settings of a web front end; the version is Weir's."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


class Overview(msgspec.Struct, rename="kebab"):
    """Counts of slots and jobs; every slot belongs to a job, so none is available."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class Setting(msgspec.Struct):
    """One setting."""

    key: str
    value: str


class Resource(msgspec.Struct, rename="camel"):
    """Resources of a slot; Weir reserves none."""

    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(msgspec.Struct, rename="camel"):
    """The machine of a slot; 0 is unknown."""

    cpu_cores: int = 0
    physical_memory: int = 0
    free_memory: int = 0
    managed_memory: int = 0


class TaskManager(msgspec.Struct, rename="camel", kw_only=True):
    """A slot process; what is below `blocked` is Weir's own.

    `timeSinceLastHeartbeat` is the time of the last sign of life, as in Flink. What a slot has used
    is null until it said so: memory of now, processor time and time with records since it began.
    """

    id: str
    path: str
    data_port: int = 0
    jmx_port: int = -1
    time_since_last_heartbeat: int
    slots_number: int = 1
    free_slots: int = 0
    assigned_tasks: int
    total_resource: Resource = msgspec.field(default_factory=Resource)
    free_resource: Resource = msgspec.field(default_factory=Resource)
    hardware: Hardware = msgspec.field(default_factory=Hardware)
    blocked: bool = False
    host: str
    pid: int | None
    ready: bool
    job_id: str
    subtask: int
    state_entries: int
    watermark: int | None
    memory_bytes: int | None = None
    cpu_ms: int | None = None
    busy_ms: int | None = None


class TaskManagers(msgspec.Struct):
    """All slot processes."""

    taskmanagers: list[TaskManager]


class AllocatedSlot(msgspec.Struct, rename="camel"):
    """The job in a slot."""

    job_id: str
    assigned_tasks: int
    resource: Resource = msgspec.field(default_factory=Resource)


class TaskManagerDetails(TaskManager, rename="camel", kw_only=True):
    """A slot process with what runs in it."""

    allocated_slots: list[AllocatedSlot]


class Metric(msgspec.Struct, omit_defaults=True):
    """A metric; its value only if it was asked for."""

    id: str
    value: str | None = None


class AggregatedMetric(msgspec.Struct, omit_defaults=True):
    """A metric over subtasks; only what is known and was asked for."""

    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None
