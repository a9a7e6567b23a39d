"""The window operator: any assigner, trigger and evictor, record by record, after Flink's rules.

Invariant: contents are in the namespace of the *state window*, state and timers of triggers in that
of the *actual window*; the two differ only where windows merge. While functions of the user run,
the current namespace is none. Where no record can fire a window, `weir.runtime.window_folding`,
`window_columns` and `session_folding` take whole chunks and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from weir.backend.base import VOID, SnapshotKind, Timer
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.graph.plan import EdgeNode, OperatorNode
from weir.runtime.columnar import ColumnInput
from weir.runtime.frame import Chunk
from weir.runtime.keyed import keyed_rows
from weir.runtime.operator import TaskFacts
from weir.runtime.raised import whole
from weir.runtime.session_folding import SessionFolding, can_fold_sessions
from weir.runtime.stateful import OperatorSnapshot, StatefulOperator
from weir.runtime.window_columns import WindowColumns
from weir.runtime.window_contents import TimedRecords, WindowContents, open_contents
from weir.runtime.window_context import (
    WINDOW_PREFIX,
    AssignerContext,
    EvictionContext,
    RenamedStates,
    WindowFunctionContext,
    WindowRuntimeContext,
    WindowTriggerContext,
)
from weir.runtime.window_folding import Folding, can_fold
from weir.runtime.window_slices import can_take_columns
from weir.runtime.window_stamps import ResultStamps
from weir.state.descriptor import ListStateDescriptor
from weir.window.evictors import TimestampedValue
from weir.window.merging import Merged, MergingWindowSet
from weir.window.namespaces import GLOBAL, namespaces_of
from weir.window.spec import Calling, WindowSpec
from weir.window.triggers import TriggerResult
from weir.window.windows import MAX_TIMESTAMP, MIN_TIMESTAMP, Window

IN_FLIGHT = "_window_set"
LATE_COUNTER = "numLateRecordsDropped"
SETS_MAX = 1 << 16
"""How many keys' windows in flight are kept beside the state during an epoch."""
_BATCH = 1024


