"""PyFlink's names, from PyFlink where it is installed and from Weir elsewhere.

The programs are then the same text for both, which is the point of Weir. Beyond the imports they
differ in that a record is a Row in PyFlink's tables and a tuple in Weir's, and where Weir has a
shorter way that PyFlink lacks: timestamps by field; `sum`, `max_by` and counts of windows.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

PYFLINK = find_spec("pyflink") is not None

if PYFLINK:
    from pyflink.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
    from pyflink.common.watermark_strategy import TimestampAssigner
    from pyflink.datastream import (
        AggregateFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedBroadcastProcessFunction,
        KeyedProcessFunction,
        ProcessWindowFunction,
        RuntimeContext,
        StreamExecutionEnvironment,
    )
    from pyflink.datastream.state import (
        ListStateDescriptor,
        MapStateDescriptor,
        StateTtlConfig,
        ValueStateDescriptor,
    )
    from pyflink.datastream.window import (
        EventTimeSessionWindows,
        SlidingEventTimeWindows,
        Trigger,
        TriggerResult,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
    )

    CountAggregate: Any = None
    record = Row
else:
    from weir.common import Configuration, Duration, Time, Types, WatermarkStrategy
    from weir.common.watermark_strategy import TimestampAssigner
    from weir.datastream import (
        AggregateFunction,
        CountAggregate,
        FilterFunction,
        FlatMapFunction,
        KeyedBroadcastProcessFunction,
        KeyedProcessFunction,
        ProcessWindowFunction,
        RuntimeContext,
        StreamExecutionEnvironment,
    )
    from weir.datastream.state import (
        ListStateDescriptor,
        MapStateDescriptor,
        StateTtlConfig,
        ValueStateDescriptor,
    )
    from weir.datastream.window import (
        EventTimeSessionWindows,
        SlidingEventTimeWindows,
        Trigger,
        TriggerResult,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
    )

    def record(*values: Any) -> Any:
        """Return a record of these fields."""
        return values


__all__ = [
    "PYFLINK",
    "AggregateFunction",
    "Configuration",
    "CountAggregate",
    "Duration",
    "EventTimeSessionWindows",
    "FilterFunction",
    "FlatMapFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedProcessFunction",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ProcessWindowFunction",
    "RuntimeContext",
    "SlidingEventTimeWindows",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "Time",
    "TimestampAssigner",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Types",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "record",
]
