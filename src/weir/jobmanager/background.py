"""Work that must not keep its caller waiting: one thread, one piece after the other.

Whoever has to wait for it says so: work may be a user's function, which may take as long as it
likes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from weir.clock import Clock, SystemClock
from weir.failpoint import ProcessDeath

log = logging.getLogger("weir.jobmanager")
Work = Callable[[], None]
T = TypeVar("T")
_SAY_S = 10.0


class Background(Protocol):
    """Carries out work in the order in which it was given."""

    def run(self, work: Work, what: str) -> None:
        """Take a piece of work; people are told what it is if it fails or takes long."""

    def settle(self) -> None:
        """Return when everything that was given before has been carried out."""

    def close(self) -> None:
        """Take no more work; what was given before is carried out."""


class Inline:
    """Carries out work at once, on the caller's thread."""

    def run(self, work: Work, what: str) -> None:
        """Do it now."""
        work()

    def settle(self) -> None:
        """Return: nothing is ever left to do."""

    def close(self) -> None:
        """Return: there is nothing to end."""


class BackgroundThread:
    """A thread of its own, which does not keep the process alive."""

    def __init__(self, name: str, clock: Clock | None = None, say_s: float = _SAY_S) -> None:
        """Start the thread; who waits for it for `say_s` says so, and again ever less often."""
        self._clock = clock or SystemClock()
        self._say_s = say_s
        self._queue: SimpleQueue[tuple[Work, str] | None] = SimpleQueue()
        self._at_work: tuple[str, int] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, work: Work, what: str) -> None:
        """Take a piece of work; what it raises is logged, whatever it is."""
        self._queue.put((work, what))

    def settle(self) -> None:
        """Wait until everything that was given before has been carried out."""
        done = threading.Event()
        self._queue.put((done.set, "settling"))
        say_s = self._say_s
        while not done.wait(say_s):
            self._say()
            say_s *= 2

    def _say(self) -> None:
        at_work = self._at_work
        if at_work is None:
            return
        what, begun_ms = at_work
        taken_s = (self._clock.monotonic_ms() - begun_ms) // 1000
        log.warning("%s has taken %d s so far; the job goes on when it is done", what, taken_s)

    def close(self) -> None:
        """End the thread when everything that was given before has been carried out."""
        self._queue.put(None)

    def _work(self) -> None:
        while (given := self._queue.get()) is not None:
            work, what = given
            self._at_work = what, self._clock.monotonic_ms()
            carry_out(work, what)
            self._at_work = None


def carry_out(work: Callable[[], object], what: str) -> None:
    """Do something of which nothing else depends: what it raises is logged.

    That may be `SystemExit` too: the thread is not that of the one who raised it.
    """
    try:
        work()
    except ProcessDeath:
        raise
    except BaseException:
        log.exception("%s failed", what)


def in_thread(work: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
    """Run in a thread that nobody waits for when the program ends: a slot may take long."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="weir-call", daemon=True).start()
    return future
