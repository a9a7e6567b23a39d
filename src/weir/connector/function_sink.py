"""`InvokeContext`: what a sink function may ask about the record that it was given."""

from __future__ import annotations

from weir.connector.sink import MIN_WATERMARK


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
