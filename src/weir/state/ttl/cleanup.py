"""Removing expired entries in the background: sweeps at the end of epochs.

Every access of a state earns a number of entries to look at. They are looked at together when the
epoch is over, each at most once, so that records do not wait. A sweep that would find nothing is
left out: a round over all entries tells when the first of them expires, and whatever is written
afterwards expires later.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from weir.backend.base import KeyedBackend
from weir.state.ttl.rules import NO_TIME, TtlRules
from weir.state.ttl.strategies import (
    DEFAULT_INCREMENTAL,
    CleanupStrategies,
    RocksdbCompactFilterCleanupStrategy,
)

_ALL = sys.maxsize


@dataclass(frozen=True)
class SweepSettings:
    """How many entries are looked at.

    Attributes:
        per_access: entries for each access, and with `per_record` for each record.
        step: entries after so many accesses; 0 means none.
        round_ms: all entries are looked at within this time; 0 means any time.
    """

    per_access: int = 0
    per_record: bool = False
    step: int = 0
    round_ms: int = 0

    @classmethod
    def of(
        cls, strategies: CleanupStrategies, on_disk: RocksdbCompactFilterCleanupStrategy | None
    ) -> SweepSettings:
        """Resolve what was asked for; `on_disk` is the default of a backend on disk."""
        incremental = strategies.explicit_incremental()
        compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
        if incremental is None and compaction is None and strategies.is_cleanup_in_background():
            incremental = DEFAULT_INCREMENTAL if on_disk is None else None
            compaction = on_disk
        settings: dict[str, Any] = {}
        if incremental is not None:
            settings["per_access"] = incremental.get_cleanup_size()
            settings["per_record"] = incremental.run_cleanup_for_every_record()
        if compaction is not None:
            settings["step"] = compaction.get_query_time_after_num_entries()
            settings["round_ms"] = compaction.get_periodic_compaction_time().to_millis()
        return cls(**settings)


class Sweeper:
    """The background clean-up of one state."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        handle: Any,
        rules: TtlRules,
        settings: SweepSettings,
    ) -> None:
        """Start; a state that is empty now has nothing to expire before a whole time to live."""
        self._backend = backend
        self._name = name
        self._handle = handle
        self._rules = rules
        self._settings = settings
        self._pending = 0
        self._rounded = rules.now()
        empty = next(iter(backend.addresses(name)), None) is None
        self._first_expiry = rules.now() + rules.ttl_ms if empty else NO_TIME

    def end_epoch(self, records: int) -> None:
        """Look at as many entries as the epoch's accesses and records earned."""
        settings, accesses = self._settings, self._handle.accesses
        self._handle.accesses = 0
        earned = settings.per_access * (accesses + (records if settings.per_record else 0))
        if settings.step:
            self._pending += accesses
            steps, self._pending = divmod(self._pending, settings.step)
            earned += steps * settings.step
        now = self._rules.now()
        if settings.round_ms and now - self._rounded >= settings.round_ms:
            earned = _ALL
        if earned and now >= self._first_expiry:
            self._sweep(now, earned)

    def _sweep(self, now: int, entries: int) -> None:
        limit = now - self._rules.ttl_ms
        oldest = now

        def keep(pair: Any) -> bool:
            nonlocal oldest
            stamp = pair[1]
            if stamp < oldest:
                if stamp <= limit:
                    return False
                oldest = stamp
            return True

        if self._backend.sweep(self._name, keep, entries) < entries:
            self._first_expiry = oldest + self._rules.ttl_ms
            self._rounded = now
