"""Interval joins: pairs of records with one key whose timestamps are close enough.

Each side keeps its records in a map from timestamp to records, until the watermark says that no
partner can follow. A record is joined with what the other side has kept when it comes, so a pair
is made once, by the later comer. Within an epoch the left input is handled before the right one.

Records wait in memory for the watermark of their epoch, or for a snapshot: those that it rules out
as partners never become state, and of the others a key's go there at once. What is looked up of a
key's state is the times, once an epoch.

A timer of a key stands for both sides: at time T go the left records whose last partner could be
at T, and the right ones alike. What is removed at T thus depends on T and the bounds alone, and
needs no namespaces. Who starts with other bounds than a checkpoint sets the timers anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import compress
from operator import itemgetter
from typing import Any

from weir.backend.admission import admission, list_that_stays
from weir.backend.base import KeyedBackend, SnapshotKind
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from weir.errors import UsageError
from weir.graph.output_tag import OutputTag, require_tag
from weir.graph.plan import OperatorNode
from weir.keygroup import key_group
from weir.metrics import Counter
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, Chunk
from weir.runtime.keyed import keyed_stride
from weir.runtime.operator import TaskFacts
from weir.runtime.raised import shorten, whole
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor

BUFFERS = ("_left_buffer", "_right_buffer")
LATE_DROPPED = "numLateRecordsDropped"
# The bounds under which timers were set, of every subtask.
BOUNDS = ListStateDescriptor("_bounds", Types.TUPLE([Types.LONG(), Types.LONG()]))
# So many records may wait in memory.
PENDING_MAX = 1 << 17
# Of keys that were only looked up; nobody adds to it.
_NOTHING: list[Any] = []


class PairContext:
    """Context of `process_element`: the two timestamps, and what it gives to side outputs."""

    __slots__ = ("_left", "_right", "aside")

    def __init__(self) -> None:
        """Start without a pair; the operator sets the times before each call."""
        self._left = MIN_WATERMARK
        self._right = MIN_WATERMARK
        self.aside: list[tuple[OutputTag, Any]] = []

    def get_left_timestamp(self) -> int:
        """Return the timestamp of the left record."""
        return self._left

    def get_right_timestamp(self) -> int:
        """Return the timestamp of the right record."""
        return self._right

    def get_timestamp(self) -> int:
        """Return the timestamp of the pair: the later of the two."""
        return max(self._left, self._right)

    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output, with the timestamp of the pair.

        Raises:
            TypeError: it is no `OutputTag`.
        """
        self.aside.append((require_tag(output_tag), value))


class _Kept:
    """What is known of one side's records of a key: those that are no state yet, and others' times.

    `times` and `values` belong together, and are in the order of times when `ordered`. `stored` are
    the times in state in order, None as long as nobody asked for them.
    """

    __slots__ = ("group", "ordered", "stored", "times", "values")

    def __init__(self, group: int) -> None:
        self.group = group
        self.ordered = True
        self.stored: list[int] | None = None
        self.times: list[int] = _NOTHING
        self.values: list[Any] = _NOTHING

    def order(self) -> None:
        """Bring records into the order of their times; equal times stay as they came."""
        places = sorted(range(len(self.times)), key=self.times.__getitem__)
        self.times = [self.times[i] for i in places]
        self.values = [self.values[i] for i in places]
        self.ordered = True

    def between(self, first: int, last: int, buffer: Any) -> list[tuple[int, Any]]:
        """Return the records of some times, with these, in order; the key is the current one."""
        if not self.ordered:
            self.order()
        found: list[tuple[int, Any]] = []
        if self.stored:
            start = bisect_left(self.stored, first)
            stop = bisect_right(self.stored, last, start)
            found = [(s, v) for s in self.stored[start:stop] for v in buffer.get(s)]
        times = self.times
        if times and times[-1] >= first and times[0] <= last:
            start = bisect_left(times, first)
            stop = bisect_right(times, last, start)
            new = zip(times[start:stop], self.values[start:stop], strict=True)
            found = sorted([*found, *new], key=itemgetter(0)) if found else list(new)
        return found

    def later(self, than: int | None) -> dict[int, list[Any]]:
        """Return by time the records that are no state yet, behind a time if one is given."""
        times = self.times
        if len(times) == 1:  # as most are, where epochs are short
            return {times[0]: self.values} if than is None or times[0] > than else {}
        found: dict[int, list[Any]] = {}
        if than is None or max(times) > than:
            for t, value in zip(times, self.values, strict=True):
                if than is None or t > than:
                    found.setdefault(t, []).append(value)
        return found


