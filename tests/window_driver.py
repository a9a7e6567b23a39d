"""Drives one window operator by hand: a record, a watermark or a moment at a time.

Every record is an epoch of its own, as in the traces of Flink's tests. `restore` takes a snapshot,
writes it, and goes on with a new operator that read it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from weir.backend.factory import BackendSettings
from weir.codec.arrow import rows_to_batch
from weir.datastream import StreamExecutionEnvironment
from weir.graph.plan import compile_plan
from weir.keygroup import key_group
from weir.runtime.catalog import slot_operator
from weir.runtime.columnar import ColumnInput
from weir.runtime.combining import CombiningWriter
from weir.runtime.frame import GROUPS, MERGED, TIMES, TIMESTAMPS, Chunk, batch_to_chunk
from weir.runtime.operator import TaskFacts
from weir.testing.backend_snapshot_conformance import source_of, write_file
from weir.testing.clock import ManualClock

MIN, MAX = -(1 << 63), (1 << 63) - 1


class Driver:
    """The operator that `declare` makes of a keyed stream of (key, value); results as pairs.

    It is one of windows, unless `kind` says otherwise.
    """

    def __init__(
        self,
        declare,
        backend=None,
        types=None,
        directory=None,
        *,
        max_parallelism=None,
        kind="window",
    ):
        env = StreamExecutionEnvironment()
        if max_parallelism is not None:
            env.set_max_parallelism(max_parallelism)
        declare(env.from_collection([], types).key_by(lambda v: v[0]))
        self.plan = plan = compile_plan(env.build_graph(), 1)
        self.node = next(op for op in plan.operators if op.kind == kind)
        [self.edge] = plan.inputs_of(self.node.index)
        self.clock = ManualClock()
        self.backend = backend or BackendSettings()
        self.directory = directory
        self.results, self.late = [], []
        self.ops = []
        self._begin([], 1)

    @property
    def op(self):
        """The operator, where there is one subtask."""
        [only] = self.ops
        return only

    def _begin(self, sources, parallelism):
        self.node = replace(self.node, parallelism=parallelism)
        self.ops = [self._operator(subtask) for subtask in range(parallelism)]
        for op in self.ops:
            if sources:
                op.restore(1, sources, [])
            op.open()

    def _operator(self, subtask):
        facts = TaskFacts("job", "job", 0, subtask, self.clock, report=lambda *_: None)
        facts.backend, facts.local_dir = self.backend, self.directory
        op = slot_operator(self.node, facts)
        op.consumers.append(lambda c: self._take(self.results, c))
        tag = getattr(self.node.options.get("window"), "late_tag", None)
        if tag is not None:
            op.side_consumers[tag.tag_id] = [lambda c: self._take(self.late, c)]
        return op

    @staticmethod
    def _take(into, chunk):
        stamps = chunk.timestamps or [None] * len(chunk.values)
        into.extend(zip(chunk.values, stamps, strict=True))

    def add(self, *rows):
        """Take rows of (key, value, timestamp), each in an epoch of its own."""
        for row in rows:
            self.epoch(row)
        return self

    def epoch(self, *rows):
        """Take rows of (key, value, timestamp) in one epoch."""
        groups = [key_group(k, self.node.max_parallelism) for k, _, _ in rows]
        for op in self.ops:
            own = [(r, g) for r, g in zip(rows, groups, strict=True) if g in op.key_groups]
            if own:
                chunk = Chunk(
                    [(k, v) for (k, v, _), _ in own],
                    [t for (_, _, t), _ in own],
                    [k for (k, _, _), _ in own],
                    [g for _, g in own],
                )
                op.process(chunk, 0)
            op.end_epoch()
        return self

    def typed_epoch(self, *rows, columns, combined=0):
        """Take rows of (record, timestamp) in one epoch, as columns where the operator can.

        With `combined` the sender combined so many of them at a time. Return whether the operator
        took columns, for each subtask that had rows.
        """
        whole = self._combined(rows, combined) if combined else self._columns(rows)
        taken = []
        for op in self.ops:
            own = np.array([g in op.key_groups for g in whole.groups.tolist()], np.bool_)
            given = ColumnInput(
                whole.batch.filter(pa.array(own)),
                whole.groups[own],
                whole.timestamps.filter(pa.array(own)),
                None if whole.weights is None else whole.weights[own],
            )
            if given.batch.num_rows:
                wanted = columns and op.takes_columns(self.edge)
                taken.append(wanted and op.process_columns(given, self.edge))
                if not taken[-1]:
                    op.process(self._chunk(given), 0)
            op.end_epoch()
        return taken

    def _columns(self, rows):
        batch = rows_to_batch([record for record, _ in rows], self.edge.type)
        count = self.node.max_parallelism
        groups = np.array([key_group(record[0], count) for record, _ in rows], np.uint16)
        return ColumnInput(batch, groups, pa.array([t for _, t in rows], pa.int64()))

    def _combined(self, rows, at_a_time):
        """Send rows as level 0 does, some at a time."""
        writer = CombiningWriter(self.edge, 0, ("windows", "source"), self.node.options["window"])
        writer._combines = True
        for start in range(0, len(rows), at_a_time):
            part = rows[start : start + at_a_time]
            writer.write(Chunk([record for record, _ in part], [t for _, t in part]))
            writer.flush()
        return ColumnInput.of([frame.payload for frame in writer.take_frames()])

    def _chunk(self, given):
        batch = given.batch.append_column(GROUPS, pa.array(given.groups))
        if given.weights is not None:
            counts = self.node.options["window"].contents.aggregate.op == "count"
            batch = batch.append_column(TIMES if counts else MERGED, pa.array(given.weights))
        return batch_to_chunk(batch.append_column(TIMESTAMPS, given.timestamps), self.edge)

    def watermark(self, time):
        for op in self.ops:
            op.on_watermark(time)
            op.end_epoch()
        return self

    def now(self, time):
        """Let processing time go on, and what is due fire."""
        self.clock.set(time)
        for op in self.ops:
            due = op.next_processing_timer()
            if due is not None and due <= time:
                op.on_processing_time(time)
            op.end_epoch()
        return self

    def restore(self, parallelism=1, backend=None):
        """Go on with new operators over the same state, at the same watermark."""
        sources, watermark = [], self.ops[0].watermark
        for op in self.ops:
            snapshot = op.backend.snapshot(1)
            sources.append(source_of(write_file(snapshot), op.key_groups))
            snapshot.release()
        self.close()
        self.backend = backend or self.backend
        self._begin(sources, parallelism)
        for op in self.ops:
            op.watermark = watermark
        return self

    def close(self):
        for op in self.ops:
            op.close()

    def take(self):
        """Return the results since the last call, in an order that does not depend on keys."""
        found, self.results[:] = sorted(self.results, key=lambda r: (r[1] or 0, repr(r))), []
        return found

    def take_late(self):
        found, self.late[:] = list(self.late), []
        return found

    @property
    def entries(self):
        return sum(op.backend.size() for op in self.ops)

    @property
    def timers(self):
        return sum(len(op.event_timers) + len(op.processing_timers) for op in self.ops)
