"""Functions at the ends of a program: sources that run, sinks that are invoked per record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from weir.datastream.basic_functions import Function


class SourceFunction(Function):
    """A source written in Python: a loop that collects records until it is cancelled."""

    class SourceContext(Protocol):
        """Given to `run`: where records go."""

        def collect(self, element: Any) -> None:
            """Emit a record without a timestamp."""

        def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
            """Emit a record with its event timestamp in milliseconds."""

        def emit_watermark(self, timestamp: int) -> None:
            """Declare that no record with this timestamp or an earlier one will follow."""

        def mark_as_temporarily_idle(self) -> None:
            """Declare that this source emits nothing for now and holds no watermark back."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        """Emit records until the input ends or `cancel` was called."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon; called from another thread."""


class SinkFunction(Function):
    """A sink that is invoked per record.

    Effects on the outside happen at least once. For exactly-once output use a two-phase sink, or
    keep unwritten records in state with `CheckpointedFunction`.
    """

    class Context(ABC):
        """Given to `invoke`: the time of the record."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the current processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the current event-time watermark in milliseconds."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event timestamp of the record, None when it has none."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Write one record."""
