"""The operator that finds patterns: one automaton, and for every key what has begun of it.

In event time records wait for the watermark and are then processed in order of time. Records of
the running epoch wait in memory; they are written to state when a barrier comes or the epoch ends
before their time has come, so those that do not wait are never written. In processing time records
are processed when they come, or together with all others of their millisecond if they have an
order of their own.

State by key: records that wait, by timestamp; partial matches, as numbers; the records of partial
matches, by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import repeat
from typing import Any

from weir.backend.base import KeyedBackend, SnapshotKind, Timers
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError
from weir.graph.output_tag import OutputTag, require_tag
from weir.graph.plan import OperatorNode
from weir.nfa.compiler import compile_pattern
from weir.nfa.matcher import Complete, Matcher, Memory, Node, Run
from weir.runtime.context import RuntimeContext
from weir.runtime.frame import MIN_WATERMARK, Chunk
from weir.runtime.keyed import keyed_rows
from weir.runtime.operator import TaskFacts
from weir.runtime.raised import shorten, whole
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.state.descriptor import MapStateDescriptor, ValueStateDescriptor

WAITING = "_cep_waiting"
PARTIAL_MATCHES = "_cep_partial_matches"
EVENTS = "_cep_events"
HELD_MAX = 65_536
"""How many records of an epoch wait in memory before they go to state."""
_EMIT_FROM = 1024
_MAX_TIME = (1 << 63) - 1
_LONGS: Callable[[int], TypeInformation] = lambda n: Types.LIST(Types.TUPLE([Types.LONG()] * n))  # noqa: E731
_MATCHES_TYPE = Types.TUPLE([Types.LONG(), _LONGS(5), _LONGS(2), _LONGS(4)])
"""The automaton's signature; runs; matches that wait; nodes with their numbers."""


class _NoStateContext(RuntimeContext):
    """The runtime context of functions that have no state of their own."""

    def _keyed(self, descriptor: Any) -> Any:
        msg = (
            f"state {descriptor.get_name()!r}: the functions of a pattern have no state of their "
            "own; keep it in a function behind the pattern, after key_by()"
        )
        raise UsageError(msg)


class PatternContext:
    """Given to `process_match` and `process_timed_out_match`."""

    __slots__ = ("_operator", "time_ms")

    def __init__(self, operator: PatternOperator) -> None:
        """Bind to an operator, which sets the time before each call."""
        self._operator = operator
        self.time_ms = 0

    def timestamp(self) -> int:
        """Return the time of the match: of its last event, or when it timed out."""
        return self.time_ms

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds; it stands still during an epoch."""
        return self._operator.now_ms()

    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output.

        Raises:
            TypeError: it is no `OutputTag`.
        """
        self._operator.add_output((require_tag(output_tag), value), self.time_ms)


@dataclass
class _Due:
    """What is to be done for one key: the times of timers, and records that came since."""

    group: int
    times: set[int] = field(default_factory=set)
    fresh: dict[int, list[Any]] = field(default_factory=dict)

    def add(self, time_ms: int, value: Any) -> None:
        """Add a record."""
        values = self.fresh.get(time_ms)
        if values is None:
            self.fresh[time_ms] = [value]
        else:
            values.append(value)


