"""The topics of `weir demo --kafka`, filled and read by plain clients, and what they must hold.

The recount is made of what was sent. It shares no code and no state with the job.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np

from weir.clock import Clock
from weir.connector.kafka.client import Connection, import_kafka
from weir.connector.kafka.cluster import Cluster
from weir.connector.kafka.offsets import KafkaTopicPartition
from weir.connector.kafka.target import Row, produce
from weir.demo.payments import InputShape, payments
from weir.demo.recount import Columns, running_sum
from weir.errors import StorageError

INPUT, OUTPUT = "payments", "totals"
PARTITIONS = 4
_CHUNK = 100_000
_FLUSH_S = 60.0
_SETTLED_MS = 30_000
_COMMITTED = {"isolation.level": "read_committed"}


class Total(msgspec.Struct, frozen=True):
    """A record of the output."""

    seq: int
    card: int
    total_cents: int
    payments: int


_decode = msgspec.json.Decoder(Total).decode


def fill(address: str, shape: InputShape) -> None:
    """Make both topics and send all payments; those of a card go to one partition, in order.

    Raises:
        StorageError: the broker does not take them.
    """
    kafka, connection = import_kafka(), Connection({"bootstrap.servers": address})
    with connection.errors("making topics"):
        # Kept by name until it has answered: a client that is forgotten never does.
        admin = connection.admin()
        topics = [kafka.admin.NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
        for future in admin.create_topics(topics).values():
            future.result()
    producer = connection.producer(**{"enable.idempotence": True, "linger.ms": "20"})
    with connection.errors("sending payments"):
        for start in range(0, shape.rows, _CHUNK):
            columns = payments(shape, start, min(start + _CHUNK, shape.rows))
            chosen = (columns[name].tolist() for name in ("seq", "card", "amount_cents"))
            rows: list[Row] = []
            for seq, card, amount in zip(*chosen, strict=True):
                text = b'{"seq": %d, "card": %d, "amount_cents": %d}' % (seq, card, amount)
                rows.append((INPUT, b"%d" % card, text, None))
            produce(producer, rows)
        left = producer.flush(_FLUSH_S)
    if left:
        msg = f"Kafka at {address!r} did not take {left} payments within {_FLUSH_S:.0f} s"
        raise StorageError(msg)


def expected_totals(shape: InputShape) -> Columns:
    """Return what the output must be, in order of sequence numbers."""
    paid = payments(shape, 0, shape.rows)
    order = np.lexsort((paid["seq"], paid["card"]))
    card = paid["card"][order]
    first_of_card = np.r_[True, card[1:] != card[:-1]]
    result = {
        "seq": paid["seq"][order],
        "card": card,
        "total_cents": running_sum(paid["amount_cents"][order], first_of_card),
        "payments": running_sum(np.ones(len(card), np.int64), first_of_card),
    }
    back = np.argsort(result["seq"], kind="stable")
    return {name: column[back] for name, column in result.items()}


def read_totals(address: str, clock: Clock) -> Columns:
    """Return the output as a reader of committed records sees it, once no transaction is open."""
    connection = Connection({"bootstrap.servers": address, **_COMMITTED})
    _await_markers(connection, address, clock)
    consumer = connection.consumer(**{"enable.partition.eof": True})
    ended: set[int] = set()
    found: list[Total] = []
    with connection.errors("reading the output"):
        consumer.assign([import_kafka().TopicPartition(OUTPUT, p, 0) for p in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    found.append(_decode(message.value()))
                elif message.error().code() == import_kafka().KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        consumer.close()
    names: Any = Total.__struct_fields__
    return {n: np.array([getattr(total, n) for total in found], np.int64) for n in names}


def _await_markers(connection: Connection, address: str, clock: Clock) -> None:
    """Wait until all that was written is committed or aborted: the broker does that behind us."""
    places = [KafkaTopicPartition(OUTPUT, p) for p in range(PARTITIONS)]
    committed = Cluster(connection)
    everything = Cluster(Connection({"bootstrap.servers": address}))
    pause, deadline = threading.Event(), clock.monotonic_ms() + _SETTLED_MS
    while committed.latest(places) != everything.latest(places):
        if clock.monotonic_ms() > deadline:
            msg = f"Kafka at {address!r} keeps a transaction open: the output cannot be counted"
            raise StorageError(msg)
        pause.wait(0.1)
