"""State of one key at a time: for input that comes key by key, and never a second time.

Timers fire when all records of their key are handled. What they register then is ignored, as in
Flink: it could go on for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from weir.backend.base import VOID, Timer
from weir.backend.hashmap.backend import HashMapBackend
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue
from weir.keygroup import KeyGroupRange
from weir.notices import warn_once

log = logging.getLogger("weir.backend")
_NEVER = 1 << 62


class _Firing:
    """Whether timers of a key, of either time, are firing."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = False


class EndOfKeyTimers(TimerQueue):
    """The timers of one time domain of one key."""

    def __init__(
        self,
        name: str,
        key_type: Any,
        key_groups: KeyGroupRange,
        namespace_type: Any,
        *,
        firing: _Firing,
    ) -> None:
        super().__init__(name, key_type, key_groups, namespace_type)
        self._moment = firing

    def register(self, timestamp: int, key: Any, group: int, namespace: Any = VOID) -> bool:
        """Add a timer; one that a firing timer asks for is ignored."""
        return not self._is_late() and super().register(timestamp, key, group, namespace)

    def register_all(
        self, timestamp: int, keys: Sequence[Any], groups: Sequence[int], namespace: Any = VOID
    ) -> None:
        """Add timers; those that a firing timer asks for are ignored."""
        if not self._is_late():
            super().register_all(timestamp, keys, groups, namespace)

    def register_group(self, timestamp: int, group: int, addresses: Sequence[Any]) -> None:
        """Add timers; those that a firing timer asks for are ignored."""
        if not self._is_late():
            super().register_group(timestamp, group, addresses)

    def _is_late(self) -> bool:
        if self._moment.now:
            warn_once(
                log,
                "Timer service is quiesced: a timer that on_timer registers is ignored in BATCH "
                "mode, because all timers fire at the end of the input of their key",
            )
        return self._moment.now

    def pop_due(self, up_to_ms: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a time, inclusive, one by one."""
        self._moment.now = True
        try:
            yield from super().pop_due(up_to_ms)
        finally:
            self._moment.now = False

    def forget(self) -> None:
        """Drop all timers."""
        self._heap.clear()
        self._buckets.clear()
        self._begun.clear()
        self._count = 0


class OneKeyBackend(HashMapBackend):
    """Keyed state of the key whose records are being handled; see `OneKeyState`."""

    def __init__(self, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any) -> None:
        super().__init__(key_type, key_groups, namespace_type, flat_from=_NEVER)
        firing = _Firing()
        self._of_key = {
            name: EndOfKeyTimers(name, key_type, key_groups, namespace_type, firing=firing)
            for name in (EVENT_TIMERS, PROCESSING_TIMERS)
        }
        self._timers = {**self._of_key}

    def forget(self, group: int) -> None:
        """Drop state and timers of the only key that has any; its key group is told."""
        for table in self._tables.values():
            table.groups[group].clear()
        for timers in self._of_key.values():
            timers.forget()
