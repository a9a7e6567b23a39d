"""Reads offset ranges in the worker, and makes records of them.

A range ends where the consumer stands behind it, not with its last record: markers of transactions,
aborted records and what compaction removed have offsets, and are never delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from weir.clock import SystemClock
from weir.common.serialization import DeserializationSchema, SimpleStringSchema
from weir.connector.decoder import Decoder, Partition, Piece, Records
from weir.connector.kafka.client import Connection, import_kafka
from weir.connector.kafka.position import Range
from weir.connector.source import SplitReader
from weir.errors import CorruptStateError, StorageError, UsageError

_BATCH_RECORDS = 10_000
_POLL_S = 0.2
_SILENCE_MS = 60_000
_CONSUMERS_MAX = 8
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(_HEADER)),
    ]
)
_TOPIC, _PARTITION = b"topic", b"partition"
_decode_range = msgspec.json.Decoder(Range).decode
_consumers: dict[tuple[tuple[str, str], ...], Any] = {}


@dataclass(frozen=True)
class KafkaRanges(SplitReader):
    """Reads ranges; consumers are kept by the process from epoch to epoch."""

    connection: Connection
    with_headers: bool = False

    def read(self, split: str) -> Iterator[pa.RecordBatch]:
        """Return the records of a range.

        Raises:
            CorruptStateError: records of it were deleted.
            StorageError: the broker does not answer.
        """
        wanted = _decode_range(split)
        kafka = import_kafka()
        consumer = self._consumer()
        place = kafka.TopicPartition(wanted.topic, wanted.partition, wanted.start)
        with self.connection.errors(f"reading {_name(wanted)}"):
            consumer.assign([place])
            try:
                for messages in self._messages(consumer, place, wanted):
                    yield self._batch(messages, wanted)
            finally:
                consumer.unassign()

    def is_last(self, split: str) -> bool:
        """Tell what the split says."""
        return _decode_range(split).last

    def partition(self, split: str) -> Partition:
        """Return the partition of the range: it has an event time of its own."""
        wanted = _decode_range(split)
        return Partition(f"{wanted.topic}-{wanted.partition}")

    def _consumer(self) -> Any:
        key = tuple(sorted(self.connection.properties.items()))
        found = _consumers.get(key)
        if found is None:
            if len(_consumers) >= _CONSUMERS_MAX:
                for old in _consumers.values():
                    old.close()
                _consumers.clear()
            found = _consumers[key] = self.connection.consumer(**{"enable.partition.eof": True})
        return found

    def _messages(self, consumer: Any, place: Any, wanted: Range) -> Iterator[list[Any]]:
        """Return what lies in the range, until the consumer stands behind it."""
        clock = SystemClock()
        heard_ms, position = clock.monotonic_ms(), wanted.start
        while position < wanted.end:
            consumed = consumer.consume(_BATCH_RECORDS, timeout=_POLL_S)
            kept: list[Any] = []
            for message in consumed:
                error = message.error()
                if error is not None:
                    position = max(position, self._behind(message, error, wanted))
                elif message.offset() < wanted.end:
                    kept.append(message)
                else:
                    position = wanted.end
            if kept:
                yield kept
            stands = consumer.position([place])[0].offset
            position = max(position, stands)
            now = clock.monotonic_ms()
            if consumed:
                heard_ms = now
            elif now - heard_ms > _SILENCE_MS:
                said = self.connection.said.last
                msg = (
                    f"Kafka at {self.connection.address!r} sent nothing of {_name(wanted)} for "
                    f"{_SILENCE_MS // 1000} s, at offset {position}: {said or 'no reason given'}"
                )
                raise StorageError(msg)

    def _behind(self, message: Any, error: Any, wanted: Range) -> int:
        """Return how far the consumer is when a partition is at its end; anything else raises."""
        code = import_kafka().KafkaError
        if error.code() == code._PARTITION_EOF:
            return int(message.offset())
        if error.code() in (code._AUTO_OFFSET_RESET, code.OFFSET_OUT_OF_RANGE):
            msg = (
                f"records of {_name(wanted)} are gone: they were deleted, by retention for one, "
                "before they were read; start without state, or under another uid of the source, "
                "to go on with what is there"
            )
            raise CorruptStateError(msg)
        if error.retriable():
            return wanted.start
        doing = f"reading {_name(wanted)}"
        raise self.connection.error(doing, error)

    def _batch(self, messages: list[Any], wanted: Range) -> pa.RecordBatch:
        headers = [_headers(m) if self.with_headers else None for m in messages]
        columns = [
            pa.array([m.key() for m in messages], pa.binary()),
            pa.array([m.value() for m in messages], pa.binary()),
            pa.array([m.offset() for m in messages], pa.int64()),
            pa.array([_timestamp(m) for m in messages], pa.int64()),
            pa.array(headers, pa.list_(_HEADER)),
        ]
        where = {_TOPIC: wanted.topic.encode(), _PARTITION: str(wanted.partition).encode()}
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.with_metadata(where))


def _name(wanted: Range) -> str:
    return (
        f"partition {wanted.partition} of topic {wanted.topic!r}, offsets {wanted.start} to "
        f"{wanted.end}"
    )


def _timestamp(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    return milliseconds if kind else None


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]


@dataclass(frozen=True)
class KafkaRecords(Decoder):
    """Makes records of what was read; with them go the timestamps of Kafka.

    `skip_failed` leaves out what cannot be deserialised; otherwise the job fails and says which
    record it is. A record without a value (a tombstone) has nothing to deserialise and is left out.
    """

    schema: Any
    skip_failed: bool = False

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Deserialise a batch."""
        timestamps = batch.column("timestamp").to_pylist()
        if isinstance(self.schema, DeserializationSchema):
            values = self._values(batch)
        else:
            where = batch.schema.metadata
            given = self.schema.deserialize_batch
            values = given(where[_TOPIC].decode(), int(where[_PARTITION]), batch)
        if any(value is None for value in values):
            kept = [(v, t) for v, t in zip(values, timestamps, strict=True) if v is not None]
            values, timestamps = [v for v, _ in kept], [t for _, t in kept]
        if values:
            stamped = any(stamp is not None for stamp in timestamps)
            yield Records(values, timestamps if stamped else None)

    def _values(self, batch: pa.RecordBatch) -> list[Any]:
        column = batch.column("value")
        if type(self.schema) is SimpleStringSchema and self.schema.charset == "utf-8":
            try:
                return list(column.cast(pa.string()).to_pylist())
            except pa.ArrowInvalid:
                """One of them is no text: find out which."""
        deserialize: Callable[[bytes], Any] = self.schema.deserialize
        found: list[Any] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                found.append(None if value is None else deserialize(value))
            except Exception as error:  # noqa: PERF203 - each record may be the bad one
                if not self.skip_failed:
                    raise self._refusal(batch, row, error) from error
                found.append(None)
        return found

    def _refusal(self, batch: pa.RecordBatch, row: int, error: Exception) -> UsageError:
        where = batch.schema.metadata
        offset, value = batch.column("offset")[row].as_py(), batch.column("value")[row].as_py()
        return UsageError(
            f"the Kafka record at offset {offset} of {where[_TOPIC].decode()!r}, partition "
            f"{where[_PARTITION].decode()}, cannot be deserialised by "
            f"{type(self.schema).__name__}: {type(error).__name__}: {error}; its value begins with "
            f"{value[:100]!r}. set_property('on.deserialization.error', 'skip') leaves such out"
        )
