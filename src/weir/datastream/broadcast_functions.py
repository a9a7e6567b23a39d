"""Process functions that join a stream with a broadcast one.

The broadcast side may write broadcast state, the other side may only read it: that is what keeps
the copies in all subtasks equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from weir.datastream.basic_functions import Function
from weir.datastream.time_domain import TimeDomain
from weir.datastream.timerservice import TimerService
from weir.state.descriptor import MapStateDescriptor
from weir.state.handles import BroadcastState, ReadOnlyBroadcastState

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast function share: their contexts."""

    class BaseContext(ABC):
        """The time of the record that is being handled."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record, None when it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the current processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the current event-time watermark in milliseconds."""

    class Context(BaseContext):
        """Given to the broadcast side: broadcast state to read and write."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return the broadcast state of a descriptor that was given to `broadcast()`."""

    class ReadOnlyContext(BaseContext):
        """Given to the other side: broadcast state to read."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return a view of a broadcast state that refuses writes."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Joins a stream that is not keyed with a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Given to `process_broadcast_element`."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Given to `process_element`."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        """Handle a record of the stream; return or yield the outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Any:
        """Handle a broadcast record, in every subtask alike; return or yield the outputs."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Joins a keyed stream with a broadcast stream: adds keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """Given to `process_broadcast_element`."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """Given to `process_element`."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the service that tells the time and keeps timers."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record, or of the timer that fires."""

    class OnTimerContext(ReadOnlyContext, ABC):
        """Given to `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Tell which kind of time the firing timer belongs to."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Any:
        """Handle a record of the keyed stream; return or yield the outputs."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Any:
        """Handle a broadcast record, in every subtask alike; return or yield the outputs."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        """Handle a timer; return or yield the outputs."""
