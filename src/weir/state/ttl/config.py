"""`StateTtlConfig`: how long entries of a state live, and what happens to them afterwards.

An entry is expired from the moment `timestamp + ttl` on. The configuration is no part of a
snapshot: only timestamps are stored, so it may change between two runs of a program.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from weir.common.time import Duration, Time, to_ms
from weir.errors import UsageError
from weir.state.ttl import strategies, terms
from weir.state.ttl.strategies import CleanupStrategy, Strategies
from weir.state.ttl.terms import StateVisibility, TtlTimeCharacteristic, UpdateType

LengthOfTime: TypeAlias = "Time | Duration | datetime.timedelta | int"
E = TypeVar("E", bound=enum.Enum)
_MAX = (1 << 63) - 1


def _member(method: str, found: Any, wanted: type[E]) -> E:
    if not isinstance(found, wanted):
        names = ", ".join(f"StateTtlConfig.{wanted.__name__}.{m.name}" for m in wanted)
        msg = f"{method}: expected one of {names}, found {found!r}"
        raise UsageError(msg)
    return found


class Cleanup(strategies.CleanupStrategies):
    """All clean-up settings, with the classes of the single ones as PyFlink nests them."""

    Strategies = strategies.Strategies
    CleanupStrategy = strategies.CleanupStrategy
    EmptyCleanupStrategy = strategies.EmptyCleanupStrategy
    IncrementalCleanupStrategy = strategies.IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy = strategies.RocksdbCompactFilterCleanupStrategy
    EMPTY_STRATEGY = strategies.EMPTY_STRATEGY


class TtlConfigBuilder:
    """Collects settings; every method but `build` returns the builder."""

    def __init__(self, ttl: LengthOfTime) -> None:
        """Start with the defaults: written entries live for `ttl`, expired ones are never seen."""
        self._ttl = ttl
        self._update_type = UpdateType.OnCreateAndWrite
        self._visibility = StateVisibility.NeverReturnExpired
        self._time = TtlTimeCharacteristic.ProcessingTime
        self._strategies: dict[Strategies, CleanupStrategy] = {}
        self._background = True

    def set_ttl(self, ttl: LengthOfTime) -> TtlConfigBuilder:
        """Set how long an entry lives."""
        self._ttl = ttl
        return self

    def set_update_type(self, update_type: UpdateType) -> TtlConfigBuilder:
        """Set what starts the life of an entry anew."""
        self._update_type = _member("set_update_type", update_type, UpdateType)
        return self

    def update_ttl_on_create_and_write(self) -> TtlConfigBuilder:
        """Let writes start the life of an entry anew."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> TtlConfigBuilder:
        """Let reads and writes start the life of an entry anew."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> TtlConfigBuilder:
        """Set what a read of an expired entry gives."""
        self._visibility = _member("set_state_visibility", state_visibility, StateVisibility)
        return self

    def return_expired_if_not_cleaned_up(self) -> TtlConfigBuilder:
        """Show expired entries that are still there, once."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> TtlConfigBuilder:
        """Never show expired entries."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: TtlTimeCharacteristic
    ) -> TtlConfigBuilder:
        """Set the time that counts."""
        name = "set_ttl_time_characteristic"
        self._time = _member(name, ttl_time_characteristic, TtlTimeCharacteristic)
        return self

    def use_processing_time(self) -> TtlConfigBuilder:
        """Let the wall clock count."""
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

    def use_event_time(self) -> TtlConfigBuilder:
        """Let the operator's watermark count."""
        return self.set_ttl_time_characteristic(TtlTimeCharacteristic.EventTime)

    def cleanup_full_snapshot(self) -> TtlConfigBuilder:
        """Leave expired entries out of full snapshots."""
        self._strategies[Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> TtlConfigBuilder:
        """Look at `cleanup_size` entries per access of the state, and per record if asked.

        Raises:
            UsageError: the size is not positive.
        """
        self._strategies[Strategies.INCREMENTAL_CLEANUP] = strategies.IncrementalCleanupStrategy(
            cleanup_size, run_cleanup_for_every_record
        )
        return self

    def cleanup_in_rocksdb_compact_filter(
        self,
        query_time_after_num_entries: int,
        periodic_compaction_time: LengthOfTime = strategies.MONTH,
    ) -> TtlConfigBuilder:
        """Look at that many entries after as many accesses, and at all within the time.

        Raises:
            UsageError: the number is not positive, or the time negative.
        """
        every = Duration.of_millis(to_ms(periodic_compaction_time))
        self._strategies[Strategies.ROCKSDB_COMPACTION_FILTER] = (
            strategies.RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, every)
        )
        return self

    def cleanup_by_timer(self) -> TtlConfigBuilder:
        """Remove every entry as soon as it expires; costs memory for each key. Weir's own."""
        self._strategies[Strategies.TIMER] = strategies.EMPTY_STRATEGY
        return self

    def disable_cleanup_in_background(self) -> TtlConfigBuilder:
        """Switch the default clean-up off; one that was asked for stays."""
        self._background = False
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration.

        Raises:
            UsageError: the time to live is not positive.
        """
        cleanup = Cleanup(dict(self._strategies), self._background)
        return StateTtlConfig(
            update_type=self._update_type,
            state_visibility=self._visibility,
            ttl_time_characteristic=self._time,
            ttl=Time.of(self._ttl),
            cleanup_strategies=cleanup,
        )


@dataclass(frozen=True)
class StateTtlConfig:
    """How long entries of a state live; made by `StateTtlConfig.new_builder(ttl)...build()`.

    Raises:
        UsageError: the time to live is not positive.

    Example:
        ttl = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
        ValueStateDescriptor("seen", Types.BOOLEAN()).enable_time_to_live(ttl)
    """

    update_type: terms.UpdateType
    state_visibility: terms.StateVisibility
    ttl_time_characteristic: terms.TtlTimeCharacteristic
    ttl: Time
    cleanup_strategies: strategies.CleanupStrategies

    UpdateType = terms.UpdateType
    StateVisibility = terms.StateVisibility
    TtlTimeCharacteristic = terms.TtlTimeCharacteristic
    CleanupStrategies = Cleanup
    Builder = TtlConfigBuilder
    DISABLED: ClassVar[StateTtlConfig]

    def __post_init__(self) -> None:
        """Check the time to live."""
        if to_ms(self.ttl) <= 0:
            msg = f"TTL is expected to be positive, found {self.ttl!r}"
            raise UsageError(msg)

    @staticmethod
    def new_builder(ttl: LengthOfTime) -> TtlConfigBuilder:
        """Start a configuration; `ttl` is a Time, a Duration, a timedelta or milliseconds."""
        return TtlConfigBuilder(ttl)

    def get_update_type(self) -> terms.UpdateType:
        """Return what starts the life of an entry anew."""
        return self.update_type

    def get_state_visibility(self) -> terms.StateVisibility:
        """Return what a read of an expired entry gives."""
        return self.state_visibility

    def get_ttl(self) -> Time:
        """Return how long an entry lives."""
        return self.ttl

    def get_ttl_time_characteristic(self) -> terms.TtlTimeCharacteristic:
        """Return the time that counts."""
        return self.ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Tell whether entries expire at all."""
        return self.update_type is not UpdateType.Disabled

    def get_cleanup_strategies(self) -> strategies.CleanupStrategies:
        """Return how expired entries are removed."""
        return self.cleanup_strategies


StateTtlConfig.DISABLED = (
    StateTtlConfig.new_builder(_MAX).set_update_type(UpdateType.Disabled).build()
)
