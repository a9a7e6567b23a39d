"""Connectors, with PyFlink's module paths: `pyflink.datastream.connectors` and its modules."""

from weir.common._absent import absent
from weir.connector.discard import DiscardingSink
from weir.datastream.connectors._elsewhere import (
    CASSANDRA,
    ELASTICSEARCH,
    HYBRID,
    KINESIS,
    PULSAR,
    RABBITMQ,
)
from weir.datastream.connectors.base import (
    DeliveryGuarantee,
    Sink,
    Source,
    TwoPhaseCommitSinkFunction,
)
from weir.datastream.connectors.file_system import (
    BucketAssigner,
    DefaultRollingPolicy,
    FileSink,
    FileSource,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from weir.datastream.connectors.number_seq import NumberSequenceSource

__all__ = [
    "BucketAssigner",
    "DefaultRollingPolicy",
    "DeliveryGuarantee",
    "DiscardingSink",
    "FileSink",
    "FileSource",
    "NumberSequenceSource",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "Sink",
    "Source",
    "StreamFormat",
    "TwoPhaseCommitSinkFunction",
]

__getattr__ = absent(
    __name__, {**PULSAR, **KINESIS, **ELASTICSEARCH, **CASSANDRA, **RABBITMQ, **HYBRID}
)
