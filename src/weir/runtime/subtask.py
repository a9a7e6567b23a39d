"""A subtask: all operators of one slot, driven level by level, epoch by epoch.

`run_level` is the whole contract with the engine: the complete input of one level and epoch goes
in, frames come out, and nothing happens in between that the caller could see. The order inside an
epoch is fixed: due processing-time timers, broadcast input, other input in order of origin, then
the watermark with its timers, then the barrier's sync phase. Rows in flight of a restored
checkpoint belong to the first epoch, before everything newer on their edge.

A barrier that overtakes rows takes the sync phase of all operators in the middle of a level, by
`cut`, between two slices of records; then the barrier at the end of the epoch means nothing here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from weir.failpoint import reach
from weir.graph.plan import EdgeNode, JobPlan, OperatorNode
from weir.graph.transformation import Partitioning
from weir.runtime.catalog import slot_operator
from weir.runtime.columnar import ColumnInput
from weir.runtime.connected import BROADCAST_INPUT
from weir.runtime.frame import (
    MAX_WATERMARK,
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
    unpack_parts,
)
from weir.runtime.gather import GatheringWriter
from weir.runtime.in_flight import InFlight, LevelProgress, keep
from weir.runtime.operator import Operator, TaskFacts
from weir.runtime.rolling import SlotAggregate
from weir.runtime.sinks import DriverSinkOperator
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.runtime.stateless import TimestampsOperator
from weir.runtime.watermarks import EdgeWatermark

# Records, keys and results of a part fit into the second-level cache of a processor.
PART_ROWS = 1024


@dataclass(frozen=True)
class EpochInfo:
    """What the coordinator says about an epoch: its number, its barrier, whether it is the last.

    `checkpoint_id` is the barrier that closes the epoch, `final` marks the end of bounded input.
    With `full` the checkpoint must not depend on files of others; with `native` as well its state
    is in the backend's own format. With `overtaking` the barrier may overtake rows.
    """

    epoch: int
    checkpoint_id: int | None = None
    checkpoint_timestamp_ms: int = 0
    final: bool = False
    drain: bool = True
    full: bool = False
    native: bool = False
    overtaking: bool = False


class Slices(Protocol):
    """How a level's records are handled in parts."""

    rows: int

    def pause(self) -> None:
        """Do what is to be done between two slices: state is whole there."""


