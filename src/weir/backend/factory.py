"""From settings to a keyed backend: the one place that knows which backends there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from weir.backend.base import KeyedBackend, SharedFiles
from weir.backend.changelog.backend import Background, ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.changelog.source import ChangeSource
from weir.backend.hashmap import HashMapBackend
from weir.clock import Clock, SystemClock
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.snapshot import FileHandle, SnapshotWriter


@dataclass(frozen=True)
class BackendSettings:
    """What a job says about its backends; `options` are values of `weir.config.backend` by key."""

    kind: str = "hashmap"
    incremental: bool = False
    changelog: bool = False
    options: dict[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True)
class BackendContext:
    """Where a backend lives: one operator of one subtask of one attempt.

    `local_dir` is where the slot may keep files as long as it lives, None for the system's
    temporary directory. `background` runs what nobody waits for, None for threads of the backend.
    """

    settings: BackendSettings = field(default_factory=BackendSettings)
    shared: SharedFiles = field(default_factory=NoSharedFiles)
    clock: Clock = field(default_factory=SystemClock)
    local_dir: Path | None = None
    operator: str = "operator"
    subtask: int = 0
    background: Background | None = None


def create_backend(
    context: BackendContext, key_type: Any, key_groups: KeyGroupRange
) -> KeyedBackend:
    """Create the empty keyed backend that the settings name.

    Raises:
        UsageError: there is no backend of that name.
    """
    settings = context.settings
    kind = settings.kind
    if kind == "hashmap":
        tracked = settings.incremental or settings.changelog
        hashmap = HashMapBackend(key_type, key_groups, tracked=tracked)
        return with_changelog(hashmap, context) if settings.changelog else hashmap
    if kind == "rocksdb":
        # Imported here: programs without it need not have its package.
        from weir.backend.rocksdb import RocksDBBackend, TrackedRocksDBBackend

        if settings.changelog:
            return with_changelog(TrackedRocksDBBackend(context, key_type, key_groups), context)
        return RocksDBBackend(context, key_type, key_groups)
    msg = f"state.backend.type {kind!r} is not available: there are 'hashmap' and 'rocksdb'"
    raise UsageError(msg)


def with_changelog(inner: ChangeSource, context: BackendContext) -> ChangelogBackend:
    """Log the changes of a backend that can tell what changed."""
    settings = ChangelogSettings.of(context.settings.options)
    place = ChangelogPlace(context.shared, context.clock, settings, context.operator)
    return ChangelogBackend(inner, place, context.background)