# What is known of a side that has no records of a key.
_EMPTY = _Kept(0)
_EMPTY.stored = []


class _Side:
    """One input: where its partners are, how long its records are kept, where late ones go.

    A record at time t has its partners from t + `first` to t + `last`, and no later ones than at
    t + `wait`; that is not before t itself.
    """

    __slots__ = ("_admit", "_type", "buffer", "descriptor", "first", "kept", "last", "late", "wait")

    def __init__(self, index: int, node: OperatorNode) -> None:
        lower, upper = node.options["bounds"]
        self.first, self.last = (lower, upper) if index == 0 else (-upper, -lower)
        self.wait = max(self.last, 0)
        self.late: str | None = node.options["late"][index]
        declared = node.options["types"][index]
        element = None if declared is None else list_that_stays(declared)
        self.descriptor = MapStateDescriptor(BUFFERS[index], Types.LONG(), element)
        self.buffer: Any = None
        self.kept: dict[Any, _Kept] = {}
        self._admit = admission(BUFFERS[index], element)
        self._type = declared

    def admitted(self, chunk: Chunk) -> list[Any]:
        """Return records as they are to be kept: of the declared type.

        Raises:
            UsageError: the declared type cannot hold one.
        """
        declared, values = self._type, chunk.values
        if declared is None:
            return values
        if isinstance(declared, (RowTypeInfo, TupleTypeInfo)) and chunk.type == declared:
            return values  # they were columns of this type
        try:
            checked: list[Any] = self._admit(values)
        except UsageError:
            for value in values:
                self._admit([value])  # names the one
            raise
        return checked


