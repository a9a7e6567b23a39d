"""Work that must not keep its caller waiting: one thread, one piece after the other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

log = logging.getLogger("weir.jobmanager")
Work = Callable[[], None]
T = TypeVar("T")


class Background(Protocol):
    """Carries out work in the order in which it was given."""

    def run(self, work: Work, what: str) -> None:
        """Take a piece of work; people are told what it is if it fails."""

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

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._queue: SimpleQueue[tuple[Work, str] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def run(self, work: Work, what: str) -> None:
        """Take a piece of work; what it raises is logged."""
        self._queue.put((work, what))

    def settle(self) -> None:
        """Wait until everything that was given before has been carried out."""
        done = threading.Event()
        self._queue.put((done.set, "settling"))
        done.wait()

    def close(self) -> None:
        """End the thread when everything that was given before has been carried out."""
        self._queue.put(None)

    def _work(self) -> None:
        while (given := self._queue.get()) is not None:
            work, what = given
            carry_out(work, what)


def carry_out(work: Callable[[], object], what: str) -> None:
    """Do something of which nothing else depends: what it raises is logged."""
    try:
        work()
    except Exception:
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
