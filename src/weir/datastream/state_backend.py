"""Where working state is kept, as values that turn into configuration.

The engine reads only the configuration; a backend object is a spelling of some of its keys. The
older backends also chose a checkpoint storage: each stands for a backend and a storage of today,
which its deprecation warning names.
"""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any, ClassVar

from weir.config.directories import local_directories
from weir.config.state_backends import HASHMAP, ROCKSDB
from weir.datastream._checks import require_type
from weir.datastream._java_arguments import Parameter, arguments
from weir.datastream.checkpoint_storage import (
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from weir.errors import UsageError

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
]

_SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"


class StateBackend:
    """Base of the places where working state is kept.

    Example:
        backend: StateBackend = HashMapStateBackend()
        env.set_state_backend(backend)
    """

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {}


class HashMapStateBackend(StateBackend):
    """State as Python objects in memory: fastest, bounded by memory. The default.

    Example:
        env.set_state_backend(HashMapStateBackend())
    """

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {"state.backend.type": HASHMAP.name}

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return "HashMapStateBackend()"


class PredefinedOptions(Enum):
    """Sets of RocksDB options for kinds of disks.

    Example:
        backend = EmbeddedRocksDBStateBackend()
        backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    """

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class _RocksDBOptions:
    """The RocksDB settings that the current and the older backend share."""

    def __init__(self, enable_incremental_checkpointing: bool | None) -> None:
        """Start with RocksDB's defaults."""
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] = ()
        self._predefined: PredefinedOptions | None = None
        self._options_factory: str | None = None
        self._transfer_threads: int | None = None

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories of the databases; without any, the temporary ones.

        Raises:
            UsageError: one is empty, relative, or a URI with another scheme than `file`.
        """
        if any(not path for path in paths):
            msg = f"RocksDB storage paths must not be empty, found {paths!r}"
            raise UsageError(msg)
        self._paths = tuple(
            local
            for path in paths
            for local in local_directories(str(path), "set_db_storage_paths")
        )

    def get_db_storage_paths(self) -> list[str]:
        """Return the local directories of the databases."""
        return list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Tell whether checkpoints share unchanged files with earlier ones."""
        return bool(self._incremental)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Choose a set of options for a kind of disk."""
        require_type(options, PredefinedOptions, "one of PredefinedOptions")
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the chosen set of options."""
        return self._predefined or PredefinedOptions.DEFAULT

    def set_options(self, options_factory_class_name: str) -> None:
        """Choose a function that changes the options, as 'module:function'."""
        self._options_factory = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the function that changes the options, as 'module:function'."""
        return self._options_factory

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many threads move files to and from checkpoints."""
        if number_of_transfering_threads < 1:
            msg = f"RocksDB needs at least 1 transfer thread, found {number_of_transfering_threads}"
            raise UsageError(msg)
        self._transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """Return how many threads move files to and from checkpoints."""
        return self._transfer_threads or 4

    def rocksdb_configuration(self) -> dict[str, Any]:
        """Return the configuration of what was set."""
        found: dict[str, Any] = {"state.backend.type": ROCKSDB.name}
        if self._incremental is not None:
            found["execution.checkpointing.incremental"] = self._incremental
        if self._paths:
            found["state.backend.rocksdb.localdir"] = ",".join(self._paths)
        if self._predefined is not None:
            found["state.backend.rocksdb.predefined-options"] = self._predefined.name
        if self._options_factory is not None:
            found["state.backend.rocksdb.options-factory"] = self._options_factory
        if self._transfer_threads is not None:
            found["state.backend.rocksdb.checkpoint.transfer.thread.num"] = self._transfer_threads
        return found


