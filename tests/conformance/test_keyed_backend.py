"""Every keyed backend that Weir ships passes the backend contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from tests.databases import Databases, scratch_directory

from weir.backend.base import KeyedBackend, SharedFiles
from weir.backend.changelog.backend import ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.changes import ChangeSource
from weir.backend.hashmap import HashMapBackend
from weir.keygroup import KeyGroupRange
from weir.testing.backend_conformance import KeyedBackendConformance
from weir.testing.backend_incremental_conformance import IncrementalConformance
from weir.testing.background import ManualBackground
from weir.testing.checkpoint_world import MemoryFiles
from weir.testing.clock import ManualClock

pytestmark = pytest.mark.matrix


class TestHashMapBackend(KeyedBackendConformance):
    """Objects in memory."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups)


class TestFlatHashMapBackend(KeyedBackendConformance):
    """Numbers in arrays from the first entry on."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups, flat_from=0)


class TestGrowingHashMapBackend(KeyedBackendConformance):
    """Numbers in arrays after the epoch in which they became many."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups, flat_from=50)


class TestTrackedFlatHashMapBackend(KeyedBackendConformance, IncrementalConformance):
    """Numbers in arrays that remember what changed."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return HashMapBackend(key_type, key_groups, tracked=True, flat_from=0)

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return an empty backend; shared files come with each snapshot."""
        return self.make_backend(key_type, key_groups)


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


class TestChangelogOverHashMap(KeyedBackendConformance, IncrementalConformance):
    """Objects in memory and a log of their changes, with a materialisation now and then."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return self.make_incremental(key_type, key_groups, MemoryFiles())

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return an empty backend that writes segments of 100 bytes ahead of checkpoints."""
        return logged(HashMapBackend(key_type, key_groups, tracked=True), shared)


def logged(inner: ChangeSource, shared: SharedFiles) -> ChangelogBackend:
    """Log the changes of a backend, with segments of 100 bytes and many materialisations."""
    settings = ChangelogSettings(
        materialize_ms=30,
        failures_max=3,
        preemptive_bytes=100,
        attempts=3,
        in_flight_bytes=1 << 20,
    )
    place = ChangelogPlace(shared, TickingClock(), settings)
    return ChangelogBackend(inner, place, ManualBackground(inline=True))


class TickingClock(ManualClock):
    """A clock on which every look takes a moment."""

    def monotonic_ms(self) -> int:
        """Let a millisecond pass."""
        self.advance(1)
        return super().monotonic_ms()


class RocksDBCase:
    """State in a database; every backend that a test made is closed after it."""

    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def databases(self) -> Iterator[None]:
        """Give the test's databases a place."""
        with scratch_directory() as directory:
            self.made = Databases(directory)
            yield
            self.made.close()

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        made: KeyedBackend = self.made.backend(self.options, key_groups, key_type)
        return made

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return an empty backend; shared files come with each snapshot."""
        return self.make_backend(key_type, key_groups)


class TestRocksDBBackend(RocksDBCase, KeyedBackendConformance, IncrementalConformance):
    """The defaults."""


class TestRocksDBBackendWithoutCache(RocksDBCase, KeyedBackendConformance):
    """Hardly any memory, timers outside the database: almost every access reads and writes."""

    test_key_groups_move_to_other_subtasks = None  # opens 200 databases; the cache plays no part

    options: ClassVar[dict[str, Any]] = {
        "state.backend.rocksdb.memory.fixed-per-slot": 1 << 16,
        "state.backend.rocksdb.timer-service.factory": "HEAP",
    }


class TestChangelogOverRocksDB(RocksDBCase, KeyedBackendConformance, IncrementalConformance):
    """A database and a log of its changes, with a materialisation now and then."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend."""
        return self.make_incremental(key_type, key_groups, MemoryFiles())

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return an empty backend that writes segments of 100 bytes ahead of checkpoints."""
        return logged(self.made.tracked(self.options, key_groups, key_type), shared)
