"""The short way for look-ups: who is let in, who answers, and what goes by Flight instead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.errors import WeirError
from weir.slot.between_records import BetweenRecords
from weir.slot.channel import ChannelError
from weir.slot.door import MESSAGE_MAX, Door, DoorCaller, DoorClosedError, LookupWay, door_path
from weir.slot.lookup import (
    FoundEntries,
    LookupAnswer,
    LookupCall,
    StateLookup,
    decode_answer,
    decode_lookup,
    encode_answer,
)
from weir.slot.packets import connect

TOKEN = b"t" * 32
LONG_S = 30.0


class Slot:
    """A slot's lock and moments, and a door that answers in capitals."""

    def __init__(self, path: str, answer: Callable[[bytes], bytes] = bytes.upper) -> None:
        self.lock = threading.RLock()
        self.by: list[str] = []
        self.moments = BetweenRecords(self.lock)

        def answered(data: bytes) -> bytes:
            self.by.append(threading.current_thread().name)
            return answer(data)

        self.door = Door(path, TOKEN, self.lock, answered)
        self.moments.look_by(self.door.look)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "q0a0")


@pytest.fixture
def slot(path: str) -> Iterator[Slot]:
    made = Slot(path)
    yield made
    made.door.close()


def test_an_idle_slot_answers_at_once(slot: Slot, path: str) -> None:
    caller = DoorCaller(path, TOKEN)
    assert [caller.ask(word, LONG_S) for word in (b"one", b"", b"two")] == [b"ONE", b"", b"TWO"]
    assert set(slot.by) == {"look-ups"}
    caller.close()


def test_while_an_epoch_runs_its_own_thread_answers_between_records(slot: Slot, path: str) -> None:
    caller, answers = DoorCaller(path, TOKEN), []
    asking = threading.Thread(target=lambda: answers.append(caller.ask(b"one", LONG_S)))
    with slot.lock:  # as an epoch holds it
        asking.start()
        while not answers:
            slot.moments.drain()
        asking.join()
        assert slot.by == [threading.current_thread().name]
    assert answers == [b"ONE"]
    caller.close()


def test_a_slot_without_a_moment_is_told_and_the_next_question_gets_its_own_answer(
    slot: Slot, path: str
) -> None:
    caller = DoorCaller(path, TOKEN)
    with slot.lock, pytest.raises(WeirError, match="no record ended within"):
        caller.ask(b"one", 0.01)
    assert not caller.is_open
    again = DoorCaller(path, TOKEN)
    assert again.ask(b"two", LONG_S) == b"TWO"
    again.close()


def test_who_gave_up_in_a_long_epoch_is_let_in_again_while_it_runs(slot: Slot, path: str) -> None:
    answers: list[bytes] = []
    with slot.lock:  # as an epoch holds it, without a moment between two records
        with pytest.raises(WeirError, match="no record ended within"):
            DoorCaller(path, TOKEN).ask(b"one", 0.01)
        again = DoorCaller(path, TOKEN)
        asking = threading.Thread(target=lambda: answers.append(again.ask(b"two", LONG_S)))
        asking.start()
        while not answers:
            slot.moments.drain()
    asking.join()
    assert answers == [b"TWO"]
    # The question of before may have been found, too: nobody takes its answer.
    assert set(slot.by) == {threading.current_thread().name}
    again.close()


def test_no_thread_of_the_door_wakes_up_while_records_are_handled(slot: Slot, path: str) -> None:
    caller, answers = DoorCaller(path, TOKEN), []
    assert caller.ask(b"before", LONG_S) == b"BEFORE"
    asking = threading.Thread(target=lambda: answers.append(caller.ask(b"one", LONG_S)))
    # The lock is free: who woke up would answer.
    with slot.door.left_to_records():
        asking.start()
        while not answers:
            slot.moments.drain()
        assert slot.by == ["look-ups", threading.current_thread().name]
    asking.join()
    assert caller.ask(b"after", LONG_S) == b"AFTER"
    assert slot.by[-1] == "look-ups"
    caller.close()


def test_a_caller_that_comes_while_records_are_handled_waits_for_their_end(
    slot: Slot, path: str
) -> None:
    answers: list[bytes] = []
    with slot.door.left_to_records():
        caller = DoorCaller(path, TOKEN)
        asking = threading.Thread(target=lambda: answers.append(caller.ask(b"one", LONG_S)))
        asking.start()
    asking.join(LONG_S)
    assert answers == [b"ONE"]
    assert slot.by == ["look-ups"]
    caller.close()


def test_who_waits_for_an_answer_is_told_when_the_door_closes(slot: Slot, path: str) -> None:
    caller, errors = DoorCaller(path, TOKEN), []

    def ask() -> None:
        with pytest.raises(DoorClosedError, match="has left") as failed:
            caller.ask(b"one", LONG_S)
        errors.append(failed.value)

    assert caller.ask(b"before", LONG_S) == b"BEFORE"
    with slot.lock:
        asking = threading.Thread(target=ask)
        asking.start()
        slot.door.close()
        asking.join(LONG_S)
    assert len(errors) == 1
    slot.door.close()  # once more does nothing


