"""What the RocksDB backend offers to `weir.backend.registry`."""

from weir.backend.registry import BackendProvider
from weir.backend.rocksdb.backend import RocksDBBackend
from weir.backend.rocksdb.expand import expand_native, expand_plain
from weir.backend.rocksdb.tracked import TrackedRocksDBBackend

PROVIDER = BackendProvider(RocksDBBackend, TrackedRocksDBBackend, expand_native, expand_plain)
