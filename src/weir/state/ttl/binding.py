"""From a descriptor with a time to live to a handle: one place that puts the pieces together.

The backend gets a derived declaration: the same state, holding `(value, timestamp)` pairs. It
needs to know nothing about expiry but which pairs a snapshot or a sweep may drop.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weir.backend.base import KeyedBackend
from weir.backend.kinds import StateKind
from weir.clock import Clock
from weir.codec.stamped import StampedTypeInfo
from weir.common.state import State
from weir.common.time import Duration, to_ms
from weir.config.backend import ROCKSDB_TTL_COMPACTION_TIME, ROCKSDB_TTL_QUERY_ENTRIES
from weir.config.state_backends import DEFAULT_STATE_BACKEND, state_backend
from weir.notices import warn_once
from weir.state.ttl.cleanup import Sweeper, SweepSettings
from weir.state.ttl.config import StateTtlConfig
from weir.state.ttl.expiry_queue import (
    Expire,
    ExpiryQueue,
    expire_folded,
    expire_list,
    expire_map,
    expire_value,
)
from weir.state.ttl.functions import TtlAggregate, TtlFold, TtlReduce
from weir.state.ttl.handles import (
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from weir.state.ttl.rules import EventTime, Expiry, TtlRules
from weir.state.ttl.strategies import RocksdbCompactFilterCleanupStrategy
from weir.state.ttl.terms import StateVisibility, TtlTimeCharacteristic, UpdateType

log = logging.getLogger("weir.state")


@dataclass(frozen=True)
class TtlKind:
    """What expiry adds to one kind of state.

    Attributes:
        handle: makes the handle over (backend's handle, rules, queue), and the fold if there is.
        expire: removes what is expired under the current key.
        fold: makes the user's function one over pairs, for kinds that fold values.
    """

    handle: Callable[..., State]
    expire: Expire
    fold: Callable[[TtlRules, Any], TtlFold] | None = None


TTL_KINDS: Final = {
    StateKind.VALUE: TtlKind(TtlValueState, expire_value),
    StateKind.LIST: TtlKind(TtlListState, expire_list),
    StateKind.MAP: TtlKind(TtlMapState, expire_map),
    StateKind.REDUCING: TtlKind(TtlReducingState, expire_folded, TtlReduce),
    StateKind.AGGREGATING: TtlKind(TtlAggregatingState, expire_folded, TtlAggregate),
}


def bind_ttl(
    backend: KeyedBackend,
    descriptor: Any,
    now: Callable[[], int],
    stamp: Callable[[], int] | None = None,
) -> State:
    """Return the handle of a state with a time to live, without background clean-up.

    `now` decides about expiry, `stamp` gives the timestamp of what is written (None: `now` too).
    A configuration that is disabled gives the backend's own handle.

    Raises:
        UsageError: the name is in use with another kind or other types.
        IncompatibleStateError: the restored state cannot become this one.
    """
    if not descriptor.ttl_config.is_enabled():
        return backend.state(descriptor)
    rules = _rules(descriptor.ttl_config, now, now if stamp is None else stamp)
    return _bind(backend, descriptor, rules)[0]


def _rules(
    config: StateTtlConfig,
    now: Callable[[], int],
    stamp: Callable[[], int],
    *,
    event_time: bool = False,
) -> TtlRules:
    refresh = config.get_update_type() is UpdateType.OnReadAndWrite
    relaxed = config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp
    return TtlRules(
        ttl_ms=to_ms(config.get_ttl()),
        refresh=refresh,
        relaxed=relaxed,
        now=now,
        stamp=stamp,
        event_time=event_time,
    )


def _bind(
    backend: KeyedBackend, descriptor: Any, rules: TtlRules
) -> tuple[State, ExpiryQueue | None]:
    strategies = descriptor.ttl_config.get_cleanup_strategies()
    kind, derived = TTL_KINDS[descriptor.kind], copy.copy(descriptor)
    derived.value_type = StampedTypeInfo(descriptor.value_type)
    derived.cleanup = Expiry(rules, strategies.in_full_snapshot())
    folds = [] if kind.fold is None else [kind.fold(rules, descriptor.function)]
    derived.function = next(iter(folds), None)
    raw = backend.state(derived)
    queue = None
    if strategies.by_timer():
        queue = ExpiryQueue(backend, kind.expire, raw, rules)
    return kind.handle(raw, rules, queue, *folds), queue


@dataclass
class TtlStates:
    """All states of one operator subtask that have a time to live.

    `event_time` has to be told watermarks, and the records that are handled.

    Attributes:
        backend_kind: the name of the backend, which decides the default clean-up.
        options: settings of the backend by key.
        operator: the operator's name, for messages.
    """

    backend: KeyedBackend
    clock: Clock
    backend_kind: str = DEFAULT_STATE_BACKEND
    options: Mapping[str, Any] = field(default_factory=dict)
    operator: str = ""

    def __post_init__(self) -> None:
        """Start without states."""
        self.event_time = EventTime(self.clock)
        self._handles: dict[str, State] = {}
        self._sweepers: list[Sweeper] = []
        self._queues: dict[TtlTimeCharacteristic, list[ExpiryQueue]] = {
            time: [] for time in TtlTimeCharacteristic
        }
        self._shortest: tuple[int, str] | None = None
        self._last_epoch_ms: int | None = None

    def bind(self, descriptor: Any) -> State:
        """Return the handle of a state whose descriptor has a time to live.

        The same name gives the same handle as long as kind and types are the same.

        Raises:
            UsageError: the name is in use with another kind or other types.
            IncompatibleStateError: the restored state cannot become this one.
        """
        config, name = descriptor.ttl_config, descriptor.name
        if not config.is_enabled():
            return self.backend.state(descriptor)
        rules = self._rules(config)
        handle, queue = _bind(self.backend, descriptor, rules)
        if name in self._handles:
            return self._handles[name]
        self._handles[name] = handle
        if config.get_ttl_time_characteristic() is TtlTimeCharacteristic.ProcessingTime:
            lives = (to_ms(config.get_ttl()), name)
            self._shortest = min(lives, self._shortest or lives)
        settings = SweepSettings.of(config.get_cleanup_strategies(), self._on_disk())
        if settings != SweepSettings():
            self._sweepers.append(
                Sweeper(self.backend, name, handle, rules=rules, settings=settings)
            )
        if queue is not None:
            queue.rebuild(name)
            self._queues[config.get_ttl_time_characteristic()].append(queue)
        return handle

    def _rules(self, config: StateTtlConfig) -> TtlRules:
        if config.get_ttl_time_characteristic() is TtlTimeCharacteristic.ProcessingTime:
            return _rules(config, self.clock.now_ms, self.clock.now_ms)
        return _rules(config, self.event_time.now, self.event_time.stamp, event_time=True)

    def _on_disk(self) -> RocksdbCompactFilterCleanupStrategy | None:
        if not state_backend(self.backend_kind).compacts:
            return None
        entries = self.options.get(ROCKSDB_TTL_QUERY_ENTRIES.key, ROCKSDB_TTL_QUERY_ENTRIES.default)
        every = self.options.get(
            ROCKSDB_TTL_COMPACTION_TIME.key, ROCKSDB_TTL_COMPACTION_TIME.default
        )
        return RocksdbCompactFilterCleanupStrategy(int(entries), Duration.of_millis(int(every)))

    def end_epoch(self, records: int) -> None:
        """Remove what is due, and look at what the epoch's accesses and records earned."""
        if self._shortest is not None and records:
            self._advise(*self._shortest)
        for queues in self._queues.values():
            for queue in queues:
                queue.run()
        for sweeper in self._sweepers:
            sweeper.end_epoch(records)

    def _advise(self, lives_ms: int, name: str) -> None:
        """Say once that a state expires between two epochs with records."""
        now, last = self.clock.now_ms(), self._last_epoch_ms
        self._last_epoch_ms = now
        if last is not None and now - last > lives_ms:
            warn_once(
                log,
                f"operator {self.operator!r}: state {name!r} lives {lives_ms} ms, and two epochs "
                "with records ended further apart: what one writes is expired for the next and its "
                "timers; let it live longer than a few epochs",
            )

    def next_processing_time(self) -> int | None:
        """Return the wall-clock time at which the next entry has to be removed."""
        queues = self._queues[TtlTimeCharacteristic.ProcessingTime]
        times = [time for queue in queues if (time := queue.next_time()) is not None]
        return min(times, default=None)
