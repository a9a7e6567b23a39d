"""`DataStreamSink`: the handle of a sink, where a stream ends."""

from __future__ import annotations

from typing import Any

from weir.datastream._operator_handle import OperatorHandle
from weir.datastream._stream import Stream
from weir.graph import kinds
from weir.graph.kinds import Kind


class DataStreamSink(OperatorHandle):
    """A sink that was attached to a stream; can be named and tuned, not continued.

    Example:
        stream.print().name("out").set_parallelism(1)
    """


def attach_sink(stream: Stream, kind: Kind, name: str, **fields: Any) -> DataStreamSink:
    """End a stream in a sink operator, which is told the type of the records."""
    fields["options"] = {**fields.get("options", {}), "input_type": stream.record_type}
    sink = stream.env.declare(kind, f"Sink: {name}", inputs=[list(stream.edges)], **fields)
    return DataStreamSink((sink,))


def attach_function_sink(stream: Stream, function: Any) -> DataStreamSink:
    """End a stream in a sink function; two-phase sink functions bring their own writer.

    Raises:
        TypeError: the object has no `invoke` method to call.
    """
    has_writer = callable(getattr(function, "create_writer", None))
    has_method = has_writer or callable(getattr(function, "invoke", None))
    if isinstance(function, type) or not has_method:
        msg = (
            "add_sink() needs a SinkFunction instance with an invoke() method, "
            f"found {type(function).__name__}: {function!r}"
        )
        raise TypeError(msg)
    kind = kinds.WRITER_SINK if has_writer else kinds.FUNCTION_SINK
    return attach_sink(stream, kind, type(function).__name__, function=function)


def attach_writer_sink(stream: Stream, sink: Any) -> DataStreamSink:
    """End a stream in a sink object that creates writers.

    Raises:
        TypeError: the object cannot create a writer; often a builder without `build()`.
    """
    if isinstance(sink, type) or not callable(getattr(sink, "create_writer", None)):
        msg = (
            "sink_to() needs a Sink, such as FileSink; "
            f"found {type(sink).__name__}: {sink!r} (a builder needs a final build())"
        )
        raise TypeError(msg)
    return attach_sink(stream, kinds.WRITER_SINK, type(sink).__name__, function=sink)