class IntervalJoin(StatefulOperator):
    """The interval join of two keyed inputs."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._sides = (_Side(0, node), _Side(1, node))
        self._context = PairContext()
        self._pending = 0
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
                    at = min(t + side.wait, MAX_WATERMARK)
                    self.event_timers.register(at, key, current.group)
        self.clear_key()

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
        if self._pending > PENDING_MAX:
            self._store()
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
        if not self.side_consumers.get(side.late or ""):
            # Also with a tag: a side output that nobody reads keeps nothing.
            self._dropped.inc(len(values))
        elif side.late is not None:
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
        join, context, aside = self.function.process_element, self._context, self._context.aside
        out: list[Any] = []
        times: list[int | None] = []
        pair: Any = None
        try:
            for value, t, found in self._partners(chunk, stamps, other):
                for s, partner in found:
                    context._left, context._right = (t, s) if came_left else (s, t)
                    pair = (value, partner) if came_left else (partner, value)
                    result = join(*pair, context)
                    if result is not None:
                        out.extend(whole(result))
                    if aside:
                        out.extend(aside)
                        aside.clear()
                    if len(out) > len(times):
                        times.extend([t if t > s else s] * (len(out) - len(times)))
        except BaseException as error:
            raise self.failed(error, pair) from None
        return out, times

    def _partners(
        self, chunk: Chunk, stamps: list[int], other: _Side
    ) -> Iterator[tuple[Any, int, list[tuple[int, Any]]]]:
        """Go through the records that have partners, with these; the key is the current one.

        Only records that are partners are read, which is what a backend that tracks changes has to
        look at.
        """
        backend = self._keyed()
        current, known, buffer = backend.current, other.kept, other.buffer
        first, last = -other.last, -other.first
        rows = zip(keyed_stride(backend, chunk, self.ttl), stamps, strict=True)
        for (value, key, group), t in rows:
            kept = known.get(key)
            if kept is _EMPTY:
                continue
            current.key = key
            current.group = group
            if kept is None or kept.stored is None:
                stored = buffer.keys()
                if kept is None:
                    kept = known[key] = _Kept(group) if stored else _EMPTY
                if kept is _EMPTY:
                    continue
                kept.stored = sorted(stored)
            if kept.stored or kept.times:
                found = kept.between(t + first, t + last, buffer)
                if found:
                    yield value, t, found

    def _keep(self, chunk: Chunk, stamps: list[int], side: _Side) -> None:
        """Keep records until nothing can pair with them any more."""
        known = side.kept
        values = side.admitted(chunk)
        self._pending += len(values)
        for value, key, group, t in zip(
            values, chunk.keys or (), chunk.groups or (), stamps, strict=True
        ):
            kept = known.get(key)
            if kept is None:
                kept = known[key] = _Kept(group)
            elif kept is _EMPTY:
                kept = known[key] = _Kept(group)
                kept.stored = []
            times = kept.times
            if not times:
                kept.times, kept.values = [t], [value]
                continue
            if t < times[-1]:
                kept.ordered = False
            times.append(t)
            kept.values.append(value)

    def _store(self, reached: int | None = None) -> None:
        """Let state hold what waits in memory, but for what a watermark rules out as partners."""
        for side in self._sides:
            known, side.kept = side.kept, {}
            self._write(side, known, reached)
        self._pending = 0

    def _write(self, side: _Side, known: dict[Any, _Kept], reached: int | None) -> None:
        """Write a side's new records, and set the timers of times that had none."""
        current, buffer, wait = self._keyed().current, side.buffer, side.wait
        put = getattr(buffer, "put_admitted", buffer.put_all)
        register = self.event_timers.register
        # Behind the end of time is nothing, however long a record would wait.
        than = reached if reached is None or reached == MAX_WATERMARK else reached - wait
        for key, kept in known.items():
            if not kept.times:
                continue
            written = kept.later(than)
            if not written:
                continue
            current.key, current.group = key, kept.group
            stored = kept.stored
            for t, values in written.items():
                before = None
                if stored is None or (stored and _is_among(t, stored)):
                    before = buffer.get(t)
                if before is None:
                    register(min(t + wait, MAX_WATERMARK), key, kept.group)
                else:
                    written[t] = before + values
            put(written)

    def snapshot(
        self, checkpoint_id: int, timestamp_ms: int, kind: SnapshotKind
    ) -> OperatorSnapshot:
        """Freeze everything, also what waits in memory."""
        self._store()
        self.clear_key()
        return super().snapshot(checkpoint_id, timestamp_ms, kind)

    def end_epoch(self) -> None:
        """Let state be what all records made of it."""
        self._store()
        self.clear_key()
        super().end_epoch()

    def on_watermark(self, watermark: int) -> None:
        """Advance event time, and let go what no record to come can pair with."""
        super().on_watermark(watermark)
        self._store(watermark)
        current = self._keyed().current
        (left, left_wait), (right, right_wait) = ((s.buffer, s.wait) for s in self._sides)
        for time, group, keys in self.event_timers.pop_buckets(watermark):
            current.group = group
            for key in keys:  # there are no namespaces
                current.key = key
                if time == MAX_WATERMARK:
                    left.clear()
                    right.clear()
                else:
                    left.remove(time - left_wait)
                    right.remove(time - right_wait)


def _is_among(time: int, times: list[int]) -> bool:
    place = bisect_left(times, time)
    return place < len(times) and times[place] == time
