"""Records on their way to the person who runs the program: print and execute_and_collect.

Printed lines appear with their epoch and may appear again after a failover, as in Flink. Collected
records are released once: with the checkpoint that covers their epoch, or at once when the job
takes no checkpoints.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

_END = object()


class Results:
    """Collected and printed records of one job; thread-safe."""

    def __init__(self, wait_for_checkpoints: bool) -> None:
        self._wait = wait_for_checkpoints
        self._lock = threading.Lock()
        self._held: list[tuple[int, int, list[Any]]] = []
        self._queues: dict[int, queue.SimpleQueue[Any]] = {}
        self._error: BaseException | None = None
        self._ended = False

    def take(self, epoch: int, index: int, kind: str, values: list[Any], to_stderr: bool) -> None:
        """Take the records that one subtask reported for one epoch."""
        if kind == "print":
            stream = sys.stderr if to_stderr else sys.stdout
            stream.write("".join(f"{line}\n" for line in values))
            stream.flush()
            return
        with self._lock:
            if self._wait:
                self._held.append((epoch, index, values))
            else:
                self._release(index, values)

    def release_up_to(self, epoch: int) -> None:
        """Release what a completed checkpoint covers."""
        with self._lock:
            ready = [h for h in self._held if h[0] <= epoch]
            self._held = [h for h in self._held if h[0] > epoch]
            for _, index, values in ready:
                self._release(index, values)

    def drop_unreleased(self) -> None:
        """Forget records of epochs that will be run again."""
        with self._lock:
            self._held.clear()

    def end(self, error: BaseException | None) -> None:
        """Let all iterators end, or raise."""
        with self._lock:
            self._error = error
            for waiting in self._queues.values():
                waiting.put(_END)
            self._ended = True

    def iterator(self, index: int) -> Iterator[Any]:
        """Iterate over the records of a collect operator until the job ends."""
        with self._lock:
            waiting = self._queue(index)
            if self._ended:
                waiting.put(_END)
        while True:
            item = waiting.get()
            if item is _END:
                if self._error is not None:
                    raise self._error
                return
            yield item

    def _release(self, index: int, values: list[Any]) -> None:
        waiting = self._queue(index)
        for value in values:
            waiting.put(value)

    def _queue(self, index: int) -> queue.SimpleQueue[Any]:
        return self._queues.setdefault(index, queue.SimpleQueue())
