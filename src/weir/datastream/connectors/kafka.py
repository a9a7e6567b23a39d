"""Kafka sources and sinks, at PyFlink's path."""

from weir.common._absent import absent
from weir.connector.kafka.legacy import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from weir.connector.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from weir.connector.kafka.record import KafkaRecordDeserializationSchema
from weir.connector.kafka.sink import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaTopicSelector,
)
from weir.connector.kafka.source import KafkaSource, KafkaSourceBuilder
from weir.datastream.connectors._elsewhere import KAFKA
from weir.datastream.connectors.base import DeliveryGuarantee as DeliveryGuarantee

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]

__getattr__ = absent(__name__, KAFKA)