class Subtask:
    """All operators of one slot."""

    def __init__(self, plan: JobPlan, facts: TaskFacts) -> None:
        """Build and wire the operators that this slot owns; user code runs in `open`."""
        self.plan = plan
        self.facts = facts
        self._reports: list[tuple[int, str, list[Any]]] = []
        facts.report = lambda index, kind, values: self._reports.append((index, kind, values))
        self.operators: dict[int, Operator] = {
            node.index: slot_operator(node, facts)
            for node in plan.operators
            if node.level > 0 and facts.subtask < node.parallelism
        }
        self._writers: dict[int, list[GatheringWriter]] = defaultdict(list)
        self._watermarks = {
            e.id: EdgeWatermark(self._upstreams(e), facts.clock)
            for e in plan.edges
            if not e.chained and e.target in self.operators
        }
        self._columnar = {
            e.id
            for e in plan.edges
            if not e.chained and e.target in self.operators and self._takes_columns(e)
        }
        self._snapshots: dict[int, dict[int, OperatorSnapshot]] = {}
        self._sync_ms: dict[int, int] = {}
        self._cut_id: int | None = None
        self._progress: LevelProgress | None = None
        self.between_parts: Callable[[], None] = _nothing
        """Called when some records are handled and the next ones are not begun: state is whole."""
        self.restored: dict[int, list[Incoming]] = {}
        self.restored_rows: list[tuple[int, str, list[Any]]] = []
        self.finished = False
        for op in self.operators.values():
            self._wire(op)

    def _upstreams(self, edge: EdgeNode) -> Iterable[int]:
        if edge.source_level == 0:
            return self.plan.watermark_generators(edge.source)
        return range(self.plan.operators[edge.source].parallelism)

    def _takes_columns(self, edge: EdgeNode) -> bool:
        op = self.operators[edge.target]
        return isinstance(op, SlotAggregate) and op.takes_columns(edge)

    def _wire(self, op: Operator) -> None:
        for edge in self.plan.outputs_of(op.node.index):
            consumer: Callable[[Any], None]
            if edge.chained:
                consumer = partial(self._chain, self.operators[edge.target], edge.input_index)
            else:
                name = self.plan.operators[edge.target].name
                writer = GatheringWriter(edge, self.facts.subtask, name)
                self._writers[op.node.level].append(writer)
                consumer = writer.write
            if edge.tag is None:
                op.consumers.append(consumer)
            else:
                op.side_consumers.setdefault(edge.tag, []).append(consumer)

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
        info: EpochInfo,
        frames: Iterable[Incoming],
        slices: Slices | None = None,
    ) -> list[Frame]:
        """Apply one epoch's input of one level and return what it sends on.

        With `slices` the records are handled in parts, and `slices.pause` is called before each.
        """
        out: list[Frame] = []
        data: list[Incoming] = []
        for frame in self._with_restored(level, frames):
            if frame.edge == REPORT_EDGE:
                out.append(Frame(0, REPORT_EDGE, frame.origin, frame.payload))
            elif self.plan.edges[frame.edge].target_level != level:
                out.append(Frame(self.facts.subtask, frame.edge, frame.origin, frame.payload))
            elif payload_kind(frame.payload) == b"C":
                self._watermarks[frame.edge].add(unpack_control(frame.payload))
            else:
                data.append(frame)
        operators = [op for op in self.operators.values() if op.node.level == level]
        for writer in self._writers[level]:
            writer.restart()
        self._on_processing_time(operators)
        data.sort(key=self._order)
        if slices is None:
            self._process(data)
        else:
            self._process_sliced(data, out, slices)
        self._on_processing_time(operators)
        self._advance(operators, info)
        if info.checkpoint_id is not None and info.checkpoint_id != self._cut_id:
            self._sync_phase(operators, info)
        for op in operators:
            if isinstance(op, StatefulOperator):
                op.clear_key()
                op.end_epoch()
        out.extend(self._send_controls(level, info))
        out.append(self._report(level, info, operators, size_of(out)))
        return out

    def _with_restored(self, level: int, frames: Iterable[Incoming]) -> Iterable[Incoming]:
        """Add rows in flight of the restored checkpoint, once."""
        self._reports += self.restored_rows
        self.restored_rows = []
        restored = self.restored.pop(level, None)
        return frames if restored is None else [*restored, *frames]

    def _order(self, frame: Incoming) -> tuple[int, int, int]:
        return (_priority(self.plan.edges[frame.edge], self.plan), frame.edge, frame.origin)

    def _process(self, data: list[Incoming]) -> None:
        if self._columnar:
            data = self._process_columns(data)
        self._process_rows(data)

    def _process_columns(self, data: list[Incoming]) -> list[Incoming]:
        """Hand whole columns to operators that take them; return what is left to do."""
        left = [frame for frame in data if frame.edge not in self._columnar]
        for number in sorted(self._columnar):
            frames = [frame for frame in data if frame.edge == number]
            edge = self.plan.edges[number]
            op = self.operators[edge.target]
            columns = all(payload_kind(frame.payload) == b"A" for frame in frames)
            # All of an epoch at once: one look at the state per key is what it is for.
            if columns and frames and isinstance(op, SlotAggregate):
                given = ColumnInput.of([frame.payload for frame in frames])
                self._watermarks[number].saw_records()
                if given is not None and op.process_columns(given, edge):
                    reach("slot.epoch")
                    continue
            left += frames
        left.sort(key=self._order)
        return left

    def _process_rows(self, data: list[Incoming]) -> None:
        edges = self.plan.edges
        for frame in data:
            edge = edges[frame.edge]
            target = self.operators[edge.target]
            for chunk in unpack_parts(frame.payload, edge, PART_ROWS):
                self._watermarks[edge.id].saw_records()
                target.process(chunk, edge.input_index)
                self.between_parts()
            reach("slot.epoch")

    def _process_sliced(self, data: list[Incoming], sent: list[Frame], slices: Slices) -> None:
        progress = self._progress = LevelProgress(data, sent)
        edges = self.plan.edges
        for position, frame in enumerate(data):
            edge = edges[frame.edge]
            chunk = unpack_data(frame.payload, edge)
            self._watermarks[edge.id].saw_records()
            process = self.operators[edge.target].process
            progress.next = position + 1
            start = 0
            while start < len(chunk.values):
                progress.begun = (frame, chunk, start)
                slices.pause()
                stop = start + slices.rows
                process(chunk.rows(start, stop), edge.input_index)
                start = stop
            progress.begun = None
            reach("slot.epoch")
        self._progress = None

    def cut(
        self, info: EpochInfo, level: int, output: list[Frame] | None, *, replayed: bool
    ) -> InFlight:
        """Take the sync phase of all operators now, and return what is on its way at a level.

        Between two slices of the level, what is on its way is known here; `output` is what the
        level has sent on when it is finished, None when the subtask has no part in it.
        """
        checkpoint = info.checkpoint_id
        if checkpoint is None or checkpoint == self._cut_id:
            msg = f"checkpoint {checkpoint!r} cannot be cut in epoch {info.epoch!r}"
            raise RuntimeError(msg)
        self._sync_phase(list(self.operators.values()), info)
        self._cut_id = checkpoint
        frames = list(output or ())
        if self._progress is not None:
            for writer in self._writers[level]:
                writer.flush()
            written = [f for writer in self._writers[level] for f in writer.frames]
            frames = [*self._progress.frames(self.facts.subtask), *written]
        for restored in self.restored.values():
            frames += [Frame(self.facts.subtask, f.edge, f.origin, f.payload) for f in restored]
        rows = [*self._reports, *self.restored_rows]
        return keep(self.plan, level, frames, rows, replayed=replayed)

    def _on_processing_time(self, operators: list[Operator]) -> None:
        now = self.facts.clock.now_ms()
        for op in operators:
            due = op.next_processing_timer()
            if due is not None and due <= now:
                op.on_processing_time(now)

    def _advance(self, operators: list[Operator], info: EpochInfo) -> None:
        for op in operators:
            inputs = self.plan.inputs_of(op.node.index)
            watermark = self._input_watermark(inputs)
            if info.final and info.drain:
                watermark = MAX_WATERMARK
            if watermark is not None and watermark > op.watermark:
                op.on_watermark(watermark)
            if info.final:
                op.finish()
        self.finished = self.finished or info.final

    def _input_watermark(self, inputs: list[EdgeNode]) -> int | None:
        marks = []
        for edge in inputs:
            if edge.chained:
                marks.append(self.output_watermark(self.operators[edge.source]))
            else:
                tracked = self._watermarks[edge.id]
                if not tracked.idle():
                    marks.append(tracked.value)
        return min(marks, default=None)

    @staticmethod
    def output_watermark(op: Operator) -> int:
        """Return what an operator tells downstream: its own watermark or the one it generates."""
        if isinstance(op, TimestampsOperator) and op.watermark != MAX_WATERMARK:
            return op.generated
        return op.watermark

    def _sync_phase(self, operators: list[Operator], info: EpochInfo) -> None:
        checkpoint = info.checkpoint_id
        if checkpoint is None:
            return
        taken = self._snapshots.setdefault(checkpoint, {})
        reach("slot.sync")
        started = self.facts.clock.monotonic_ms()
        for op in operators:
            if isinstance(op, StatefulOperator) and op.node.index not in taken:
                taken[op.node.index] = op.snapshot(
                    checkpoint,
                    info.checkpoint_timestamp_ms,
                    self.facts.snapshot_kind(full=info.full, native=info.native),
                )
        elapsed = self.facts.clock.monotonic_ms() - started
        self._sync_ms[checkpoint] = self._sync_ms.get(checkpoint, 0) + elapsed

    def take_snapshots(self, checkpoint_id: int) -> list[OperatorSnapshot]:
        """Hand over what the sync phases of all levels froze for a checkpoint."""
        return list(self._snapshots.pop(checkpoint_id, {}).values())

    def take_sync_ms(self, checkpoint_id: int) -> int:
        """Return how long the sync phases of a checkpoint took."""
        return self._sync_ms.pop(checkpoint_id, 0)

    def drop_snapshots(self) -> None:
        """Release snapshots that were never handed over."""
        for taken in self._snapshots.values():
            for snapshot in taken.values():
                snapshot.release()
        self._snapshots.clear()

    def _send_controls(self, level: int, info: EpochInfo) -> list[Frame]:
        frames: list[Frame] = []
        for writer in self._writers[level]:
            sent = writer.take_frames()
            frames.extend(sent)
            edge = writer.edge
            mark = self.output_watermark(self.operators[edge.source])
            control = Control(self.facts.subtask, mark, info.checkpoint_id, len(sent), None)
            payload = pack_control(control)
            frames.extend(
                Frame(target, edge.id, origin(self.facts.subtask, 0), payload)
                for target in range(edge.parallelism)
            )
        return frames

    def _report(self, level: int, info: EpochInfo, operators: list[Operator], sent: int) -> Frame:
        timers = [op.next_processing_timer() for op in operators]
        report = {
            "level": level,
            "subtask": self.facts.subtask,
            "epoch": info.epoch,
            "rows": self._reports,
            "sent": sent,
            "in": {op.node.index: op.records_in for op in operators},
            "out": {op.node.index: op.records_out for op in operators},
            "entries": sum(
                op.state_entries() for op in operators if isinstance(op, StatefulOperator)
            ),
            "watermark": min((op.watermark for op in operators), default=0),
            "next_timer": min((t for t in timers if t is not None), default=None),
        }
        number = origin(self.facts.subtask, level)
        frame = Frame(0, REPORT_EDGE, number, pack_report(report))
        self._reports.clear()
        return frame

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
        if errors:
            raise errors[0]


def _nothing() -> None:
    """Nobody has anything to do between two parts."""


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
