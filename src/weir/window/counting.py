"""Windows of so many records: the number of a record among those of its key is keyed state."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from weir.common.serializer import TypeSerializer
from weir.common.typeinfo import Types
from weir.state.descriptor import ValueStateDescriptor
from weir.window.assigners import WindowAssigner, WindowAssignerContext
from weir.window.triggers import CountTrigger, PurgingTrigger, Trigger, positive
from weir.window.windows import CountWindow, CountWindowSerializer


class _Count(WindowAssigner[Any, Any]):
    """Windows by the number of a record among those of its key."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        name = type(self).__name__
        self.window_size = positive(window_size, name, "size")
        self.window_slide = positive(window_slide, name, "slide")
        self._seen = ValueStateDescriptor("_count_assigner", Types.LONG())

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[CountWindow]:
        """Return the windows of the next number, latest first."""
        seen = context.get_runtime_context().get_state(self._seen)
        number = seen.value() or 0
        seen.update(number + 1)
        size, slide = self.window_size, self.window_slide
        latest = number // slide
        return [
            CountWindow(i)
            for i in range(latest, max((number - size) // slide, -1), -1)
            if i * slide <= number < i * slide + size
        ]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger that fires a full window, and purges it: nobody else would."""
        return PurgingTrigger(CountTrigger(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return that of count windows."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """Return False: windows end by number."""
        return False


class CountTumblingWindowAssigner(_Count):
    """Windows of so many records, one after the other.

    Example:
        keyed.window(CountTumblingWindowAssigner.of(10)).sum(1)
    """

    def __init__(self, window_size: int) -> None:
        """Make windows of so many records."""
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return the assigner of a number of records."""
        return CountTumblingWindowAssigner(window_size)

    def __repr__(self) -> str:
        """Show the size."""
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_Count):
    """Windows of so many records; one begins every slide records.

    Example:
        keyed.window(CountSlidingWindowAssigner.of(10, 5)).sum(1)
    """

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return the assigner of a size and a slide in records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def __repr__(self) -> str:
        """Show size and slide."""
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"
