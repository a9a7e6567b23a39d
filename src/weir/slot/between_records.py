"""Work that has to wait for a moment when no record is being handled.

Such moments are whenever no level runs, and between two strides or slices of a level.
Invariant: work is done under the slot's lock, once, in the order in which it was asked for.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from weir.errors import WeirError

T = TypeVar("T")
log = logging.getLogger("weir.slot")
_LOOK_AGAIN_S = 0.02


class BetweenRecords:
    """The work that waits, and the re-entrant lock of the slot that it waits for."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    @property
    def waiting(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self._queue)

    def run(self, work: Callable[[], T]) -> T:
        """Do something as soon as there is a moment for it, by whoever has the moment."""
        done: Future[T] = Future()
        self._queue.append((work, done))
        while not done.done():
            if not self._try():
                wait((done,), _LOOK_AGAIN_S)
        return done.result()

    def soon(self, work: Callable[[], None]) -> None:
        """Do something at the next moment, without waiting for it; what it raises is logged."""

        def logged() -> None:
            try:
                work()
            except WeirError as error:
                log.warning("%s", error)

        self._queue.append((logged, Future()))
        self._try()

    def drain(self) -> None:
        """Do everything that waits; the caller holds the lock and handles no record."""
        while self._queue:
            work, done = self._queue.popleft()
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

    def _try(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.drain()
        finally:
            self._lock.release()
        return True
