"""All state backends under PyFlink's module path; they are written in their own modules."""

from __future__ import annotations

from weir.datastream.embedded_state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    PredefinedOptions,
    StateBackend,
)
from weir.datastream.legacy_state_backend import (
    FsStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
)

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
