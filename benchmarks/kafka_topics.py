"""What workload k does to the broker: topics of seeded rows, and what is left of output.

Rows are kept as columns, because a recount in plain Python would take longer than the contenders.
`benchmarks/contenders/kafka_rows.py` says the same row by row; a test compares both.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.contenders.kafka_rows import PARTITIONS, VALUE_BYTES, text
from benchmarks.workloads.checksum import Checksum, of_columns

SEED = 7
KEYS = 100_000
_BLOCK = 10_000
_VALUES = 1_000_000_000
_GROUPS = ((0, 1, 2),)
_GROUP_STEP = 2 * _VALUES


class WrongValueError(Exception):
    """A record of the output is none of this workload."""


def rows_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return seeded keys and values; fewer are the beginning of more."""
    keys, values = [], []
    for made in range(0, count, _BLOCK):
        rng = np.random.default_rng([SEED, made])
        keys.append(rng.integers(0, KEYS, _BLOCK))
        values.append(rng.integers(0, _VALUES, _BLOCK))
    return np.concatenate(keys)[:count], np.concatenate(values)[:count]


@lru_cache
def expected(count: int) -> Checksum:
    """Return the checksum of key, value and least value of the key so far, over seeded rows."""
    keys, values = rows_of(count)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    # Every key begins below all that came before it, so that the least value begins anew.
    lowered = keys * _GROUP_STEP
    least = np.minimum.accumulate(values - lowered) + lowered
    return of_columns((keys, values, least), _GROUPS)


def checksum(values: list[bytes]) -> Checksum:
    """Return the checksum of output records.

    Raises:
        WrongValueError: one of them does not look like an output record.
    """
    if not values:
        return Checksum()
    column = pa.array(values, pa.binary())
    fields = pc.split_pattern(column.cast(pa.string()), ",", max_splits=3)
    sizes = pc.binary_length(column)
    if pc.any(pc.not_equal(sizes, VALUE_BYTES)).as_py() or len(fields.flatten()) != 4 * len(column):
        msg = f"a record is not of three numbers in {VALUE_BYTES} bytes"
        raise WrongValueError(msg)
    flat = fields.flatten()
    numbers = (flat.take(pa.array(np.arange(n, len(flat), 4))) for n in range(3))
    return of_columns([column.cast(pa.int64()).to_numpy() for column in numbers], _GROUPS)


def send(producer: Any, topic: str, row: tuple[int, int]) -> None:
    """Send a row to the partition of its key."""
    while True:
        try:
            producer.produce(topic, text(*row), partition=row[0] % PARTITIONS)
        except BufferError:
            producer.poll(0.05)
            continue
        producer.poll(0)
        return


class Topics:
    """What this program does to the broker."""

    def __init__(self, address: str) -> None:
        """Connect."""
        self.address = address
        self._filled: dict[int, str] = {}
        self._connect()

    def _connect(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def new(self) -> str:
        """Make a topic."""
        name = f"k{uuid.uuid4().hex[:8]}"
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result()
        return name

    def drop(self, topic: str) -> None:
        """Delete a topic, whose rows would fill the disk."""
        for future in self._admin.delete_topics([topic]).values():
            future.result()

    def filled(self, count: int) -> str:
        """Return a topic with so many seeded rows; it is filled once."""
        if count not in self._filled:
            topic, producer = self.new(), self.producer(linger_ms=20)
            for row in zip(*(column.tolist() for column in rows_of(count)), strict=True):
                send(producer, topic, row)
            producer.flush()
            self._filled[count] = topic
        return self._filled[count]

    def producer(self, linger_ms: int) -> Any:
        """Return a client that sends every row once."""
        return Producer(
            {
                "bootstrap.servers": self.address,
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def visible(self, topic: str) -> int:
        """Return how far the topic is committed, in all partitions together."""
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        level = IsolationLevel.READ_COMMITTED
        try:
            futures = self._admin.list_offsets(asked, isolation_level=level)
            return sum(future.result().offset for future in futures.values())
        except KafkaException as error:
            if error.args[0].code() != KafkaError.FENCED_LEADER_EPOCH:
                raise
            # The client goes by leaders of before; a new one is asked the next time.
            self._connect()
            return 0

    def consumer(self, topic: str) -> Any:
        """Return a reader of all committed records."""
        made = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        made.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        return made

    def read(self, topic: str) -> Checksum:
        """Return what is left of all committed records."""
        consumer, ended, found = self.consumer(topic), set[int](), Checksum()
        while len(ended) < PARTITIONS:
            messages = consumer.consume(_BLOCK, timeout=0.5)
            found += checksum([m.value() for m in messages if m.error() is None])
            ended |= set(_ended(m for m in messages if m.error() is not None))
        consumer.close()
        return found


def _ended(messages: Iterable[Any]) -> Iterable[int]:
    """Return the partitions that are at their end; other errors are raised, or pass."""
    for message in messages:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            yield message.partition()
        elif not error.retriable():
            raise KafkaException(error)
