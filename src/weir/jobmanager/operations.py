"""What can be seen of a running job, and what can be asked of it, without knowing the engine.

REST, the command line and tests speak to a `JobHandle`. Everything that takes time returns a future
at once; its error is a `WeirError` whose message is meant for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol

from weir.checkpoint.settings import CheckpointSettings
from weir.jobmanager.history import HistoryView
from weir.runtime.metrics import SubtaskMetric

SavepointFormat = Literal["CANONICAL", "NATIVE"]


@dataclass(frozen=True)
class VertexView:
    """One operator of the running program; level 0 runs beside the sources, in Spark itself.

    `inputs` are (id of the sending operator, how its rows are spread, such as "HASH"). `metrics`
    are those of its function.
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


@dataclass(frozen=True)
class SlotView:
    """One slot process of the current execution attempt."""

    subtask: int
    host: str
    pid: int | None
    ready: bool
    silent_ms: int = 0
    log_file: str = ""
    state_entries: int = 0
    watermark: int | None = None


@dataclass(frozen=True)
class ExceptionView:
    """One failure of an execution attempt."""

    timestamp_ms: int
    kind: str
    message: str
    attempt: int


@dataclass(frozen=True)
class JobView:
    """A job at one moment; times are wall-clock milliseconds.

    `status` is a name of Flink's JobStatus. `configuration` are the settings in effect as text,
    secrets left out.
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


class JobHandle(Protocol):
    """One job, from any thread."""

    job_id: str

    def view(self) -> JobView:
        """Return how the job is now."""

    def history(self) -> HistoryView:
        """Return what is known about its checkpoints."""

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
