"""An epoch and the barrier that closes it: one value, from the coordinator to the slots and back.

Nobody copies single facts out of these values into others; messages carry them whole.
"""

from __future__ import annotations

import msgspec


class Barrier(msgspec.Struct, frozen=True):
    """What separates the records of one checkpoint from those of the next.

    With `full` the checkpoint must not depend on files of others, with `native` as well it is in
    the backend's own format. With `overtaking` the barrier may overtake rows. `directory` is where
    its files go: a path on the job's storage, or the URI of a savepoint, on any storage.
    """

    checkpoint_id: int
    timestamp_ms: int
    directory: str
    full: bool = False
    native: bool = False
    overtaking: bool = False


class Epoch(msgspec.Struct, frozen=True):
    """One epoch: its number, the barrier at its end, and whether it ends the bounded input.

    `now_ms` is its processing time by the driver's clock, where slots must agree on one. By the
    driver's monotonic clock, it was begun at `begun_ms`, and the sources were looked at at
    `looked_ms`: nobody has what they got later. None if it is not known that they were looked at.
    """

    number: int
    barrier: Barrier | None = None
    final: bool = False
    now_ms: int | None = None
    looked_ms: int | None = None
    begun_ms: int | None = None

    @property
    def checkpoint_id(self) -> int | None:
        """Return the checkpoint that the epoch's barrier belongs to."""
        return None if self.barrier is None else self.barrier.checkpoint_id

    @property
    def overtaking(self) -> bool:
        """Tell whether the barrier may overtake rows; in the last epoch it waits for all of them.

        Nothing would read what is in flight behind the end of the input.
        """
        return self.barrier is not None and self.barrier.overtaking and not self.final
