"""What stands between a job and its slots: Arrow Flight, or calls in one process.

`Reception` is what slots say to the job, whatever carries it; a `SlotNetwork` is how the job speaks
to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weir.errors import JobExecutionError
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.slot.lookup import LookupAnswer, LookupCall, SlotStates
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Cut,
    Decline,
    Heartbeat,
    Hello,
    Register,
    SlotFailure,
)
from weir.slot.stacks import Stack

Staged = list[tuple[str, list[bytes]]]
"""Files that slots prepared for sinks of the driver, by operator."""


@dataclass(frozen=True)
class Reception:
    """Takes what the slots of the current attempt say; thread-safe."""

    registry: SlotRegistry
    checkpoints: CheckpointRunner
    assignment: Callable[[int], Assignment]
    failed: Callable[[int], None]
    staged: Callable[[int, Staged], None]

    def hello(self, message: Hello) -> Assignment:
        """Give a new slot its work.

        Raises:
            JobExecutionError: nobody waits for it.
        """
        if not self.registry.hello(message):
            msg = f"slot {message.subtask} of attempt {message.attempt} is not wanted"
            raise JobExecutionError(msg)
        return self.assignment(message.subtask)

    def register(self, message: Register) -> None:
        """Let a slot that restored its state take epochs; nothing is waited for here.

        Raises:
            JobExecutionError: nobody waits for it any more.
        """
        if message.staged:
            # Before the slot takes epochs: no checkpoint of theirs is committed before.
            self.staged(message.attempt, message.staged)
        if not self.registry.register(message):
            msg = f"slot {message.subtask} of attempt {message.attempt} came too late"
            raise JobExecutionError(msg)

    def heartbeat(self, message: Heartbeat) -> bool:
        """Renew a slot's lease; False tells it to leave."""
        return self.registry.heartbeat(message.attempt, message.subtask, message.usage)

    def acknowledge(self, message: Acknowledge) -> None:
        """Take a slot's share of a checkpoint."""
        self.checkpoints.acknowledge(message)

    def decline(self, message: Decline) -> None:
        """Take a slot's refusal of a checkpoint."""
        self.checkpoints.decline(message)

    def failure(self, message: SlotFailure) -> None:
        """Take a failure: the attempt is over."""
        if self.registry.fail(message):
            self.failed(message.attempt)


class SlotNetwork(Protocol):
    """Carries calls between the job and its slots.

    `log_dir` is where slots of this host write their logs, None if they write none.
    """

    registry: SlotRegistry

    @property
    def log_dir(self) -> Path | None:
        """Return where the logs of slots on this host are."""

    def open(self, reception: Reception) -> None:
        """Let slots reach the job."""

    def complete(self, checkpoint_id: int) -> Staged:
        """Let all slots commit; return what they prepared for the driver."""

    def aborted(self, checkpoint_id: int) -> None:
        """Tell all slots that a checkpoint was given up."""

    def where(self, checkpoint_id: int, epoch: int) -> list[tuple[int, int]]:
        """Return what levels of an epoch slots have begun and finished; they hold from then on."""

    def cut(self, cut: Cut) -> bool:
        """Tell all slots where a barrier overtakes rows; False when one has gone beyond it."""

    def revoke(self, checkpoint_id: int) -> bool:
        """Let a barrier overtake nothing; True when it has done so at a slot, or may have."""

    def stacks(self, slot: SlotEntry, duration_ms: int) -> list[Stack]:
        """Return where the threads of a slot are, or were in a while if that is not zero."""

    def states(self, patience_ms: int) -> list[SlotStates]:
        """Return the keyed states that slots know.

        Raises:
            WeirError: a slot cannot be asked.
        """

    def lookup(self, subtask: int, call: LookupCall) -> LookupAnswer:
        """Let a slot look at its keyed state.

        Raises:
            WeirError: it cannot be asked, or refuses.
        """

    def watch(self) -> None:
        """Look whether the slots' processes live, as far as that can be seen from here."""

    def dismiss(self, slots: list[SlotEntry], reason: str) -> list[SlotFailure]:
        """Let slots end, and see them gone as far as that is possible.

        Returns what went wrong when they closed their operators, as far as they could say.
        """

    def close(self) -> None:
        """Let nobody reach the job any more."""
