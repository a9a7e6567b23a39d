"""Settings of RocksDB: from the configuration to rocksdict's options.

Memory is one budget for all databases of the process: block cache and write buffers are charged to
the same cache, in the proportions that Flink uses. A predefined set of options comes first; what
the configuration says otherwise than its default comes on top; an options factory has the last
word.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from weir.config import backend as conf
from weir.config.checkpointing import (
    FILE_MERGING,
    FILE_MERGING_MAX_AMPLIFICATION,
    FILE_MERGING_MAX_FILE_SIZE,
)
from weir.config.option import ConfigOption
from weir.errors import UsageError

MB = 1 << 20
DEFAULT_BUDGET = 64 * MB
_MIN_BATCH = 64 << 10
_MAX_BATCH = 2 * MB
_OBJECTS_PART = 8
_TINY_FILE = 64 << 10
_SMALL_FILE = 4 * MB

_SPINNING = {conf.ROCKSDB_DYNAMIC_LEVELS: True, conf.ROCKSDB_THREADS: 4}
_PREDEFINED: dict[str, dict[ConfigOption, Any]] = {
    "DEFAULT": {},
    "SPINNING_DISK_OPTIMIZED": _SPINNING,
    "SPINNING_DISK_OPTIMIZED_HIGH_MEM": {
        **_SPINNING,
        conf.ROCKSDB_TARGET_FILE_SIZE: 256 * MB,
        conf.ROCKSDB_LEVEL_BASE: 1024 * MB,
        conf.ROCKSDB_WRITE_BUFFER_MERGE: 3,
        conf.ROCKSDB_WRITE_BUFFERS: 4,
        conf.ROCKSDB_WRITE_BUFFER_SIZE: 64 * MB,
        conf.ROCKSDB_BLOCK_CACHE: 256 * MB,
        conf.ROCKSDB_BLOCK_SIZE: 128 << 10,
        conf.ROCKSDB_BLOOM_FILTER: True,
    },
    "FLASH_SSD_OPTIMIZED": {conf.ROCKSDB_THREADS: 4},
}


@dataclass(frozen=True)
class RocksDBSettings:
    """What the configuration says; `values` are those of `weir.config.backend` by key."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def get(self, option: ConfigOption) -> Any:
        """Return a value: what was set, else the predefined one, else the default."""
        found = self.values.get(option.key, option.default)
        if found != option.default or option is conf.ROCKSDB_PREDEFINED:
            return found
        chosen = self.values.get(conf.ROCKSDB_PREDEFINED.key, conf.ROCKSDB_PREDEFINED.default)
        return _PREDEFINED[chosen].get(option, found)

    @property
    def budget(self) -> int | None:
        """Return the memory of all databases of the process, None for no common limit."""
        fixed = self.get(conf.ROCKSDB_FIXED_PER_SLOT) or self.get(conf.ROCKSDB_FIXED_PER_HOST)
        if fixed:
            return int(fixed)
        return DEFAULT_BUDGET if self.get(conf.ROCKSDB_MANAGED_MEMORY) else None

    @property
    def object_bytes(self) -> int:
        """Return how much memory decoded objects of one backend may take, about."""
        return (self.budget or DEFAULT_BUDGET) // _OBJECTS_PART

    @property
    def batch_bytes(self) -> int:
        """Return the size from which a write batch is written."""
        size = int(self.get(conf.ROCKSDB_WRITE_BATCH)) or _MAX_BATCH
        return max(_MIN_BATCH, min(size, _MAX_BATCH))

    @property
    def transfer_threads(self) -> int:
        """Return how many files are copied at a time."""
        return max(1, int(self.get(conf.ROCKSDB_TRANSFER_THREADS)))

    @property
    def heap_timers(self) -> bool:
        """Tell whether timers are kept in memory."""
        return bool(self.get(conf.ROCKSDB_TIMERS) == "HEAP")

    @property
    def merged_below(self) -> int:
        """Return the size below which the new files of a checkpoint are put into one.

        Tiny ones always are: they would cost more as objects of a storage than as bytes.
        """
        return _SMALL_FILE if self.values.get(FILE_MERGING.key) else _TINY_FILE

    @property
    def merged_bytes(self) -> int:
        """Return the largest size of a merged file."""
        return int(
            self.values.get(FILE_MERGING_MAX_FILE_SIZE.key, FILE_MERGING_MAX_FILE_SIZE.default)
        )

    @property
    def space_amplification(self) -> float:
        """Return how much space a merged file may take per byte in use."""
        option = FILE_MERGING_MAX_AMPLIFICATION
        return float(self.values.get(option.key, option.default))

    def options(self) -> Any:
        """Return new options for a database or a column family.

        Raises:
            UsageError: a compression has no such name, or the options factory is unusable.
        """
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        self._set_database(options)
        self._set_levels(rocksdict, options)
        self._set_memory(rocksdict, options)
        return self._custom(options)

    def _set_database(self, options: Any) -> None:
        options.set_max_background_jobs(max(2, int(self.get(conf.ROCKSDB_THREADS))))
        options.set_max_open_files(int(self.get(conf.ROCKSDB_OPEN_FILES)))
        options.set_max_log_file_size(int(self.get(conf.ROCKSDB_LOG_FILE_SIZE)))
        options.set_keep_log_file_num(max(1, int(self.get(conf.ROCKSDB_LOG_FILES))))
        options.set_use_fsync(False)
        options.set_stats_dump_period_sec(0)
        directory = self.get(conf.ROCKSDB_LOG_DIR)
        if directory:
            options.set_db_log_dir(str(directory))

    def _set_levels(self, module: Any, options: Any) -> None:
        style = self.get(conf.ROCKSDB_COMPACTION_STYLE)
        if style == "NONE":
            options.set_disable_auto_compactions(True)
        else:
            options.set_compaction_style(getattr(module.DBCompactionStyle, style.lower())())
        options.set_level_compaction_dynamic_level_bytes(self.get(conf.ROCKSDB_DYNAMIC_LEVELS))
        options.set_target_file_size_base(int(self.get(conf.ROCKSDB_TARGET_FILE_SIZE)))
        options.set_max_bytes_for_level_base(int(self.get(conf.ROCKSDB_LEVEL_BASE)))
        options.set_write_buffer_size(int(self.get(conf.ROCKSDB_WRITE_BUFFER_SIZE)))
        options.set_max_write_buffer_number(int(self.get(conf.ROCKSDB_WRITE_BUFFERS)))
        options.set_min_write_buffer_number_to_merge(int(self.get(conf.ROCKSDB_WRITE_BUFFER_MERGE)))
        levels = [_compression(module, name) for name in _names(self.get(conf.ROCKSDB_COMPRESSION))]
        if len(levels) == 1:
            options.set_compression_type(levels[0])
        elif levels:
            options.set_compression_per_level(levels)

    def _set_memory(self, module: Any, options: Any) -> None:
        table = module.BlockBasedOptions()
        table.set_block_size(int(self.get(conf.ROCKSDB_BLOCK_SIZE)))
        table.set_metadata_block_size(int(self.get(conf.ROCKSDB_METADATA_BLOCK_SIZE)))
        if self.get(conf.ROCKSDB_BLOOM_FILTER):
            bits = int(self.get(conf.ROCKSDB_BLOOM_BITS))
            table.set_bloom_filter(bits, bool(self.get(conf.ROCKSDB_BLOOM_BLOCK_BASED)))
        budget = self.budget
        if budget is None:
            table.set_block_cache(module.Cache(int(self.get(conf.ROCKSDB_BLOCK_CACHE))))
        else:
            ratio = float(self.get(conf.ROCKSDB_WRITE_BUFFER_RATIO))
            memory = shared_memory(budget, ratio)
            table.set_block_cache(memory.cache)
            table.set_cache_index_and_filter_blocks(True)
            table.set_pin_l0_filter_and_index_blocks_in_cache(True)
            options.set_write_buffer_manager(memory.buffers)
            options.set_arena_block_size(max(16 << 10, min(MB, memory.buffer_bytes // 64)))
        if self.get(conf.ROCKSDB_PARTITIONED_INDEX):
            table.set_index_type(module.BlockBasedIndexType.two_level_index_search())
            table.set_partition_filters(True)
            table.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(table)

    def _custom(self, options: Any) -> Any:
        name = self.get(conf.ROCKSDB_OPTIONS_FACTORY)
        if not name:
            return options
        module, _, function = str(name).partition(":")
        try:
            change = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as e:
            msg = (
                f"configuration {conf.ROCKSDB_OPTIONS_FACTORY.key!r}: found {name!r}, expected "
                f"'module:function' of a function that takes rocksdict.Options ({e})"
            )
            raise UsageError(msg) from e
        return change(options) or options


@dataclass(frozen=True)
class SharedMemory:
    """The memory that all databases of the process share."""

    cache: Any
    buffers: Any
    buffer_bytes: int


@lru_cache(maxsize=4)
def shared_memory(budget: int, write_buffer_ratio: float) -> SharedMemory:
    """Return the memory of a budget, the same whenever the process asks for it.

    Write buffers may exceed what the manager allows by half before they are flushed, so that the
    allowance is two thirds of their part and the cache leaves the remaining third.
    """
    import rocksdict

    cache = rocksdict.Cache(int((3 - write_buffer_ratio) * budget / 3))
    buffer_bytes = max(1, int(2 * budget * write_buffer_ratio / 3))
    manager = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
        buffer_bytes, False, cache
    )
    return SharedMemory(cache, manager, buffer_bytes)


def _names(text: Any) -> list[str]:
    parts = text if isinstance(text, (list, tuple)) else str(text).replace(",", ";").split(";")
    return [str(part).strip() for part in parts if str(part).strip()]


def _compression(module: Any, name: str) -> Any:
    known = {
        "NO_COMPRESSION": "none",
        "SNAPPY_COMPRESSION": "snappy",
        "ZLIB_COMPRESSION": "zlib",
        "BZLIB2_COMPRESSION": "bz2",
        "LZ4_COMPRESSION": "lz4",
        "LZ4HC_COMPRESSION": "lz4hc",
        "ZSTD_COMPRESSION": "zstd",
    }
    short = known.get(name.upper())
    if short is None:
        msg = (
            f"configuration {conf.ROCKSDB_COMPRESSION.key!r}: found {name!r}, expected some of "
            f"{sorted(known)}"
        )
        raise UsageError(msg)
    return getattr(module.DBCompressionType, short)()
