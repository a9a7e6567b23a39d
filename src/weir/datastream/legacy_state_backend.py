"""State backends of the time when they also chose the checkpoint storage.

Each stands for a backend and a storage of today, which its deprecation warning names.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from weir.datastream.checkpoint_storage import (
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from weir.datastream.embedded_state_backend import (
    HashMapStateBackend,
    RocksDBOptionsMixin,
    StateBackend,
)

_SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"


def _warn(old: str, new: str) -> None:
    msg = f"{old} is deprecated: use {new}"
    warnings.warn(msg, DeprecationWarning, stacklevel=3)


class MemoryStateBackend(StateBackend):
    """State in memory, checkpoints in the driver's memory."""

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Choose `HashMapStateBackend` with `JobManagerCheckpointStorage`."""
        _warn("MemoryStateBackend", "HashMapStateBackend and JobManagerCheckpointStorage")
        self._storage = JobManagerCheckpointStorage(checkpoint_path, max_state_size)
        self._savepoint_path = savepoint_path
        self._asynchronous = using_asynchronous_snapshots is not False

    def get_max_state_size(self) -> int:
        """Return the largest size in bytes that one state may have."""
        return self._storage.get_max_state_size()

    def is_using_asynchronous_snapshots(self) -> bool:
        """Return what was asked for; snapshots are always written in the background."""
        return self._asynchronous

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        found = {**HashMapStateBackend().to_configuration(), **self._storage.to_configuration()}
        if self._savepoint_path is not None:
            found[_SAVEPOINT_DIR] = self._savepoint_path
        return found


class FsStateBackend(StateBackend):
    """State in memory, checkpoints in a directory."""

    def __init__(
        self,
        checkpoint_directory_uri: str | None = None,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Choose `HashMapStateBackend` with `FileSystemCheckpointStorage`."""
        _warn("FsStateBackend", "HashMapStateBackend and FileSystemCheckpointStorage")
        self._storage = FileSystemCheckpointStorage(
            checkpoint_directory_uri,
            file_state_size_threshold,
            -1 if write_buffer_size is None else write_buffer_size,
        )
        self._savepoint_directory = default_savepoint_directory_uri
        self._asynchronous = using_asynchronous_snapshots is not False

    def get_checkpoint_path(self) -> str:
        """Return the directory of checkpoints."""
        return self._storage.get_checkpoint_path()

    def get_min_file_size_threshold(self) -> int:
        """Return up to how many bytes a state goes into the metadata."""
        return self._storage.get_min_file_size_threshold()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are buffered before writing."""
        return self._storage.get_write_buffer_size()

    def is_using_asynchronous_snapshots(self) -> bool:
        """Return what was asked for; snapshots are always written in the background."""
        return self._asynchronous

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        found = {**HashMapStateBackend().to_configuration(), **self._storage.to_configuration()}
        if self._savepoint_directory is not None:
            found[_SAVEPOINT_DIR] = self._savepoint_directory
        return found


class RocksDBStateBackend(RocksDBOptionsMixin, StateBackend):
    """State in a local RocksDB, checkpoints in a directory."""

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        """Choose `EmbeddedRocksDBStateBackend` with the storage of a path or of a backend."""
        _warn("RocksDBStateBackend", "EmbeddedRocksDBStateBackend and FileSystemCheckpointStorage")
        super().__init__(enable_incremental_checkpointing)
        self._stream_backend = checkpoint_stream_backend
        self._storage = None
        if checkpoint_stream_backend is None:
            self._storage = FileSystemCheckpointStorage(checkpoint_data_uri)

    def get_checkpoint_backend(self) -> StateBackend | FileSystemCheckpointStorage | None:
        """Return what decides where checkpoints are kept."""
        return self._stream_backend or self._storage

    def set_number_of_transfering_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many threads move files to and from checkpoints."""
        self.set_number_of_transfer_threads(number_of_transfering_threads)

    def get_number_of_transfering_threads(self) -> int:
        """Return how many threads move files to and from checkpoints."""
        return self.get_number_of_transfer_threads()

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        storage = self._stream_backend or self._storage
        chosen = storage.to_configuration() if storage is not None else {}
        return {**chosen, **self.rocksdb_configuration()}
