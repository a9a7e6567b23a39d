"""State as Python objects in memory, key group first, with copy-on-write snapshots."""

from weir.backend.hashmap.backend import HashMapBackend
from weir.backend.hashmap.snapshots import HashMapSnapshot

__all__ = ["HashMapBackend", "HashMapSnapshot"]
