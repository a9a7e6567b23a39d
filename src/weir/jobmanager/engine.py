"""What stands between a job and whatever runs its epochs: Spark, or a test in one process.

An engine reads sources, moves records between levels, and calls the slots. It decides nothing: when
an attempt begins and ends, which epoch runs, and what a failure means, the job decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from weir.checkpoint.metadata import SourcePositions
from weir.graph.plan import JobPlan
from weir.runtime.epoch import Epoch
from weir.runtime.report import SubtaskReport


@dataclass(frozen=True)
class Batch:
    """The input of one epoch of an attempt; behind it the sources are at `positions`.

    `rows` is the engine's own. `read_ms` is when it was decided what to read, by the wall clock;
    `looked_ms` is when the sources were looked at for that, by the monotonic clock.
    """

    attempt: int
    positions: SourcePositions
    rows: Any
    read_ms: int | None = None
    looked_ms: int | None = None


@dataclass(frozen=True)
class AttemptStart:
    """What an attempt begins with.

    `positions` are those of a checkpoint, None to read from the beginning; with `foreign` they are
    those of another job.
    """

    attempt: int
    plan: JobPlan
    plan_bytes: bytes
    positions: SourcePositions | None = None
    foreign: bool = False


class JobSide(Protocol):
    """What an engine may ask of the job while an attempt runs; from any thread."""

    def handle(self, batch: Batch) -> None:
        """Run the epoch of a batch; returns when its results are kept.

        Raises:
            WeirError: the epoch failed, or the attempt is over: let no batch follow.
        """

    def refuse_unwanted(self, attempt: int) -> None:
        """Return if the attempt is still wanted.

        Raises:
            WeirError: it failed or ended; break off what runs for it.
        """


class Engine(Protocol):
    """Runs the epochs of one job, one at a time.

    One thread calls the methods, but for `run_epoch`, which also the thread calls that is in
    `JobSide.handle`.
    """

    def adopt(self, plan: JobPlan) -> None:
        """Take out of a plan what stays in the driver, before it is sent to slots."""

    def open(self) -> None:
        """Open the sources, once for all attempts."""

    def begin(self, start: AttemptStart, job: JobSide) -> SourcePositions:
        """Prepare an attempt and let its slots start; nothing is read yet.

        Returns where its sources are before the first batch.
        """

    def start_input(self) -> None:
        """Let batches come: each is handed to `JobSide.handle`."""

    def input_is_over(self) -> bool:
        """Tell whether bounded input was handled to its end.

        Raises:
            Exception: whatever ended the input before that.
        """

    def is_quiet(self) -> bool:
        """Tell whether no batch is about to come that could carry a barrier."""

    def found_nothing_ms(self) -> int | None:
        """Return when the sources were last looked at and had nothing, by the monotonic clock.

        Rather too early than too late. None if that was not since the last batch: records may wait.
        """

    def run_epoch(self, epoch: Epoch, batch: Batch | None) -> list[SubtaskReport]:
        """Run an epoch at all slots; without a batch it has no input. Returns all reports.

        Raises:
            Exception: it did not succeed at all slots.
        """

    def describe(self, positions: SourcePositions, savepoint: str | None) -> SourcePositions:
        """Return positions that another job can start from.

        Those of a savepoint, given by its URI, need no other files.
        """

    def committed(self, positions: SourcePositions) -> None:
        """Learn, in the background, that a checkpoint with these positions is complete."""

    def lost(self) -> str | None:
        """Return why no attempt can ever run again, None while one can."""

    def end(self) -> None:
        """Stop what runs of the current attempt, and free it."""

    def close(self) -> None:
        """Free everything; the job is over."""
