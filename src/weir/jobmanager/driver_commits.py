"""What slots staged, handed over to the sinks of the driver.

It may take as long as a user's function or a table takes. Invariant: one thing is handed over at a
time, in the order in which it was prepared: what a restored slot hands over goes before what the
checkpoints of its attempt prepare. What fails, or is not handed over because its attempt is over,
stays in checkpoints and is handed over again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weir.failpoint import ProcessDeath
from weir.jobmanager.network import Staged
from weir.jobmanager.registry import SlotRegistry
from weir.jobmanager.surroundings import Surroundings


@dataclass(frozen=True)
class DriverCommits:
    """Commits on the driver, under the ids of checkpoints.

    `committed` is told which checkpoint was handed over, `failed` why that did not work.
    """

    surroundings: Surroundings
    registry: SlotRegistry
    committed: Callable[[int], None]
    failed: Callable[[str], None]

    def restored(self, attempt: int, checkpoint_id: int, staged: Staged) -> None:
        """Commit what a restored slot hands over, in the background: the slot waits to begin."""

        def hand_over() -> None:
            # An attempt that came after it has been handed the same, or is going to be.
            if attempt == self.registry.attempt:
                self.completed(checkpoint_id, staged)

        what = f"committing on the driver what checkpoint {checkpoint_id} had prepared"
        self.surroundings.background.run(hand_over, what)

    def completed(self, checkpoint_id: int, staged: Staged) -> None:
        """Commit what a completed checkpoint prepared, now."""
        try:
            self.surroundings.commit(checkpoint_id, staged)
            self.committed(checkpoint_id)
        except ProcessDeath:
            raise
        except BaseException as error:
            # SystemExit too: whoever raised it, the rows are not written.
            self.failed(f"committing checkpoint {checkpoint_id} on the driver failed: {error}")
