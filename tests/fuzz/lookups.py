"""Targets for look-ups between processes: calls, answers, and the sockets by which they go."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from typing import Any

from tests.fuzz.target import NoInputError, Target, require
from tests.fuzz.texts import scratch
from tests.harness.querying import job_of

from weir.codec.portable import portable
from weir.common.typeinfo import Types
from weir.errors import WeirError
from weir.queryable.short_way import QueryDoor
from weir.slot.door import MESSAGE_MAX, Door, DoorCaller, DoorClosedError
from weir.slot.lookup import (
    FoundEntries,
    Looking,
    LookupAnswer,
    LookupCall,
    StateLookup,
    decode_answer,
    decode_lookup,
    encode_answer,
    encode_lookup,
    states_of,
)

TOKEN = b"t" * 32
_PATIENCE_S = 20.0
_LONG = portable(Types.LONG()).codec


class _Slot:
    """The keyed states of a real slot, which nobody changes any more."""

    def __init__(self) -> None:
        job = job_of(60, parallelism=1)
        job.run_epoch(take=50, checkpoint=True)
        self.job = job
        self.subtask: Any = job.slots.slots[0].operators
        self.looking = Looking(self.subtask)

    def answer(self, data: bytes) -> bytes:
        return encode_answer(self.looking.answer(decode_lookup(data), 1))


@functools.cache
def _slot() -> _Slot:
    return _Slot()


def _calls() -> list[bytes]:
    state = states_of(_slot().subtask).states[0]
    keys = [_LONG.encode(key) for key in (1, 3)]
    groups = list(range(128))
    asked = [
        StateLookup(state.operator, state.name, groups),
        StateLookup(state.operator, state.name, [5, 5], keys),
        StateLookup("nobody", "nothing", []),
    ]
    return [encode_lookup(LookupCall(0, [one], 1000, 1 << 20)) for one in asked]


def _call(data: bytes) -> None:
    answer = decode_answer(_slot().answer(data))
    if all(found.refused for found in answer.found):
        raise NoInputError


def _answers() -> list[bytes]:
    found = [FoundEntries([b"ab", b""]), FoundEntries(refused="no such state")]
    return [encode_answer(LookupAnswer(3, found))]


def _answer(data: bytes) -> None:
    found = decode_answer(data)
    require(decode_answer(encode_answer(found)) == found, "another answer after the way")


def _prepare_doors() -> Callable[[bytes], None]:
    """Ask both doors, which have to answer the next one whatever the last one has said."""
    slot = _slot()
    lock = threading.RLock()
    path = str(scratch() / "q0a0")
    doors = [Door(path, TOKEN, lock, slot.answer), QueryDoor(TOKEN, slot.answer)]
    callers = [DoorCaller(door.path, TOKEN) for door in doors]
    for door in doors:
        atexit.register(door.close)
    atexit.register(lambda: [caller.close() for caller in callers])
    good = _calls()[0]

    def run(data: bytes) -> None:
        refused = 0
        for number, caller in enumerate(callers):
            try:
                decode_answer(caller.ask(data, _PATIENCE_S))
            except DoorClosedError as error:
                require(len(data) >= MESSAGE_MAX, f"the door is closed: {error}")
                caller.close()
                callers[number] = DoorCaller(doors[number].path, TOKEN)
            except WeirError:
                refused += 1
            decode_answer(callers[number].ask(good, _PATIENCE_S))
        if refused:
            raise NoInputError

    return run


_REFUSED = (WeirError,)
TARGETS = [
    Target("look-ups", "msgpack", _calls, lambda: _prepared(_call), _REFUSED),
    Target("look-up-answers", "msgpack", _answers, lambda: _answer, _REFUSED),
    Target("look-up-doors", "msgpack", _calls, _prepare_doors),
]


def _prepared(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
    _slot()  # before classes are locked: it unpickles functions of its own
    return function
