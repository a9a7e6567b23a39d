"""A subtask: all operators of one slot, driven level by level, epoch by epoch.

`run_level` is the whole contract with the engine: the complete input of one level and epoch goes
in, frames come out, and nothing happens in between that the caller could see. The order inside an
epoch is fixed: due processing-time timers, broadcast input, other input in order of origin, then
the end of what it set off, the watermark with its timers, then the barrier's sync phase. Rows in
flight of a restored checkpoint belong to the first epoch, before everything newer on their edge.

A barrier that overtakes rows takes the sync phase of all operators in the middle of a level, by
`cut`, between two slices of records; then the barrier at the end of the epoch means nothing here.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from weir.codec.pickled import first_unpicklable
from weir.failpoint import reach
from weir.graph.plan import EdgeNode, JobPlan, OperatorNode
from weir.graph.transformation import Partitioning
from weir.runtime.batch import BatchInput
from weir.runtime.catalog import slot_operator
from weir.runtime.columnar import ColumnInput
from weir.runtime.connected import BROADCAST_INPUT
from weir.runtime.epoch import Barrier, Epoch
from weir.runtime.event_time import PartitionWatermark, SlotTime
from weir.runtime.frame import (
    REPORT_EDGE,
    Control,
    Frame,
    Incoming,
    origin,
    pack_control,
    pack_report,
    payload_kind,
    size_of,
    unpack_control,
    unpack_data,
    unpack_strides,
)
from weir.runtime.gather import GatheringWriter
from weir.runtime.in_flight import InFlight, LevelProgress, keep
from weir.runtime.memory import LevelOutput
from weir.runtime.metrics import MetricSample, report_metrics
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.pace import Pace
from weir.runtime.raised import unsendable
from weir.runtime.report import Rows, SubtaskReport
from weir.runtime.sinks import DriverSinkOperator
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator

# Records, keys and results of a stride fit into the second-level cache of a processor.
STRIDE_ROWS = 1024
log = logging.getLogger("weir.slot")


class Slicing(Protocol):
    """How a level's records are handled slice by slice."""

    rows: int

    def pause(self, between: Callable[[], None]) -> None:
        """Let `between` happen between two slices: state is whole there."""


@dataclass(frozen=True)
class Pauses:
    """What happens when some records are handled and the next ones are not begun: state is whole.

    `between` is called then. With `slices` records are handled slice by slice, and a slice begins
    with a pause; otherwise a stride ends with one.
    """

    between: Callable[[], None] = lambda: None
    slices: Slicing | None = None


