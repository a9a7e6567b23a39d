"""The messages of Arrow Flight SQL as bytes, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.jobmanager.queries import QueryError
from weir.queryable.protobuf import field, message, read_fields, read_message, text


def test_a_message_is_the_bytes_that_every_implementation_makes() -> None:
    made = message("CommandStatementQuery", field(1, b"select 1"))
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    assert made == b"\x0a" + bytes([len(url)]) + url + b"\x12\x0a\x0a\x08select 1"
    name, fields = read_message(made)
    assert (name, text(fields, 1), text(fields, 2)) == ("CommandStatementQuery", "select 1", None)


def test_numbers_and_repeated_fields_are_read() -> None:
    assert read_fields(b"\x28\x01\x28\x96\x01" + field(4, b"a")) == {5: [1, 150], 4: [b"a"]}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.binary(max_size=300)), max_size=5))
def test_fields_come_back(given_fields: list[tuple[int, bytes]]) -> None:
    found = read_fields(b"".join(field(number, data) for number, data in given_fields))
    assert [(n, d) for n, every in found.items() for d in every] == sorted(
        given_fields, key=lambda pair: list(found).index(pair[0])
    )


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read_and_never_more(data: bytes) -> None:
    try:
        read_message(data)
    except QueryError:
        return
    raise AssertionError


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b\x01", b"\xff" * 20])
def test_what_breaks_off_is_refused(data: bytes) -> None:
    with pytest.raises(QueryError, match="Flight SQL"):
        read_fields(data)
