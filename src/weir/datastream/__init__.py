"""The public door: PyFlink's DataStream API, after `pyflink` became `weir` in the imports."""

from __future__ import annotations

from weir.datastream.async_data_stream import AsyncDataStream
from weir.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from weir.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from weir.datastream.checkpointing_mode import CheckpointingMode
from weir.datastream.data_stream import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    WindowedStream,
)
from weir.datastream.execution_mode import RuntimeExecutionMode
from weir.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from weir.datastream.functions import *  # noqa: F403 - functions.__all__ is the list
from weir.datastream.functions import __all__ as _functions
from weir.datastream.output_tag import OutputTag
from weir.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from weir.datastream.state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
)
from weir.datastream.stream_execution_environment import StreamExecutionEnvironment
from weir.datastream.time_characteristic import TimeCharacteristic
from weir.datastream.time_domain import TimeDomain
from weir.datastream.timerservice import TimerService
from weir.datastream.window import (
    CountWindow,
    GlobalWindow,
    MergingWindowAssigner,
    TimeWindow,
    Trigger,
    TriggerResult,
    Window,
    WindowAssigner,
)

__all__ = [
    "AsyncDataStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FsStateBackend",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeyedStream",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "RuntimeExecutionMode",
    "SlotSharingGroup",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeCharacteristic",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowedStream",
]
__all__ += _functions
