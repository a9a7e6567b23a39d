"""Triggers: when the contents of a window are handed to its function.

A trigger object is shared by all keys and windows, so it keeps nothing in attributes: what it has
to remember is state of the key and window, which its context gives.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from weir.common._generics import T
from weir.common.time import to_ms
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.metrics import MetricGroup
from weir.state.descriptor import ReducingStateDescriptor, StateDescriptor
from weir.window.windows import MAX_TIMESTAMP, Window

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVariable

    W = TypeVariable("W", bound=Window, default=Any)
else:
    W = TypeVar("W", bound=Window)


class TriggerResult(enum.Enum):
    """What happens to a window: whether its function is called, whether its contents go.

    Example:
        TriggerResult.FIRE_AND_PURGE.is_fire(), TriggerResult.FIRE_AND_PURGE.is_purge()
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Tell whether the window function is called."""
        return bool(self.value[0])

    def is_purge(self) -> bool:
        """Tell whether the contents are removed."""
        return bool(self.value[1])


_CONTINUE, _FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires.

    Example:
        class EveryRecord(Trigger):
            def on_element(self, element, timestamp, window, ctx):
                return TriggerResult.FIRE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_merge(self, window, ctx):
                pass

            def clear(self, window, ctx):
                pass
    """

    class TriggerContext(Protocol):
        """Time, timers and state of one key and window."""

        def get_current_processing_time(self) -> int:
            """Return the processing time; it stands still during an epoch."""

        def get_metric_group(self) -> MetricGroup:
            """Return the group in which a trigger registers its metrics."""

        def get_current_watermark(self) -> int:
            """Return the event time that the operator has reached."""

        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` of this key and window at a time."""

        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` of this key and window when the watermark reaches a time."""

        def delete_processing_time_timer(self, time: int) -> None:
            """Forget a processing-time timer."""

        def delete_event_time_timer(self, time: int) -> None:
            """Forget an event-time timer."""

        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return a state of this key and window."""

    class OnMergeContext(TriggerContext, Protocol):
        """The context of a window that others were merged into."""

        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Move a state of the merged windows into this window.

            Raises:
                UsageError: the state is neither a list nor a reducing nor an aggregating one.
            """

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Decide on a record that was added to a window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Decide on a processing-time timer of a window."""

    @abstractmethod
    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Decide on an event-time timer of a window."""

    def can_merge(self) -> bool:
        """Tell whether the trigger can be used with merging windows."""
        return False

    @abstractmethod
    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Take note that windows were merged into this one."""

    @abstractmethod
    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Remove the state and the timers of a window that is over."""


TriggerContext = Trigger.TriggerContext
OnMergeContext = Trigger.OnMergeContext


class QuietTrigger(Trigger[Any, Any]):
    """A trigger that does nothing, for those that react to few things."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Do nothing."""
        return _CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Do nothing."""
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Do nothing."""
        return _CONTINUE

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Do nothing."""

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Do nothing."""


class EventTimeTrigger(QuietTrigger):
    """Fires when the watermark passes the end of the window; then once for every late record.

    Example:
        keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).trigger(EventTimeTrigger()).sum(1)
    """

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return the trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Fire for a window behind the watermark; set a timer at its end otherwise."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(end)
        return _CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end of the window."""
        return _FIRE if time == window.max_timestamp() else _CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Set a timer at the new end, unless the next record fires anyway."""
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the timer."""
        ctx.delete_event_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        """Show the name."""
        return "EventTimeTrigger()"


class ProcessingTimeTrigger(QuietTrigger):
    """Fires when processing time passes the end of the window.

    Example:
        windows = keyed.window(TumblingProcessingTimeWindows.of(Time.minutes(1)))
        windows.trigger(ProcessingTimeTrigger()).sum(1)
    """

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Return the trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Set a timer at the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return _CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire, whichever timer it is."""
        return _FIRE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Set a timer at the new end."""
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the timer."""
        ctx.delete_processing_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        """Show the name."""
        return "ProcessingTimeTrigger()"


def _add(first: int, second: int) -> int:
    return first + second


def _least(first: int, second: int) -> int:
    return min(first, second)


