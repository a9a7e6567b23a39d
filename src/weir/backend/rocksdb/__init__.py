"""State in a local RocksDB: larger than memory, with checkpoints of what is new alone."""

from weir.backend.rocksdb.backend import RocksDBBackend
from weir.backend.rocksdb.tracked import TrackedRocksDBBackend

__all__ = ["RocksDBBackend", "TrackedRocksDBBackend"]
