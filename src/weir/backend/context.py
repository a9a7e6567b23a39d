"""What a backend is made from: the job's settings, and the place where it lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

from weir.backend.base import SharedFiles
from weir.clock import Clock, SystemClock
from weir.config.state_backends import DEFAULT_STATE_BACKEND
from weir.errors import UsageError
from weir.snapshot import FileHandle, SnapshotWriter


@dataclass(frozen=True)
class BackendSettings:
    """What a job says about its backends; `options` are values of `weir.config.backend` by key.

    With `one_key` records come key by key, and state is needed of one key at a time.
    """

    kind: str = DEFAULT_STATE_BACKEND
    incremental: bool = False
    changelog: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    one_key: bool = False


class NoSharedFiles:
    """For backends whose snapshots are always full."""

    def write(self, fill: Callable[[SnapshotWriter], Mapping[str, Any]]) -> NoReturn:
        """Refuse."""
        msg = "there is no place for files that checkpoints share: take full snapshots"
        raise UsageError(msg)

    def upload(self, local: Path) -> NoReturn:
        """Refuse."""
        self.write(lambda writer: {})

    def delete(self, handle: FileHandle) -> None:
        """Nothing was made."""


class BackgroundExecutor(Protocol):
    """Runs work beside the backend's thread; an `Executor` is one."""

    def submit(self, work: Callable[[], Any], /) -> Any:
        """Run something some time, and keep what it raises to itself."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more."""


@dataclass(frozen=True)
class BackendContext:
    """Where a backend lives: one operator of one subtask of one attempt.

    `local_dir` is where the slot may keep files as long as it lives, None for the system's
    temporary directory. `background` runs what nobody waits for, None for threads of the backend.
    `operator` is the operator's id, `operator_name` what people call it.
    """

    settings: BackendSettings = field(default_factory=BackendSettings)
    shared: SharedFiles = field(default_factory=NoSharedFiles)
    clock: Clock = field(default_factory=SystemClock)
    local_dir: Path | None = None
    operator: str = "operator"
    subtask: int = 0
    background: BackgroundExecutor | None = None
    operator_name: str = ""
