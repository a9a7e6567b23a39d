"""State as Python objects in memory, key group first, with copy-on-write snapshots."""

from weir.backend.hashmap.backend import HashMapBackend, HashMapSnapshot

__all__ = ["HashMapBackend", "HashMapSnapshot"]
