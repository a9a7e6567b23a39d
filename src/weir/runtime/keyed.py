"""Operators that run user functions in a slot, with keys, state and timers.

The hot loops set the current key as two plain attributes and call the user's bound method; all
else (timers, snapshots, hooks) happens outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from typing import Any

from weir.backend.base import KeyedBackend
from weir.errors import UsageError
from weir.runtime.context import OperatorTimerService
from weir.runtime.frame import Chunk
from weir.runtime.raised import whole
from weir.runtime.stateful import StatefulOperator
from weir.runtime.stateless import flatten
from weir.state.ttl import TtlStates

EVENT_TIME = 0
PROCESSING_TIME = 1


def keyed_rows(chunk: Chunk, ttl: TtlStates | None) -> Iterator[tuple[Any, Any, int]]:
    """Iterate over (value, key, group); a keyed edge always carries both.

    State that expires by event time knows the timestamp of each record, until it is told that they
    are handled.
    """
    keys, groups = chunk.keys, chunk.groups
    if keys is None or groups is None:
        msg = "records arrived without keys at a keyed operator"
        raise UsageError(msg)
    values = iter(chunk.values)
    if ttl is not None:
        ttl.event_time.begin_records(chunk.timestamps, values)
    return zip(values, keys, groups, strict=True)


def keyed_stride(
    backend: KeyedBackend, chunk: Chunk, ttl: TtlStates | None
) -> Iterator[tuple[Any, Any, int]]:
    """Begin a stride and iterate over (value, key, group); who has done them ends the stride."""
    rows = keyed_rows(chunk, ttl)
    backend.begin_stride(chunk.keys or (), chunk.groups or (), chunk.numbers)
    return rows


class ResidentMap(StatefulOperator):
    """`map` with a function that lives in a slot."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the function to every record, with its key current."""
        self.records_in += len(chunk.values)
        function = self.function.map
        if self.backend is None:
            out = self.results(function, chunk.values)
            self.emit_results(out, chunk.timestamps, chunk.values)
            return
        out = []
        append = out.append
        current = self.backend.current
        try:
            for v, k, g in keyed_stride(self.backend, chunk, self.ttl):
                current.key = k
                current.group = g
                append(function(v))
        except BaseException as error:
            raise self.failed(error, chunk.values[len(out)]) from None
        self.end_stride()
        self.emit_results(out, chunk.timestamps, chunk.values)


class ResidentFlatMap(StatefulOperator):
    """`flat_map` with a function that lives in a slot."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Apply the function to every record, with its key current, and flatten."""
        self.records_in += len(chunk.values)
        function = self.function.flat_map
        if self.backend is None:
            done = [0]
            try:
                out, stamps = flatten(function, chunk, done)
            except BaseException as error:
                raise self.failed(error, chunk.values[done[0]]) from None
            self.emit_results(out, stamps)
            return
        current = self.backend.current
        collected: list[Any] = []
        extend = collected.extend
        counts: list[int] | None = [] if chunk.timestamps is not None else None
        v: Any = None
        try:
            for v, k, g in keyed_stride(self.backend, chunk, self.ttl):
                current.key = k
                current.group = g
                result = function(v)
                if result is not None:
                    extend(result if result.__class__ is list else whole(result))
                if counts is not None:
                    counts.append(len(collected))
        except BaseException as error:
            raise self.failed(error, v) from None
        self.end_stride()
        self.emit_results(collected, spread_stamps(chunk.timestamps, counts))


def spread_stamps(
    timestamps: Sequence[int | None] | None, ends: list[int] | None
) -> list[int | None] | None:
    """Give every output the timestamp of the input that produced it."""
    if timestamps is None or ends is None:
        return None
    if ends == list(range(1, len(timestamps) + 1)):
        return list(timestamps)  # One for each, as most functions have it.
    stamps: list[int | None] = []
    start = 0
    for t, end in zip(timestamps, ends, strict=True):
        stamps.extend([t] * (end - start))
        start = end
    return stamps


class ResidentFilter(StatefulOperator):
    """`filter` with a function that lives in a slot."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Keep the records for which the function is true, with the key current."""
        self.records_in += len(chunk.values)
        function = self.function.filter
        if self.backend is None:
            self.emit(*self.kept(function, chunk))
            return
        keep: list[bool] = []
        append = keep.append
        current = self.backend.current
        try:
            for v, k, g in keyed_stride(self.backend, chunk, self.ttl):
                current.key = k
                current.group = g
                append(True if function(v) else False)  # noqa: SIM210 - saves a call
        except BaseException as error:
            raise self.failed(error, chunk.values[len(keep)]) from None
        self.end_stride()
        stamps = chunk.timestamps
        self.emit(
            list(compress(chunk.values, keep)),
            None if stamps is None else list(compress(stamps, keep)),
        )


