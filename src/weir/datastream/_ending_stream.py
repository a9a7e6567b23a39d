"""Where records stay: in a sink, on standard output, in the hands of the program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from weir.common._generics import T_co
from weir.connector.spark_target import SparkTarget
from weir.datastream._checks import require_type
from weir.datastream._closeable_iterator import CloseableIterator
from weir.datastream._data_stream_sink import (
    DataStreamSink,
    attach_function_sink,
    attach_sink,
    attach_writer_sink,
)
from weir.datastream._stream import Stream
from weir.errors import UsageError
from weir.graph import kinds
from weir.notices import warn_once

log = logging.getLogger("weir.datastream")
Self = TypeVar("Self", bound=Stream)


class EndingStream(Stream, Generic[T_co]):
    """A stream that can be ended."""

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record to standard output."""
        options = {"identifier": sink_identifier, "stderr": False}
        return attach_sink(self, kinds.PRINT, "Print to Std. Out", options=options)

    def print_to_err(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record to standard error."""
        options = {"identifier": sink_identifier, "stderr": True}
        return attach_sink(self, kinds.PRINT, "Print to Std. Err", options=options)

    def add_sink(self, sink_func: Any) -> DataStreamSink:
        """End the stream in a `SinkFunction`."""
        return attach_function_sink(self, sink_func)

    def sink_to(self, sink: Any) -> DataStreamSink:
        """End the stream in a sink object such as `FileSink`."""
        return attach_writer_sink(self, sink)

    def foreach_batch(self, func: Callable[[Any, int], Any] | SparkTarget) -> DataStreamSink:
        """Hand the committed records of each checkpoint to `func(dataframe, checkpoint_id)`.

        Guarantee: called in order of checkpoints, only for completed ones; again with the same
        id and rows after a failure, so `func` must be idempotent per id. A `SparkTarget` such as
        `DirectoryTarget` is that by itself.
        """
        if not isinstance(func, SparkTarget):
            require_type(func, Callable, "a function of (dataframe, checkpoint_id)")  # type: ignore[arg-type]
        return attach_sink(self, kinds.BATCH_SINK, "Foreach Batch", function=func)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T_co]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T_co]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T_co] | list[T_co]:
        """Run the program and return this stream's records: all of them, or a list of `limit`."""
        if limit is not None and limit < 1:
            msg = f"execute_and_collect() needs a limit of at least 1, found {limit!r}"
            raise UsageError(msg)
        operator = self._declare(kinds.COLLECT, "Sink: Collect")
        client = self.env.submit(job_execution_name or "DataStream Collect")
        records = CloseableIterator(client.collect_iterator(operator.id), client)
        if limit is None:
            return records
        with records:
            return [record for _, record in zip(range(limit), records)]  # noqa: B905

    def cache(self: Self) -> Self:
        """Return the stream itself, and say once that nothing is kept for later programs."""
        warn_once(
            log,
            "cache() has no effect, because a program reads its sources again; to keep a result, "
            "write it with a sink and read that",
        )
        return self
