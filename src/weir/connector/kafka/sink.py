"""`KafkaSink` by PyFlink's names: at once, at least once, or exactly once by `CommitTarget`.

* `NONE`: records are handed to the client; what is under way when a process dies is lost.
* `AT_LEAST_ONCE`: at the barrier all of them have arrived; after a failure some come again.
* `EXACTLY_ONCE`: records are part of the checkpoint, and are written in one transaction, with a
  marker, when it is complete. Readers have to read committed records only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter, length_hint, methodcaller
from typing import Any

from weir.common.serialization import SerializationSchema, SimpleStringSchema
from weir.connector.commit_target import CommitSink
from weir.connector.delivery import DeliveryGuarantee
from weir.connector.kafka.client import Connection
from weir.connector.kafka.target import (
    TIMEOUT,
    KafkaTarget,
    Row,
    largest_record,
    produce,
    require_topic,
)
from weir.connector.sink import SinkWriter, WriterContext, blame
from weir.errors import StorageError, UsageError, WeirError
from weir.notices import warn_once

log = logging.getLogger("weir.kafka")
_FLUSH_S = 60.0
_PREFIX_BYTES_MAX = 6400
_UNKNOWN = "commit.when.marker.expired"
_RECORD_OVERHEAD = 100
# Rows come many at a time, and the barrier waits for no more of them: the client's own default.
_LINGER_MS = "5"
_key, _value = itemgetter(1), itemgetter(2)


class KafkaTopicSelector:
    """Chooses the topic of a record; subclasses override `apply`.

    Example:
        class ByName(KafkaTopicSelector):
            def apply(self, data):
                return f"payments-{data[0]}"
    """

    def apply(self, data: Any) -> str:
        """Return the topic."""
        raise NotImplementedError


class KafkaRecordSerializationSchema:
    """What becomes of a record: a topic, a value, and perhaps a key.

    Example:
        serializer = KafkaRecordSerializationSchema.builder().set_topic("totals")
        serializer = serializer.set_value_serialization_schema(SimpleStringSchema()).build()
    """

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        value: SerializationSchema,
        key: SerializationSchema | None = None,
    ) -> None:
        """Take a topic, or a function that chooses it."""
        self.topic = topic
        self._value = value
        self._key = key

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Begin a schema."""
        return KafkaRecordSerializationSchemaBuilder()

    @property
    def has_keys(self) -> bool:
        """Tell whether records get a key."""
        return self._key is not None

    def rows(self, values: list[Any], timestamps: list[int | None] | None) -> list[Row]:
        """Return what becomes of some records; an error says which record it was."""
        topic, key = self.topic, self._key
        topics = repeat(topic) if isinstance(topic, str) else _each(topic, values)
        keys = repeat(None) if key is None else _each(_serializing(key), values)
        made = _each(_serializing(self._value), values)
        return list(zip(topics, keys, made, _times(timestamps), strict=False))


def _serializing(schema: SerializationSchema) -> Callable[[Any], bytes | None]:
    if type(schema) is SimpleStringSchema:
        # By name it takes twice as long.
        in_utf8 = schema.charset.lower() in ("utf-8", "utf8")
        return str.encode if in_utf8 else methodcaller("encode", schema.charset)
    serialize = schema.serialize

    def serialized(value: Any) -> bytes | None:
        made = serialize(value)
        return made if made is None or type(made) is bytes else _as_bytes(made, schema)

    return serialized


def _as_bytes(made: Any, schema: SerializationSchema) -> bytes:
    """Return other buffers as bytes; a number would become as many zeros.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(made, (bytes, bytearray, memoryview)):
        return bytes(made)
    msg = (
        f"{type(schema).__name__}.serialize returned {made!r:.100}, of {type(made).__name__}: "
        "expected bytes, or None for a record without a value or a key"
    )
    raise UsageError(msg)


def _times(timestamps: list[int | None] | None) -> Iterable[int | None]:
    """Return event times as Kafka's client can write them.

    To it 0 is none: the first millisecond of 1970 becomes the second. Kafka has no time before
    that, so such records get that of their sending, as in Flink.
    """
    if not timestamps:
        return repeat(None)
    if 0 in timestamps:
        warn_once(log, "Kafka's client cannot write the timestamp 0: such records are given 1")
    elif min(filter(None, timestamps), default=1) > 0:
        return timestamps
    return [None if time is None or time < 0 else time or 1 for time in timestamps]


def _each(function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Return what a function of the program makes of every record."""
    rest = iter(values)
    try:
        return [function(value) for value in rest]
    except BaseException as error:
        blame(error, values[-1 - length_hint(rest)])
        raise


class KafkaRecordSerializationSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = KafkaRecordSerializationSchemaBuilder().set_topic_selector(lambda data: data[:1])
        builder.set_value_serialization_schema(SimpleStringSchema()).build()
    """

    def __init__(self) -> None:
        """Begin with nothing set."""
        self._topic: Any = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic."""
        self._topic = topic
        return self

    def set_topic_selector(self, topic_selector: Any) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record by a function or a `KafkaTopicSelector`."""
        selector = isinstance(topic_selector, KafkaTopicSelector)
        self._topic = topic_selector.apply if selector else topic_selector
        if not callable(self._topic):
            msg = f"set_topic_selector: {topic_selector!r} is neither function nor selector"
            raise UsageError(msg)
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Write a key, made of the whole record."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Say how values are made."""
        self._value = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Raises:
            UsageError: topic or value are missing.
        """
        if not self._topic or self._value is None:
            msg = (
                "KafkaRecordSerializationSchema needs set_topic or set_topic_selector, and "
                "set_value_serialization_schema"
            )
            raise UsageError(msg)
        return KafkaRecordSerializationSchema(self._topic, self._value, self._key)


class KafkaSink(CommitSink):
    """Writes records to Kafka with the guarantee that was chosen.

    Example:
        serializer = KafkaRecordSerializationSchema.builder().set_topic("totals")
        serializer = serializer.set_value_serialization_schema(SimpleStringSchema()).build()
        sink = KafkaSink.builder().set_bootstrap_servers("host:9092")
        sink = sink.set_record_serializer(serializer)
        sink = sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        sink.set_transactional_id_prefix("totals").build()
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        serializer: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        prefix: str,
    ) -> None:
        """Take what the builder found; nothing is opened."""
        own = dict(properties)
        self.when_unknown = own.pop(_UNKNOWN, "fail")
        self.guarantee = guarantee
        self._connection = Connection(own)
        self._serializer = serializer
        self._prefix = prefix
        self._limits: dict[str, int] = {}
        self._logs_failures = False
        self._bytes_max = _largest_request(self._connection)

    def _limit(self, topic: str) -> int:
        """Return how large a record of a topic may be; a topic that is not there is refused."""
        require_topic(self._connection, topic)
        largest = largest_record(self._connection, topic)
        self._limits[topic] = min(self._bytes_max, largest or self._bytes_max)
        return self._limits[topic]

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Begin a sink."""
        return KafkaSinkBuilder()

    def __repr__(self) -> str:
        """Show no property: some are passwords."""
        return f"KafkaSink({self._connection.address!r}, {self.guarantee.name})"

    def check(self, interval_ms: int | None) -> None:
        """Say what checkpoints mean here, where another meaning may be expected."""
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return
        super().check(interval_ms)
        timeout = self._connection.properties.get(TIMEOUT, "")
        if interval_ms is not None and timeout.isdecimal() and int(timeout) <= interval_ms:
            warn_once(
                log,
                f"the Kafka property {TIMEOUT!r} is {timeout}, and checkpoints come every "
                f"{interval_ms} ms. In Flink records would be lost. Here a transaction is open "
                "while one checkpoint is written, and not from one to the next: the timeout has "
                "to be enough for that",
            )

    def create_writer(self, context: WriterContext) -> Any:
        """Create the writer of one subtask.

        Raises:
            UsageError: the topic does not exist, or a property cannot be had.
            StorageError: no broker answers.
        """
        if isinstance(self._serializer.topic, str):
            self._limit(self._serializer.topic)
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            self.open_target(context).check()
            return super().create_writer(context)
        wait = self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        fails = wait and not self._logs_failures
        return _ProducingWriter(self._connection, self.rows_of, wait=wait, fails=fails)

    def open_target(self, context: WriterContext) -> KafkaTarget:
        """Return a target for transactions."""
        one_topic = isinstance(self._serializer.topic, str)
        return KafkaTarget(self._connection, self._prefix, one_topic=one_topic)

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> Sequence[Row]:
        """Serialise records; one that no broker would take is refused before it is prepared."""
        rows = self._serializer.rows(values, timestamps)
        self._check_sizes(rows)
        return rows

    def _check_sizes(self, rows: list[Row]) -> None:
        """Look at the longest keys and values, and at each row only if one may be too large."""
        topic = self._serializer.topic
        topics = {topic} if isinstance(topic, str) else {row[0] for row in rows}
        least = min((self._most(name) for name in topics), default=0)
        longest = max(map(len, filter(None, map(_value, rows))), default=0)
        if self._serializer.has_keys:
            longest += max(map(len, filter(None, map(_key, rows))), default=0)
        if longest + _RECORD_OVERHEAD <= least:
            return
        for name, key, value, _ in rows:
            size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
            most = self._most(name)
            if size > most:
                msg = (
                    f"a record for topic {name!r} has {size} bytes, at most {most} "
                    "can be written: raise 'max.request.size' here and 'max.message.bytes' there"
                )
                raise UsageError(msg)

    def _most(self, topic: str) -> int:
        return self._limits.get(topic) or self._limit(topic)


class _ProducingWriter(SinkWriter):
    """Hands records to the client as they come; with `wait` the barrier waits for them.

    With `fails` a record that does not arrive is an error, else a line in the log.
    """

    def __init__(self, connection: Connection, rows_of: Any, *, wait: bool, fails: bool) -> None:
        self._connection = connection
        self._rows_of = rows_of
        self._wait = wait
        self._fails = fails
        self._error: Any = None
        self._failed = 0
        given = connection.properties
        own = {"linger.ms": _LINGER_MS, "delivery.report.only.error": True}
        self._producer = connection.producer(**{k: v for k, v in own.items() if k not in given})

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        with self._connection.errors("writing"):
            rows = self._rows_of(values, timestamps)
            produce(self._producer, rows, on_delivery=self._delivered)
        self._raise()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = error if self._error is None else self._error
            self._failed += 1

    def _raise(self) -> None:
        if self._error is None:
            return
        error, failed = self._error, self._failed
        self._error, self._failed = None, 0
        if self._fails:
            doing = "writing"
            raise self._connection.error(doing, error)
        log.warning("records that did not arrive in Kafka: %d (%s)", failed, error.str())

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        if self._wait:
            self._flush()
        return []

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        self._raise()
        if left:
            msg = (
                f"Kafka at {self._connection.address!r} did not take {left} records within "
                f"{_FLUSH_S:.0f} s: {self._connection.said.last or 'no reason given'}"
            )
            raise StorageError(msg)

    def commit(self, committables: list[bytes]) -> None:
        """Nothing is prepared, so nothing is left to do."""

    def finish(self) -> None:
        self._flush()

    def abort(self) -> None:
        """What was handed to the client is under way."""

    def close(self) -> None:
        try:
            self._flush()
        except WeirError as error:
            log.warning("closing a Kafka sink: %s", error)


def _largest_request(connection: Connection) -> int:
    """Return how large a record may be for the client.

    Raises:
        UsageError: the property is no number.
    """
    given = connection.properties.get("message.max.bytes", "1000000").strip()
    if not given.isdecimal():
        msg = (
            f"the Kafka property 'max.request.size' ('message.max.bytes') is {given!r}, expected a "
            "number of bytes"
        )
        raise UsageError(msg)
    return int(given)


class KafkaSinkBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        serializer = KafkaRecordSerializationSchema.builder().set_topic("totals")
        serializer = serializer.set_value_serialization_schema(SimpleStringSchema()).build()
        builder = KafkaSinkBuilder().set_bootstrap_servers("host:9092")
        builder.set_record_serializer(serializer).set_property("linger.ms", "20").build()
    """

    def __init__(self) -> None:
        """Begin without a guarantee, as PyFlink does."""
        self._properties: dict[str, str] = {}
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = "kafka-sink"
        self._serializer: KafkaRecordSerializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Say where the cluster is: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Choose `NONE`, `AT_LEAST_ONCE` or `EXACTLY_ONCE`."""
        self._guarantee = DeliveryGuarantee(delivery_guarantee)
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Begin the names of transactions and of the groups that hold markers like this."""
        if len(transactional_id_prefix.encode()) > _PREFIX_BYTES_MAX:
            msg = f"a transactional id prefix has at most {_PREFIX_BYTES_MAX} bytes"
            raise UsageError(msg)
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Say what becomes of records."""
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the client."""
        self._properties[key] = str(value)
        return self

    def build(self) -> KafkaSink:
        """Return the sink.

        Raises:
            UsageError: something necessary was not said, or a property cannot be had here.
        """
        if self._serializer is None:
            msg = "a Kafka sink needs set_record_serializer"
            raise UsageError(msg)
        if "transactional.id" in self._properties:
            msg = (
                "the Kafka property 'transactional.id' cannot be set: every subtask of an "
                "exactly-once sink has one of its own; use set_transactional_id_prefix"
            )
            raise UsageError(msg)
        how = self._properties.get(_UNKNOWN, "fail")
        if how not in ("fail", "write", "drop"):
            msg = f"the property {_UNKNOWN!r} is {how!r}, expected 'fail', 'write' or 'drop'"
            raise UsageError(msg)
        return KafkaSink(self._properties, self._serializer, self._guarantee, self._prefix)
