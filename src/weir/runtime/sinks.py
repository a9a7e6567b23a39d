"""Sink operators: exactly-once sinks, plain sink functions, print and collect.

An exactly-once sink's committables are operator state, one list per checkpoint that is not yet
known to be complete. A committable is committed after the checkpoint that holds it completed, and
again after a restore: commits are idempotent.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from weir.backend.base import SnapshotKind
from weir.common._text import printed
from weir.connector.function_sink import InvokeContext
from weir.connector.sink import NewerOutput, SinkWriter, WriterContext, blamed
from weir.connector.staged_batch import is_noted, is_staged, missing_note, prepared_by
from weir.graph.plan import OperatorNode
from weir.runtime.columnar import ColumnarChunk
from weir.runtime.context import SnapshotContext
from weir.runtime.frame import Chunk
from weir.runtime.operator import TaskFacts
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.state.descriptor import ListStateDescriptor

COMMITTABLES = "_sink.committables"
log = logging.getLogger("weir.sink")


class SinkOperator(StatefulOperator):
    """Drives a `SinkWriter` through prepare, commit and recovery."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._pending: dict[int, list[bytes]] = {}
        self.writer: SinkWriter | None = None

    def open(self) -> None:
        """Create the writer, commit what the restored checkpoint prepared, clear leftovers."""
        facts, node = self.facts, self.node
        context = WriterContext(
            job_id=facts.job_id,
            operator_id=node.id,
            attempt=facts.attempt,
            subtask=facts.subtask,
            parallelism=node.parallelism,
            lineage=facts.lineage,
            type_info=node.options.get("input_type"),
            clock=facts.clock,
            metrics=self.metrics.group,
        )
        self.writer = self._call(self.function.create_writer, context)
        # Union: every subtask knows all, so that subtask 0 can tell remains from prepared data.
        self._state = self.operator_store.get_union_list_state(
            ListStateDescriptor(COMMITTABLES, None)
        )
        restored: list[bytes] = [c for entry in self._state.get() for c in _entry(entry)[1]]
        mine = self._call(self.writer.share, restored, facts.subtask, node.parallelism)
        if mine:
            self.commit_restored(mine)
        if facts.subtask == 0 and (facts.attempt > 0 or facts.lineage):
            self._clear(restored)

    def _clear(self, restored: list[bytes]) -> None:
        """Deal with what earlier attempts left and the restored checkpoint does not know."""
        writer, newer = self._open_writer(), self.facts.newer_output
        if newer is NewerOutput.TAKEN_BACK and self.restored_checkpoint is not None:
            self._call(writer.take_back, restored, self.restored_checkpoint)
        elif newer is NewerOutput.NONE:
            self._call(writer.discard_leftovers, restored)
        else:
            self._call(writer.leave_newer, restored)

    def commit_restored(self, committables: list[bytes]) -> None:
        """Commit what the restored checkpoint had prepared."""
        self._call(self._open_writer().restore, committables)

    def commit(self, committables: list[bytes]) -> None:
        """Commit what a completed checkpoint had prepared."""
        self._call(self._open_writer().commit, committables)

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Hand the records to the writer, as columns where they are and it takes them."""
        self.records_in += len(chunk)
        writer = self._open_writer()
        writer.current_watermark = self.watermark
        try:
            if isinstance(chunk, ColumnarChunk) and writer.write_columns(chunk.batch):
                return
            writer.write_batch(chunk.values, chunk.timestamps)
        except BaseException as error:
            raise self.failed(error, blamed(error, chunk.values[0])) from None

    def finish(self) -> None:
        """Tell the writer that no record will follow."""
        self._call(self._open_writer().finish)

    def snapshot(
        self, checkpoint_id: int, timestamp_ms: int, kind: SnapshotKind
    ) -> OperatorSnapshot:
        """Prepare the open transaction and remember it as state."""
        committables = self._call(self._open_writer().prepare, checkpoint_id)
        if committables:
            self._pending[checkpoint_id] = committables
        entries = [
            msgspec.json.encode((n, list(map(bytes.decode, c)))) for n, c in self._pending.items()
        ]
        self._state.update(entries)
        return super().snapshot(checkpoint_id, timestamp_ms, kind)

    def _snapshot_hooks(self, context: SnapshotContext) -> None:
        """A sink object has no user hooks."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Commit everything that the checkpoint, or one before it, prepared."""
        ready = sorted(n for n in self._pending if n <= checkpoint_id)
        batch = [c for n in ready for c in self._pending[n]]
        if batch:
            self.commit(batch)
        for n in ready:
            del self._pending[n]

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Keep what was prepared: it becomes part of the next checkpoint."""

    def close(self) -> None:
        """Drop what was never prepared."""
        if self.writer is not None:
            self._call(self.writer.close)

    def _open_writer(self) -> SinkWriter:
        if self.writer is None:
            msg = f"sink '{self.node.name}' was not opened"
            raise RuntimeError(msg)
        return self.writer


class DriverSinkOperator(SinkOperator):
    """A sink whose staged data the driver commits: committables are handed over to it.

    Invariant: a committable stays in the state until the driver has committed it, which it notes
    beside the file. The driver may take long, and checkpoints that complete meanwhile are what a
    failover goes back to when the driver fails in the end.
    """

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self.handover: list[bytes] = []

    def commit_restored(self, committables: list[bytes]) -> None:
        """Hand over again, and keep: the driver's commit is idempotent, and may fail again."""
        found = [c for c in committables if not self._is_past(c)]
        for committable in found:
            checkpoint, _ = prepared_by(committable, self.restored_checkpoint or 0)
            self._pending.setdefault(checkpoint, []).append(committable)
        self.handover.extend(found)

    def _is_past(self, committable: bytes) -> bool:
        """Tell whether the job that staged rows is over, and all that it had staged is gone.

        So it is with a savepoint of a job that has ended well since, or elsewhere. What a restored
        checkpoint has staged is there, or is missed: see `is_staged`.
        """
        if not self.facts.from_savepoint or is_noted(committable):
            return False
        log.warning("%s. It is a savepoint's: they are left out", missing_note(committable))
        return True

    def notify_complete(self, checkpoint_id: int) -> None:
        """Hand over everything that the driver has not committed, again where it was handed over.

        So a checkpoint whose commit failed comes before the next one, whose commit was under way.
        """
        for number in sorted(n for n in self._pending if n <= checkpoint_id):
            if all(map(is_staged, self._pending[number])):
                self.handover.extend(self._pending[number])
            else:
                del self._pending[number]


