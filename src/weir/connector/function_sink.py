"""A user's `SinkFunction` as a sink: one `invoke` per record, effects at least once.

Nothing is staged, so nothing is prepared or committed. A function that keeps unwritten records in
its own checkpointed state gets that state from the runtime, not from here.
"""

from __future__ import annotations

from typing import Any

from weir.connector.sink import MIN_WATERMARK, Sink, SinkWriter, WriterContext
from weir.errors import UsageError


class InvokeContext:
    """What `invoke` may ask about the record it was given; valid during the call only."""

    __slots__ = ("_processing_time", "_timestamp", "_watermark")

    def __init__(self, processing_time: int, watermark: int = MIN_WATERMARK) -> None:
        """Hold the times of a batch, in milliseconds."""
        self._processing_time = processing_time
        self._watermark = watermark
        self._timestamp: int | None = None

    def current_processing_time(self) -> int:
        """Wall-clock time of the batch the record came in."""
        return self._processing_time

    def current_watermark(self) -> int:
        """Event-time watermark of the subtask."""
        return self._watermark

    def timestamp(self) -> int | None:
        """Event time of the record, None if it has none."""
        return self._timestamp


class FunctionSink(Sink):
    """Wraps an object with `invoke(value, context)`."""

    def __init__(self, function: Any) -> None:
        """Check that there is something to invoke."""
        if not callable(getattr(function, "invoke", None)):
            message = f"expected a sink function with invoke(value, context), got {function!r}"
            raise UsageError(message)
        self.function = function

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer; opening and closing the function is the runtime's."""
        return _FunctionWriter(self.function, context)


class _FunctionWriter(SinkWriter):
    def __init__(self, function: Any, context: WriterContext) -> None:
        self._function = function
        self._clock = context.clock

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        invoke = self._function.invoke
        context = InvokeContext(self._clock.now_ms(), self.current_watermark)
        for index, value in enumerate(values):
            context._timestamp = timestamps[index] if timestamps is not None else None
            invoke(value, context)

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        return []

    def commit(self, committables: list[bytes]) -> None:
        return

    def finish(self) -> None:
        hook = getattr(self._function, "finish", None)
        if hook is not None:
            hook()

    def abort(self) -> None:
        return
