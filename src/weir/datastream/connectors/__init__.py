"""Connectors, with PyFlink's module paths: `pyflink.datastream.connectors` and its modules."""

from weir.common._absent import absent
from weir.connector.discard import DiscardingSink
from weir.datastream.connectors._elsewhere import (
    CASSANDRA,
    ELASTICSEARCH,
    FILES,
    HYBRID,
    KAFKA,
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
    FileSourceBuilder,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from weir.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from weir.datastream.connectors.kafka import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from weir.datastream.connectors.number_seq import NumberSequenceSource

__all__ = [
    "BucketAssigner",
    "DefaultRollingPolicy",
    "DeliveryGuarantee",
    "DiscardingSink",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
    "NumberSequenceSource",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "Semantic",
    "Sink",
    "Source",
    "StreamFormat",
    "StreamingFileSink",
    "TwoPhaseCommitSinkFunction",
]

__getattr__ = absent(
    __name__,
    {**PULSAR, **KINESIS, **ELASTICSEARCH, **CASSANDRA, **RABBITMQ, **HYBRID, **FILES, **KAFKA},
)
