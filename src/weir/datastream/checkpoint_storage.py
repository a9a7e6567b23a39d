"""Where checkpoints are kept, as values that turn into configuration.

The engine reads only the configuration; a storage object is a spelling of some of its keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

from weir.datastream._checks import require_type
from weir.errors import UsageError

__all__ = [
    "CheckpointStorage",
    "CustomCheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
]


def without_last_slash(path: str) -> str:
    """Return a path or URI without slashes at its end, as Flink does; a root keeps its own."""
    kept = path.rstrip("/")
    return path if not kept or kept.endswith(":") else kept


class CheckpointStorage:
    """Base of the places where checkpoints are kept.

    Example:
        storage: CheckpointStorage = FileSystemCheckpointStorage("file:///checkpoints")
        env.get_checkpoint_config().set_checkpoint_storage(storage)
    """

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {}


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the driver's memory: for trying things, gone with the driver.

    Example:
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 * 1024 * 1024

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        """Keep checkpoints in memory; savepoints and metadata go to the path, if given."""
        if max_state_size is not None and max_state_size <= 0:
            msg = f"max_state_size must be greater than 0, found {max_state_size!r}"
            raise UsageError(msg)
        self._checkpoint_path = checkpoint_path
        self._max_state_size = max_state_size or self.DEFAULT_MAX_STATE_SIZE

    def get_checkpoint_path(self) -> str | None:
        """Return the path for metadata, None when there is none."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return the default savepoint path; always None, it is set in the environment."""
        return None

    def get_max_state_size(self) -> int:
        """Return the largest size in bytes that one state may have."""
        return self._max_state_size

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        found: dict[str, Any] = {"execution.checkpointing.storage": "jobmanager"}
        if self._checkpoint_path is not None:
            found["execution.checkpointing.dir"] = self._checkpoint_path
        if self._max_state_size != self.DEFAULT_MAX_STATE_SIZE:
            found["weir.checkpoint.jobmanager-max-state-size"] = f"{self._max_state_size} b"
        return found

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return (
            f"JobManagerCheckpointStorage(checkpoint_path={self._checkpoint_path!r}, "
            f"max_state_size={self._max_state_size!r})"
        )


class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints in a directory that driver and executors share.

    Example:
        storage = FileSystemCheckpointStorage("file:///checkpoints")
        env.get_checkpoint_config().set_checkpoint_storage(storage)
    """

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        """Keep checkpoints under a path or URI.

        Args:
            checkpoint_path: the directory; a job makes its own directory in it.
            file_state_size_threshold: states up to this many bytes go into the metadata.
            write_buffer_size: bytes to buffer before writing, -1 for the default.
        """
        if not checkpoint_path:
            msg = "FileSystemCheckpointStorage needs the path of a directory, found none"
            raise UsageError(msg)
        limit = self.MAX_FILE_STATE_THRESHOLD
        threshold = file_state_size_threshold
        if threshold is not None and not 0 <= threshold <= limit:
            msg = f"file_state_size_threshold must be between 0 and {limit}, found {threshold!r}"
            raise UsageError(msg)
        if write_buffer_size < -1:
            msg = f"write_buffer_size must be -1 or at least 0, found {write_buffer_size!r}"
            raise UsageError(msg)
        self._checkpoint_path = without_last_slash(str(checkpoint_path))
        self._threshold = threshold
        self._write_buffer_size = write_buffer_size

    def get_checkpoint_path(self) -> str:
        """Return the directory."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return the default savepoint path; always None, it is set in the environment."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """Return up to how many bytes a state goes into the metadata."""
        return 20 * 1024 if self._threshold is None else self._threshold

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are buffered before writing."""
        return 4096 if self._write_buffer_size < 0 else self._write_buffer_size

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        found: dict[str, Any] = {
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": self._checkpoint_path,
        }
        if self._threshold is not None:
            found["execution.checkpointing.data-inline-threshold"] = f"{self._threshold} b"
        if self._write_buffer_size >= 0:
            found["execution.checkpointing.write-buffer-size"] = self._write_buffer_size
        return found

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"FileSystemCheckpointStorage({self._checkpoint_path!r})"


class CustomCheckpointStorage(CheckpointStorage):
    """A storage named by its configuration value; the engine refuses names it does not know.

    Example:
        CustomCheckpointStorage("filesystem").to_configuration()
    """

    def __init__(self, name: str) -> None:
        """Choose a storage by name."""
        self.name = name

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {"execution.checkpointing.storage": self.name}


def as_checkpoint_storage(storage: CheckpointStorage | str) -> CheckpointStorage:
    """Return a storage object; a string is the path of a directory.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(storage, CheckpointStorage):
        return storage
    require_type(storage, str, "a CheckpointStorage or a path")
    return FileSystemCheckpointStorage(storage)