class ElementContext:
    """Context of `process_element`: timestamp, key, timers."""

    __slots__ = ("_operator", "_timer_service", "_timestamp")

    def __init__(self, operator: StatefulOperator, timer_service: OperatorTimerService) -> None:
        """Bind to an operator; the operator sets the timestamp before each call."""
        self._operator = operator
        self._timer_service = timer_service
        self._timestamp: int | None = None

    def timestamp(self) -> int | None:
        """Return the timestamp of the record, or of the firing timer."""
        return self._timestamp

    def timer_service(self) -> OperatorTimerService:
        """Return the timers of the current key."""
        return self._timer_service

    def get_current_key(self) -> Any:
        """Return the key of the record."""
        return self._operator.current_key().key


class TimerContext(ElementContext):
    """Context of `on_timer`."""

    __slots__ = ("_domain",)

    def __init__(self, operator: StatefulOperator, timer_service: OperatorTimerService) -> None:
        """Bind to an operator; the operator sets the domain before firing."""
        super().__init__(operator, timer_service)
        self._domain = EVENT_TIME

    def time_domain(self) -> Any:
        """Tell whether an event-time or a processing-time timer fires."""
        return self._operator.time_domain(self._domain)


class ResidentProcess(StatefulOperator):
    """`process` with a ProcessFunction or KeyedProcessFunction."""

    def open(self) -> None:
        """Create the contexts that are reused for every record."""
        self.timer_service = OperatorTimerService(self, self.event_timers, self.processing_timers)
        self.context = ElementContext(self, self.timer_service)
        self.timer_context = TimerContext(self, self.timer_service)
        super().open()

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Call `process_element` for every record."""
        self.run_elements(self.function.process_element, self.context, chunk)

    def run_elements(self, function: Any, context: Any, chunk: Chunk) -> None:
        """Call a per-record method with a context; outputs may be tagged."""
        self.records_in += len(chunk.values)
        out: list[Any] = []
        extend = out.extend
        stamps = chunk.timestamps
        counts: list[int] | None = [] if stamps is not None else None
        times = repeat(None) if stamps is None else stamps
        v: Any = None
        try:
            if self.backend is None or chunk.keys is None:
                for v, t in zip(chunk.values, times):  # noqa: B905 - repeat() never ends
                    context._timestamp = t
                    result = function(v, context)
                    if result is not None:
                        extend(result if result.__class__ is list else whole(result))
                    if counts is not None:
                        counts.append(len(out))
            else:
                current = self.backend.current
                for (v, k, g), t in zip(keyed_stride(self.backend, chunk, self.ttl), times):  # noqa: B905
                    current.key = k
                    current.group = g
                    context._timestamp = t
                    result = function(v, context)
                    if result is not None:
                        extend(result if result.__class__ is list else whole(result))
                    if counts is not None:
                        counts.append(len(out))
        except BaseException as error:
            raise self.failed(error, v) from None
        self.end_stride()
        self.emit_tagged(out, spread_stamps(stamps, counts))

    def on_watermark(self, watermark: int) -> None:
        """Fire event-time timers in timestamp order, also those that firing registers."""
        super().on_watermark(watermark)
        self.fire(self.event_timers, watermark, EVENT_TIME)

    def on_processing_time(self, now_ms: int) -> None:
        """Fire processing-time timers that are due."""
        self.fire(self.processing_timers, now_ms, PROCESSING_TIME)

    def next_processing_timer(self) -> int | None:
        """Return the earliest processing-time timer, or when state expires before it."""
        times = (self.processing_timers.next_timestamp(), super().next_processing_timer())
        return min((time for time in times if time is not None), default=None)

    def fire(self, queue: Any, up_to_ms: int, domain: int) -> None:
        """Call `on_timer` for every due timer."""
        if self.backend is None or queue.next_timestamp() is None:
            return
        current = self.backend.current
        context = self.timer_context
        function = self.function.on_timer
        context._domain = domain
        for timer in queue.pop_due(up_to_ms):
            current.key = timer.key
            current.group = timer.group
            current.namespace = timer.namespace
            context._timestamp = timer.timestamp
            try:
                result = function(timer.timestamp, context)
                out = [] if result is None else list(whole(result))
            except BaseException as error:
                raise self.failed(error, f"timer {timer.timestamp} of key {timer.key!r}") from None
            self.emit_tagged(out, [timer.timestamp] * len(out))
