"""How a slot closes its operators before it ends: once, and for no longer than there is time.

Users' functions may take as long as they like in `close`. What is not closed in time is not closed
at all, because the process ends: whoever let the slot leave is told so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from weir.errors import JobExecutionError
from weir.runtime.whereabouts import at_work
from weir.slot.build import SlotIdentity
from weir.slot.messages import FINISHED, SlotFailure
from weir.slot.service import failure_message

log = logging.getLogger("weir.slot")
CLOSE_S = 3.0
FINISHED_CLOSE_S = 60.0


class Closable(Protocol):
    """The operators of a slot."""

    def close(self) -> None:
        """Close all of them; raises what one of them raised."""


def patience_s(reason: str) -> float:
    """Return how long functions may take to close: a failover waits for it, a finished job can."""
    return FINISHED_CLOSE_S if reason == FINISHED else CLOSE_S


class Closing:
    """Closes the operators of one slot, once; who comes second waits until that is done."""

    def __init__(self, identity: SlotIdentity) -> None:
        self._identity = identity
        self._lock = threading.Lock()
        self._closed = False
        self._failure: SlotFailure | None = None

    def close(self, operators: Closable | None, seconds: float) -> SlotFailure | None:
        """Close the operators if there are any yet; return what went wrong, to all who ask."""
        with self._lock:
            if operators is not None and not self._closed:
                self._closed = True
                self._failure = self._close_within(operators, seconds)
            return self._failure

    def _close_within(self, operators: Closable, seconds: float) -> SlotFailure | None:
        failures: list[SlotFailure] = []
        if not within(seconds, lambda: self._close(operators, failures)):
            return self._overdue(seconds)
        return failures[0] if failures else None

    def _close(self, operators: Closable, failures: list[SlotFailure]) -> None:
        try:
            operators.close()
        except Exception as error:
            log.exception("closing failed")
            attempt, subtask = self._identity.attempt, self._identity.subtask
            failures.append(failure_message(attempt, subtask, error))

    def _overdue(self, seconds: float) -> SlotFailure:
        found = at_work()
        place = "" if found is None else f"; at work: {found}"
        error = JobExecutionError(
            f"its operators were not closed within {seconds:g} s, and it ended without that{place}"
        )
        log.error("%s", error)
        return failure_message(self._identity.attempt, self._identity.subtask, error)


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Do something in a thread; False if it was not done in that time, and perhaps never is."""
    doing = threading.Thread(target=work, daemon=True)
    doing.start()
    doing.join(seconds)
    return not doing.is_alive()
