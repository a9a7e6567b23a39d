"""What a reader of Kafka takes for records of its range, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from weir.connector.kafka.client import Connection
from weir.connector.kafka.position import Range
from weir.connector.kafka.reader import _IDLE_MAX, KafkaRanges, _idle, _put_back, _taken
from weir.errors import StorageError, UsageError

WANTED = Range("t", 1, 5, 8)
SERVERS = {"bootstrap.servers": "h:1"}


class Message:
    """A message as the client gives it."""

    def __init__(self, topic: str, partition: int, offset: int, error: Any = None) -> None:
        self._place, self._error = (topic, partition, offset), error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def error(self) -> Any:
        return self._error


END = KafkaError(KafkaError._PARTITION_EOF)
READER = KafkaRanges(Connection(SERVERS))


def test_records_behind_the_range_are_left_out_and_ends_of_partitions_are_heard():
    records = [Message("t", 1, offset) for offset in (5, 7, 8)]
    assert READER._sorted(records, WANTED) == (records[:2], 8)
    assert READER._sorted(records[:2], WANTED) == (records[:2], 5)
    assert READER._sorted([records[0], Message("t", 1, 6, END)], WANTED) == (records[:1], 6)


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("u", 1)])
@pytest.mark.parametrize("error", [None, END])
def test_what_belongs_elsewhere_is_taken_neither_for_records_nor_for_the_end(
    topic: str, partition: int, error: Any
) -> None:
    elsewhere, mine = Message(topic, partition, 6, error), Message("t", 1, 5)
    for messages in ([elsewhere], [mine, elsewhere]):
        with pytest.raises(StorageError, match=rf"of partition {partition} of topic '{topic}' to"):
            READER._sorted(messages, WANTED)


class Consumer:
    """Knows whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_consumer_has_one_reader_and_the_process_keeps_a_few():
    _idle.clear()
    one, other = (("a", "1"),), (("a", "2"),)
    consumers = [Consumer() for _ in range(_IDLE_MAX + 1)]
    _put_back(one, consumers[0])
    assert _taken(other) is None
    assert _taken(one) is consumers[0]
    assert _taken(one) is None
    for consumer in consumers:
        _put_back(one, consumer)
    assert [consumer.closed for consumer in consumers] == [True] + [False] * _IDLE_MAX
    _idle.clear()


def test_a_property_that_no_consumer_has_is_refused():
    READER.check()
    for key, value in (("fetch.mim.bytes", "1"), ("fetch.min.bytes", "much")):
        with pytest.raises(UsageError, match=key):
            KafkaRanges(Connection({**SERVERS, key: value})).check()
