"""How a barrier overtakes rows: the driver and all slots agree on one level to cut at.

First every slot is asked where it is; from its answer on it holds. L is the highest level that any
slot has begun. Then every slot is told to cut at L: in the middle of L if it is there, at once if
it has finished L or has no part in it, at the beginning of L if its rows have not reached it yet.

Why the cut is consistent: level L + 1 begins nowhere before all slots have returned from L,
and L has begun, so every slot is done with all levels before L. A slot accepts the cut only if it
has begun nothing beyond L, and makes it before it does. So each slot's state has all rows of the
levels before L, some of L and none of the levels after it, and every row between is in the input
of L or in what L has sent on, which the slots store. If any slot cannot accept, the cut is
revoked everywhere; where it was made already, the checkpoint is given up. Holding only keeps slots
from walking on between the two questions.

In at-least-once mode the sources read the epoch again, so its positions are those before it.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from weir.checkpoint.metadata import SourcePositions
from weir.checkpoint.settings import CheckpointingMode
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.runtime.epoch import Barrier, Epoch
from weir.slot.messages import Cut

log = logging.getLogger("weir.checkpoint")
_RETRY_S = 0.04


class Outcome(enum.Enum):
    """What one try to agree led to."""

    SETTLED = "settled"
    NOT_YET = "not yet"
    GIVEN_UP = "given up"


class CutSlots(Protocol):
    """The slots, as far as a cut is concerned; a slot that cannot be reached is a `WeirError`."""

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Return what levels the slots that are there have begun and finished."""

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where to cut; False when one of them cannot."""

    def revoke(self, checkpoint_id: int) -> bool:
        """Take the word back; True when a slot has made the cut, or cannot be asked."""


@dataclass(frozen=True)
class BarrierEpoch:
    """A barrier that may overtake rows, the number of its epoch, and where the sources were before.

    The positions before the epoch are asked for only when they are needed.
    """

    barrier: Barrier
    epoch: int
    before: Callable[[], SourcePositions]

    @classmethod
    def of(cls, epoch: Epoch, before: Callable[[], SourcePositions]) -> BarrierEpoch | None:
        """Return what there is to overtake in an epoch, if its barrier may do so."""
        if epoch.barrier is None or not epoch.overtaking:
            return None
        return cls(epoch.barrier, epoch.number, before)


class Overtaking:
    """One barrier's attempts to overtake rows of its epoch."""

    def __init__(self, slots: CutSlots, runner: CheckpointRunner, sent: BarrierEpoch) -> None:
        self._slots = slots
        self._runner = runner
        self._sent = sent
        mode = runner.coordinator.settings.mode
        self._replayed = mode is CheckpointingMode.AT_LEAST_ONCE

    def run(self, stop: threading.Event) -> None:
        """Wait for the alignment timeout, then try until it is settled or the epoch is over."""
        settings = self._runner.coordinator.settings
        wait_s = 0 if self._replayed else settings.aligned_timeout_ms / 1000
        while not stop.wait(wait_s):
            if self.attempt() is not Outcome.NOT_YET:
                return
            wait_s = _RETRY_S

    def attempt(self) -> Outcome:
        """Try once to agree on a level, and make the cut there."""
        number = self._sent.barrier.checkpoint_id
        if not self._runner.is_pending(number):
            return Outcome.GIVEN_UP
        try:
            # Before anybody cuts: where this fails, the checkpoint can still be an aligned one.
            before = self._sent.before() if self._replayed else None
            places = self._slots.where(number, self._sent.epoch)
        except Exception as error:
            # Slots that were asked hold still: whatever happened, they have to be let go.
            log.debug("checkpoint %s overtakes nothing: %s", number, error)
            self._slots.revoke(number)
            return Outcome.GIVEN_UP
        level = max((begun for begun, _ in places), default=0)
        if level == 0 or len(places) < self._runner.plan.slots:
            self._slots.revoke(number)
            return Outcome.NOT_YET
        if self._is_over(places):
            self._slots.revoke(number)
            return Outcome.GIVEN_UP
        return self._cut(level, before)

    def _is_over(self, places: list[tuple[int, int]]) -> bool:
        """Tell whether all rows of the epoch are handled."""
        widths = self._runner.plan.level_parallelism
        done = [finished for _, finished in places if finished == len(widths) - 1]
        return len(done) == widths[-1]

    def _cut(self, level: int, before: SourcePositions | None) -> Outcome:
        number = self._sent.barrier.checkpoint_id
        attempt = self._runner.coordinator.attempt
        cut = Cut(attempt, self._sent.epoch, level, self._sent.barrier, replayed=self._replayed)
        try:
            accepted = self._slots.cut(cut)
        except Exception as error:
            log.warning("the barrier of checkpoint %s cannot overtake rows: %s", number, error)
            accepted = False
        if accepted:
            self._runner.overtook(number, level, before)
            return Outcome.SETTLED
        if not self._slots.revoke(number):
            return Outcome.NOT_YET
        self._runner.give_up(number, "its barrier overtook rows at some slots only")
        return Outcome.GIVEN_UP


@contextmanager
def overtaking(
    slots: CutSlots, runner: CheckpointRunner, sent: BarrierEpoch | None
) -> Iterator[None]:
    """Let a barrier overtake rows while its epoch runs; it is settled or not when this ends."""
    if sent is None:
        yield
        return
    stop = threading.Event()
    trying = Overtaking(slots, runner, sent)
    thread = threading.Thread(target=trying.run, args=(stop,), name="overtaking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
