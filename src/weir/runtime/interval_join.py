"""Interval joins: pairs of records with one key whose timestamps are close enough.

Each side keeps its records in a map from timestamp to records, until the watermark says that no
partner can follow. A record is joined with what the other side has kept when it comes, so a pair
is made once, by the later comer. Within an epoch the left input is handled before the right one.

A timer of a key stands for both sides: at time T go the left records whose last partner could be
at T, and the right ones alike. What is removed at T thus depends on T and the bounds alone, and
needs no namespaces. Who starts with other bounds than a checkpoint sets the timers anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import compress
from typing import Any

from weir.backend.base import KeyedBackend
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.keygroup import key_group
from weir.metrics import Counter
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, Chunk
from weir.runtime.keyed import keyed_stride
from weir.runtime.operator import TaskFacts
from weir.runtime.raised import shorten
from weir.runtime.stateful import StatefulOperator
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor

BUFFERS = ("_left_buffer", "_right_buffer")
LATE_DROPPED = "numLateRecordsDropped"
# The bounds under which timers were set, of every subtask.
BOUNDS = ListStateDescriptor("_bounds", Types.TUPLE([Types.LONG(), Types.LONG()]))


class PairContext:
    """Context of `process_element`: the two timestamps."""

    __slots__ = ("_left", "_right")

    def __init__(self) -> None:
        """Start without a pair; the operator sets the times before each call."""
        self._left = MIN_WATERMARK
        self._right = MIN_WATERMARK

    def get_left_timestamp(self) -> int:
        """Return the timestamp of the left record."""
        return self._left

    def get_right_timestamp(self) -> int:
        """Return the timestamp of the right record."""
        return self._right

    def get_timestamp(self) -> int:
        """Return the timestamp of the pair: the later of the two."""
        return max(self._left, self._right)


class _Side:
    """One input: where its partners are, how long its records are kept, where late ones go.

    A record at time t has its partners from t + `first` to t + `last`, and no later ones than at
    t + `wait`; that is not before t itself.
    """

    __slots__ = ("buffer", "descriptor", "first", "last", "late", "wait")

    def __init__(self, index: int, node: OperatorNode) -> None:
        lower, upper = node.options["bounds"]
        self.first, self.last = (lower, upper) if index == 0 else (-upper, -lower)
        self.wait = max(self.last, 0)
        self.late: str | None = node.options["late"][index]
        declared = node.options["types"][index]
        element = None if declared is None else Types.LIST(declared)
        self.descriptor = MapStateDescriptor(BUFFERS[index], Types.LONG(), element)
        self.buffer: Any = None


class IntervalJoin(StatefulOperator):
    """The interval join of two keyed inputs."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._sides = (_Side(0, node), _Side(1, node))
        self._context = PairContext()
        self._dropped: Counter = self.metrics.group.counter(LATE_DROPPED)

    def open(self) -> None:
        """Find the buffers, then open the user's function."""
        for side in self._sides:
            side.buffer = self._keyed().state(side.descriptor)
        self._adopt_bounds()
        super().open()

    def _adopt_bounds(self) -> None:
        """Set timers anew where records were kept under other bounds: the old ones miss them."""
        stored = self.operator_store.get_union_list_state(BOUNDS)
        known = set(stored.get())
        stored.update([self.node.options["bounds"]])
        if known <= {self.node.options["bounds"]}:
            return
        backend = self._keyed()
        current = backend.current
        for side in self._sides:
            for key in backend.keys(side.descriptor.name):
                current.key = key
                current.group = key_group(key, self.node.max_parallelism)
                times = side.buffer.keys()
                for t in times:
                    self._let_go_at(t + side.wait, key, current.group)
        self.clear_key()

    def _let_go_at(self, time: int, key: Any, group: int) -> None:
        self.event_timers.register(min(time, MAX_WATERMARK), key, group)

    def _keyed(self) -> KeyedBackend:
        if self.backend is None:
            msg = f"operator '{self.node.name}' is not keyed: both inputs need key_by()"
            raise UsageError(msg)
        return self.backend

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Join every record with the other side, then keep them."""
        self.records_in += len(chunk.values)
        side, other = self._sides[input_index], self._sides[1 - input_index]
        stamps = self._timestamps(chunk)
        if min(stamps) < self.watermark:
            chunk, stamps = self._without_late(chunk, stamps, side)
            if not stamps:
                return
        out, times = self._join(chunk, stamps, other, came_left=input_index == 0)
        self._keep(chunk, stamps, side)
        self.end_stride()
        self.emit_tagged(out, times)

    def _timestamps(self, chunk: Chunk) -> list[int]:
        stamps: Any = chunk.timestamps
        if stamps is None or None in stamps or MIN_WATERMARK in stamps:
            known = [None] * len(chunk.values) if stamps is None else stamps
            record = next(
                v
                for v, t in zip(chunk.values, known, strict=True)
                if t is None or t == MIN_WATERMARK
            )
            msg = (
                f"operator '{self.node.name}' at record {shorten(record)}: it has no timestamp, "
                "and an interval join pairs records by event time: call "
                "assign_timestamps_and_watermarks() on both streams before key_by()"
            )
            raise UsageError(msg)
        checked: list[int] = stamps
        return checked

    def _without_late(
        self, chunk: Chunk, stamps: list[int], side: _Side
    ) -> tuple[Chunk, list[int]]:
        """Take late records out: to their side output, or nowhere."""
        reached = self.watermark
        late = [t < reached for t in stamps]
        values: list[Any] = list(compress(chunk.values, late))
        if side.late is None:
            self._dropped.inc(len(values))
        else:
            times: list[int | None] = list(compress(stamps, late))
            self.emit_side(side.late, values, times)
        kept = [not x for x in late]
        rest = Chunk(
            list(compress(chunk.values, kept)),
            list(compress(stamps, kept)),
            list(compress(chunk.keys or (), kept)),
            list(compress(chunk.groups or (), kept)),
        )
        return rest, list(compress(stamps, kept))

    def _join(
        self, chunk: Chunk, stamps: list[int], other: _Side, *, came_left: bool
    ) -> tuple[list[Any], list[int | None]]:
        """Return what the user's function gives for all pairs, with their timestamps."""
        join, context = self.function.process_element, self._context
        out: list[Any] = []
        times: list[int | None] = []
        pair: Any = None
        try:
            for value, t, found in self._partners(chunk, stamps, other):
                for s, bucket in found:
                    context._left, context._right = (t, s) if came_left else (s, t)
                    for partner in bucket:
                        pair = (value, partner) if came_left else (partner, value)
                        result = join(*pair, context)
                        if result is not None:
                            out.extend(result)
                    times.extend([t if t > s else s] * (len(out) - len(times)))
        except BaseException as error:
            raise self.failed(error, pair) from None
        return out, times

    def _partners(
        self, chunk: Chunk, stamps: list[int], other: _Side
    ) -> Iterator[tuple[Any, int, list[tuple[int, list[Any]]]]]:
        """Go through the records that have partners, with these; the key is the current one.

        The other side does not change meanwhile: its times are looked up once a key. Only records
        that are partners are read, which is what a backend that tracks changes has to look at.
        """
        backend = self._keyed()
        current, buffer = backend.current, other.buffer
        first, last = -other.last, -other.first
        known: dict[Any, list[int]] = {}
        rows = zip(keyed_stride(backend, chunk, self.ttl), stamps, strict=True)
        for (value, key, group), t in rows:
            current.key = key
            current.group = group
            times = known.get(key)
            if times is None:
                times = known[key] = sorted(buffer.keys())
            if times:
                start = bisect_left(times, t + first)
                stop = bisect_right(times, t + last, start)
                if start < stop:
                    yield value, t, [(s, buffer.get(s)) for s in times[start:stop]]

    def _keep(self, chunk: Chunk, stamps: list[int], side: _Side) -> None:
        """Keep records until nothing can pair with them any more."""
        backend = self._keyed()
        added: dict[tuple[Any, int], tuple[int, list[Any]]] = {}
        rows = zip(chunk.values, chunk.keys or (), chunk.groups or (), stamps, strict=True)
        for value, key, group, t in rows:
            bucket = added.get((key, t))
            if bucket is None:
                added[key, t] = (group, [value])
            else:
                bucket[1].append(value)
        current, buffer, wait = backend.current, side.buffer, side.wait
        for (key, t), (group, values) in added.items():
            current.key = key
            current.group = group
            kept = buffer.get(t)
            if kept is None:
                self._let_go_at(t + wait, key, group)
                buffer.put(t, values)
            else:
                buffer.put(t, kept + values)

    def on_watermark(self, watermark: int) -> None:
        """Advance event time, and let go what no record to come can pair with."""
        super().on_watermark(watermark)
        current = self._keyed().current
        (left, left_wait), (right, right_wait) = ((s.buffer, s.wait) for s in self._sides)
        for timer in self.event_timers.pop_due(watermark):
            current.key = timer.key
            current.group = timer.group
            if timer.timestamp == MAX_WATERMARK:
                left.clear()
                right.clear()
            else:
                left.remove(timer.timestamp - left_wait)
                right.remove(timer.timestamp - right_wait)
