"""What a Kafka sink makes of records, and who remembers it until it is committed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from weir.common.serialization import SerializationSchema, SimpleStringSchema
from weir.connector.commit_target import CommitSink, CommitTarget
from weir.connector.kafka.sink import KafkaRecordSerializationSchema
from weir.connector.sink import WriterContext, blamed
from weir.errors import CorruptStateError, UsageError


class Half(SerializationSchema):
    def serialize(self, element: Any) -> bytearray:
        return bytearray(element[: len(element) // 2].encode())


def schema(topic: Any = "t", value: Any = None, key: Any = None) -> KafkaRecordSerializationSchema:
    return KafkaRecordSerializationSchema(topic, value or SimpleStringSchema(), key)


def test_every_record_becomes_topic_key_value_and_timestamp():
    assert schema().rows(["a", "ü"], None) == [
        ("t", None, b"a", None),
        ("t", None, "ü".encode(), None),
    ]
    chosen = schema(lambda value: f"to-{value[0]}", Half(), SimpleStringSchema("latin-1"))
    assert chosen.rows(["xxyy", "ü"], [5, None]) == [
        ("to-x", b"xxyy", b"xx", 5),
        ("to-ü", b"\xfc", b"", None),
    ]
    assert schema().rows([], None) == []


def test_values_are_bytes_whatever_a_schema_returns():
    [row] = schema(value=Half()).rows(["xxyy"], None)
    assert type(row[2]) is bytes


class Part(SerializationSchema):
    """Returns a part of a record as it is."""

    def __init__(self, part: int) -> None:
        self.part = part

    def serialize(self, element: Any) -> Any:
        return element[self.part]


def test_a_record_may_have_no_value_and_no_key():
    made = schema(value=Part(1), key=Part(0))
    assert made.rows([(b"k", None), (None, b"v")], None) == [
        ("t", b"k", None, None),
        ("t", None, b"v", None),
    ]


@pytest.mark.parametrize("returned", [3, "text", [1, 2], True, 0.5])
def test_what_is_no_bytes_is_refused_and_does_not_become_some(returned):
    made = schema(value=Part(0))
    with pytest.raises(UsageError, match=r"Part\.serialize returned .*: expected bytes, or None"):
        made.rows([(b"good",), (returned,)], None)
    assert made.rows([(memoryview(b"m"),)], None)[0][2] == b"m"


def test_event_times_are_those_that_the_client_can_write():
    """To the client 0 is now; Kafka has no time before 1970, and then Flink lets it be now."""
    rows = schema().rows(list("abcd"), [0, None, -5, 7])
    assert [row[3] for row in rows] == [1, None, None, 7]
    rows = schema().rows(list("ab"), [-1, 9])
    assert [row[3] for row in rows] == [None, 9]


@pytest.mark.parametrize(
    "made", [schema(), schema(key=Half()), schema(lambda value: value.upper())]
)
def test_an_error_says_which_record_it_was(made):
    with pytest.raises((AttributeError, TypeError)) as raised:
        made.rows(["a", "b", 7, "c"], None)
    assert blamed(raised.value, None) == 7


class Shelf(CommitTarget):
    """Takes rows, and remembers as what it was given them."""

    def __init__(self, *, remembers: bool) -> None:
        self.remembers_rows = remembers
        self.given: list[tuple[int, list[Any]]] = []
        self.visible: int | None = None

    def fence(self, identities: Sequence[str]) -> None:
        """Nobody else is there."""

    def committed(self, identity: str) -> int | None:
        return self.visible

    def write(self, identity: str, checkpoint: int, rows: list[Any]) -> None:
        self.given.append((checkpoint, rows))
        self.visible = checkpoint


class ToShelf(CommitSink):
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def open_target(self, context: WriterContext) -> CommitTarget:
        return self.shelf

    def rows_of(self, values: list[Any], timestamps: list[int | None] | None) -> list[Any]:
        return [(value,) for value in values]


def context(subtask: int = 0) -> WriterContext:
    return WriterContext("0a" * 16, "ab" * 16, attempt=0, subtask=subtask, parallelism=2)


@pytest.mark.parametrize(("remembers", "kind"), [(True, tuple), (False, list)])
def test_who_prepared_rows_need_not_decode_them_where_the_target_says_so(remembers, kind):
    shelf = Shelf(remembers=remembers)
    writer = ToShelf(shelf).create_writer(context())
    prepared = []
    for checkpoint in (1, 2):
        writer.write_batch([checkpoint * 10, checkpoint * 10 + 1], None)
        prepared += writer.prepare(checkpoint)
    writer.commit(prepared)
    assert [(n, [tuple(row) for row in rows]) for n, rows in shelf.given] == [
        (1, [(10,), (11,)]),
        (2, [(20,), (21,)]),
    ]
    assert {type(row) for _, rows in shelf.given for row in rows} == {kind}


def test_rows_of_others_are_decoded_whatever_was_prepared_here():
    shelf = Shelf(remembers=True)
    own, other = (ToShelf(shelf).create_writer(context(subtask)) for subtask in (0, 1))
    for writer, value in ((own, "mine"), (other, "theirs")):
        writer.write_batch([value], None)
    own.prepare(1)
    own.commit(other.prepare(1))
    assert shelf.given == [(1, [["theirs"]])]


def test_rows_that_are_visible_already_are_neither_written_nor_remembered():
    shelf = Shelf(remembers=True)
    writer = ToShelf(shelf).create_writer(context())
    writer.write_batch([1], None)
    prepared = writer.prepare(1)
    shelf.visible = 1
    writer.commit(prepared)
    assert shelf.given == []
    assert not writer._prepared


@pytest.mark.parametrize(
    "change",
    [
        {"size": 15},
        {"size": -1},
        {"size": 2**63 - 1},
        {"size": 2**80},
        {"data": "AAAA"},
        {"data": "!"},
        {"rows": 2},
        {"identity": 7},
    ],
)
def test_rows_that_are_damaged_are_refused_by_name_and_not_written(change):
    shelf = Shelf(remembers=False)
    writer = ToShelf(shelf).create_writer(context())
    writer.write_batch([1], None)
    (prepared,) = writer.prepare(1)
    damaged = json.dumps({**json.loads(prepared), **change}).encode()
    with pytest.raises(CorruptStateError):
        writer.commit([damaged])
    assert shelf.given == []


@pytest.mark.parametrize("damaged", [b"\xff", b"{", b'{"identity": "\xff"}', b"[" * 100_000])
def test_a_committable_that_is_no_text_is_refused_by_name(damaged):
    writer = ToShelf(Shelf(remembers=False)).create_writer(context())
    for use in (writer.commit, lambda given: writer.share(given, 0, 1)):
        with pytest.raises(CorruptStateError, match="damaged"):
            use([damaged])
