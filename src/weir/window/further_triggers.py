"""Triggers that PyFlink does not have: by distance, by timeout, at the end of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.common.time import to_ms
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.state.descriptor import ValueStateDescriptor
from weir.window.triggers import (
    OnMergeContext,
    QuietTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
    positive,
    require_trigger,
)
from weir.window.windows import MAX_TIMESTAMP

_CONTINUE, _FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class EndOfStreamTrigger(QuietTrigger):
    """Fires once, when the bounded input is over.

    Example:
        keyed.window(GlobalWindows.create()).trigger(EndOfStreamTrigger()).sum(1)
    """

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Set a timer at the end of time."""
        ctx.register_event_time_timer(MAX_TIMESTAMP)
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end of time."""
        return _FIRE if time == MAX_TIMESTAMP else _CONTINUE

    def __repr__(self) -> str:
        """Show the name."""
        return "EndOfStreamTrigger()"


class DeltaTrigger(QuietTrigger):
    """Fires for a record that is further than a threshold from the one that fired last.

    Example:
        far = DeltaTrigger.of(10.0, lambda old, new: abs(new[1] - old[1]))
        keyed.window(GlobalWindows.create()).trigger(far).sum(1)
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], type_info: Any = None
    ) -> None:
        """Measure with a function of (older record, newer record); `type_info` is of records."""
        self._threshold = threshold
        self._delta = require_callable(delta_function, "DeltaTrigger")
        self._last = ValueStateDescriptor("last-element", type_info)

    @staticmethod
    def of(
        threshold: float, delta_function: Callable[[Any, Any], float], type_info: Any = None
    ) -> DeltaTrigger:
        """Return the trigger of a threshold."""
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Compare with the last record that fired; the first one is kept to compare with."""
        last = ctx.get_partitioned_state(self._last)
        before = last.value()
        if before is None:
            last.update(element)
            return _CONTINUE
        if self._delta(before, element) > self._threshold:
            last.update(element)
            return _FIRE
        return _CONTINUE

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Forget the record."""
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        """Show the threshold."""
        return f"DeltaTrigger({self._threshold})"


class ProcessingTimeoutTrigger(Trigger[Any, Any]):
    """Fires when another trigger does, or a time after the first record since the last firing.

    With `reset_timer_on_new_record` the time counts from the last record. With
    `should_clear_on_timeout` a timeout clears the other trigger too.

    Example:
        soon = ProcessingTimeoutTrigger(CountTrigger.of(100), 5_000)
        keyed.window(GlobalWindows.create()).trigger(soon).sum(1)
    """

    def __init__(
        self,
        nested_trigger: Trigger[Any, Any],
        timeout: int,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> None:
        """Wrap a trigger with a timeout in milliseconds."""
        self.nested_trigger = require_trigger(nested_trigger)
        name = "ProcessingTimeoutTrigger"
        self._timeout = positive(timeout, name, "timeout in milliseconds")
        self._reset = reset_timer_on_new_record
        self._clear = should_clear_on_timeout
        self._at = ValueStateDescriptor("timeout", Types.LONG())

    @staticmethod
    def of(
        nested_trigger: Trigger[Any, Any],
        timeout: Any,
        reset_timer_on_new_record: bool = False,
        should_clear_on_timeout: bool = True,
    ) -> ProcessingTimeoutTrigger:
        """Return the trigger around another one."""
        return ProcessingTimeoutTrigger(
            nested_trigger, to_ms(timeout), reset_timer_on_new_record, should_clear_on_timeout
        )

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Fire if the other trigger does; set or move the timer otherwise."""
        result = self.nested_trigger.on_element(element, timestamp, window, ctx)
        if result.is_fire():
            self.clear(window, ctx)
            return result
        at = ctx.get_partitioned_state(self._at)
        planned, wanted = at.value(), ctx.get_current_processing_time() + self._timeout
        if planned is not None and self._reset and planned != wanted:
            ctx.delete_processing_time_timer(planned)
            planned = None
        if planned is None:
            at.update(wanted)
            ctx.register_processing_time_timer(wanted)
        return result

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire at the timeout; what the other trigger says counts if it purges."""
        result = self.nested_trigger.on_processing_time(time, window, ctx)
        return self._timed_out(result, window, ctx)

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Fire as at a timeout."""
        result = self.nested_trigger.on_event_time(time, window, ctx)
        return self._timed_out(result, window, ctx)

    def _timed_out(self, result: TriggerResult, window: Any, ctx: TriggerContext) -> TriggerResult:
        if self._clear:
            self.clear(window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_purge() else _FIRE

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Refuse; `can_merge` says no."""
        msg = "a ProcessingTimeoutTrigger cannot be used with merging windows"
        raise UsageError(msg)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Forget the timer and clear the other trigger."""
        at = ctx.get_partitioned_state(self._at)
        planned = at.value()
        if planned is not None:
            ctx.delete_processing_time_timer(planned)
            at.clear()
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        """Show the other trigger and the timeout."""
        return f"ProcessingTimeoutTrigger({self.nested_trigger!r}, {self._timeout})"


def require_callable(value: Any, owner: str) -> Callable[[Any, Any], float]:
    """Return a function of two records.

    Raises:
        TypeError: it cannot be called; an object with `get_delta` can.
    """
    found = getattr(value, "get_delta", value)
    if not callable(found) or isinstance(value, type):
        msg = f"{owner} needs a function of (older, newer), found {value!r}"
        raise TypeError(msg)
    measured: Callable[[Any, Any], float] = found
    return measured
