"""What can be seen of a running job, and what can be asked of it, without knowing the engine.

REST, the command line and tests speak to a `JobHandle`. Everything that takes time returns a future
at once; its error is a `WeirError` whose message is meant for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from weir.checkpoint.settings import CheckpointSettings
from weir.errors import UserFunctionError
from weir.jobmanager.backlog import Backlog
from weir.jobmanager.epoch_times import Arrivals, EpochTimesView
from weir.jobmanager.history import HistoryView
from weir.jobmanager.logs import LogFile
from weir.jobmanager.queries import JobQueries
from weir.jobmanager.timeline import TimelineView
from weir.runtime.metrics import SubtaskMetric
from weir.slot.stacks import Stack

SavepointFormat = Literal["CANONICAL", "NATIVE"]


@dataclass(frozen=True)
class SubtaskView:
    """What one subtask of an operator did in this attempt, and its watermark."""

    subtask: int
    records_in: int = 0
    records_out: int = 0
    watermark: int | None = None


@dataclass(frozen=True)
class VertexView:
    """One operator of the running program; level 0 runs beside the sources, in Spark itself.

    `inputs` are (id of the sending operator, how its rows are spread, such as "HASH"). `metrics`
    are those of its function. `subtasks` are those that have reported. `states` are the names of
    its states, as far as a checkpoint has told them. `watermark` is the lowest of its subtasks',
    None as long as it has none.
    """

    id: str
    uid: str | None
    name: str
    kind: str
    level: int
    parallelism: int
    max_parallelism: int
    inputs: tuple[tuple[str, str], ...] = ()
    records_in: int = 0
    records_out: int = 0
    metrics: tuple[SubtaskMetric, ...] = ()
    subtasks: tuple[SubtaskView, ...] = ()
    states: tuple[str, ...] = ()
    watermark: int | None = None


@dataclass(frozen=True)
class SlotView:
    """One slot process of the current execution attempt.

    What it has used is None until it said so: memory of now, and since it began processor time
    (`cpu_ms`) and the time in which it applied epochs (`busy_ms`).
    """

    subtask: int
    host: str
    pid: int | None
    ready: bool
    silent_ms: int = 0
    log_file: str = ""
    state_entries: int = 0
    watermark: int | None = None
    memory_bytes: int | None = None
    cpu_ms: int | None = None
    busy_ms: int | None = None


@dataclass(frozen=True)
class ExceptionView:
    """One failure of an execution attempt.

    If a user's function raised, `operator`, `record` and `traceback` are where.
    """

    timestamp_ms: int
    kind: str
    message: str
    attempt: int
    operator: str = ""
    record: str = ""
    traceback: str = ""


def exception_view(error: BaseException, now_ms: int, attempt: int) -> ExceptionView:
    """Return what people are told about a failure."""
    view = ExceptionView(now_ms, type(error).__name__, str(error), attempt)
    if not isinstance(error, UserFunctionError):
        return view
    return replace(
        view, operator=error.operator, record=error.record, traceback=error.user_traceback
    )


@dataclass(frozen=True)
class JobView:
    """A job at one moment; times are wall-clock milliseconds.

    `status` is a name of Flink's JobStatus. `configuration` are the settings in effect as text,
    secrets left out; `origins` tells where they were set. `arrivals` tell how long records take to
    each subtask.
    """

    job_id: str
    name: str
    status: str
    start_ms: int
    now_ms: int
    end_ms: int | None = None
    attempt: int = 0
    parallelism: int = 1
    max_parallelism: int = 128
    epoch: int | None = None
    vertices: tuple[VertexView, ...] = ()
    slots: tuple[SlotView, ...] = ()
    exceptions: tuple[ExceptionView, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    checkpoint_settings: CheckpointSettings = field(default_factory=CheckpointSettings)
    state_backend: str = "hashmap"
    checkpoint_dir: str | None = None
    savepoint_dir: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    epochs: EpochTimesView = field(default_factory=EpochTimesView)
    arrivals: tuple[Arrivals, ...] = ()


class JobHandle(Protocol):
    """One job, from any thread."""

    job_id: str
    queries: JobQueries | None
    """What answers queries about its state, None when they are switched off."""

    def view(self) -> JobView:
        """Return how the job is now."""

    def history(self) -> HistoryView:
        """Return what is known about its checkpoints."""

    def timeline(self) -> TimelineView:
        """Return how the job was over time."""

    def logs(self) -> list[LogFile]:
        """Return the logs of its slots on this host, the newest first."""

    def sources(self) -> Backlog:
        """Return how far its sources are behind, as far as that is known."""

    def stacks(self, subtask: int, duration_ms: int = 0) -> list[Stack]:
        """Return where the threads of a slot are, or were in a while if that is not zero.

        Raises:
            UsageError: there is no such slot now.
            WeirError: it cannot be asked.
        """

    def savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Take a savepoint below a directory (None: the default one); gives its path."""

    def stop(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        form: SavepointFormat = "CANONICAL",
    ) -> Future[str]:
        """Take a savepoint and finish the job with it; gives its path.

        With `drain` time goes to its end first: all timers fire, and the job cannot be resumed as
        if nothing had happened.
        """

    def cancel_with_savepoint(
        self, directory: str | None = None, form: SavepointFormat = "CANONICAL"
    ) -> Future[str]:
        """Take a savepoint, then cancel the job; without one the job goes on."""

    def checkpoint(self, *, full: bool = False) -> Future[int]:
        """Take a checkpoint now; gives its id."""

    def cancel(self) -> Future[None]:
        """Cancel the job; completes when it has ended."""

    def rescale(self, parallelism: int) -> Future[int]:
        """Go on with another parallelism; gives it. If that fails, the job goes on as it was."""
