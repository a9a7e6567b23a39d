"""Connectors, with PyFlink's module paths: `pyflink.datastream.connectors` and its modules."""

from weir.connector.discard import DiscardingSink
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