def _entry(raw: bytes) -> tuple[int, list[bytes]]:
    number, committables = msgspec.json.decode(raw)
    return int(number), [c.encode() for c in committables]


class FunctionSink(StatefulOperator):
    """Calls a user's `SinkFunction.invoke(value, context)`."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Invoke the function for every record."""
        self.records_in += len(chunk.values)
        context = InvokeContext(self.facts.clock.now_ms(), self.watermark)
        invoke = self.function.invoke
        stamps = chunk.timestamps or [None] * len(chunk.values)
        v: Any = None
        try:
            for v, t in zip(chunk.values, stamps, strict=True):
                context._timestamp = t
                invoke(v, context)
        except BaseException as error:
            raise self.failed(error, v) from None

    def finish(self) -> None:
        """Tell a function that wants to know that no record will follow."""
        hook = getattr(self.function, "finish", None)
        if hook is not None:
            self._call(hook)


class ReportSink(StatefulOperator):
    """print and collect: records travel to the driver with the epoch's report."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._shown = printed(node.options.get("input_type"))

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Add the records to the report of this epoch."""
        self.records_in += len(chunk.values)
        values = list(chunk.values)
        if self.node.kind == "print":
            values = self.results(self._line, values)
        self.facts.report(self.node.index, self.node.kind, values)

    def _line(self, value: Any) -> str:
        identifier = self.node.options.get("identifier")
        many = self.node.parallelism > 1
        number = str(self.facts.subtask + 1) if many else ""
        prefix = ":".join(p for p in (identifier, number) if p)
        shown = self._shown(value)
        return f"{prefix}> {shown}" if prefix else shown
