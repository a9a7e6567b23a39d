"""Decisions on Kafka positions, without a broker: what an epoch may read, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.common.serialization import SimpleStringSchema
from weir.connector.decoder import END, Partition
from weir.connector.kafka.client import Connection, translate
from weir.connector.kafka.cluster import Subscription, check_wanted
from weir.connector.kafka.decoder import KafkaRecords
from weir.connector.kafka.offsets import NO_RECORD, KafkaTopicPartition, refuse_unknown
from weir.connector.kafka.planner import KafkaPlanner, Pace
from weir.connector.kafka.position import (
    KafkaPosition,
    Range,
    advance,
    check_topics,
    discover,
    plan_ranges,
)
from weir.connector.kafka.reader import KafkaRanges
from weir.connector.kafka.source import KafkaSource
from weir.connector.position import position_text
from weir.connector.source import SplitRows
from weir.datastream.connectors.kafka import KafkaOffsetsInitializer
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError

A, B, C = (KafkaTopicPartition("t", n) for n in range(3))
CONNECTION = Connection({"bootstrap.servers": "h:1"})
OFFSETS = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 1000), min_size=1)


@given(OFFSETS, st.data())
def test_epochs_read_every_offset_once_and_no_more_than_they_may(start, data):
    ends = {p: n + data.draw(st.integers(0, 500)) for p, n in start.items()}
    limit = data.draw(st.one_of(st.none(), st.integers(1, 100)))
    tasks = data.draw(st.integers(1, 4))
    position, positions = KafkaPosition(dict(start)), []
    while not positions or positions[-1] != position:
        positions.append(position)
        position = advance(position, ends, limit)
        position = KafkaPosition.of(json.loads(json.dumps(position.to_json())))
    read = {p: [] for p in start}
    for before, after in pairwise(positions):
        planned = plan_ranges(before, after, tasks)
        assert 1 <= len(planned) <= tasks
        ranges = [Range(**json.loads(s)) for task in planned for s in task]
        assert limit is None or sum(r.end - r.start for r in ranges) <= limit
        for found in ranges:
            read[KafkaTopicPartition(found.topic, found.partition)] += range(found.start, found.end)
    assert read == {p: list(range(start[p], ends[p])) for p in start}


def test_bounded_input_is_over_at_its_end_and_says_so_once():
    position = KafkaPosition({A: 0, B: 5}, {}, {A: 3, B: 5})
    end = advance(position, {A: 10, B: 10}, None)
    assert end.offsets == {A: 3, B: 5}
    assert end.is_over
    ((split,),) = plan_ranges(position, end, 4)
    assert json.loads(split)["last"]
    assert advance(end, {A: 10, B: 10}, None) == end


def test_a_partition_that_shrinks_is_refused():
    with pytest.raises(IncompatibleStateError, match="partition 0 of the Kafka topic 't' ends at"):
        advance(KafkaPosition({A: 9}), {A: 3}, None)


def test_topics_are_known_by_their_ids():
    position = KafkaPosition({A: 1}, {"t": "id1"})
    check_topics(position, {"t": "id1"})
    check_topics(KafkaPosition({A: 1}), {"t": "any"})
    with pytest.raises(IncompatibleStateError, match="another one"):
        check_topics(position, {"t": "id2"})
    with pytest.raises(IncompatibleStateError, match="gone"):
        check_topics(position, {})


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (Subscription(topics=("t", "u")), None),
        (Subscription(pattern="[tu]"), None),
        (Subscription(partitions=(A, B)), None),
        (Subscription(topics=("u",)), 0),
        (Subscription(pattern="t.+"), 0),
        (Subscription(partitions=(A,)), 1),
    ],
)
def test_a_source_that_reads_others_than_before_is_told_so(wanted, missing):
    position = KafkaPosition({A: 1, B: 2})
    if missing is None:
        check_wanted(position, wanted)
        return
    with pytest.raises(IncompatibleStateError, match=f"in partition {missing} of the Kafka topic "):
        check_wanted(position, wanted)


def test_new_partitions_begin_at_their_beginning_and_are_read_in_the_next_epoch():
    position = KafkaPosition({A: 7}, {"t": "id"})
    found = discover(position, {A: 0, B: 4}, {"t": "id"})
    assert found.offsets == {A: 7, B: 4}
    # It is said that there is one, and nothing is read yet.
    ((split,),) = plan_ranges(position, found, 2)
    assert Range(**json.loads(split)) == Range("t", 1, 4, 4)
    assert plan_ranges(found, found, 2) == []
    assert discover(found, {}, {}) is found


def test_the_first_ranges_of_a_job_name_every_partition():
    start, end = KafkaPosition({A: 7, B: 4, C: 0}), KafkaPosition({A: 9, B: 4, C: 0})
    tasks = plan_ranges(start, end, 2, every=True)
    planned = [Range(**json.loads(split)) for task in tasks for split in task]
    assert sorted(r.partition for r in planned) == [0, 1, 2]
    assert [r for r in planned if not r.is_empty] == [Range("t", 0, 7, 9)]
    planner = KafkaPlanner(CONNECTION, Subscription(topics=("t",)), start, Pace(), None)
    first = planner.plan(start.to_json(), end.to_json(), 2)
    assert sum(map(len, first)) == 3
    later = planner.plan(end.to_json(), KafkaPosition({A: 10, B: 4, C: 0}).to_json(), 2)
    assert sum(map(len, later)) == 1


@pytest.mark.parametrize(
    ("backlog", "limit", "shares"),
    [
        ((1000, 3, 3), 100, (94, 3, 3)),
        ((50, 50, 50), 10, (4, 3, 3)),
        ((1000, 1, 1), 2, (0, 1, 1)),
        ((10, 20, 30), 60, (10, 20, 30)),
    ],
)
def test_a_partition_with_little_is_not_left_behind_by_one_with_much(backlog, limit, shares):
    start = KafkaPosition({A: 0, B: 0, C: 0})
    end = advance(start, dict(zip((A, B, C), backlog, strict=True)), limit)
    assert tuple(end.offsets.values()) == shares


def test_a_range_without_offsets_says_that_its_partition_is_awaited():
    reader = KafkaRanges(CONNECTION)
    empty, full = (json.dumps({"topic": "t", "partition": 1, "start": 4, "end": n}) for n in (4, 5))
    assert reader.partition(empty) == Partition("t-1", awaited=True)
    assert reader.partition(full) == Partition("t-1")
    assert list(reader.read(empty)) == []


def test_a_partition_of_bounded_input_is_over_when_it_is_read_to_its_end():
    reader = KafkaRanges(CONNECTION)
    # Nothing is in A; B is read to its end now, and C is not.
    start = KafkaPosition({A: 3, B: 0, C: 0}, {}, {A: 3, B: 5, C: 9})
    end = advance(start, {A: 3, B: 5, C: 9}, 10)
    planned = [s for task in plan_ranges(start, end, 2, every=True) for s in task]
    assert sorted((p.name, p.awaited, p.over) for p in map(reader.partition, planned)) == [
        ("t-0", False, True),
        ("t-1", False, True),
        ("t-2", False, False),
    ]
    assert not any(map(reader.is_last, planned))


def test_bounded_input_without_records_is_over_at_once():
    reader = KafkaRanges(CONNECTION)
    start = KafkaPosition({A: 3, B: 7}, {}, {A: 3, B: 7})
    planner = KafkaPlanner(CONNECTION, Subscription(topics=("t",)), start, Pace(), None)
    planned = [s for task in planner.plan(start.to_json(), start.to_json(), 4) for s in task]
    assert len(planned) == 2
    assert all(map(reader.is_last, planned))
    names = pa.record_batch({"split": pa.array(planned, pa.string())})
    said = list(SplitRows(reader, KafkaRecords(SimpleStringSchema())).decode(names))
    assert said == [Partition("t-0", over=True), END, Partition("t-1", over=True), END]


@pytest.mark.parametrize("data", [7, {"offsets": 3}, {"t": {"x": 1}}, {"t": {"0": "one"}}, None])
def test_what_is_no_position_is_refused(data):
    with pytest.raises(CorruptStateError, match="is not the position of a Kafka source"):
        KafkaPosition.of(data)


def test_a_position_explains_itself():
    plain = KafkaPosition({A: 7, B: 9}, {"t": "id"})
    assert position_text(json.dumps(plain.to_json())) == "t: 0=7, 1=9"
    bounded = KafkaPosition({A: 7}, {"t": "id"}, {A: 9})
    assert position_text(json.dumps(bounded.to_json())) == "t: 0=7 (ends at t: 0=9)"


def test_properties_of_the_java_client_are_understood():
    given = {
        "sasl.jaas.config": 'org.apache…PlainLoginModule required username="me" password="a\\"b";',
        "fetch.max.wait.ms": "7",
        "key.deserializer": "x",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    assert translate(given) == {
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "fetch.wait.max.ms": "7",
        "ssl.ca.location": "/ca.pem",
    }
    keys = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12"}
    assert translate({**keys, "ssl.keystore.password": "x"}) == {
        "ssl.keystore.location": "/k.p12",
        "ssl.keystore.password": "x",
    }
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/both.pem"}
    assert translate(pem) == {
        "ssl.certificate.location": "/both.pem",
        "ssl.key.location": "/both.pem",
    }
    with pytest.raises(UsageError, match=r"export it as PEM and name the files by 'ssl.ca.loca"):
        translate({"ssl.truststore.location": "/x.jks"})
    with pytest.raises(UsageError, match=r"'ssl.certificate.location' and 'ssl.key.location'"):
        translate({"ssl.keystore.location": "/x.jks", "ssl.keystore.type": "JKS"})


def test_passwords_are_shown_nowhere():
    made = KafkaSource.builder().set_bootstrap_servers("h:1").set_topics("t")
    made.set_property("sasl.password", "secret").set_property("nonsense", "secret")
    from weir.common.serialization import SimpleStringSchema

    source = made.set_value_only_deserializer(SimpleStringSchema()).build()
    assert "secret" not in repr(source)
    connection = Connection({"bootstrap.servers": "h:1", "sasl.password": "secret", "odd": "1"})
    assert "secret" not in repr(connection)
    with pytest.raises(UsageError, match="No such configuration property") as refused:
        connection.consumer()
    assert "secret" not in str(refused.value)


def _with(builder, key, value):
    builder.set_topics("t").set_value_only_deserializer(SimpleStringSchema())
    return builder.set_property(key, value).build()


def test_properties_of_the_source_may_be_spelled_as_in_java():
    never = _with(KafkaSource.builder(), "bootstrap.servers", "h:1")
    assert never._flag("commit.offsets.on.checkpoint", default=True)
    made = KafkaSource.builder().set_bootstrap_servers("h:1")
    made.set_property("commit.offsets.on.checkpoint", "FALSE")
    made = _with(made, "partition.discovery.interval.ms", "-1")
    assert made._pace().discovery_ms == -1
    assert not made._flag("commit.offsets.on.checkpoint", default=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.set_topics(), "set_topics"),
        (lambda b: b.set_topic_pattern("("), "no regular expression"),
        (lambda b: b.set_topics("a").set_topics("b"), "told what to read once"),
        (lambda b: b.set_topics("a").build(), "set_value_only_deserializer"),
        (lambda b: b.build(), "needs set_topics"),
        (lambda b: b.set_starting_offsets("earliest"), "expected a KafkaOffsetsInitializer"),
        (lambda b: b.set_value_only_deserializer(str), "expected a DeserializationSchema"),
        (lambda b: _with(b, "partition.discovery.interval.ms", "abc"), "'abc', expected a number"),
        (lambda b: _with(b, "commit.offsets.on.checkpoint", "yes"), "'yes', expected 'true' or"),
        (lambda b: _with(b, "max.records.per.second", "0.5"), "'0.5', expected a number >= 1"),
        (lambda b: KafkaOffsetsInitializer.timestamp("now"), "expected milliseconds"),
        (lambda b: KafkaOffsetsInitializer.offsets({}), "expected offsets"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_said(change, message):
    with pytest.raises(UsageError, match=message):
        change(KafkaSource.builder().set_bootstrap_servers("h:1"))


def test_an_answer_that_is_no_offset_is_asked_for_again_and_is_no_end_of_a_partition():
    refuse_unknown({A: 0, B: 7}, 0, "h:1")
    refuse_unknown({A: NO_RECORD}, NO_RECORD, "h:1")
    for offset, least in ((-1001, NO_RECORD), (-1001, 0), (NO_RECORD, 0)):
        with pytest.raises(StorageError, match="where partition 1 of topic 't' begins"):
            refuse_unknown({A: 4, B: offset}, least, "h:1")