def test_who_listens_and_says_nothing_holds_nobody_up_for_long(tmp_path: Path) -> None:
    path = str(tmp_path / "silent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(path)
        silent.listen(1)
        with pytest.raises(TimeoutError):
            connect(path, TOKEN, patience_s=0.01)


@pytest.mark.parametrize("said", [b"", b"nonsense", bytes(2000)])
def test_who_listens_and_knows_no_greeting_is_left(tmp_path: Path, said: bytes) -> None:
    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(path)
        other.listen(1)

        def greet() -> None:
            met, _ = other.accept()
            with met:
                if said:
                    met.send(said)

        meeting = threading.Thread(target=greet)
        meeting.start()
        with pytest.raises(OSError, match=r"token|more than"):
            connect(path, TOKEN)
        meeting.join()


def test_nobody_is_let_in_without_the_token(slot: Slot, path: str) -> None:
    with pytest.raises(DoorClosedError):
        DoorCaller(path, b"x" * 32)
    caller = DoorCaller(path, TOKEN)
    assert caller.ask(b"one", LONG_S) == b"ONE"
    caller.close()
    assert len(slot.by) == 1


def test_what_is_too_large_is_left_to_flight(tmp_path: Path) -> None:
    slot = Slot(str(tmp_path / "q"), lambda data: data * MESSAGE_MAX)
    caller = DoorCaller(str(tmp_path / "q"), TOKEN)
    with pytest.raises(DoorClosedError, match="do not go through"):
        caller.ask(bytes(MESSAGE_MAX + 1), LONG_S)
    with pytest.raises(DoorClosedError, match="does not go through"):
        caller.ask(b"one", LONG_S)
    assert caller.is_open
    caller.close()
    slot.door.close()


def test_a_refusal_is_the_callers_and_the_door_stays_open(tmp_path: Path) -> None:
    def refuse(data: bytes) -> bytes:
        if data == b"no":
            msg = "of another attempt"
            raise WeirError(msg)
        return data

    slot = Slot(str(tmp_path / "q"), refuse)
    caller = DoorCaller(str(tmp_path / "q"), TOKEN)
    with pytest.raises(WeirError, match="of another attempt"):
        caller.ask(b"no", LONG_S)
    assert caller.ask(b"yes", LONG_S) == b"yes"
    caller.close()
    slot.door.close()


# ---- which way a driver takes -------------------------------------------------------------------


class Flight:
    """A slot by Flight; its door is where `path` says."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: list[str] = []

    def call(self, action: str, body: bytes = b"", timeout_s: float = 0) -> bytes:
        self.calls.append(action)
        return self.path.encode() if action == "door" else found(body, "flight")


def found(data: bytes, by: str, size: int = 1) -> bytes:
    lookups = decode_lookup(data).lookups
    return encode_answer(LookupAnswer(1, [FoundEntries([by.encode() * size]) for _ in lookups]))


def call(keys: list[bytes] | None) -> LookupCall:
    return LookupCall(0, [StateLookup("op", "s", [0], keys)], 1000, 1 << 20)


def way_of(flight: Any) -> LookupWay:
    return LookupWay(flight, TOKEN)


def test_keys_go_through_the_door_and_whole_groups_by_flight(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    slot, flight = Slot(path, lambda data: found(data, "door")), Flight(path)
    way = way_of(flight)
    assert way.ask(call([b"k"]), LONG_S).found[0].parts == [b"door"]
    assert way.ask(call([b"k"]), LONG_S).found[0].parts == [b"door"]
    assert way.ask(call(None), LONG_S).found[0].parts == [b"flight"]
    assert flight.calls == ["door", "lookup"]
    way.close()
    slot.door.close()


def test_large_answers_and_slots_without_a_door_are_asked_by_flight(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    slot = Slot(path, lambda data: found(data, "door", MESSAGE_MAX))
    way = way_of(Flight(path))
    assert way.ask(call([b"k"]), LONG_S).found[0].parts == [b"flight"]
    way.close()
    slot.door.close()
    for gone in ("", str(tmp_path / "nothing")):
        flight = Flight(gone)
        way = way_of(flight)
        for _ in range(2):
            assert way.ask(call([b"k"]), LONG_S).found[0].parts == [b"flight"]
        assert flight.calls == ["door", "lookup", "lookup"]


def test_a_slot_that_is_gone_cannot_be_asked(tmp_path: Path) -> None:
    class Gone(Flight):
        def call(self, action: str, body: bytes = b"", timeout_s: float = 0) -> bytes:
            msg = f"{action}: nobody is there"
            raise ChannelError(msg)

    with pytest.raises(WeirError, match="nobody is there"):
        way_of(Gone("")).ask(call([b"k"]), LONG_S)


def test_the_door_is_beside_the_socket() -> None:
    assert door_path("/run/weir/s12a3") == "/run/weir/q12a3"


def test_a_look_up_that_fails_fails_no_record_and_the_door_stays_open(path: str) -> None:
    def broken(data: bytes) -> bytes:
        return {b"good": b"GOOD"}[data]

    slot, caller = Slot(path, broken), DoorCaller(path, TOKEN)
    raised: list[WeirError] = []

    def ask() -> None:
        with pytest.raises(WeirError, match="the look-up failed: KeyError: b'bad'") as failed:
            caller.ask(b"bad", LONG_S)
        raised.append(failed.value)

    asking = threading.Thread(target=ask)
    with slot.lock:  # as an epoch holds it
        asking.start()
        while not raised:
            slot.moments.drain()
    asking.join()
    assert caller.ask(b"good", LONG_S) == b"GOOD"
    caller.close()
    slot.door.close()


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x91" * 100_000, encode_answer(LookupAnswer(1, []))[:-1]]
)
def test_what_is_no_answer_is_told_as_one_that_nobody_understands(data: bytes) -> None:
    with pytest.raises(WeirError, match="no answer to a look-up"):
        decode_answer(data)
