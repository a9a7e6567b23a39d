"""What Kafka's producers are told where a program says nothing: what Java's clients do."""

from __future__ import annotations

import logging

import pytest

from weir.connector.kafka.client import Connection, producer_defaults
from weir.errors import UsageError


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
