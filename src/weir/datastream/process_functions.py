"""Process functions: records together with timestamps, timers, side outputs and keys.

The nested contexts are what the runtime hands to each call. A context is only valid during the
call it was given to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weir.datastream.basic_functions import Function
from weir.datastream.time_domain import TimeDomain
from weir.datastream.timerservice import TimerService


class _TimedContext(ABC):
    """What every process context offers: the record's timestamp and the timer service."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the service that tells the time and keeps timers."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the event timestamp of the record (or timer), None when it has none."""


class _KeyedContext(_TimedContext):
    """A process context with a current key."""

    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the record, or of the timer that fires."""


class ProcessFunction(Function):
    """Any number of outputs per record, with timestamps and side outputs.

    Yield a value for the main output, `tag, value` with an `OutputTag` for a side output.
    """

    class Context(_TimedContext):
        """Given to `process_element`."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Handle one record; return or yield the outputs."""


class KeyedProcessFunction(Function):
    """A process function on a keyed stream: adds keyed state and timers."""

    class Context(_KeyedContext):
        """Given to `process_element`."""

    class OnTimerContext(Context):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Handle one record; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""


class CoProcessFunction(Function):
    """A process function over two connected streams."""

    class Context(_TimedContext):
        """Given to both methods."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        """Handle a record of the first stream; return or yield the outputs."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        """Handle a record of the second stream; return or yield the outputs."""


class KeyedCoProcessFunction(Function):
    """A process function over two streams keyed alike: both share keyed state and timers."""

    class Context(_KeyedContext):
        """Given to both methods."""

    class OnTimerContext(Context):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Handle a record of the first stream; return or yield the outputs."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Handle a record of the second stream; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""