class EmbeddedRocksDBStateBackend(_RocksDBOptions, StateBackend):
    """State in a local RocksDB: larger than memory. Needs `weir-spark[rocksdb]` on all hosts.

    Example:
        env.set_state_backend(EmbeddedRocksDBStateBackend(True))
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        """Choose RocksDB; None leaves incremental checkpoints to the configuration."""
        super().__init__(enable_incremental_checkpointing)

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return self.rocksdb_configuration()

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"EmbeddedRocksDBStateBackend({self._incremental!r})"


class CustomStateBackend(StateBackend):
    """A backend of the user's own, or any other, by its value of `state.backend.type`.

    Example:
        env.set_state_backend(CustomStateBackend("hashmap"))
    """

    def __init__(self, name: str) -> None:
        """Choose a backend by the path of its provider, its entry point or its name."""
        self.name = name

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {"state.backend.type": self.name}


_PATH = Parameter("checkpoint_path", "path")
_SAVEPOINTS = Parameter("savepoint_path", "path")
_SIZE = Parameter("max_state_size", "number")
_ASYNCHRONOUS = Parameter("using_asynchronous_snapshots", "switch")
_DIRECTORY = Parameter("checkpoint_directory_uri", "path")
_DEFAULT_SAVEPOINTS = Parameter("default_savepoint_directory_uri", "path")
_THRESHOLD = Parameter("file_state_size_threshold", "number")
_BUFFER = Parameter("write_buffer_size", "number")
_MEMORY_FORMS = ((_ASYNCHRONOUS,), (_SIZE,), (_SIZE, _ASYNCHRONOUS))
_FS_FORMS = (
    (_DIRECTORY, _ASYNCHRONOUS),
    (_DIRECTORY, _THRESHOLD),
    (_DIRECTORY, _THRESHOLD, _ASYNCHRONOUS),
    (_DIRECTORY, _THRESHOLD, _BUFFER, _ASYNCHRONOUS),
)


def _warn(old: str, new: str) -> None:
    msg = f"{old} is deprecated: use {new}"
    warnings.warn(msg, DeprecationWarning, stacklevel=3)


class MemoryStateBackend(StateBackend):
    """State in memory, checkpoints in the driver's memory.

    Example:
        env.set_state_backend(MemoryStateBackend())
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Choose `HashMapStateBackend` with `JobManagerCheckpointStorage`.

        Java's `MemoryStateBackend(max_state_size, asynchronous)` is understood too.

        Raises:
            UsageError: the arguments are in neither order.
        """
        _warn("MemoryStateBackend", "HashMapStateBackend and JobManagerCheckpointStorage")
        found = arguments(
            "MemoryStateBackend",
            (checkpoint_path, savepoint_path, max_state_size, using_asynchronous_snapshots),
            (_PATH, _SAVEPOINTS, _SIZE, _ASYNCHRONOUS),
            _MEMORY_FORMS,
        )
        self._storage = JobManagerCheckpointStorage(found[_PATH.name], found[_SIZE.name])
        self._savepoint_path = found[_SAVEPOINTS.name]
        self._asynchronous = found[_ASYNCHRONOUS.name] is not False

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
    """State in memory, checkpoints in a directory.

    Example:
        env.set_state_backend(FsStateBackend("file:///checkpoints"))
    """

    def __init__(
        self,
        checkpoint_directory_uri: str | None = None,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Choose `HashMapStateBackend` with `FileSystemCheckpointStorage`.

        Java's `FsStateBackend(path, asynchronous)`, `(path, threshold)`, `(path, threshold,
        asynchronous)` and `(path, threshold, buffer, asynchronous)` are understood too.

        Raises:
            UsageError: the arguments are in no such order.
        """
        _warn("FsStateBackend", "HashMapStateBackend and FileSystemCheckpointStorage")
        given = (
            checkpoint_directory_uri,
            default_savepoint_directory_uri,
            file_state_size_threshold,
            write_buffer_size,
            using_asynchronous_snapshots,
        )
        order = (_DIRECTORY, _DEFAULT_SAVEPOINTS, _THRESHOLD, _BUFFER, _ASYNCHRONOUS)
        found = arguments("FsStateBackend", given, order, _FS_FORMS)
        buffer = found[_BUFFER.name]
        self._storage = FileSystemCheckpointStorage(
            found[_DIRECTORY.name], found[_THRESHOLD.name], -1 if buffer is None else buffer
        )
        self._savepoint_directory = found[_DEFAULT_SAVEPOINTS.name]
        self._asynchronous = found[_ASYNCHRONOUS.name] is not False

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


class RocksDBStateBackend(_RocksDBOptions, StateBackend):
    """State in a local RocksDB, checkpoints in a directory.

    Example:
        env.set_state_backend(RocksDBStateBackend("file:///checkpoints"))
    """

    def __init__(
        self,
        checkpoint_data_uri: str | StateBackend | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        """Choose `EmbeddedRocksDBStateBackend` with the storage of a path or of a backend.

        As in Java, a backend may stand in the place of the path.

        Raises:
            UsageError: an argument is neither.
        """
        _warn("RocksDBStateBackend", "EmbeddedRocksDBStateBackend and FileSystemCheckpointStorage")
        uri, incremental = checkpoint_data_uri, enable_incremental_checkpointing
        if isinstance(uri, StateBackend) and checkpoint_stream_backend is None:
            uri, checkpoint_stream_backend = None, uri
        _check_rocksdb(uri, incremental, checkpoint_stream_backend)
        super().__init__(incremental)
        if checkpoint_stream_backend is None:
            with warnings.catch_warnings():  # of the one that was called
                warnings.simplefilter("ignore", DeprecationWarning)
                checkpoint_stream_backend = FsStateBackend(None if uri is None else str(uri))
        self._stream_backend = checkpoint_stream_backend

    def get_checkpoint_backend(self) -> StateBackend:
        """Return the backend that decides where checkpoints are kept."""
        return self._stream_backend

    def set_number_of_transfering_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many threads move files to and from checkpoints."""
        self.set_number_of_transfer_threads(number_of_transfering_threads)

    def get_number_of_transfering_threads(self) -> int:
        """Return how many threads move files to and from checkpoints."""
        return self.get_number_of_transfer_threads()

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {**self._stream_backend.to_configuration(), **self.rocksdb_configuration()}


def _check_rocksdb(uri: Any, incremental: Any, backend: Any) -> None:
    fits = (
        uri is None or Parameter("checkpoint_data_uri", "path").fits(uri),
        incremental is None or isinstance(incremental, bool),
        backend is None or isinstance(backend, StateBackend),
    )
    if not all(fits):
        msg = (
            f"found RocksDBStateBackend({uri!r}, {incremental!r}, {backend!r}), expected a path or "
            "a StateBackend, then True or False for incremental checkpoints"
        )
        raise UsageError(msg)
