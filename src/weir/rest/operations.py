"""Operations that take longer than a request: started by one, asked about by others.

A trigger id that was seen before names the same operation: repeating a request starts nothing.
Results stay for five minutes, the newest thousand at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from weir.clock import Clock
from weir.ids import unique_suffix
from weir.rest.routing import RefusedError

KEPT_MS: Final = 5 * 60 * 1000
KEPT_MAX: Final = 1000

Key = tuple[str, str, str]


@dataclass
class _Operation:
    future: Future[Any]
    done_ms: int | None = None


class Operations:
    """Operations by kind, job and trigger id; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Key, _Operation] = {}

    def start(
        self, kind: str, job_id: str, trigger_id: str | None, call: Callable[[], Future[Any]]
    ) -> str:
        """Start an operation unless its trigger id is known; returns the trigger id.

        Raises:
            RefusedError: 409, too many operations are under way.
        """
        trigger = trigger_id or unique_suffix(32)
        key = (kind, job_id, trigger)
        with self._lock:
            self._tidy()
            if key in self._known:
                return trigger
            if len(self._known) >= KEPT_MAX:
                raise RefusedError(409, f"{KEPT_MAX} operations are under way: wait for some.")
            promised: Future[Any] = Future()
            self._known[key] = _Operation(promised)
        # Asking may look at a storage, and nobody else has to wait for that.
        try:
            asked = call()
        except BaseException:
            with self._lock:
                del self._known[key]
            raise
        asked.add_done_callback(lambda done: _hand_on(done, promised))
        return trigger

    def find(self, kind: str, job_id: str, trigger_id: str) -> Future[Any]:
        """Return an operation.

        Raises:
            RefusedError: 404, there is no such operation, or it ended long ago.
        """
        with self._lock:
            self._tidy()
            operation = self._known.get((kind, job_id, trigger_id))
        if operation is None:
            raise RefusedError(404, f"Operation {trigger_id} not found; results stay for 5 min.")
        return operation.future

    def _tidy(self) -> None:
        now = self._clock.monotonic_ms()
        for operation in self._known.values():
            if operation.done_ms is None and operation.future.done():
                operation.done_ms = now
        done = [(op.done_ms, key) for key, op in self._known.items() if op.done_ms is not None]
        done.sort()
        surplus = len(self._known) - KEPT_MAX + 1
        for index, (done_ms, key) in enumerate(done):
            if index < surplus or now - done_ms >= KEPT_MS:
                del self._known[key]


def _hand_on(done: Future[Any], promised: Future[Any]) -> None:
    if done.cancelled():
        promised.cancel()
        return
    error = done.exception()
    if error is not None:
        promised.set_exception(error)
    else:
        promised.set_result(done.result())
