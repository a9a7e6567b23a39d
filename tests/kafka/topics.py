"""Topics of tests: made, filled and read with plain clients, which share no code with Weir.

And what Weir's own decoders gave, as plain values.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from weir.codec.arrow import batch_to_rows
from weir.connector.decoder import Columns, Records

_VISIBLE_S = 60


def records_of(piece: object) -> list[Any]:
    """Return the records that a decoder gave, as columns or as values; marks are none."""
    if isinstance(piece, Columns):
        return batch_to_rows(piece.batch, piece.type_info)
    return piece.values if isinstance(piece, Records) else []


def until(read: Callable[[], list[Any]], count: int) -> list[Any]:
    """Read again until so many records are there: transactions are visible a moment later.

    One that does not come is an assertion that says how many did.
    """
    deadline = time.monotonic() + _VISIBLE_S
    while len(found := read()) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records after {_VISIBLE_S} s"
    return found


class Topics:
    """What a test does to a broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def new(
        self, partitions: int = 1, name: str | None = None, config: dict[str, str] | None = None
    ) -> str:
        """Make a topic that nobody else has."""
        topic = name or f"t{uuid.uuid4().hex[:10]}"
        made = NewTopic(topic, partitions, 1, config=config or {})
        for future in self.admin.create_topics([made]).values():
            future.result()
        return topic

    def configure(self, topic: str, config: dict[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET)
            for k, v in config.items()
        ]
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([asked]).values():
            future.result()

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result()

    def grow(self, topic: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result()

    def truncate(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete the records before an offset."""
        place = TopicPartition(topic, partition, offset)
        self.admin.delete_records([place])[place].result()

    def send(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Append values; further arguments are those of `produce`."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for value in values:
            data = value if value is None or isinstance(value, bytes) else str(value).encode()
            producer.produce(topic, data, partition=partition, **more)
        assert producer.flush(20) == 0

    @contextmanager
    def transaction(self, topic: str, values: Iterable[Any]) -> Iterator[Any]:
        """Write values in a transaction; the block ends it."""
        producer = Producer(
            {"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value).encode(), partition=0)
        producer.flush(20)
        yield producer

    def read(self, topic: str, isolation: str = "read_committed") -> list[tuple[Any, Any]]:
        """Return key and value of all records, as a reader of committed ones sees them."""
        return [(message.key(), message.value()) for message in self.messages(topic, isolation)]

    def awaited(self, topic: str, count: int) -> list[tuple[Any, Any]]:
        """Return key and value of all committed records, once there are so many."""
        return until(lambda: self.read(topic), count)

    def messages(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """Return all records as the client has them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        # Not by the admin client: a broker may have died since it last asked, unnoticed.
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found, ended = [], set()
        deadline = time.monotonic() + _VISIBLE_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} was not read to its end: {ended}"
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                elif not message.error().retriable():
                    raise KafkaException(message.error())
        consumer.close()
        return found

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """Return what a group has committed, -1001 for nothing."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        found = consumer.committed([TopicPartition(topic, partition)], timeout=20)
        consumer.close()
        return int(found[0].offset)