class PatternOperator(StatefulOperator):
    """Finds the matches of a pattern in the records of every key."""

    by_epoch = True

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self.runtime_context = _NoStateContext(
            node, facts, self.metrics.group, self.backend, ttl=self.ttl
        )
        automaton = compile_pattern(node.options["pattern"])
        self._timeouts = hasattr(self.function, "process_timed_out_match")
        self._matcher = Matcher(automaton, now=self.now_ms, timeouts=self._timeouts)
        comparator = node.options.get("comparator")
        self._order = None if comparator is None else cmp_to_key(comparator)
        self._late_tag: OutputTag | None = node.options.get("late_tag")
        self._in_event_time: bool = not node.options.get("processing_time", False)
        self._timers: Timers = self.event_timers if self._in_event_time else self.processing_timers
        # Records without an order are processed in the millisecond in which they come.
        self._timer_offset = 0 if self._in_event_time else 1
        self._context = PatternContext(self)
        self._late = self.metrics.group.counter("numLateRecordsDropped")
        self._arrived: dict[Any, _Due] = {}
        self._held = 0
        self._now_ms = 0
        self._epoch_ms: int | None = None
        self._out: list[Any] = []
        self._stamps: list[int | None] = []

    def open(self) -> None:
        """Register the states, then run the user's hooks."""
        backend = self._backend()
        record = self.node.options.get("input_type") or Types.PICKLED_BYTE_ARRAY()
        self._waiting: Any = backend.state(
            MapStateDescriptor(WAITING, Types.LONG(), Types.LIST(record))
        )
        self._events: Any = backend.state(MapStateDescriptor(EVENTS, Types.LONG(), record))
        self._partial: Any = backend.state(ValueStateDescriptor(PARTIAL_MATCHES, _MATCHES_TYPE))
        super().open()

    def _backend(self) -> KeyedBackend:
        if self.backend is None:
            msg = f"operator '{self.node.name}' needs a keyed stream: use CEP.pattern()"
            raise UsageError(msg)
        return self.backend

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Let records wait for their time, or process them now."""
        self.records_in += len(chunk.values)
        if self._in_event_time:
            self._arrive(chunk)
        else:
            now = self.now_ms()
            due: dict[Any, _Due] = self._arrived if self._order is not None else {}
            for value, key, group in keyed_rows(chunk, None):
                found = due.get(key)
                if found is None:
                    found = due[key] = _Due(group)
                found.add(now, value)
            if self._order is None:
                self._run_all(due, now)
            else:
                self._hold(len(chunk.values))

    def now_ms(self) -> int:
        """Return the processing time of this epoch: in how many chunks records come is chance."""
        if self._epoch_ms is None:
            self._epoch_ms = self._now_ms = max(self._now_ms, self.facts.now_ms())
        return self._epoch_ms

    def _arrive(self, chunk: Chunk) -> None:
        arrived, watermark = self._arrived, self.watermark
        times: Iterable[int | None] = repeat(None) if chunk.timestamps is None else chunk.timestamps
        late: list[Any] = []
        late_stamps: list[int | None] = []
        for (value, key, group), time in zip(keyed_rows(chunk, None), times):  # noqa: B905
            if time is None or time == MIN_WATERMARK:
                raise self.failed(_no_timestamp(), value)
            if time <= watermark:
                late.append((self._late_tag, value))
                late_stamps.append(time)
                continue
            found = arrived.get(key)
            if found is None:
                found = arrived[key] = _Due(group)
            found.add(time, value)
        tag = self._late_tag
        if late and tag is not None and self.side_consumers.get(tag.tag_id):
            self.emit_tagged(late, late_stamps)
        elif late:
            self._late.inc(len(late))
        self._hold(len(chunk.values) - len(late))

    def _hold(self, count: int) -> None:
        self._held += count
        if self._held > HELD_MAX:
            self._store_arrived()

    def _take_arrived(self) -> dict[Any, _Due]:
        arrived, self._arrived, self._held = self._arrived, {}, 0
        return arrived

    def _store_arrived(self) -> None:
        """Write records that wait to state, each time with a timer."""
        for key, due in self._take_arrived().items():
            self._store(key, due.group, due.fresh)
        self.clear_key()

    def _store(self, key: Any, group: int, by_time: dict[int, list[Any]]) -> None:
        current = self._backend().current
        current.key, current.group = key, group
        waiting, register = self._waiting, self._timers.register
        try:
            for time, values in by_time.items():
                stored = waiting.get(time)
                waiting.put(time, values if stored is None else [*stored, *values])
                register(time + self._timer_offset, key, group)
        except BaseException as error:
            raise self.failed(error, values[-1]) from None

    def on_watermark(self, watermark: int) -> None:
        """Process what has waited for this time, by key and in order."""
        super().on_watermark(watermark)
        if not self._in_event_time:
            return
        due = self._due_timers(watermark)
        for key, arrived in self._take_arrived().items():
            now = {time: v for time, v in arrived.fresh.items() if time <= watermark}
            later = {time: v for time, v in arrived.fresh.items() if time > watermark}
            if now:
                due.setdefault(key, _Due(arrived.group)).fresh = now
            if later:
                self._store(key, arrived.group, later)
        self._run_all(due, watermark)

    def on_processing_time(self, now_ms: int) -> None:
        """Process what has waited for this time, and end partial matches whose time is over."""
        self._now_ms = max(self._now_ms, now_ms)
        if not self._in_event_time:
            self._run_all(self._due_timers(now_ms), self._now_ms)

    def _due_timers(self, up_to_ms: int) -> dict[Any, _Due]:
        due: dict[Any, _Due] = {}
        if self._timers.next_timestamp() is not None:
            for timer in self._timers.pop_due(up_to_ms):
                found = due.get(timer.key)
                if found is None:
                    found = due[timer.key] = _Due(timer.group)
                found.times.add(timer.timestamp - self._timer_offset)
        return due

    def next_processing_timer(self) -> int | None:
        """Return the earliest processing-time timer, or when state expires before it."""
        times = (self.processing_timers.next_timestamp(), super().next_processing_timer())
        return min((time for time in times if time is not None), default=None)

    def _run_all(self, due: dict[Any, _Due], until_ms: int) -> None:
        current = self._backend().current
        for key, found in due.items():
            current.key, current.group = key, found.group
            self._run(found, until_ms)
            if len(self._out) >= _EMIT_FROM:
                self._emit_found()
        self._emit_found()

    def _run(self, due: _Due, until_ms: int) -> None:
        """Process what is due for the current key, then let time pass."""
        matcher, order = self._matcher, self._order
        stored = self._partial.value()
        matcher.resume(self._remembered(stored), self._events.get)
        value: Any = None
        try:
            for time in sorted({*due.times, *due.fresh}):
                value = f"time {time}"
                matcher.advance(time)
                values = self._of_time(time, due)
                if order is not None:
                    values = sorted(values, key=order)
                for value in values:
                    matcher.process(value, time)
            value = f"time {until_ms}"
            matcher.advance(until_ms)
        except BaseException as error:
            raise self.failed(error, value) from None
        self._remember(stored)
        self._call_function()

    def _of_time(self, time_ms: int, due: _Due) -> list[Any]:
        fresh = due.fresh.get(time_ms, [])
        stored = self._waiting.get(time_ms) if time_ms in due.times else None
        if stored is None:
            return fresh
        self._waiting.remove(time_ms)
        return [*stored, *fresh]

    def _remembered(self, stored: Any) -> Memory:
        if stored is None:
            return Memory()
        signature, runs, waiting, nodes = stored
        if signature != self._matcher.automaton.signature:
            msg = (
                f"operator '{self.node.name}': its pattern is another one than the one whose "
                "partial matches are stored: names, order, quantifiers and contiguity must stay, "
                "conditions may change; give the operator a new uid to begin without them"
            )
            raise IncompatibleStateError(msg)
        memory = Memory(
            [Run(*run) for run in runs],
            [Complete(*match) for match in waiting],
            {number: Node(*node) for number, *node in nodes},
        )
        damage = self._matcher.damage_of(memory)
        if damage is not None:
            msg = (
                f"operator '{self.node.name}': the partial matches of key "
                f"{shorten(self._backend().current.key)} are damaged: {damage}; restore another "
                "checkpoint"
            )
            raise CorruptStateError(msg)
        return memory

    def _remember(self, stored: Any) -> None:
        matcher, events = self._matcher, self._events
        new, dropped = matcher.pause()
        for number in dropped:
            events.remove(number)
        for number, event in new.items():
            events.put(number, event)
        memory = matcher.memory
        if memory.empty:
            if stored is not None:
                self._partial.clear()
            return
        nodes = [(number, *node) for number, node in memory.nodes.items()]
        runs, waiting = [tuple(r) for r in memory.runs], [tuple(m) for m in memory.waiting]
        kept = (matcher.automaton.signature, runs, waiting, nodes)
        if kept != stored:
            self._partial.update(kept)
        deadline = matcher.next_deadline()
        if deadline is not None and deadline <= _MAX_TIME:
            current = self._backend().current
            self._timers.register(deadline, current.key, current.group)

    def _call_function(self) -> None:
        found, context = self._matcher.found, self._context
        for match, time in found.matches:
            context.time_ms = time
            try:
                results = self.function.process_match(match, context)
                for result in () if results is None else whole(results):
                    self.add_output(result, time)
            except BaseException as error:
                raise self.failed(error, match) from None
        for match, time in found.timeouts:
            context.time_ms = time
            try:
                results = self.function.process_timed_out_match(match, context)
                for result in () if results is None else whole(results):
                    self.add_output(_tagged(result), time)
            except BaseException as error:
                raise self.failed(error, match) from None

    def add_output(self, value: Any, time_ms: int) -> None:
        """Keep a result until a chunk of them is sent on."""
        self._out.append(value)
        self._stamps.append(time_ms)

    def _emit_found(self) -> None:
        if self._out:
            out, stamps, self._out, self._stamps = self._out, self._stamps, [], []
            self.emit_tagged(out, stamps if self._in_event_time else None)

    def snapshot(
        self, checkpoint_id: int, timestamp_ms: int, kind: SnapshotKind
    ) -> OperatorSnapshot:
        """Freeze everything, with the records that wait in memory."""
        self._store_arrived()
        return super().snapshot(checkpoint_id, timestamp_ms, kind)

    def end_epoch(self) -> None:
        """Write records that still wait to state."""
        self._epoch_ms = None
        self._store_arrived()
        super().end_epoch()

    def end_key(self, group: int) -> None:
        """Process what the key's records still wait for, in BATCH mode: their time has come."""
        if not self._in_event_time:
            self._store_arrived()
        super().end_key(group)
        # The end of time was that of this key: the next one begins now.
        self._now_ms = 0


def _no_timestamp() -> UsageError:
    msg = (
        "the record has no timestamp, and the pattern is in event time: call "
        "assign_timestamps_and_watermarks() before it, or in_processing_time() on the pattern"
    )
    return UsageError(msg)


def _tagged(result: Any) -> Any:
    if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
        return result
    msg = (
        "timed-out matches go to side outputs only: yield (tag, value) with an OutputTag, or call "
        f"ctx.output(tag, value); found {result!r}"
    )
    raise UsageError(msg)
