"""The short way between a client and a driver on one host: who goes it, and who goes by Flight."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import answer_challenge
from pathlib import Path
from typing import Any

import pytest
from tests.harness.querying import descriptors, job_of, queries_of

from weir.common.typeinfo import Types
from weir.errors import WeirError
from weir.queryable import QueryableStateClient
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.queryable.short_way import QueryDoor, ShortWay
from weir.slot.door import MESSAGE_MAX, DoorClosedError
from weir.slot.packets import Packets

TOKEN = b"let-me-in"
LONG_S = 30.0


def answer(question: bytes) -> bytes:
    if question == b"bad":
        msg = "QueryError: it is bad"
        raise WeirError(msg)
    return b"x" * MESSAGE_MAX if question == b"large" else question.upper()


@pytest.fixture
def door() -> Iterator[QueryDoor]:
    made = QueryDoor(TOKEN, answer)
    yield made
    made.close()


def test_questions_are_answered_and_errors_told(door: QueryDoor) -> None:
    way = ShortWay(lambda: door.path, TOKEN)
    assert [way.ask(word, LONG_S) for word in (b"one", b"two")] == [b"ONE", b"TWO"]
    with pytest.raises(WeirError, match="QueryError: it is bad"):
        way.ask(b"bad", LONG_S)
    assert way.ask(b"three", LONG_S) == b"THREE"
    way.close()
    with pytest.raises(DoorClosedError):
        way.ask(b"four", LONG_S)


@pytest.mark.parametrize("question", [b"large", b"y" * (MESSAGE_MAX + 1)])
def test_what_is_large_goes_by_flight(door: QueryDoor, question: bytes) -> None:
    way = ShortWay(lambda: door.path, TOKEN)
    with pytest.raises(DoorClosedError):
        way.ask(question, LONG_S)
    assert way.ask(b"one", LONG_S) == b"ONE"
    way.close()


def test_nobody_is_let_in_without_the_token_and_who_hangs_holds_up_nobody(door: QueryDoor) -> None:
    hanging = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    hanging.connect(door.path)  # says nothing
    stranger = ShortWay(lambda: door.path, b"wrong")
    with pytest.raises(DoorClosedError):
        stranger.ask(b"one", LONG_S)
    way = ShortWay(lambda: door.path, TOKEN)
    assert way.ask(b"one", LONG_S) == b"ONE"
    way.close()
    hanging.close()


def test_who_knows_the_token_and_not_the_protocol_is_sent_away(door: QueryDoor) -> None:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected.connect(door.path)
    caller: Any = Packets(connected)
    answer_challenge(caller, TOKEN)
    caller.send_bytes(b"no challenge")
    with pytest.raises((EOFError, OSError)):
        caller.recv_bytes()
    caller.close()
    way = ShortWay(lambda: door.path, TOKEN)
    assert way.ask(b"one", LONG_S) == b"ONE"
    way.close()


def test_several_ask_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=LONG_S)

    def met(question: bytes) -> bytes:
        both.wait()
        return question

    door = QueryDoor(TOKEN, met)
    way = ShortWay(lambda: door.path, TOKEN)
    found: list[bytes] = []
    asking = [
        threading.Thread(target=lambda word=word: found.append(way.ask(word, LONG_S)))
        for word in (b"one", b"two")
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert sorted(found) == [b"one", b"two"]
    way.close()
    door.close()


def test_only_a_private_socket_of_the_same_user_is_gone_to(door: QueryDoor, tmp_path: Path) -> None:
    plain = tmp_path / "q"
    plain.write_bytes(b"")
    for path in ("", str(plain), str(tmp_path / "absent")):
        with pytest.raises(DoorClosedError, match="no short way"):
            ShortWay(lambda path=path: path, TOKEN).ask(b"one", LONG_S)
    os.chmod(Path(door.path).parent, 0o755)
    with pytest.raises(DoorClosedError, match="no short way"):
        ShortWay(lambda: door.path, TOKEN).ask(b"one", LONG_S)


def test_a_server_that_was_started_anew_is_found_again() -> None:
    doors = [QueryDoor(TOKEN, answer)]
    way = ShortWay(lambda: doors[-1].path, TOKEN)
    assert way.ask(b"one", LONG_S) == b"ONE"
    doors[0].close()
    # The connection that is there still ends with its process; here it is closed by hand.
    way._free[0].close()
    doors.append(QueryDoor(TOKEN, answer))
    with pytest.raises(DoorClosedError):
        way.ask(b"two", LONG_S)
    assert way.ask(b"two", LONG_S) == b"TWO"
    way.close()
    doors[1].close()


def test_a_client_takes_it_unasked_and_it_goes_with_the_server() -> None:
    job = job_of(10)
    job.run_epoch(take=10)
    server = QueryServer(QuerySettings(ports=(0,), token=TOKEN.decode()))
    server.register(job.job_id, queries_of(job))
    with QueryableStateClient("127.0.0.1", server.port, token=TOKEN.decode()) as client:
        total = descriptors()["total"]
        assert client.get_kv_state(job.job_id, "q-total", 3, Types.LONG(), total).result(LONG_S)
        assert client._short_way is not None
        assert len(client._short_way._free) == 1
        folder = Path(server.door()).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    server.close()
    assert not folder.exists()
    assert server.door() == ""
