"""`KafkaSource` by PyFlink's names: a value that says what to read; it holds no connection.

Records are read by workers, as offset ranges that the driver's side plans. Positions are offsets,
part of every checkpoint; the group's offsets are committed after each for others to see, and are
never read unless the program begins there.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from weir.common.serialization import DeserializationSchema
from weir.connector.kafka.by_spark import (
    READER,
    options_of,
    reads_by_spark,
    refuse_other_positions,
    stream_rows,
)
from weir.connector.kafka.client import Connection
from weir.connector.kafka.cluster import Cluster, Found, Subscription, check_wanted
from weir.connector.kafka.decoder import SETTING, KafkaRecords
from weir.connector.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    resolve,
)
from weir.connector.kafka.planner import PER_EPOCH, PER_SECOND, KafkaPlanner, Pace
from weir.connector.kafka.position import KafkaPosition, check_topics, discover
from weir.connector.kafka.reader import KafkaRanges
from weir.connector.kafka.record import KafkaRecordDeserializationSchema
from weir.connector.source import Opening, PlannedSplits, Source, StreamRows
from weir.connector.undecoded import DEAD_LETTERS, OnError
from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.kafka")
# Properties of the source itself, not of its clients: Flink's first, then Weir's.
DISCOVERY = "partition.discovery.interval.ms"
_COMMIT = "commit.offsets.on.checkpoint"
_ON_ERROR = "on.deserialization.error"
_OWN = {DISCOVERY, _COMMIT, PER_EPOCH, PER_SECOND, _ON_ERROR, READER, "client.id.prefix"}


@dataclass(frozen=True)
class KafkaSource(Source):
    """Records of Kafka topics; bounded if it has `stopping` offsets.

    Attributes:
        properties: of the client (the Java client's names, or librdkafka's) and of the source.

    Example:
        source = KafkaSource.builder().set_bootstrap_servers("host:9092").set_topics("clicks")
        source.set_value_only_deserializer(SimpleStringSchema()).build()
    """

    wanted: Subscription
    deserializer: Any
    properties: Mapping[str, str] = field(repr=False)
    group_id: str | None = None
    starting: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stopping: KafkaOffsetsInitializer | None = None

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Begin a source."""
        return KafkaSourceBuilder()

    @property
    def bounded(self) -> bool:
        """Tell whether the source stops."""
        return self.stopping is not None

    def get_produced_type(self) -> Any:
        """Return the type that the deserialiser produces."""
        return self.deserializer.get_produced_type()

    def open(self, opening: Opening) -> PlannedSplits | StreamRows:
        """Find the partitions and decide where to begin, once a job.

        Raises:
            UsageError: a topic is missing, or has no offset to begin at; a property is not known.
            StorageError: no broker answers.
            IncompatibleStateError: the topics are not those of the position.
        """
        decoder = self._decoder(opening)
        with_headers = not isinstance(self.deserializer, DeserializationSchema)
        if reads_by_spark(self.properties):
            refuse_other_positions(opening.position)
            return stream_rows(self._spark_options(), decoder, with_headers=with_headers)
        given = {k: v for k, v in self.properties.items() if k not in _OWN}
        prefix = self.properties.get("client.id.prefix")
        if prefix is not None:
            given["client.id"] = prefix
        if self.group_id is not None:
            given["group.id"] = self.group_id
        connection = Connection(given)
        reader = KafkaRanges(connection, with_headers)
        # Clients for questions look at some of the properties only.
        reader.check()
        connection.reach()
        cluster = Cluster(connection, self.group_id)
        try:
            found = cluster.find(self.wanted)
            start = self._start(opening, cluster, found)
        finally:
            cluster.close()
        group = self.group_id if self._flag(_COMMIT, default=True) else None
        planner = KafkaPlanner(connection, self.wanted, start, self._pace(), group=group)
        return PlannedSplits(planner, reader, decoder)

    def _spark_options(self) -> dict[str, str]:
        given = {k: v for k, v in self.properties.items() if k not in _OWN}
        return options_of(self.wanted, self.starting, given, self._pace().records_per_epoch)

    def _decoder(self, opening: Opening) -> KafkaRecords:
        on_error = OnError.chosen(
            self.properties.get(_ON_ERROR),
            SETTING,
            read=DEAD_LETTERS.tag_id in opening.side_outputs,
        )
        columnar = opening.type_info in (None, self.get_produced_type())
        return KafkaRecords(self.deserializer, on_error, columnar)

    def _start(self, opening: Opening, cluster: Cluster, found: Found) -> KafkaPosition:
        if opening.position is not None:
            position = KafkaPosition.of(json.loads(opening.position))
            check_wanted(position, self.wanted)
            check_topics(position, found.ids)
            return self._ending(position, cluster, found)
        cluster.require(self.wanted, found)
        until = None
        if self.stopping is not None:
            until = resolve(self.stopping, found.partitions, cluster)
        offsets = resolve(self.starting, found.partitions, cluster)
        topics = {p.topic: found.ids[p.topic] for p in found.partitions}
        return KafkaPosition(offsets, topics, until)

    def _ending(self, position: KafkaPosition, cluster: Cluster, found: Found) -> KafkaPosition:
        """Return a position with the end that the source has: none, the known one, or a new one.

        A job that gets an end only now reads partitions that are new up to it, too.
        """
        if self.stopping is None:
            return structs.replace(position, until=None)
        if position.until is not None:
            return position
        new = [p for p in found.partitions if p not in position.offsets]
        position = discover(position, cluster.earliest(new), found.ids)
        until = resolve(self.stopping, found.partitions, cluster)
        return structs.replace(position, until=until)

    def _check_for_spark(self) -> None:
        """Refuse what Spark's connector does not do.

        Raises:
            UsageError: it names it.
        """
        self._spark_options()
        refused = [key for key in (PER_SECOND, DISCOVERY) if key in self.properties]
        refused += ["set_bounded"] if self.bounded else []
        if refused:
            msg = (
                f"a Kafka source that is read by Spark's connector has no {' and '.join(refused)}: "
                f"leave it out, or the property {READER!r}"
            )
            raise UsageError(msg)
        if self.group_id is not None and self._flag(_COMMIT, default=True):
            warn_once(
                log,
                f"the offsets of group {self.group_id!r} are not committed: Spark's Kafka "
                "connector does not do it",
            )

    def _pace(self) -> Pace:
        pace = Pace()
        if PER_EPOCH in self.properties:
            pace = replace(pace, records_per_epoch=self._number(PER_EPOCH))
        if PER_SECOND in self.properties:
            pace = replace(pace, records_per_second=self._number(PER_SECOND))
        if DISCOVERY in self.properties:
            pace = replace(pace, discovery_ms=self._milliseconds(DISCOVERY))
        return pace

    def _milliseconds(self, key: str) -> int:
        text = self.properties[key].strip()
        if not text.removeprefix("-").isdecimal():
            msg = (
                f"the property {key!r} of the Kafka source is {text!r}, expected a number of "
                "milliseconds; 0 or less for never"
            )
            raise UsageError(msg)
        return int(text)

    def _number(self, key: str) -> int:
        text = self.properties[key]
        if not text.isdecimal() or int(text) < 1:
            msg = f"the property {key!r} of the Kafka source is {text!r}, expected a number >= 1"
            raise UsageError(msg)
        return int(text)

    def _flag(self, key: str, *, default: bool) -> bool:
        text = self.properties.get(key, str(default))
        if text.lower() not in ("true", "false"):
            msg = (
                f"the property {key!r} of the Kafka source is {text!r}, expected 'true' or 'false'"
            )
            raise UsageError(msg)
        return text.lower() == "true"

    def _check(self) -> None:
        """Refuse properties of the source itself whose values mean nothing.

        Raises:
            UsageError: it names the property.
        """
        self._pace()
        self._flag(_COMMIT, default=True)
        if reads_by_spark(self.properties):
            self._check_for_spark()


class KafkaSourceBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = KafkaSource.builder().set_bootstrap_servers("host:9092")
        builder.set_topic_pattern("click.*").set_group_id("weir")
    """

    def __init__(self) -> None:
        """Begin with nothing set: read from the earliest offset, without an end."""
        self._properties: dict[str, str] = {}
        self._wanted: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._deserializer: Any = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Say where the cluster is: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Name the consumer group: its offsets are committed after each checkpoint."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read all partitions of these topics."""
        if not topics or not all(isinstance(t, str) and t for t in topics):
            msg = f"set_topics: {topics!r}, expected names of topics"
            raise UsageError(msg)
        return self._subscribe(Subscription(topics=topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole name matches a regular expression, also later ones."""
        try:
            re.compile(topic_pattern)
        except re.error as error:
            msg = f"set_topic_pattern: {topic_pattern!r} is no regular expression: {error}"
            raise UsageError(msg) from error
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions, and no others."""
        chosen = tuple(sorted(KafkaTopicPartition(*p) for p in partitions))
        if not chosen:
            msg = "set_partitions: expected at least one KafkaTopicPartition"
            raise UsageError(msg)
        return self._subscribe(Subscription(partitions=chosen))

    def _subscribe(self, wanted: Subscription) -> KafkaSourceBuilder:
        if self._wanted is not None:
            msg = (
                "a Kafka source is told what to read once: by set_topics, set_topic_pattern or "
                "set_partitions"
            )
            raise UsageError(msg)
        self._wanted = wanted
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Say where to begin when there is no position to go on from; earliest unless said."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Say where to stop. Here that is the same as `set_bounded`."""
        return self.set_bounded(stopping_offsets_initializer)

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Say where to stop; what that means in offsets is decided when the job starts."""
        self._stopping = _initializer(stopping_offsets_initializer)
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Make records of the values alone."""
        return self._deserialize_by(deserialization_schema, DeserializationSchema)

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Make records of whole Kafka records: key, value, headers, timestamp, place."""
        return self._deserialize_by(record_deserializer, KafkaRecordDeserializationSchema)

    def _deserialize_by(self, schema: Any, kind: type) -> KafkaSourceBuilder:
        if not isinstance(schema, kind):
            msg = f"expected a {kind.__name__}, found {schema!r}"
            raise UsageError(msg)
        self._deserializer = schema
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Name the clients for the broker's logs and quotas."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the client or of the source."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            UsageError: something necessary was not said, or a property cannot be had here.
        """
        if self._wanted is None:
            msg = "a Kafka source needs set_topics, set_topic_pattern or set_partitions"
            raise UsageError(msg)
        if self._deserializer is None:
            msg = "a Kafka source needs set_value_only_deserializer or set_deserializer"
            raise UsageError(msg)
        properties = dict(self._properties)
        if not reads_by_spark(properties):
            Connection({k: v for k, v in properties.items() if k not in _OWN})
        if _ON_ERROR in properties:
            OnError.named(properties[_ON_ERROR], SETTING)
        source = KafkaSource(
            self._wanted,
            self._deserializer,
            properties,
            properties.pop("group.id", None),
            starting=self._starting,
            stopping=self._stopping,
        )
        source._check()
        if source.group_id is None and self._starting.kind == "committed":
            msg = "KafkaOffsetsInitializer.committed_offsets() needs set_group_id"
            raise UsageError(msg)
        return source


def _initializer(found: Any) -> KafkaOffsetsInitializer:
    if not isinstance(found, KafkaOffsetsInitializer):
        msg = f"expected a KafkaOffsetsInitializer, found {found!r}"
        raise UsageError(msg)
    return found
