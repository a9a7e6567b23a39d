"""Every keyed backend that Weir ships passes the backend contract."""

from __future__ import annotations

from typing import Any

from weir.backend.base import KeyedBackend, SharedFiles
from weir.backend.hashmap import HashMapBackend
from weir.keygroup import KeyGroupRange
from weir.testing.backend_conformance import KeyedBackendConformance
from weir.testing.backend_incremental_conformance import IncrementalConformance


class TestHashMapBackend(KeyedBackendConformance):
    """Objects in memory."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups)


class TestTrackedHashMapBackend(KeyedBackendConformance, IncrementalConformance):
    """Objects in memory that remember what changed."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups, tracked=True)

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return an empty backend; shared files come with each snapshot."""
        return HashMapBackend(key_type, key_groups, tracked=True)
