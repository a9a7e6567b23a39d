"""What `weir demo --kafka` does to the broker of the running job."""

from __future__ import annotations

from typing import Any, Protocol

from weir.clock import Clock
from weir.demo.steps import Kill, Killed, Screen
from weir.demo.tracking import OPERATOR, Figures

BROKER_AFTER = 0.6  # of all rows
_DOWN_MS = 2_000


class Broker(Protocol):
    """A broker that can be killed and started again with its data."""

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""

    def kill(self) -> None:
        """Let it die."""

    def start(self) -> None:
        """Start it and wait until it answers."""


class KillBroker:
    """Kills the broker, after the recovery if a slot is killed, and starts it two seconds later."""

    def __init__(self, broker: Broker, after: Kill | None, screen: Screen, clock: Clock) -> None:
        """Do nothing yet; looks have to come from the thread that started the broker."""
        self._broker, self._after = broker, after
        self._screen, self._clock = screen, clock
        self._pid: int | None = None
        self._at_ms = 0
        self._back: tuple[int, int] | None = None
        self._recovery_ms: int | None = None

    def outcome(self) -> Killed | None:
        """Return what happened; None if the job ended first."""
        return None if self._pid is None else Killed(self._pid, self._recovery_ms)

    def look(self, job: Any, progress: dict[str, Any], figures: Figures) -> None:
        """Kill, start again, and tell when the job has handled records after that."""
        if self._pid is None:
            ready = self._after is None or self._after.done
            if ready and figures.rows >= BROKER_AFTER * figures.rows_total and figures.slots > 0:
                self._kill()
        elif self._back is None:
            if self._clock.monotonic_ms() - self._at_ms >= _DOWN_MS:
                self._start(progress)
        elif self._recovery_ms is None and _has_more(progress, self._back):
            self._recovery_ms = self._clock.monotonic_ms() - self._at_ms
            self._screen.say(
                f"Records arrive again {self._recovery_ms / 1000:.1f} s after the broker's death"
            )

    def _kill(self) -> None:
        self._pid = self._broker.pid
        self._broker.kill()
        self._at_ms = self._clock.monotonic_ms()
        self._screen.say(f"Killed the broker (process {self._pid}) with SIGKILL")

    def _start(self, progress: dict[str, Any]) -> None:
        self._broker.start()
        self._back = progress["attempt"], _records(progress)
        self._screen.say(f"The broker is back (process {self._broker.pid})")


def _records(progress: dict[str, Any]) -> int:
    return int(progress["records_in"].get(OPERATOR, 0))


def _has_more(progress: dict[str, Any], before: tuple[int, int]) -> bool:
    """Tell whether records were handled since, in the same attempt or in a later one."""
    attempt, records = before
    return _records(progress) > (records if progress["attempt"] == attempt else 0)