class CountTrigger(QuietTrigger):
    """Fires when a window has got so many records since it last fired.

    Example:
        keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(100)).sum(1)
    """

    def __init__(self, window_size: int) -> None:
        """Fire at every so many records."""
        self._size = positive(window_size, "CountTrigger", "number of records")
        self._count = ReducingStateDescriptor("count", _add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return the trigger of a number of records."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Count the record."""
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() >= self._size:
            count.clear()
            return _FIRE
        return _CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Add the counts; the next record looks at the sum."""
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Forget the count."""
        ctx.get_partitioned_state(self._count).clear()

    def __repr__(self) -> str:
        """Show the number."""
        return f"CountTrigger({self._size})"


class _Continuous(QuietTrigger):
    """What the triggers have in common that fire again and again."""

    def __init__(self, interval: int) -> None:
        """Fire at multiples of an interval in milliseconds."""
        self.interval = positive(interval, type(self).__name__, "interval in milliseconds")
        self._fire_time = ReducingStateDescriptor("fire-time", _least, Types.LONG())

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def _set(self, time: int, ctx: TriggerContext) -> None:
        raise NotImplementedError

    def _unset(self, time: int, ctx: TriggerContext) -> None:
        raise NotImplementedError

    def _begin(self, now: int, window: Window, ctx: TriggerContext) -> None:
        """Set the first timer, unless there is one."""
        fire_time = ctx.get_partitioned_state(self._fire_time)
        if fire_time.get() is None:
            self._next(now - now % self.interval, window, fire_time, ctx)

    def _next(self, time: int, window: Window, fire_time: Any, ctx: TriggerContext) -> None:
        following = min(time + self.interval, window.max_timestamp())
        fire_time.add(following)
        self._set(following, ctx)

    def _on_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return _FIRE
        fire_time = ctx.get_partitioned_state(self._fire_time)
        if fire_time.get() != time:
            return _CONTINUE
        fire_time.clear()
        self._next(time, window, fire_time, ctx)
        return _FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        """Go on with the earliest of the times at which the merged windows would have fired."""
        ctx.merge_partitioned_state(self._fire_time)
        time = ctx.get_partitioned_state(self._fire_time).get()
        if time is not None:
            self._set(time, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Forget the next time; a timer at the end of the window stays and does nothing."""
        fire_time = ctx.get_partitioned_state(self._fire_time)
        time = fire_time.get()
        if time is not None:
            self._unset(time, ctx)
            fire_time.clear()

    def __repr__(self) -> str:
        """Show the interval."""
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_Continuous):
    """Fires whenever the watermark passes a multiple of an interval, and at the window's end.

    Example:
        hourly = keyed.window(TumblingEventTimeWindows.of(Time.hours(1)))
        hourly.trigger(ContinuousEventTimeTrigger.of(Time.minutes(5))).sum(1)
    """

    @staticmethod
    def of(interval: Any) -> ContinuousEventTimeTrigger:
        """Return the trigger of an interval."""
        return ContinuousEventTimeTrigger(to_ms(interval))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Fire for a window behind the watermark; set timers otherwise."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(end)
        self._begin(timestamp, window, ctx)
        return _CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end, and at the next multiple."""
        return self._on_time(time, window, ctx)

    def _next(self, time: int, window: Window, fire_time: Any, ctx: TriggerContext) -> None:
        # Time is over, and the window has no end: nobody waits for all intervals until then.
        if window.max_timestamp() == MAX_TIMESTAMP == ctx.get_current_watermark():
            time = MAX_TIMESTAMP
        super()._next(time, window, fire_time, ctx)

    def _set(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _unset(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires whenever processing time passes a multiple of an interval.

    Example:
        hourly = keyed.window(TumblingEventTimeWindows.of(Time.hours(1)))
        hourly.trigger(ContinuousProcessingTimeTrigger.of(Time.minutes(5))).sum(1)
    """

    @staticmethod
    def of(interval: Any) -> ContinuousProcessingTimeTrigger:
        """Return the trigger of an interval."""
        return ContinuousProcessingTimeTrigger(to_ms(interval))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Set the first timer."""
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return _CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end, and at the next multiple."""
        return self._on_time(time, window, ctx)

    def _set(self, time: int, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _unset(self, time: int, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


class PurgingTrigger(Trigger[Any, Any]):
    """Does what another trigger does, and removes the contents whenever that one fires.

    Example:
        keyed.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(100))).sum(1)
    """

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        """Wrap a trigger."""
        self.nested_trigger = require_trigger(nested_trigger)

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Return the trigger around another one."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """Decide as the other trigger does."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Decide as the other trigger does."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        """Decide as the other trigger does."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        """Tell whether the other trigger can."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Let the other trigger merge."""
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """Let the other trigger clear."""
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        """Show the other trigger."""
        return f"PurgingTrigger({self.nested_trigger!r})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class NeverTrigger(QuietTrigger):
    """Never fires.

    Example:
        keyed.window(GlobalWindows.create()).trigger(NeverTrigger())
    """

    def can_merge(self) -> bool:
        """Return True: there is nothing to merge."""
        return True

    def __repr__(self) -> str:
        """Show the name."""
        return "NeverTrigger()"


def positive(value: Any, owner: str, what: str) -> int:
    """Return a whole number of at least one.

    Raises:
        UsageError: it is anything else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"{owner} needs a {what} of at least 1, found {value!r}"
        raise UsageError(msg)
    return value


def require_trigger(value: Any) -> Trigger[Any, Any]:
    """Return a trigger.

    Raises:
        TypeError: it is anything else.
    """
    if not isinstance(value, Trigger):
        msg = f"expected a Trigger instance, found {type(value).__name__}: {value!r}"
        raise TypeError(msg)
    return value
