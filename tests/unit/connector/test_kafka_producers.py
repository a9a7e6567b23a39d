"""Kafka's producers: told what Java's clients do, and heard when a record does not arrive."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from weir.common.serialization import SimpleStringSchema
from weir.connector.kafka.client import Connection, producer_defaults
from weir.connector.kafka.sink import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    _ProducingWriter,
)
from weir.errors import StorageError, UsageError


def made(**properties: str) -> Connection:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return Connection({"bootstrap.servers": "h:1", **named})


def told(**properties: str) -> dict[str, str]:
    return producer_defaults(made(**properties).properties)


def test_retries_change_no_order_and_keys_go_where_java_sends_them():
    assert told() == {"enable.idempotence": "true", "partitioner": "murmur2_random"}
    made().producer().flush(0)


@pytest.mark.parametrize(
    "own",
    [
        {"acks": "1"},
        {"acks": "0"},
        {"request_required_acks": "1"},
        {"max_in_flight_requests_per_connection": "6"},
        {"max_in_flight": "1000"},
        {"retries": "0"},
        {"message_send_max_retries": "0"},
        {"queuing_strategy": "lifo"},
    ],
)
def test_what_a_program_says_counts_more_and_what_that_costs_is_said(own, caplog):
    with caplog.at_level(logging.WARNING, "weir.kafka"):
        assert told(**own)["enable.idempotence"] == "false"
    (key,) = (name.replace("_", ".") for name in own)
    # It is said once in a process.
    assert not caplog.messages or f"{key!r} rules out 'enable.idempotence'" in caplog.messages[0]
    made(**own).producer().flush(0)


@pytest.mark.parametrize(
    "own", [{"acks": "all"}, {"acks": "-1"}, {"max_in_flight": "5"}, {"retries": "3"}]
)
def test_what_fits_changes_nothing(own):
    assert told(**own)["enable.idempotence"] == "true"
    made(**own).producer().flush(0)


def test_a_program_may_choose_both_itself():
    own = {"enable_idempotence": "false", "partitioner": "consistent_random", "acks": "1"}
    assert told(**own) == {}
    made(**own).producer().flush(0)
    with pytest.raises(UsageError, match="acks"):
        made(enable_idempotence="true", acks="1").producer()


def test_transactions_are_refused_where_idempotence_is_ruled_out():
    made().producer(**{"transactional.id": "one"}).flush(0)
    with pytest.raises(UsageError, match="acks"):
        made(acks="1").producer(**{"transactional.id": "one"})


def to_nobody(*, wait: bool, fails: bool) -> _ProducingWriter:
    """Return a writer whose records are given up soon: nobody listens."""
    connection = Connection({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "50"})
    rows_of = KafkaRecordSerializationSchema("t", SimpleStringSchema()).rows
    return _ProducingWriter(connection, rows_of, wait=wait, fails=fails)


@pytest.mark.parametrize("timestamps", [None, [5, None]])
def test_a_record_that_does_not_arrive_fails_the_checkpoint_at_least_once(timestamps):
    writer = to_nobody(wait=True, fails=True)
    writer.write_batch(["a", "b"], timestamps)
    with pytest.raises(StorageError, match=r"'127\.0\.0\.1:1' did not answer while writing"):
        writer.prepare(1)


@pytest.mark.parametrize("timestamps", [None, [5, None]])
def test_records_that_do_not_arrive_are_counted_where_nothing_is_guaranteed(timestamps, caplog):
    writer = to_nobody(wait=False, fails=False)
    writer.write_batch(["a", "b"], timestamps)
    assert writer.prepare(1) == []
    with caplog.at_level(logging.WARNING, "weir.kafka"):
        writer.finish()
    assert "records that did not arrive in Kafka: 2 (Local: Message timed out)" in caplog.text


def test_failures_that_are_only_logged_let_the_barrier_pass_which_waits_for_them(caplog):
    writer = to_nobody(wait=True, fails=False)
    writer.write_batch(["a"], None)
    with caplog.at_level(logging.WARNING, "weir.kafka"):
        assert writer.prepare(1) == []
    assert "records that did not arrive in Kafka: 1 (Local: Message timed out)" in caplog.text


def test_a_refused_record_is_said_to_be_where_it_is():
    """A checkpoint holds the rows of a transaction, and no others."""
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    within = made().error("writing", error, in_transaction=True)
    assert "nothing was written" in str(within)
    assert "resume from the checkpoint, which holds the records" in str(within)
    alone = made().error("writing", error)
    assert isinstance(alone, UsageError)
    assert "others may have been written" in str(alone)
    assert "holds the records" not in str(alone)


@pytest.mark.parametrize("key", ["max.request.size", "message.max.bytes"])
@pytest.mark.parametrize("value", ["1MB", "", "-1", "1e6"])
def test_a_size_that_is_no_number_of_bytes_is_refused_by_name(key, value):
    builder = KafkaSink.builder().set_bootstrap_servers("h:1").set_property(key, value)
    builder.set_record_serializer(KafkaRecordSerializationSchema("t", SimpleStringSchema()))
    with pytest.raises(UsageError, match=rf"'{key}'.* is '{value}', expected a number of bytes"):
        builder.build()
