"""State of an operator that no job ran: its function sees records, and its state is written.

The operator is the one that a job would run, opened, fed and snapshotted as there; only time stands
still: no timer fires, no window ends, and what it emits is dropped. What comes before it runs on
the source side, as in a job. Each subtask is made on its own, in whichever process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from weir.backend.base import SnapshotKind
from weir.backend.factory import BackendSettings
from weir.checkpoint.metadata import (
    FileRecord,
    OperatorRecord,
    OperatorStateRecord,
    SubtaskRecord,
)
from weir.clock import Clock, SystemClock
from weir.connector.decoder import Piece
from weir.errors import UsageError
from weir.graph.plan import JobPlan, OperatorNode
from weir.ids import operator_id
from weir.offline.writing import Target
from weir.runtime.catalog import slot_operator
from weir.runtime.frame import (
    Frame,
    Incoming,
    frames_to_batch,
    incoming_of,
    unpack_strides,
)
from weir.runtime.operator import TaskFacts
from weir.runtime.source_side import SourceSide
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.runtime.subtask import STRIDE_ROWS
from weir.slot.upload import share_of
from weir.snapshot import SnapshotWriter
from weir.storage.private_files import scratch_directory

MadeSubtask = tuple[SubtaskRecord, FileRecord]


class BootstrapInput(Protocol):
    """Who reads the records of a bootstrap, and runs its subtasks."""

    def run(
        self, bootstrap: Bootstrap, target: Target, operator: OperatorRecord
    ) -> list[MadeSubtask]:
        """Write a file for each subtask of the operator, in their order."""


@dataclass(frozen=True)
class Bootstrap:
    """A program whose last operator gets its state from records; travels to other processes.

    The plan has no sources any more: whoever runs it reads them.
    """

    plan: JobPlan
    checkpoint_id: int = 1
    backend: BackendSettings = field(default_factory=BackendSettings)
    parameters: dict[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def operator(self) -> OperatorNode:
        """The operator whose state is made."""
        return self.plan.operators[-1]

    def renamed(self, uid: str) -> Bootstrap:
        """Return the same bootstrap for an operator of another uid."""
        before = self.plan.operators
        node = replace(self.operator, id=operator_id(uid), uid=uid)
        return replace(self, plan=replace(self.plan, operators=[*before[:-1], node]))

    def frames(self, partition: int, pieces: Iterable[tuple[int, Piece]]) -> Iterator[list[Frame]]:
        """Run what comes before the operator over records of the sources, given by their index."""
        side = SourceSide(self.plan, self._facts(partition))
        for source, piece in pieces:
            side.take(source, piece)
            frames = side.take_frames()
            if frames:
                yield frames
        yield side.take_frames()

    def run_subtask(self, index: int, frames: Iterable[Incoming], target: Target) -> MadeSubtask:
        """Feed one subtask and write its state; returns what the metadata says of it.

        Raises:
            UserFunctionError: the function raised.
            StorageError: the file cannot be written.
        """
        with ExitStack() as stack:
            local = stack.enter_context(scratch_directory("weir-bootstrap-"))
            facts = replace(self._facts(index), local_dir=local)
            op = slot_operator(self.operator, facts)
            if not isinstance(op, StatefulOperator):
                msg = f"operator '{op.node.name}' holds no state: give transform() a function"
                raise UsageError(msg)
            stack.callback(op.close)
            op.open()
            for frame in frames:
                edge = self.plan.edges[frame.edge]
                for chunk in unpack_strides(frame.payload, edge, STRIDE_ROWS):
                    op.process(chunk, edge.input_index)
            op.settle()
            snapshot = op.snapshot(self.checkpoint_id, self.clock.now_ms(), SnapshotKind.FULL)
            op.clear_key()
            op.end_epoch()
            return self._written(index, snapshot, target)

    def _written(self, index: int, snapshot: OperatorSnapshot, target: Target) -> MadeSubtask:
        made: list[SubtaskRecord] = []
        shared = self._facts(index).shared_files(snapshot.node.id)

        def fill(writer: SnapshotWriter) -> dict[str, Any]:
            footer, keyed = snapshot.write(writer, shared)
            share = share_of(snapshot, footer, keyed, writer.size)
            states = {
                name: OperatorStateRecord(mode, count)  # type: ignore[arg-type]
                for name, (mode, count) in share.operator_states.items()
            }
            made.append(
                SubtaskRecord(
                    index,
                    keyed_range=share.keyed_range,
                    keyed_states=tuple(share.keyed_states),
                    operator_states=states,
                )
            )
            return {snapshot.node.id: footer}

        file = target.write(index, fill)
        snapshot.release()
        return made[0], file

    def _facts(self, subtask: int) -> TaskFacts:
        return TaskFacts(
            job_id="",
            job_name=self.plan.job_name,
            attempt=0,
            subtask=subtask,
            clock=self.clock,
            report=lambda index, kind, values: None,
            job_parameters=self.parameters,
            backend=replace(self.backend, incremental=False, changelog=False),
        )


def check_bootstrap(plan: JobPlan) -> None:
    """Refuse a program of which more than the last operator would need a slot.

    Raises:
        UsageError: it is one.
    """
    last = plan.operators[-1]
    others = [op.name for op in plan.operators[:-1] if op.level > 0]
    if others or last.level != 1:
        named = ", ".join(map(repr, others)) or repr(last.name)
        msg = (
            f"a bootstrap has functions without state before its own operator, and {named} needs a "
            "slot: prepare the records with Spark, or in a job that writes them, and bootstrap "
            "from its output"
        )
        raise UsageError(msg)


@dataclass(frozen=True)
class PiecesInMemory:
    """Records that this process holds, by the index of their source."""

    pieces: tuple[tuple[int, Piece], ...]

    def run(
        self, bootstrap: Bootstrap, target: Target, operator: OperatorRecord
    ) -> list[MadeSubtask]:
        """Run one subtask after the other, here."""
        frames: list[list[Incoming]] = [[] for _ in range(operator.parallelism)]
        for made in bootstrap.frames(0, self.pieces):
            for frame in made:
                frames[frame.target] += incoming_of(frames_to_batch([frame], int))
        return [
            bootstrap.run_subtask(index, frames[index], target)
            for index in range(operator.parallelism)
        ]