class Subtask:
    """All operators of one slot."""

    def __init__(self, plan: JobPlan, facts: TaskFacts) -> None:
        """Build and wire the operators that this slot owns; user code runs in `open`."""
        self.plan = plan
        self._rows: list[Rows] = []
        self.facts = facts = replace(
            facts, report=lambda index, kind, values: self._rows.append((index, kind, values))
        )
        self.operators: dict[int, Operator] = {
            node.index: slot_operator(node, facts)
            for node in plan.operators
            if node.level > 0 and facts.subtask < node.parallelism
        }
        self._writers: dict[int, list[GatheringWriter]] = defaultdict(list)
        self._output = {
            level: LevelOutput(facts.memory, facts.local_dir)
            for level in range(1, len(plan.level_parallelism))
        }
        self._batch = BatchInput(plan, self.operators, facts) if plan.batch else None
        self.time = SlotTime(plan, self.operators, facts)
        self._columnar = {
            e.id
            for e in plan.edges
            if not e.chained and e.target in self.operators and self._takes_columns(e)
        }
        self._snapshots: dict[int, dict[int, OperatorSnapshot]] = {}
        self._partition_marks: dict[int, list[PartitionWatermark]] = {}
        self._sync_ms: dict[int, int] = {}
        self._cut_id: int | None = None
        self._progress: LevelProgress | None = None
        self._pace = Pace(facts.clock, STRIDE_ROWS)
        self.restored: dict[int, list[Incoming]] = {}
        self.restored_rows: list[Rows] = []
        for op in self.operators.values():
            self._wire(op)

    def _takes_columns(self, edge: EdgeNode) -> bool:
        return self.operators[edge.target].takes_columns(edge)

    def _wire(self, op: Operator) -> None:
        checked = True
        for edge in self.plan.outputs_of(op.node.index):
            consumer: Callable[[Any], None]
            if edge.chained:
                consumer = partial(self._chain, self.operators[edge.target], edge.input_index)
                checked = checked and edge.tag is not None
            else:
                name = self.plan.operators[edge.target].name
                output, giver = self._output[op.node.level], op.node.name
                sent = partial(output.added, giver)
                writer = GatheringWriter(edge, self.facts.subtask, name, giver, sent=sent)
                output.add_writer(writer)
                self._writers[op.node.level].append(writer)
                consumer = writer.write
                checked = checked and (edge.tag is not None or writer.checks_types)
            if edge.tag is None:
                op.consumers.append(consumer)
            else:
                op.side_consumers.setdefault(edge.tag, []).append(consumer)
        if checked:
            op.leave_checks()

    @staticmethod
    def _chain(target: Operator, input_index: int, chunk: Any) -> None:
        target.process(chunk, input_index)

    @property
    def last_level(self) -> int:
        """Return the highest level in which this slot is called."""
        widths = self.plan.level_parallelism
        return max(n for n in range(1, len(widths)) if self.facts.subtask < widths[n])

    def open(self) -> None:
        """Open all operators, consumers before producers, after state was restored."""
        for index in sorted(self.operators, reverse=True):
            self.operators[index].open()

    def run_level(
        self,
        level: int,
        epoch: Epoch,
        frames: Iterable[Incoming],
        pauses: Pauses,
    ) -> list[Frame]:
        """Apply one epoch's input of one level and return what it sends on."""
        begun = self.facts.clock.monotonic_ms(), self.facts.clock.now_ms()
        out: list[Frame] = []
        data: list[Incoming] = []
        self.facts.epoch_ms = epoch.now_ms
        self.facts.looks.begin_epoch(epoch.looked_ms, epoch.begun_ms)
        if level == 1:
            self.time.begin()
        for frame in self._with_restored(level, frames):
            if frame.edge == REPORT_EDGE:
                out.append(Frame(0, REPORT_EDGE, frame.origin, frame.payload))
            elif payload_kind(frame.payload) == b"C" and self._ends_here(frame, level):
                edge = self.plan.edges[frame.edge]
                self.time.take(edge, unpack_control(frame.payload))
            elif self.plan.edges[frame.edge].target_level != level:
                out.append(Frame(self.facts.subtask, frame.edge, frame.origin, frame.payload))
            else:
                data.append(frame)
        if level == 1:
            self.time.settle()
        operators = [op for op in self.operators.values() if op.node.level == level]
        for writer in self._writers[level]:
            writer.restart()
        self._output[level].restart()
        self._on_processing_time(operators)
        data.sort(key=self._order)
        if self._batch is not None:
            self._process_batch(self._batch, data, operators, pauses.between, final=epoch.final)
        elif pauses.slices is None:
            self._process(data, pauses.between)
        else:
            self._process_sliced(data, out, pauses.slices, pauses.between)
        self._on_processing_time(operators)
        self._advance(operators, final=epoch.final)
        if epoch.barrier is not None and epoch.checkpoint_id != self._cut_id:
            self._sync_phase(operators, epoch.barrier)
        for op in operators:
            if isinstance(op, StatefulOperator):
                op.clear_key()
                op.end_epoch()
        out.extend(self._send_controls(level))
        out.append(self._report(level, epoch.number, operators, out, begun=begun))
        return out

    def _ends_here(self, control: Incoming, level: int) -> bool:
        """Tell whether control data is not passed on: what sources say is known at once.

        So nothing of it is on its way when a barrier overtakes rows.
        """
        edge = self.plan.edges[control.edge]
        return edge.source_level == 0 or edge.target_level == level

    def _with_restored(self, level: int, frames: Iterable[Incoming]) -> Iterable[Incoming]:
        """Add rows in flight of the restored checkpoint, once."""
        self._rows += self.restored_rows
        self.restored_rows = []
        restored = self.restored.pop(level, None)
        return frames if restored is None else [*restored, *frames]

    def _order(self, frame: Incoming) -> tuple[int, int, int]:
        return (_priority(self.plan.edges[frame.edge], self.plan), frame.edge, frame.origin)

    def _process_batch(
        self,
        waiting: BatchInput,
        data: list[Incoming],
        operators: list[Operator],
        between: Callable[[], None],
        *,
        final: bool,
    ) -> None:
        self._process_rows(waiting.take(data), between)
        if final:
            for op in operators:
                waiting.finish(op, between)
        else:
            waiting.end_epoch()

    def _process(self, data: list[Incoming], between: Callable[[], None]) -> None:
        if self._columnar:
            data = self._process_columns(data)
        self._process_rows(data, between)

    def _process_columns(self, data: list[Incoming]) -> list[Incoming]:
        """Hand whole columns to operators that take them; return what is left to do."""
        left = [frame for frame in data if frame.edge not in self._columnar]
        for number in sorted(self._columnar):
            frames = [frame for frame in data if frame.edge == number]
            edge = self.plan.edges[number]
            op = self.operators[edge.target]
            columns = all(payload_kind(frame.payload) == b"A" for frame in frames)
            # All of an epoch at once: one look at the state per key is what it is for.
            if columns and frames:
                given = ColumnInput.of([frame.payload for frame in frames])
                if given is not None and op.process_columns(given, edge):
                    reach("slot.epoch")
                    continue
            left += frames
        left.sort(key=self._order)
        return left

    def _process_rows(self, data: list[Incoming], between: Callable[[], None]) -> None:
        edges = self.plan.edges
        for frame in data:
            edge = edges[frame.edge]
            target = self.operators[edge.target]
            for chunk in unpack_strides(frame.payload, edge, STRIDE_ROWS):
                for part in self._pace.parts(chunk):
                    target.process(part, edge.input_index)
                    between()
            reach("slot.epoch")

    def _process_sliced(
        self,
        data: list[Incoming],
        sent: list[Frame],
        slices: Slicing,
        between: Callable[[], None],
    ) -> None:
        progress = self._progress = LevelProgress(data, sent)
        edges = self.plan.edges
        for position, frame in enumerate(data):
            edge = edges[frame.edge]
            chunk = unpack_data(frame.payload, edge)
            process = self.operators[edge.target].process
            progress.next = position + 1
            start = 0
            while start < len(chunk.values):
                progress.begun = (frame, chunk, start)
                slices.pause(between)
                stop = start + slices.rows
                process(chunk.rows(start, stop), edge.input_index)
                start = stop
            progress.begun = None
            reach("slot.epoch")
        self._progress = None

    def cut(
        self, barrier: Barrier, level: int, output: list[Frame] | None, *, replayed: bool
    ) -> InFlight:
        """Take the sync phase of all operators now, and return what is on its way at a level.

        Between two slices of the level, what is on its way is known here; `output` is what the
        level has sent on when it is finished, None when the subtask has no part in it.
        """
        if barrier.checkpoint_id == self._cut_id:
            msg = f"checkpoint {barrier.checkpoint_id} was cut here already, at level {level} again"
            raise RuntimeError(msg)
        operators = list(self.operators.values())
        for op in operators:
            op.settle()
        self._sync_phase(operators, barrier, replayed=replayed)
        self._cut_id = barrier.checkpoint_id
        frames = list(output or ())
        if self._progress is not None:
            for writer in self._writers[level]:
                writer.flush()
            written = [f for writer in self._writers[level] for f in writer.frames]
            frames = [*self._progress.frames(self.facts.subtask), *written]
        for restored in self.restored.values():
            frames += [Frame(self.facts.subtask, f.edge, f.origin, f.payload) for f in restored]
        rows = [*self._rows, *self.restored_rows]
        return keep(self.plan, level, frames, rows, replayed=replayed)

    def _on_processing_time(self, operators: list[Operator]) -> None:
        if self.plan.batch:
            return
        clock_ms, epoch_ms = self.facts.clock.now_ms(), self.facts.now_ms()
        for op in operators:
            now = epoch_ms if op.by_epoch else clock_ms
            due = op.next_processing_timer()
            if due is not None and due <= now:
                op.on_processing_time(now)

    def _advance(self, operators: list[Operator], *, final: bool) -> None:
        for op in operators:
            op.settle()
            self.time.advance(op, final=final)
            if final:
                op.finish()

    def _sync_phase(
        self, operators: list[Operator], barrier: Barrier, *, replayed: bool = False
    ) -> None:
        checkpoint = barrier.checkpoint_id
        taken = self._snapshots.setdefault(checkpoint, {})
        if replayed or checkpoint not in self._partition_marks:
            self._partition_marks[checkpoint] = self.time.snapshot(replayed=replayed)
        reach("slot.sync")
        started = self.facts.clock.monotonic_ms()
        for op in operators:
            if isinstance(op, StatefulOperator) and op.node.index not in taken:
                taken[op.node.index] = op.snapshot(
                    checkpoint,
                    barrier.timestamp_ms,
                    self.facts.snapshot_kind(full=barrier.full, native=barrier.native),
                )
        elapsed = self.facts.clock.monotonic_ms() - started
        self._sync_ms[checkpoint] = self._sync_ms.get(checkpoint, 0) + elapsed

    def take_snapshots(self, checkpoint_id: int) -> list[OperatorSnapshot]:
        """Hand over what the sync phases of all levels froze for a checkpoint."""
        return list(self._snapshots.pop(checkpoint_id, {}).values())

    def take_partition_marks(self, checkpoint_id: int) -> list[PartitionWatermark]:
        """Hand over how far the partitions of the sources were; every slot is told the same."""
        return self._partition_marks.pop(checkpoint_id, [])

    def take_sync_ms(self, checkpoint_id: int) -> int:
        """Return how long the sync phases of a checkpoint took."""
        return self._sync_ms.pop(checkpoint_id, 0)

    def _send_controls(self, level: int) -> list[Frame]:
        frames: list[Frame] = []
        for writer in self._writers[level]:
            frames.extend(writer.take_frames())
            edge = writer.edge
            watermark, idle = self.operators[edge.source].output_time()
            payload = pack_control(Control(self.facts.subtask, watermark, idle))
            frames.extend(
                Frame(target, edge.id, origin(self.facts.subtask, 0), payload)
                for target in range(edge.parallelism)
            )
        return frames

    def _report(
        self,
        level: int,
        epoch: int,
        operators: list[Operator],
        out: list[Frame],
        *,
        begun: tuple[int, int],
    ) -> Frame:
        timers = [op.next_processing_timer() for op in operators]
        silences = [*(op.idle_from_ms() for op in operators), self.time.idle_from_ms()]
        if self.plan.batch:
            timers, silences = [], []
        stateful = [op for op in operators if isinstance(op, StatefulOperator)]
        beside_sources = self.time.source_marks() if level == 1 else {}
        begun_ms, since_ms = begun
        report = SubtaskReport(
            level=level,
            subtask=self.facts.subtask,
            epoch=epoch,
            rows=self._rows,
            bytes_sent=size_of(out),
            records_in={op.node.index: op.records_in for op in operators},
            records_out={op.node.index: op.records_out for op in operators},
            entries=sum(op.state_entries() for op in stateful),
            watermark=min((op.watermark for op in operators), default=0),
            next_timer_ms=min((t for t in timers if t is not None), default=None),
            idle_from_ms=min((t for t in silences if t is not None), default=None),
            metrics=self._metrics(operators),
            busy_ms=self.facts.clock.monotonic_ms() - begun_ms,
            begun_ms=since_ms,
            watermarks=beside_sources | {op.node.index: op.watermark for op in operators},
        )
        frame = Frame(0, REPORT_EDGE, origin(self.facts.subtask, level), self._pack(report))
        self._rows.clear()
        return frame

    def _pack(self, report: SubtaskReport) -> bytes:
        try:
            return pack_report(report)
        except BaseException as error:
            # One of the sinks that report records: the first whose records cannot be packed alone.
            for index, _, values in report.rows:
                if first_unpicklable(values) is not None:
                    name = self.plan.operators[index].name
                    raise unsendable(name, values, error) from error
            raise

    def _metrics(self, operators: list[Operator]) -> dict[int, list[MetricSample]]:
        stateful = [op for op in operators if isinstance(op, StatefulOperator)]
        now = self.facts.clock.now_ms()
        return report_metrics({op.node.index: op.metrics for op in stateful}, now)

    def take_staged(self) -> list[tuple[str, list[bytes]]]:
        """Hand over what sinks staged for the driver to commit, by operator id."""
        staged: list[tuple[str, list[bytes]]] = []
        for op in self.operators.values():
            if isinstance(op, DriverSinkOperator) and op.handover:
                staged.append((op.node.id, op.handover))
                op.handover = []
        return staged

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell all operators, so that sinks commit."""
        for op in self.operators.values():
            op.notify_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell all operators."""
        for op in self.operators.values():
            op.notify_aborted(checkpoint_id)

    def close(self) -> None:
        """Close all operators; the first error is raised after all were tried."""
        errors = [e for op in self.operators.values() if (e := _closing_error(op)) is not None]
        for error in errors[1:]:
            log.error("another operator was not closed in order: %s", error)
        if errors:
            raise errors[0]


def _closing_error(op: Operator) -> Exception | None:
    try:
        op.close()
    except Exception as error:
        return error
    return None


def _priority(edge: EdgeNode, plan: JobPlan) -> int:
    target: OperatorNode = plan.operators[edge.target]
    if target.kind == "broadcast_process":
        return 0 if edge.input_index == BROADCAST_INPUT else 1
    if edge.partitioning is Partitioning.BROADCAST:
        return 0
    return edge.input_index + 1
