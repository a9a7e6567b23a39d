"""The exactly-once sink SPI: what the subtask runtime drives, and every sink implements.

Life of a writer, always in one thread::

    create_writer -> restore -> discard_leftovers | leave_newer | take_back (subtask 0)
                  -> (write_batch* -> prepare(n) -> commit)*  -> close

Invariant: a record becomes visible to readers only through `commit` or `restore`, and only if
the checkpoint that its committable belongs to has completed. Committables are JSON bytes, so
they live in a checkpoint as plain operator state and can be handed to any subtask after
rescaling: `restore` and `commit` must not depend on which subtask prepared them.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from weir.clock import Clock, SystemClock
from weir.errors import UsageError
from weir.metrics import MetricGroup

MIN_WATERMARK = -(2**63)


class NewerOutput(enum.Enum):
    """What becomes of output that checkpoints newer than the restored one committed."""

    NONE = "NONE"
    """There is none: the newest checkpoint was restored."""
    STAYS = "STAYS"
    """It stays, and its records come again: at least once."""
    TAKEN_BACK = "TAKEN_BACK"
    """It is removed before its records come again: exactly once."""


@dataclass(frozen=True)
class WriterContext:
    """Who a writer is: the identity that makes its temporary names unique.

    Attributes:
        attempt: execution attempt of this job; grows with every restart.
        lineage: ids of *ended* jobs whose state this one descends from, oldest first. A job that
            may still be running must not be listed: its hidden files would be removed.
        type_info: declared type of the stream, None for any Python object.
        metrics: where the writer registers what it counts.

    Example:
        def create_writer(self, context: WriterContext):
            return KeptWriter(f"part-{context.subtask}")
    """

    job_id: str
    operator_id: str
    attempt: int
    subtask: int
    parallelism: int
    lineage: tuple[str, ...] = ()
    type_info: Any = None
    clock: Clock = field(default_factory=SystemClock)
    metrics: MetricGroup = field(default_factory=lambda: MetricGroup({}))


def blame(error: BaseException, record: Any) -> None:
    """Note at which record a writer was when an error was raised."""
    with suppress(AttributeError, TypeError):  # Not every exception takes attributes.
        error.weir_record = (record,)  # type: ignore[attr-defined]


def blamed(error: BaseException, otherwise: Any) -> Any:
    """Return the record at which an error was raised, as far as a writer said so."""
    noted = getattr(error, "weir_record", None)
    return otherwise if noted is None else noted[0]


class SinkWriter(ABC):
    """One subtask's end of a sink.

    After any method raised, the only calls that still make sense are `abort` and `close`: the
    attempt is over and the next one starts from `restore`.

    Example:
        class KeptWriter(SinkWriter):
            def write_batch(self, values, timestamps):
                self.values = values

            def prepare(self, checkpoint_id):
                return []
    """

    current_watermark: int = MIN_WATERMARK
    """Set by the runtime before `write_batch`; user code reads it through its context."""

    @abstractmethod
    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Take records in order; nothing becomes visible. `timestamps` is None if none has one.

        What is raised here fails the attempt. A writer that knows the record says so by `blame`.
        """

    def write_columns(self, batch: Any) -> bool:
        """Take records as an Arrow batch; False, and nothing is taken, where it must be records."""
        return False

    @abstractmethod
    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Make everything written so far durable but invisible; return what `commit` will need.

        Called at the barrier. Records written afterwards belong to the next checkpoint.
        """

    @abstractmethod
    def commit(self, committables: list[bytes]) -> None:
        """Make prepared records visible. Idempotent; it must succeed eventually."""

    def restore(self, committables: list[bytes]) -> None:
        """Commit what the restored checkpoint had prepared, wherever the crash left it."""
        self.commit(committables)

    def share(self, committables: list[bytes], subtask: int, parallelism: int) -> list[bytes]:
        """Return those committables of a restored checkpoint that a subtask is to commit.

        All subtasks are asked; every committable must be of exactly one.
        """
        return committables[subtask::parallelism]

    def discard_leftovers(self, keep: list[bytes]) -> None:  # noqa: B027
        """Remove hidden remains of earlier attempts and of the lineage that are not in `keep`.

        Called on subtask 0 only, once, when an attempt starts. `keep` holds the committables of
        the restored checkpoint of *all* subtasks, because the others may not have restored yet.
        """

    def leave_newer(self, keep: list[bytes]) -> None:
        """Do what `discard_leftovers` does when newer checkpoints may have been committed.

        Their output stays, and its records come again. Nothing may be undone that one of them may
        have committed, such as a transaction that was open when the restored one was taken.
        """
        self.discard_leftovers(keep)

    def take_back(self, keep: list[bytes], checkpoint_id: int) -> None:
        """Do what `discard_leftovers` does, and remove what newer checkpoints committed.

        Afterwards a reader sees what this job and its lineage committed with checkpoints up to
        `checkpoint_id`, the restored one, and nothing of newer ones. It may be called again after a
        crash in the middle of it. Called only if the sink's `can_take_back` says so.

        Raises:
            UsageError: the sink cannot do that.
        """
        msg = f"{type(self).__name__} cannot take back what it has committed"
        raise UsageError(msg)

    def finish(self) -> None:  # noqa: B027
        """Learn that no record will follow; one last `prepare` and `commit` still will."""

    @abstractmethod
    def abort(self) -> None:
        """Drop everything that was not prepared; prepared records stay as they are."""

    def close(self) -> None:
        """Release resources; what was never prepared is dropped. May be called twice."""
        self.abort()


class Sink(ABC):
    """A picklable description of a sink; travels to the slots, which create the writers.

    Example:
        class Kept(Sink):
            def create_writer(self, context):
                return KeptWriter(context)
    """

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer of one subtask; raises `UsageError` if the stream does not fit."""

    def check(self, interval_ms: int | None) -> None:  # noqa: B027
        """Refuse or warn of what does not fit the job; called before the engine starts.

        `interval_ms` is the time from checkpoint to checkpoint, None where there are none.

        Raises:
            UsageError: the sink cannot be used like that.
        """

    def can_take_back(self) -> bool:
        """Tell whether writers can remove committed output: see `SinkWriter.take_back`."""
        return False
