"""When expired entries are removed, beside the moment in which they are read.

`weir.state.ttl.config.StateTtlConfig` shows these classes under PyFlink's names. Sizes are checked
here, so that every configuration that exists can be carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from weir.common.time import Duration
from weir.errors import UsageError

T = TypeVar("T")
MONTH = Duration.of_days(30)


def _positive(what: str, found: object) -> None:
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        msg = f"{what} must be a positive whole number, found {found!r}"
        raise UsageError(msg)


class Strategies(enum.Enum):
    """The kinds of clean-up that can be asked for."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2
    TIMER = 3


class CleanupStrategy:
    """Settings of one kind of clean-up."""


@dataclass(frozen=True)
class EmptyCleanupStrategy(CleanupStrategy):
    """A kind of clean-up that has no settings."""


@dataclass(frozen=True)
class IncrementalCleanupStrategy(CleanupStrategy):
    """With every access of the state, look at a few of its entries.

    Raises:
        UsageError: the number of entries is not positive.
    """

    cleanup_size: int
    for_every_record: bool = False

    def __post_init__(self) -> None:
        """Check the size."""
        _positive("cleanup_incrementally: the number of entries per access", self.cleanup_size)

    def get_cleanup_size(self) -> int:
        """Return how many entries are looked at per access."""
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Tell whether records count like accesses."""
        return self.for_every_record


@dataclass(frozen=True)
class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
    """Look at all entries over and over, in steps, in the background.

    Raises:
        UsageError: the number of entries is not positive, or the time negative.
    """

    query_time_after_num_entries: int
    periodic_compaction_time: Duration = MONTH

    def __post_init__(self) -> None:
        """Check number and time."""
        name = "cleanup_in_rocksdb_compact_filter"
        _positive(f"{name}: the number of entries", self.query_time_after_num_entries)
        if self.periodic_compaction_time.to_millis() < 0:
            found = self.periodic_compaction_time
            msg = f"{name}: the periodic compaction time must not be negative, found {found!r}"
            raise UsageError(msg)

    def get_query_time_after_num_entries(self) -> int:
        """Return how many accesses make a step, and how many entries are looked at in it."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Duration:
        """Return within which time all entries are looked at; 0 means any."""
        return self.periodic_compaction_time


EMPTY_STRATEGY = EmptyCleanupStrategy()
DEFAULT_INCREMENTAL = IncrementalCleanupStrategy(5, for_every_record=False)


@dataclass(frozen=True)
class CleanupStrategies:
    """What was asked for, and whether the default applies where nothing was."""

    strategies: Mapping[Strategies, CleanupStrategy] = field(default_factory=dict, hash=False)
    cleanup_in_background: bool = True

    def is_cleanup_in_background(self) -> bool:
        """Tell whether the default clean-up applies."""
        return self.cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Tell whether full snapshots leave out what is expired."""
        return Strategies.FULL_STATE_SCAN_SNAPSHOT in self.strategies

    def in_rocksdb_compact_filter(self) -> bool:
        """Tell whether backends on disk clean up in the background."""
        return self.cleanup_in_background or Strategies.ROCKSDB_COMPACTION_FILTER in self.strategies

    def by_timer(self) -> bool:
        """Tell whether entries are removed as soon as they expire."""
        return Strategies.TIMER in self.strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return the settings of incremental clean-up, the default if none were given."""
        found = self._explicit(Strategies.INCREMENTAL_CLEANUP, IncrementalCleanupStrategy)
        return DEFAULT_INCREMENTAL if found is None and self.cleanup_in_background else found

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> RocksdbCompactFilterCleanupStrategy | None:
        """Return the settings of clean-up on disk that were given."""
        kind = Strategies.ROCKSDB_COMPACTION_FILTER
        return self._explicit(kind, RocksdbCompactFilterCleanupStrategy)

    def explicit_incremental(self) -> IncrementalCleanupStrategy | None:
        """Return the settings of incremental clean-up that were given."""
        return self._explicit(Strategies.INCREMENTAL_CLEANUP, IncrementalCleanupStrategy)

    def _explicit(self, kind: Strategies, wanted: type[T]) -> T | None:
        found = self.strategies.get(kind)
        return found if isinstance(found, wanted) else None
