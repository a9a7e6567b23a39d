"""Every keyed backend that Weir ships passes the backend contract."""

from __future__ import annotations

from typing import Any

from weir.backend.base import KeyedBackend
from weir.backend.hashmap import HashMapBackend
from weir.keygroup import KeyGroupRange
from weir.testing.backend_conformance import KeyedBackendConformance


class TestHashMapBackend(KeyedBackendConformance):
    """Objects in memory."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups)
