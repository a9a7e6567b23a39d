"""The older spelling of Kafka's source and sink, which PyFlink had before `KafkaSource`."""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from weir.common.serialization import DeserializationSchema, SerializationSchema
from weir.connector.delivery import DeliveryGuarantee
from weir.connector.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from weir.connector.kafka.sink import KafkaRecordSerializationSchema, KafkaSink
from weir.connector.kafka.source import DISCOVERY, KafkaSource
from weir.connector.kafka.target import Row
from weir.connector.source import Opening, PlannedSplits, Source, StreamRows
from weir.notices import warn_once

log = logging.getLogger("weir.kafka")
_RESETS = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
}
_DISCOVERY = "flink.partition-discovery.interval-millis"


class FlinkKafkaConsumer(Source):
    """Reads topics, from the group's offsets unless told otherwise; `env.add_source` takes it.

    Example:
        properties = {"bootstrap.servers": "host:9092", "group.id": "totals"}
        source = FlinkKafkaConsumer("clicks", SimpleStringSchema(), properties)
        env.add_source(source.set_start_from_earliest())
    """

    def __init__(
        self,
        topics: str | list[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, str],
    ) -> None:
        """Take one topic or several, and the properties of the client."""
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._schema = deserialization_schema
        self._properties = dict(properties)
        if _DISCOVERY in self._properties:
            interval = self._properties.pop(_DISCOVERY)
            # In this spelling 0 is the shortest pause, and not none at all.
            self._properties[DISCOVERY] = "1" if str(interval) == "0" else interval
        reset = self._properties.get("auto.offset.reset", "latest")
        strategy = _RESETS.get(reset, KafkaOffsetResetStrategy.NONE)
        self._group_offsets = KafkaOffsetsInitializer.committed_offsets(strategy)
        self._starting = self._group_offsets
        self._source()

    def _source(self) -> KafkaSource:
        made = KafkaSource.builder().set_topics(*self._topics).set_properties(self._properties)
        made.set_value_only_deserializer(self._schema)
        return made.set_starting_offsets(self._starting).build()

    @property
    def bounded(self) -> bool:
        """Return False."""
        return False

    def get_produced_type(self) -> Any:
        """Return the type that the schema produces."""
        return self._schema.get_produced_type()

    def open(self, opening: Opening) -> PlannedSplits | StreamRows:
        """Open as `KafkaSource` does."""
        return self._source().open(opening)

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Begin with the first record that is there."""
        self._starting = KafkaOffsetsInitializer.earliest()
        return self

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Begin with the end."""
        self._starting = KafkaOffsetsInitializer.latest()
        return self

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Begin with the first record that is not older."""
        self._starting = KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp)
        return self

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Begin with what the group has committed, else as `auto.offset.reset` says."""
        self._starting = self._group_offsets
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """Say whether the group's offsets are committed after each checkpoint."""
        self._properties["commit.offsets.on.checkpoint"] = str(commit_on_checkpoints).lower()
        return self


class Semantic(enum.Enum):
    """What a `FlinkKafkaProducer` guarantees.

    Example:
        properties = {"bootstrap.servers": "host:9092"}
        FlinkKafkaProducer(
            "totals", SimpleStringSchema(), properties, semantic=Semantic.EXACTLY_ONCE
        )
    """

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducer(KafkaSink):
    """Writes values to a topic, at least once unless told otherwise; `add_sink` takes it.

    Example:
        properties = {"bootstrap.servers": "host:9092"}
        sink = FlinkKafkaProducer("totals", SimpleStringSchema(), properties)
        numbers.map(str, Types.STRING()).add_sink(sink)
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        """Take topic, schema and the properties of the client; a pool is not needed here."""
        schema = KafkaRecordSerializationSchema(topic, serialization_schema)
        guarantee = DeliveryGuarantee[semantic.name]
        super().__init__(producer_config, schema, guarantee, f"flink-kafka-producer-{topic}")
        self._with_timestamps = False

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Say whether records keep their event time as Kafka's timestamp."""
        self._with_timestamps = write_timestamp_to_kafka
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """Say whether barriers wait until records have arrived, if transactions do not."""
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            self.guarantee = DeliveryGuarantee["AT_LEAST_ONCE" if flush_on_checkpoint else "NONE"]
        return self

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Say whether records that do not arrive are counted in the log alone, and lost.

        Barriers wait all the same. A transaction is written as a whole, or not at all.
        """
        self._logs_failures = log_failures_only
        if log_failures_only and self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            warn_once(log, "set_log_failures_only() has no effect on transactions")
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Change nothing: transactions are open for the moment of writing alone."""
        warn_once(log, "ignore_failures_after_transaction_timeout() has no effect here")
        return self

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> Sequence[Row]:
        """Serialise records, with their timestamps if they are wanted."""
        return super().rows_of(values, timestamps if self._with_timestamps else None)
