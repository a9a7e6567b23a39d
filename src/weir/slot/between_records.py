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
        self._look: Callable[[], None] | None = None
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    @property
    def waiting(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self._queue)

    def look_by(self, look: Callable[[], None]) -> None:
        """Look by this at what others want, too, whenever there is a moment for it."""
        self._look = look

    def run(self, work: Callable[[], T]) -> T:
        """Do something as soon as there is a moment for it, by whoever has the moment."""
        done: Future[T] = Future()
        self._queue.append((work, done))
        while not done.done():
            if not self._try():
                wait((done,), _LOOK_AGAIN_S)
        return done.result()

    def run_within(self, work: Callable[[], T], patience_ms: int) -> T:
        """Do the same, but only if there is a moment for it before so long.

        Raises:
            WeirError: there was none; then it is never done.
        """
        done: Future[T] = Future()
        self._queue.append((work, done))
        for _ in range(max(1, int(patience_ms / 1000 / _LOOK_AGAIN_S))):
            if self._try() or done.done():
                return done.result()
            wait((done,), _LOOK_AGAIN_S)
        if done.cancel():
            msg = f"no record ended within {patience_ms} ms: ask again, or with more patience"
            raise WeirError(msg)
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
            if not done.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)
        if self._look is not None:
            self._look()

    def _try(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.drain()
        finally:
            self._lock.release()
        return True
