"""Calls that may not come back: each has a thread of its own, and only so many are waited for.

A thread that hangs in a client's call cannot be ended. It goes with its process, which a failed
attempt ends; until then there are at most so many of them, and of what they hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

CALLS_MAX = 4


class Calls:
    """Calls of one kind; from any thread."""

    def __init__(self, name: str) -> None:
        """Name the threads."""
        self._name = name
        self._lock = threading.Lock()
        self._under_way: list[Future[None]] = []

    def call(self, function: Callable[[], None], seconds: float) -> None:
        """Call a function in a thread that nobody waits for longer, not even at the process's end.

        Raises:
            TimeoutError: it did not come back in time, or too many before it have not yet.
        """
        answer: Future[None] = Future()
        with self._lock:
            self._under_way = [call for call in self._under_way if not call.done()]
            if len(self._under_way) >= CALLS_MAX:
                msg = f"{len(self._under_way)} calls before it have not come back"
                raise TimeoutError(msg)
            self._under_way.append(answer)

        def run() -> None:
            try:
                function()
            except BaseException as error:
                # Who waits raises it.
                answer.set_exception(error)
            else:
                answer.set_result(None)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        if not wait([answer], seconds).done:
            msg = f"no answer for {seconds:g} s"
            raise TimeoutError(msg)
        answer.result()
