"""Where a slot is in an epoch, and the cut that the driver wants: what network threads may touch.

A level runs for as long as its rows take, and holds the slot's lock. So the driver's questions are
answered from here, under a condition of its own. Once a slot has told where it is, it holds: it
begins no other level and returns from none before the driver has said where to cut, has revoked,
or has been silent for too long. Holding keeps an agreement from coming too late; that a cut is
right depends only on `want` refusing every level that the slot has gone beyond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from weir.clock import Clock
from weir.slot.messages import Cut

HOLD_S: Final = 10.0


class Slices:
    """How many records are handled between two looks at what the driver wants.

    Starts with one and follows the time that records take. The most is low enough for records that
    become slow all of a sudden.
    """

    def __init__(self, clock: Clock, first: int = 1, most: int = 1024, target_ms: int = 20) -> None:
        """Begin with slices of `first` records."""
        self.rows = first
        self._clock = clock
        self._most = most
        self._target_ms = target_ms
        self._since_ms = clock.monotonic_ms()

    def begin(self) -> None:
        """Note that a level begins."""
        self._since_ms = self._clock.monotonic_ms()

    def pause(self, between: Callable[[], None]) -> None:
        """End a slice and look at what is wanted; the next one is longer or shorter."""
        elapsed = self._clock.monotonic_ms() - self._since_ms
        if elapsed > 2 * self._target_ms:
            self.rows = max(1, self.rows * self._target_ms // elapsed)
        elif elapsed < self._target_ms // 2:
            self.rows = min(self._most, self.rows * 2)
        between()
        self._since_ms = self._clock.monotonic_ms()


class Overtake:
    """One slot's side of the agreement about a cut; thread-safe."""

    def __init__(self, slices: Slices, hold_s: float = HOLD_S) -> None:
        """Start idle, with nothing wanted."""
        self.slices = slices
        self._hold_s = hold_s
        self._changed = threading.Condition()
        self._epoch = -1
        self._begun = 0
        self._finished = 0
        self._running = False
        self._held: int | None = None
        self._wanted: Cut | None = None
        self._cut_id: int | None = None
        self._aligned_id: int | None = None

    def where(self, checkpoint_id: int, epoch: int) -> tuple[int, int]:
        """Return the highest level of an epoch that has begun, and that is finished; then hold."""
        with self._changed:
            self._held = checkpoint_id
            return (self._begun, self._finished) if epoch == self._epoch else (0, 0)

    def want(self, cut: Cut) -> bool:
        """Take the driver's word where to cut; False when the slot has gone beyond that place.

        A slot that took its share at the end of its last level already has nothing more to do.
        """
        with self._changed:
            self._release(cut.barrier.checkpoint_id)
            here = self._begun if self._epoch == cut.epoch else 0
            if self._epoch > cut.epoch or here > cut.level:
                return False
            if cut.barrier.checkpoint_id not in (self._cut_id, self._aligned_id):
                self._wanted = cut
            return True

    def revoke(self, checkpoint_id: int) -> bool:
        """Want no cut any more; True when it has been made already."""
        with self._changed:
            self._release(checkpoint_id)
            wanted = self._wanted
            if wanted is not None and wanted.barrier.checkpoint_id == checkpoint_id:
                self._wanted = None
            return self._cut_id == checkpoint_id

    def _release(self, checkpoint_id: int) -> None:
        if self._held == checkpoint_id:
            self._held = None
            self._changed.notify_all()

    def begin(self, epoch: int, level: int) -> Cut | None:
        """Begin a level, when the driver lets it; returns a cut to be made before that."""
        with self._changed:
            self._gate()
            wanted = self._wanted
            if wanted is not None and wanted.epoch < epoch:
                # Too late for it: rows of another epoch would be in the state.
                wanted = self._wanted = None
            if wanted is not None and level > wanted.level:
                return wanted
            if epoch != self._epoch:
                self._finished = 0
            self._epoch, self._begun, self._running = epoch, level, True
            self.slices.begin()
            return None

    def end(self) -> Cut | None:
        """All rows of the level are handled; returns a cut to be made before anything else."""
        with self._changed:
            self._gate()
            self._running = False
            self._finished = self._begun
            return self._wanted

    def wanted(self) -> Cut | None:
        """Return the cut that is to be made at the next occasion within a level."""
        return self._wanted

    @property
    def is_idle(self) -> bool:
        """Tell whether no level is running."""
        return not self._running

    def idle_cut(self, width: Callable[[int], bool]) -> Cut | None:
        """Return the cut that a slot between two levels has to make now.

        A slot that takes part in the level and has not begun it makes its cut there: its rows are
        still on their way to it. `width` tells whether it takes part.
        """
        with self._changed:
            wanted = self._wanted
            if wanted is None or self._running:
                return None
            finished = self._finished if self._epoch == wanted.epoch else 0
            return None if width(wanted.level) and finished < wanted.level else wanted

    def made(self, checkpoint_id: int) -> None:
        """The cut is made."""
        with self._changed:
            self._wanted = None
            self._cut_id = checkpoint_id

    def aligned(self, checkpoint_id: int) -> None:
        """The slot has done its last level of the epoch and takes its share there."""
        with self._changed:
            self._aligned_id = checkpoint_id

    def has_cut(self, checkpoint_id: int | None) -> bool:
        """Tell whether a checkpoint was cut here."""
        return checkpoint_id is not None and self._cut_id == checkpoint_id

    def _gate(self) -> None:
        if not self._changed.wait_for(lambda: self._held is None, self._hold_s):
            self._held = None
