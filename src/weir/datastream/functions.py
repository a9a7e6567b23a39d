"""All function classes under PyFlink's module path; they are written in their own modules."""

from __future__ import annotations

from weir.datastream.basic_functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    ReduceFunction,
)
from weir.datastream.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from weir.datastream.checkpointed_functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
)
from weir.datastream.process_functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from weir.datastream.runtime_context import KeyedStateStore, RuntimeContext
from weir.datastream.source_sink_functions import SinkFunction, SourceFunction

__all__ = [
    "AggregateFunction",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "ListCheckpointed",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
]
