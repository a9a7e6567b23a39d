"""Where working state is kept, as values that turn into configuration.

The engine reads only the configuration; a backend object is a spelling of some of its keys. The
backends that also chose a checkpoint storage live in `legacy_state_backend`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from weir.datastream.argument import require_type
from weir.errors import UsageError


class StateBackend:
    """Base of the places where working state is kept."""

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {}


class HashMapStateBackend(StateBackend):
    """State as Python objects in memory: fastest, bounded by memory. The default."""

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {"state.backend.type": "hashmap"}

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return "HashMapStateBackend()"


class PredefinedOptions(Enum):
    """Sets of RocksDB options for kinds of disks."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class RocksDBOptionsMixin:
    """The RocksDB settings that the current and the older backend share."""

    def __init__(self, enable_incremental_checkpointing: bool | None) -> None:
        """Start with RocksDB's defaults."""
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] = ()
        self._predefined: PredefinedOptions | None = None
        self._options_factory: str | None = None
        self._transfer_threads: int | None = None

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories of the databases; without any, the temporary ones."""
        if any(not path for path in paths):
            msg = f"RocksDB storage paths must not be empty, found {paths!r}"
            raise UsageError(msg)
        self._paths = paths

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
        found: dict[str, Any] = {"state.backend.type": "rocksdb"}
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


class EmbeddedRocksDBStateBackend(RocksDBOptionsMixin, StateBackend):
    """State in a local RocksDB: larger than memory. Needs `weir-spark[rocksdb]` on all hosts."""

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
    """A backend named by its configuration value; the engine refuses names it does not know."""

    def __init__(self, name: str) -> None:
        """Choose a backend by name."""
        self.name = name

    def to_configuration(self) -> dict[str, Any]:
        """Return the configuration that this object stands for."""
        return {"state.backend.type": self.name}
