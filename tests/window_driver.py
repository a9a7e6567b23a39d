"""Drives one window operator by hand: a record, a watermark or a moment at a time.

Every record is an epoch of its own, as in the traces of Flink's tests. `restore` takes a snapshot,
writes it, and goes on with a new operator that read it.
"""

from __future__ import annotations

from weir.backend.factory import BackendSettings
from weir.datastream import StreamExecutionEnvironment
from weir.graph.plan import compile_plan
from weir.keygroup import key_group
from weir.runtime.catalog import slot_operator
from weir.runtime.frame import Chunk
from weir.runtime.operator import TaskFacts
from weir.testing.backend_snapshot_conformance import source_of, write_file
from weir.testing.clock import ManualClock

MIN, MAX = -(1 << 63), (1 << 63) - 1


class Driver:
    """The operator that `declare` makes of a keyed stream of (key, value); results as pairs."""

    def __init__(self, declare, backend=None, types=None, directory=None):
        env = StreamExecutionEnvironment()
        stream = env.from_collection([], types).key_by(lambda v: v[0])
        declare(stream)
        plan = compile_plan(env.build_graph(), 1)
        self.node = next(op for op in plan.operators if op.kind == "window")
        self.clock = ManualClock()
        self.backend = backend or BackendSettings()
        self.directory = directory
        self.results, self.late = [], []
        self._begin(None)

    def _begin(self, data):
        facts = TaskFacts("job", "job", 0, 0, self.clock, report=lambda *_: None)
        facts.backend, facts.local_dir = self.backend, self.directory
        self.op = slot_operator(self.node, facts)
        self.op.consumers.append(lambda c: self._take(self.results, c))
        tag = self.node.options["window"].late_tag
        if tag is not None:
            self.op.side_consumers[tag.tag_id] = [lambda c: self._take(self.late, c)]
        if data is not None:
            self.op.restore(1, [source_of(data)], [])
        self.op.open()

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
        self.op.process(
            Chunk(
                [(k, v) for k, v, _ in rows],
                [t for _, _, t in rows],
                [k for k, _, _ in rows],
                [key_group(k, self.node.max_parallelism) for k, _, _ in rows],
            ),
            0,
        )
        self.op.end_epoch()
        return self

    def watermark(self, time):
        self.op.on_watermark(time)
        self.op.end_epoch()
        return self

    def now(self, time):
        """Let processing time go on, and what is due fire."""
        self.clock.set(time)
        due = self.op.next_processing_timer()
        if due is not None and due <= time:
            self.op.on_processing_time(time)
        self.op.end_epoch()
        return self

    def restore(self):
        snapshot = self.op.backend.snapshot(1)
        data = write_file(snapshot)
        snapshot.release()
        watermark = self.op.watermark
        self.op.close()
        self._begin(data)
        self.op.watermark = watermark
        return self

    def take(self):
        """Return the results since the last call, in an order that does not depend on keys."""
        found, self.results[:] = sorted(self.results, key=lambda r: (r[1] or 0, repr(r))), []
        return found

    def take_late(self):
        found, self.late[:] = list(self.late), []
        return found

    @property
    def entries(self):
        return self.op.backend.size()

    @property
    def timers(self):
        return len(self.op.event_timers) + len(self.op.processing_timers)
