"""Reads offset ranges in the worker.

A range ends where the consumer stands behind it, not with its last record: markers of transactions,
aborted records and what compaction removed have offsets, and are never delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from weir.clock import SystemClock
from weir.connector.decoder import Partition
from weir.connector.kafka.client import Connection, import_kafka
from weir.connector.kafka.position import Range
from weir.connector.source import SplitReader
from weir.errors import CorruptStateError, StorageError

_BATCH_RECORDS = 10_000
_POLL_S = 0.02
_SILENCE_MS = 60_000
_IDLE_MAX = 8
_SETTINGS = {
    # A full queue is drained in a fraction of the second for which the client would wait.
    "fetch.queue.backoff.ms": "5",
    # So long does it take to learn that what is left of a range is never delivered.
    "fetch.wait.max.ms": "50",
}
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_Key: TypeAlias = tuple[tuple[str, str], ...]
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", pa.list_(_HEADER)),
    ]
)
TOPIC, PARTITION = b"topic", b"partition"
"""Of what the metadata of a batch tells."""
_decode_range = msgspec.json.Decoder(Range).decode
# Consumers that nobody reads with, and what they were made of. Every step is atomic, as readers may
# be closed whenever the collector runs.
_idle: deque[tuple[_Key, Any]] = deque()


@dataclass(frozen=True)
class KafkaRanges(SplitReader):
    """Reads ranges, each by a consumer of its own; the process keeps them from epoch to epoch."""

    connection: Connection
    with_headers: bool = False

    def read(self, split: str) -> Iterator[pa.RecordBatch]:
        """Return the records of a range.

        Raises:
            CorruptStateError: records of it were deleted.
            StorageError: the broker does not answer.
        """
        wanted = _decode_range(split)
        if wanted.is_empty:
            return
        kafka, key = import_kafka(), tuple(sorted(self.connection.properties.items()))
        consumer = _taken(key)
        if consumer is None:
            consumer = self._made()
        place = kafka.TopicPartition(wanted.topic, wanted.partition, wanted.start)
        with self.connection.errors(f"reading {_name(wanted)}"):
            try:
                consumer.assign([place])
                for messages in self._messages(consumer, place, wanted):
                    yield self._batch(messages, wanted)
            finally:
                consumer.unassign()
                _put_back(key, consumer)

    def check(self) -> None:
        """Refuse properties with which no consumer can be made.

        Raises:
            UsageError: it names the property.
        """
        self._made().close()

    def is_last(self, split: str) -> bool:
        """Tell what the split says."""
        return _decode_range(split).last

    def partition(self, split: str) -> Partition:
        """Return the partition of the range: it has an event time of its own.

        Behind the end of bounded input it has none, as a finished split in Flink.
        """
        wanted = _decode_range(split)
        awaited = wanted.is_empty and not wanted.over
        name = f"{wanted.topic}-{wanted.partition}"
        return Partition(name, awaited=awaited, over=wanted.over)

    def _made(self) -> Any:
        given = self.connection.properties
        own = {name: value for name, value in _SETTINGS.items() if name not in given}
        return self.connection.consumer(**own, **{"enable.partition.eof": True})

    def _messages(self, consumer: Any, place: Any, wanted: Range) -> Iterator[list[Any]]:
        """Return what lies in the range, until the consumer stands behind it."""
        clock = SystemClock()
        heard_ms, position = clock.monotonic_ms(), wanted.start
        while position < wanted.end:
            # The client waits for as many as it is asked for, and there are no more in the range.
            most = min(_BATCH_RECORDS, wanted.end - position)
            consumed = consumer.consume(most, timeout=_POLL_S)
            kept, behind = self._sorted(consumed, wanted)
            if kept:
                yield kept
            stands = consumer.position([place])[0].offset
            position = max(position, behind, stands)
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

    def _sorted(self, consumed: list[Any], wanted: Range) -> tuple[list[Any], int]:
        """Return the records of the range among messages, and how far the others say it is read.

        Offsets of records grow, so that the last one tells whether some lie behind the range.
        """
        errors = [message.error() for message in consumed]
        kept, behind = consumed, wanted.start
        if any(errors):
            pairs = list(zip(consumed, errors, strict=True))
            kept = [message for message, error in pairs if error is None]
            told = [self._behind(m, error, wanted) for m, error in pairs if error is not None]
            behind = max(told)
        for message in kept[:1] + kept[-1:]:
            _check_place(message, wanted)
        if kept and kept[-1].offset() >= wanted.end:
            kept = [message for message in kept if message.offset() < wanted.end]
            behind = wanted.end
        return kept, behind

    def _behind(self, message: Any, error: Any, wanted: Range) -> int:
        """Return how far the consumer is when a partition is at its end; anything else raises."""
        code = import_kafka().KafkaError
        if error.code() == code._PARTITION_EOF:
            _check_place(message, wanted)
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
        count = len(messages)
        nothing = pa.nulls(count, pa.list_(_HEADER))
        columns = [
            pa.array([m.key() for m in messages], pa.binary()),
            pa.array([m.value() for m in messages], pa.binary()),
            _offsets(messages),
            _timestamps(messages),
            pa.array(map(_headers, messages), nothing.type) if self.with_headers else nothing,
        ]
        where = {TOPIC: wanted.topic.encode(), PARTITION: str(wanted.partition).encode()}
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.with_metadata(where))


def _taken(key: _Key) -> Any:
    """Return a consumer that was made of these properties, for one reader alone; None without."""
    for _ in range(len(_idle)):
        try:
            made_of, consumer = _idle.popleft()
        except IndexError:
            return None
        if made_of == key:
            return consumer
        _idle.append((made_of, consumer))
    return None


def _put_back(key: _Key, consumer: Any) -> None:
    _idle.append((key, consumer))
    while len(_idle) > _IDLE_MAX:
        _idle.popleft()[1].close()


def _check_place(message: Any, wanted: Range) -> None:
    """Refuse what was not asked for: it would be taken for records of the range."""
    if (message.topic(), message.partition()) != (wanted.topic, wanted.partition):
        msg = (
            f"Kafka's client gave offset {message.offset()} of partition {message.partition()} of "
            f"topic {message.topic()!r} to who reads {_name(wanted)}"
        )
        raise StorageError(msg)


def _name(wanted: Range) -> str:
    return (
        f"partition {wanted.partition} of topic {wanted.topic!r}, offsets {wanted.start} to "
        f"{wanted.end}"
    )


def _offsets(messages: list[Any]) -> pa.Array:
    """Return the offsets of records: they grow, so that most often the first and last say all."""
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([m.offset() for m in messages], pa.int64())


def _timestamps(messages: list[Any]) -> pa.Array:
    """Return Kafka's timestamps; a record of the oldest format has none, and says no time."""
    found = [m.timestamp()[1] for m in messages]
    if min(found) > 0:
        return pa.array(found, pa.int64())
    both = (m.timestamp() for m in messages)
    return pa.array([milliseconds if kind else None for kind, milliseconds in both], pa.int64())


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]
