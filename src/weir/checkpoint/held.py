"""Checkpoints that somebody reads: a newer one replaces them only when nobody does any more.

A hold is a lease. Who reads renews it; one that was not renewed in time counts no longer, so that a
reader that hangs keeps no files for ever. Nothing is deleted here: whoever deletes asks first.
"""

from __future__ import annotations

import threading
from typing import Final

from weir.clock import Clock, SystemClock

LEASE_MS: Final = 60_000


class Hold:
    """One reader of a checkpoint; see `HeldCheckpoints.take`."""

    def __init__(self, owner: HeldCheckpoints, checkpoint_id: int, lease_ms: int) -> None:
        self.checkpoint_id = checkpoint_id
        self._owner = owner
        self._lease_ms = lease_ms
        self.until_ms = 0
        self.renew()

    def renew(self) -> None:
        """Begin the lease anew."""
        self.until_ms = self._owner.clock.monotonic_ms() + self._lease_ms

    def release(self) -> None:
        """End the hold; a second time nothing happens."""
        self._owner.release(self)


class HeldCheckpoints:
    """The checkpoints of one job that are there, and who reads them; thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._holds: dict[int, set[Hold]] = {}

    def add(self, checkpoint_id: int) -> None:
        """A checkpoint is there from now on."""
        with self._lock:
            self._holds.setdefault(checkpoint_id, set())

    def take(self, checkpoint_id: int, lease_ms: int = LEASE_MS) -> Hold | None:
        """Hold a checkpoint until it is released or the lease is over; None when it is gone."""
        with self._lock:
            holds = self._holds.get(checkpoint_id)
            if holds is None:
                return None
            hold = Hold(self, checkpoint_id, lease_ms)
            holds.add(hold)
            return hold

    def release(self, hold: Hold) -> None:
        """Forget a reader."""
        with self._lock:
            self._holds.get(hold.checkpoint_id, set()).discard(hold)

    def let_go(self, checkpoint_id: int) -> bool:
        """Tell whether a checkpoint may be deleted now; if so, nobody can hold it any more."""
        now = self.clock.monotonic_ms()
        with self._lock:
            if any(hold.until_ms >= now for hold in self._holds.get(checkpoint_id, ())):
                return False
            self._holds.pop(checkpoint_id, None)
            return True
