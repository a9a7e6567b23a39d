"""A sink that drops everything: for measuring a job without its output."""

from __future__ import annotations

from typing import Any

from weir.connector.sink import Sink, SinkWriter, WriterContext


class DiscardingSink(Sink):
    """Takes every record and keeps none.

    Example:
        stream.sink_to(DiscardingSink())
    """

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create a writer that does nothing."""
        return _DiscardingWriter()

    def can_take_back(self) -> bool:
        """Nothing was ever committed."""
        return True

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return "DiscardingSink()"


class _DiscardingWriter(SinkWriter):
    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        return

    def write_columns(self, batch: Any) -> bool:
        return True

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        return []

    def commit(self, committables: list[bytes]) -> None:
        return

    def take_back(self, keep: list[bytes], checkpoint_id: int) -> None:
        return

    def abort(self) -> None:
        return
