"""State in a local RocksDB: larger than memory, with checkpoints of what is new alone."""

from weir.backend.rocksdb.backend import RocksDBBackend

__all__ = ["RocksDBBackend"]
