"""What stands between a job and its slots: Arrow Flight, or calls in one process.

`Reception` is what slots say to the job, whatever carries it; a `SlotNetwork` is how the job speaks
to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from weir.errors import JobExecutionError
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.registry import SlotEntry, SlotRegistry
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Cut,
    Decline,
    Hello,
    Register,
    SlotFailure,
)

Staged = list[tuple[str, list[bytes]]]
"""Files that slots prepared for sinks of the driver, by operator."""


@dataclass(frozen=True)
class Reception:
    """Takes what the slots of the current attempt say; thread-safe."""

    registry: SlotRegistry
    checkpoints: CheckpointRunner
    assignment: Callable[[int], Assignment]
    failed: Callable[[int], None]
    staged: Callable[[Staged], None]

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
        """Let a slot that restored its state take epochs.

        Raises:
            JobExecutionError: nobody waits for it any more.
        """
        if not self.registry.register(message):
            msg = f"slot {message.subtask} of attempt {message.attempt} came too late"
            raise JobExecutionError(msg)
        if message.staged:
            self.staged(message.staged)

    def heartbeat(self, attempt: int, subtask: int) -> bool:
        """Renew a slot's lease; False tells it to leave."""
        return self.registry.heartbeat(attempt, subtask)

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
    """Carries calls between the job and its slots."""

    registry: SlotRegistry

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

    def watch(self) -> None:
        """Look whether the slots' processes live, as far as that can be seen from here."""

    def dismiss(self, slots: list[SlotEntry], reason: str) -> list[SlotFailure]:
        """Let slots end, and see them gone as far as that is possible.

        Returns what went wrong when they closed their operators, as far as they could say.
        """

    def close(self) -> None:
        """Let nobody reach the job any more."""
