"""The exactly-once sink SPI: what the subtask runtime drives, and every sink implements.

Life of a writer, always in one thread::

    create_writer -> restore -> discard_leftovers (subtask 0)
                  -> (write_batch* -> prepare(n) -> commit)*  -> close

Invariant: a record becomes visible to readers only through `commit` or `restore`, and only if
the checkpoint that its committable belongs to has completed. Committables are JSON bytes, so
they live in a checkpoint as plain operator state and can be handed to any subtask after
rescaling: `restore` and `commit` must not depend on which subtask prepared them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from weir.clock import Clock, SystemClock

MIN_WATERMARK = -(2**63)


@dataclass(frozen=True)
class WriterContext:
    """Who a writer is: the identity that makes its temporary names unique.

    Attributes:
        attempt: execution attempt of this job; grows with every restart.
        lineage: ids of *ended* jobs whose state this one descends from, oldest first. A job that
            may still be running must not be listed: its hidden files would be removed.
        type_info: declared type of the stream, None for any Python object.
    """

    job_id: str
    operator_id: str
    attempt: int
    subtask: int
    parallelism: int
    lineage: tuple[str, ...] = ()
    type_info: Any = None
    clock: Clock = field(default_factory=SystemClock)


class SinkWriter(ABC):
    """One subtask's end of a sink.

    After any method raised, the only calls that still make sense are `abort` and `close`: the
    attempt is over and the next one starts from `restore`.
    """

    current_watermark: int = MIN_WATERMARK
    """Set by the runtime before `write_batch`; user code reads it through its context."""

    @abstractmethod
    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Take records in order; nothing becomes visible. `timestamps` is None if none has one."""

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

    def discard_leftovers(self, keep: list[bytes]) -> None:  # noqa: B027
        """Remove hidden remains of earlier attempts and of the lineage that are not in `keep`.

        Called on subtask 0 only, once, when an attempt starts. `keep` holds the committables of
        the restored checkpoint of *all* subtasks, because the others may not have restored yet.
        """

    def finish(self) -> None:  # noqa: B027
        """Learn that no record will follow; one last `prepare` and `commit` still will."""

    @abstractmethod
    def abort(self) -> None:
        """Drop everything that was not prepared; prepared records stay as they are."""

    def close(self) -> None:
        """Release resources; what was never prepared is dropped. May be called twice."""
        self.abort()


class Sink(ABC):
    """A picklable description of a sink; travels to the slots, which create the writers."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer of one subtask; raises `UsageError` if the stream does not fit."""