class WindowOperator(StatefulOperator):
    """Windows of a keyed stream."""

    by_epoch = True

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        self.spec: WindowSpec = node.options["window"]
        self.spaces = namespaces_of(self.spec.assigner)
        super().__init__(node, facts)
        if self.backend is None:
            msg = f"operator '{node.name}' needs a keyed stream: call key_by before windows"
            raise UsageError(msg)
        self.current = self.backend.current
        self.runtime_context = WindowRuntimeContext(
            node, facts, self.metrics.group, self.backend, ttl=self.ttl
        )
        self.event_time = self.spec.assigner.is_event_time()
        self._end_timers = self.event_timers if self.event_time else self.processing_timers
        self._now_ms: int | None = None
        self.out: list[Any] = []
        self.stamps: list[int | None] = []
        self._result_stamps = ResultStamps()
        self._late: list[tuple[Any, int | None]] = []
        self._sets: dict[Any, tuple[int, MergingWindowSet]] = {}

    def namespace_type(self) -> Any:
        """Return the type of windows as namespaces."""
        return self.spaces.type

    def open(self) -> None:
        """Register the operator's own states, make the contexts, open the function."""
        spec, get_state = self.spec, self.runtime_context._keyed
        group, evicting = self.metrics.group, spec.evictor is not None
        self.contents: WindowContents = open_contents(
            spec.contents, get_state, self.current, evicting=evicting
        )
        if spec.merging:
            space = self.spaces.type
            pair = None if space is None else Types.TUPLE([space, space])
            self._in_flight = get_state(ListStateDescriptor(IN_FLIGHT, pair))
        self._dropped = group.counter(LATE_COUNTER)
        tag = spec.late_tag
        self._keeps_late = tag is not None and bool(self.side_consumers.get(tag.tag_id))
        self.trigger_context = WindowTriggerContext(self, group, get_state)
        self._assigner_context = AssignerContext(self, self.runtime_context)
        self._eviction_context = EvictionContext(self, group)
        of_window: Any = get_state
        if self.spaces is GLOBAL:
            of_window = RenamedStates(get_state, WINDOW_PREFIX)
        self.function_context = WindowFunctionContext(self, of_window, merging=spec.merging)
        self.function_context.serve(self.runtime_context)
        self.call = self._caller()
        self._clear_function = getattr(self.function, "clear", None)
        self._folding: Folding | SessionFolding | None = None
        if can_fold(spec):
            self._folding = Folding(self)
            self._columns = WindowColumns(spec, self._folding)
        elif can_fold_sessions(spec):
            self._folding = SessionFolding(self, self._in_flight)
        super().open()

    def _caller(self) -> Callable[[Any, list[Any]], Any]:
        """Return a function of (window, elements) that calls the user's with the current key."""
        function, context, current = self.function, self.function_context, self.current
        calls: dict[Calling, Callable[[Any, list[Any]], Any]] = {
            Calling.PASS: lambda window, elements: elements,
            Calling.APPLY: lambda window, elements: function.apply(current.key, window, elements),
            Calling.APPLY_ALL: lambda window, elements: function.apply(window, elements),
            Calling.PROCESS: lambda _, elements: function.process(current.key, context, elements),
            Calling.PROCESS_ALL: lambda _, elements: function.process(context, elements),
        }
        return calls[self.spec.calling]

    # ---- time

    def now_ms(self) -> int:
        """Return the processing time; it stands still while an epoch's records are handled."""
        return self.facts.now_ms() if self._now_ms is None else self._now_ms

    def next_processing_timer(self) -> int | None:
        """Return the earliest processing-time timer, or when state expires before it."""
        times = (self.processing_timers.next_timestamp(), super().next_processing_timer())
        return min((time for time in times if time is not None), default=None)

    def on_watermark(self, watermark: int) -> None:
        """Fire windows and triggers up to the watermark, in the order of their timers."""
        if self._folding is not None:
            self._folding.flush()
        self._result_stamps.advance(self.watermark, watermark)
        super().on_watermark(watermark)
        if self._folding is not None and self.event_time:
            self._folding.fire(self.event_timers, watermark)
        else:
            self._fire(watermark, event=True)
        self.flush()

    def on_processing_time(self, now_ms: int) -> None:
        """Fire windows and triggers that are due."""
        if self._folding is not None:
            self._folding.flush()
        self._now_ms = now_ms
        if self._folding is not None and not self.event_time:
            self._folding.fire(self.processing_timers, now_ms)
        else:
            self._fire(now_ms, event=False)
        self.flush()

    def end_epoch(self) -> None:
        """Let time go on, and remove what expired."""
        self._settle()
        self._now_ms = None
        self.current.namespace = VOID
        self.clear_key()
        super().end_epoch()

    def snapshot(
        self, checkpoint_id: int, timestamp_ms: int, kind: SnapshotKind
    ) -> OperatorSnapshot:
        """Freeze everything, also what was folded and not yet written."""
        self._settle()
        return super().snapshot(checkpoint_id, timestamp_ms, kind)

    def _settle(self) -> None:
        """Let state and timers be what all records so far made of them."""
        if self._sets:
            self._store_sets()
        if self._folding is not None:
            self._folding.flush()
            self.current.namespace = VOID

    # ---- records

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Put every record into its windows; timers that are due come first."""
        if self._now_ms is None:
            self.on_processing_time(self.facts.now_ms())
        self.records_in += len(chunk.values) if chunk.merged is None else sum(chunk.merged)
        if self._folding is not None:
            self._folding.process(chunk)
        else:
            if self.spaces is GLOBAL:
                self._result_stamps.saw(chunk.timestamps)
            self._each(chunk)
        self.current.namespace = VOID
        self.flush()

    def takes_columns(self, edge: EdgeNode) -> bool:
        """Tell whether records of an edge may come as columns."""
        return can_take_columns(self.spec, edge)

    def process_columns(self, given: ColumnInput, edge: EdgeNode) -> bool:
        """Put all records into their windows; False when only records can do that exactly."""
        if self._now_ms is None:
            self.on_processing_time(self.facts.now_ms())
        if not self._columns.process(given, edge, self.now_ms(), self.watermark):
            return False
        self.records_in += given.records
        self.current.namespace = VOID
        self.flush()
        return True

    def _each(self, chunk: Chunk) -> None:
        current, assign = self.current, self.spec.assigner.assign_windows
        context, into = self._assigner_context, self.into_windows
        stamps: Iterable[int | None] = chunk.timestamps or repeat(None)
        v: Any = None
        try:
            for (v, k, g), t in zip(keyed_rows(chunk, self.ttl), stamps):  # noqa: B905
                current.key = k
                current.group = g
                current.namespace = VOID
                if not into(v, t, assign(v, MIN_TIMESTAMP if t is None else t, context)):
                    self.skipped(v, t)
        except BaseException as error:
            raise self.failed(error, v) from None
        if self.ttl is not None:
            self.ttl.event_time.end_records()

    def into_windows(self, value: Any, stamp: int | None, windows: Iterable[Any]) -> bool:
        """Add a record of the current key to windows; tell whether any took it."""
        if self.spec.merging:
            return self._into_merging(value, stamp, windows)
        taken = False
        for window in windows:
            if not self.is_late(window):
                taken = True
                namespace = self.spaces.of(window)
                self._add(value, stamp, window, (namespace, namespace))
        return taken

    def _into_merging(self, value: Any, stamp: int | None, windows: Iterable[Any]) -> bool:
        taken, in_flight = False, self._windows_in_flight()
        for window in windows:
            known = in_flight.state_window(window) is not None
            actual = in_flight.add(window, self._merge, self.is_late)
            if self.is_late(actual):
                if not known:  # one that was there has contents, and a timer that removes them
                    in_flight.retire(actual)
                continue
            taken = True
            held_in = self.spaces.of(in_flight.state_window(actual))
            self._add(value, stamp, actual, (self.spaces.of(actual), held_in))
        return taken

    def is_late(self, window: Window) -> bool:
        """Tell whether a window is over: nothing can be added to it any more."""
        return self.event_time and self.spec.cleanup_time(window) <= self.watermark

    def _add(self, value: Any, stamp: int | None, window: Any, spaces: tuple[Any, Any]) -> None:
        """Add a record to a window whose actual and state namespaces are given."""
        current, (actual, held_in) = self.current, spaces
        current.namespace = held_in
        self.contents.add(value, stamp)
        context = self.trigger_context
        context.namespace = current.namespace = actual
        timestamp = MIN_TIMESTAMP if stamp is None else stamp
        result = self.spec.trigger.on_element(value, timestamp, window, context)
        self._follow(result, window, spaces, stamp)
        cleanup = self.spec.cleanup_time(window)
        if cleanup != MAX_TIMESTAMP:
            self._end_timers.register(cleanup, current.key, current.group, actual)
        current.namespace = VOID

    def _follow(
        self, result: TriggerResult, window: Any, spaces: tuple[Any, Any], stamp: int | None
    ) -> None:
        """Do what a trigger decided."""
        if result is TriggerResult.CONTINUE:
            return
        if result.is_fire():
            self._emit(window, spaces, stamp)
        if result.is_purge():
            self.current.namespace = spaces[1]
            self.contents.clear()

    def skipped(self, value: Any, stamp: int | None, count: int = 1) -> None:
        """Take note of a record, made of `count`, that no window took: it is late, or has none."""
        timestamp = MIN_TIMESTAMP if stamp is None else stamp
        if not self.event_time or timestamp + self.spec.lateness_ms > self.watermark:
            return
        if not self.drop_late(count):
            self._late.append((value, stamp))

    def drop_late(self, count: int) -> bool:
        """Count records that come too late; False when a side output wants to have them."""
        if self._keeps_late:
            return False
        self._dropped.inc(count)
        return True

    # ---- firing

    def _fire(self, up_to: int, *, event: bool) -> None:
        timers = self.event_timers if event else self.processing_timers
        if timers.next_timestamp() is None:
            return
        trigger, current = self.spec.trigger, self.current
        decide = trigger.on_event_time if event else trigger.on_processing_time
        for timer in timers.pop_due(up_to):
            current.key = timer.key
            current.group = timer.group
            try:
                self._on_timer(timer, decide, ends=event is self.event_time)
            except BaseException as error:
                raise self.failed(error, f"timer {timer.timestamp} of key {timer.key!r}") from None
            if len(self.out) >= _BATCH:
                self.flush()
        current.namespace = VOID

    def _on_timer(self, timer: Timer, decide: Callable[..., TriggerResult], *, ends: bool) -> None:
        """Let the trigger decide on a timer; with `ends` it may be the one that ends the window."""
        current, actual = self.current, timer.namespace
        window, held_in, in_flight = self.spaces.window(actual), actual, None
        if self.spec.merging:
            current.namespace = VOID
            in_flight = self._windows_in_flight()
            if (state_window := in_flight.state_window(window)) is None:
                return
            held_in = self.spaces.of(state_window)
        self.trigger_context.namespace = current.namespace = actual
        result = decide(timer.timestamp, window, self.trigger_context)
        self._follow(result, window, (actual, held_in), timer.timestamp)
        if ends and self._is_over(timer, window, held_in):
            self._clean(window, (actual, held_in))
            if in_flight is not None:
                in_flight.retire(window)

    def _is_over(self, timer: Timer, window: Any, held_in: Any) -> bool:
        """Tell whether a timer ends its window.

        Windows of a job before may have been allowed to be late for another time: one that has no
        timer at its end gets it, and one whose end has passed must not stay.
        """
        time, cleanup = timer.timestamp, self.spec.cleanup_time(window)
        if time < cleanup != MAX_TIMESTAMP:
            self._end_timers.register(cleanup, timer.key, timer.group, timer.namespace)
        if time <= cleanup or self.spec.merging:
            return time >= cleanup
        self.current.namespace = held_in
        return bool(self.contents.elements())

    def _clean(self, window: Any, spaces: tuple[Any, Any]) -> None:
        """Remove everything of a window that is over."""
        current, (actual, held_in) = self.current, spaces
        current.namespace = held_in
        self.contents.clear()
        self.trigger_context.namespace = current.namespace = actual
        self.spec.trigger.clear(window, self.trigger_context)
        self.clear_function(window, actual)

    def clear_function(self, window: Any, namespace: Any) -> None:
        """Let the window function clear its own state of a window that is over."""
        self.current.namespace = VOID
        if self._clear_function is not None:
            self.function_context.at(window, namespace)
            self._clear_function(self.function_context)
            self._give_aside(window, None)

    def _emit(self, window: Any, spaces: tuple[Any, Any], stamp: int | None) -> None:
        """Call the function with the contents of a window, if there are any."""
        self.current.namespace = spaces[1]
        if not (elements := self.contents.elements()):
            return
        if self.spec.evictor is None:
            self.give(window, spaces[0], elements, stamp)
        else:
            self._emit_evicted(window, spaces, elements, stamp)

    def give(self, window: Any, namespace: Any, elements: list[Any], stamp: int | None) -> None:
        """Call the function; results have the window's last timestamp, if time ends it."""
        self.current.namespace = VOID
        self.function_context.at(window, namespace)
        result = self.call(window, elements)
        if result is not None:
            self.out.extend(whole(result))
            self._stamp(window, stamp)
        self._give_aside(window, stamp)

    def _give_aside(self, window: Any, stamp: int | None) -> None:
        """Take what a function gave to side outputs by its context."""
        aside = self.function_context.aside
        if aside:
            self.out.extend(aside)
            aside.clear()
            self._stamp(window, stamp)

    def _stamp(self, window: Any, stamp: int | None) -> None:
        """Stamp results that have none yet."""
        missing = len(self.out) - len(self.stamps)
        self.stamps.extend(repeat(self._result_stamps.of(window, stamp), missing))

    def _emit_evicted(
        self, window: Any, spaces: tuple[Any, Any], stored: Sequence[Any], stamp: int | None
    ) -> None:
        evictor, contents, context = self.spec.evictor, self.contents, self._eviction_context
        if evictor is None or not isinstance(contents, TimedRecords):
            msg = f"operator '{self.node.name}' evicts without an evictor"
            raise RuntimeError(msg)
        elements = [TimestampedValue(value, timestamp) for value, timestamp in stored]
        before = list(elements)
        self.current.namespace = VOID
        evictor.evict_before(elements, len(elements), window, context)
        self.give(window, spaces[0], contents.fold([e.value for e in elements]), stamp)
        evictor.evict_after(elements, len(elements), window, context)
        kept = len(elements) == len(before)
        if not kept or any(a is not b for a, b in zip(elements, before, strict=True)):
            self.current.namespace = spaces[1]
            contents.state.update([tuple(element) for element in elements])

    def flush(self) -> None:
        """Send on what windows gave, and what came too late."""
        if self.out:
            out, stamps = self.out, self.stamps
            self.out, self.stamps = [], []
            known = any(stamp is not None for stamp in stamps)
            self.emit_tagged(out, stamps if known else None)
        if self._late:
            late, self._late, tag = self._late, [], self.spec.late_tag
            self.emit_tagged([(tag, value) for value, _ in late], [stamp for _, stamp in late])

    # ---- merging

    def _windows_in_flight(self) -> MergingWindowSet:
        """Return the windows of the current key; they are read once an epoch."""
        current = self.current
        if (known := self._sets.get(current.key)) is not None:
            return known[1]
        if len(self._sets) >= SETS_MAX:
            self._store_sets()
        window, assigner = self.spaces.window, self.spec.assigner
        stored = {window(a): window(s) for a, s in self._in_flight.get()}
        found = MergingWindowSet(assigner, stored)  # type: ignore[arg-type]
        self._sets[current.key] = (current.group, found)
        return found

    def _store_sets(self) -> None:
        """Write the windows in flight that changed; the current key stays what it is."""
        current, of = self.current, self.spaces.of
        before = current.key, current.group, current.namespace
        current.namespace = VOID
        sets, self._sets = self._sets, {}
        for key, (group, found) in sets.items():
            if found.changed:
                current.key, current.group = key, group
                self._in_flight.update([(of(w), of(state)) for w, state in found.mapping.items()])
        current.key, current.group, current.namespace = before

    def _merge(self, merged: Merged) -> None:
        """Let windows be one: trigger state, timers, contents."""
        self._require_open(merged)
        spec, of, current, context = self.spec, self.spaces.of, self.current, self.trigger_context
        members = [of(member) for member in merged.members]
        context.namespace = current.namespace = of(merged.result)
        context.merged = members
        spec.trigger.on_merge(merged.result, context)
        context.merged = ()
        for member, namespace in zip(merged.members, members, strict=True):
            context.namespace = current.namespace = namespace
            spec.trigger.clear(member, context)
            cleanup = spec.cleanup_time(member)
            if cleanup != MAX_TIMESTAMP:
                self._end_timers.delete(cleanup, current.key, current.group, namespace)
        if merged.sources:
            self.contents.merge(of(merged.target), [of(source) for source in merged.sources])
        current.namespace = VOID

    def _require_open(self, merged: Merged) -> None:
        """Refuse an assigner that lets windows end earlier by merging than time has come.

        Raises:
            UsageError: the merged window is over already.
        """
        last = merged.result.max_timestamp()
        if self.event_time:
            over, now = last + self.spec.lateness_ms <= self.watermark, self.watermark
        else:
            over, now = last <= self.now_ms(), self.now_ms()
        if over:
            clock = "the watermark" if self.event_time else "processing time"
            msg = (
                f"operator '{self.node.name}': windows were merged to {merged.result}, which is "
                f"over, as {clock} is at {now}; expected a window that ends later: let "
                f"merge_windows of {self.spec.assigner!r} give one that covers all its members"
            )
            raise UsageError(msg)
