"""Look-ups that wait together go in one call, and each gets what it would get alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from weir.codec.portable import portable
from weir.common.typeinfo import Types
from weir.jobmanager.queries import (
    Answer,
    Facts,
    QueryError,
    StateUnavailableError,
    UnknownKeyOrNamespaceError,
)
from weir.queryable.gathering import KEYS_MAX, Gathering, Question
from weir.queryable.protocol import QueryRequest
from weir.testing import ManualClock

LONG = portable(Types.LONG())
FACTS = Facts("live", 0, None, 1, 0)
PATIENCE_S = 30


class Server:
    """A state in which every key but some has two rows; calls wait until they may go on."""

    def __init__(self, absent: tuple[int, ...] = (), bad: tuple[int, ...] = ()) -> None:
        self.calls: list[list[int]] = []
        self.go = threading.Event()
        self.absent, self.bad = absent, bad
        self.problem: QueryError | None = None

    def ask(self, request: QueryRequest) -> Answer:
        keys = [LONG.codec.decode(key) for key in request.keys or ()]
        self.calls.append(keys)
        assert self.go.wait(PATIENCE_S)
        if self.problem is not None:
            raise self.problem
        wrong = [key for key in keys if key in self.bad]
        if wrong:
            msg = f"{wrong} cannot be shown"
            raise QueryError(msg)
        # Rows come in another order than keys were asked for, and those of a key lie apart.
        found = [key for key in sorted(set(keys)) if key not in self.absent]
        rows = {"key": found * 2, "value": [f"{n}{k}" for n in "ab" for k in found]}
        schema = pa.schema([("key", pa.int64()), ("value", pa.string())])
        return Answer(FACTS, pa.table(rows, schema))


def values(answer: Answer) -> list[str]:
    if not answer.table.num_rows:
        raise UnknownKeyOrNamespaceError
    found: list[str] = answer.table["value"].to_pylist()
    return found


def submitted(gathering: Gathering, request: QueryRequest, made: Callable[[Any], Any]) -> Any:
    """Ask for the only key of a request."""
    return gathering.submit(Question.about(request, LONG), (request.keys or [b""])[0], made)


def asked(server: Server, keys: list[int], made: Callable[[Answer], Any] = values) -> list[Any]:
    """Ask for all keys while the first call waits; returns the futures."""
    with ThreadPoolExecutor(4) as pool:
        gathering = Gathering(server.ask, pool)
        futures = []
        for key in keys:
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)], key_type="LONG")
            futures.append(submitted(gathering, request, made))
        server.go.set()
        for future in futures:
            future.exception(PATIENCE_S)
        return futures


def test_who_waits_goes_with_the_next_call() -> None:
    server = Server()
    keys = [*range(50), 3, 3]
    assert [f.result() for f in asked(server, keys)] == [[f"a{k}", f"b{k}"] for k in keys]
    assert len(server.calls) <= 4
    assert sorted({key for call in server.calls for key in call}) == list(range(50))


def test_a_call_has_a_bound() -> None:
    server = Server()
    keys = list(range(3 * KEYS_MAX))
    assert [f.result()[0] for f in asked(server, keys)] == [f"a{k}" for k in keys]
    assert max(map(len, server.calls)) == KEYS_MAX


def test_absent_keys_and_keys_that_cannot_be_shown_are_told_to_their_own_callers() -> None:
    server = Server(absent=(7,), bad=(9,))
    futures = asked(server, list(range(20)))
    for key, future in enumerate(futures):
        if key == 7:
            assert isinstance(future.exception(), UnknownKeyOrNamespaceError)
        elif key == 9:
            assert "cannot be shown" in str(future.exception())
        else:
            assert future.result() == [f"a{key}", f"b{key}"]


def test_a_job_that_is_away_is_not_asked_again_for_each_key() -> None:
    server = Server()
    server.problem = StateUnavailableError("away")
    futures = asked(server, list(range(20)))
    assert all(isinstance(f.exception(), StateUnavailableError) for f in futures)
    assert len(server.calls) <= 4


def test_what_a_function_of_one_caller_raises_is_nobody_elses() -> None:
    def picky(answer: Answer) -> list[str]:
        found = values(answer)
        if found[0] == "a4":
            raise ZeroDivisionError
        return found

    futures = asked(Server(), list(range(8)), picky)
    assert [type(f.exception()) for f in futures].count(ZeroDivisionError) == 1
    assert futures[5].result() == ["a5", "b5"]


def test_who_cancels_in_time_is_not_asked_for() -> None:
    server = Server()
    with ThreadPoolExecutor(4) as pool:
        gathering = Gathering(server.ask, pool)
        futures = []
        for key in range(10):
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)])
            futures.append(submitted(gathering, request, values))
        assert futures[9].cancel()
        server.go.set()
        assert futures[8].result(PATIENCE_S) == ["a8", "b8"]
    assert 9 not in [key for call in server.calls for key in call]


@pytest.mark.parametrize("limit", [None, 1])
def test_look_ups_under_other_terms_go_in_calls_of_their_own(limit: int | None) -> None:
    server = Server()
    seen: list[QueryRequest] = []

    def ask(request: QueryRequest) -> Answer:
        seen.append(request)
        return server.ask(request)

    with ThreadPoolExecutor(8) as pool:
        gathering = Gathering(ask, pool)
        futures = []
        for key in range(6):
            level = "live" if key % 2 else "committed"
            encoded = [LONG.codec.encode(key)]
            request = QueryRequest("", "s", keys=encoded, level=level, limit=limit)
            futures.append(submitted(gathering, request, values))
        server.go.set()
        assert [f.result(PATIENCE_S)[0] for f in futures] == [f"a{key}" for key in range(6)]
    for request in seen:
        keys = [LONG.codec.decode(key) for key in request.keys or ()]
        assert {"live" if key % 2 else "committed" for key in keys} == {request.level}
        assert limit is None or len(keys) == 1


def test_who_asks_alone_again_and_again_is_never_held_back() -> None:
    """Calls that follow each other at once are no reason to wait for others."""
    server = Server()
    server.go.set()
    pauses: list[float] = []
    with ThreadPoolExecutor(4) as pool:
        gathering = Gathering(server.ask, pool)
        gathering._pause = pauses.append  # type: ignore[assignment, method-assign]
        for key in range(50):
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)])
            assert submitted(gathering, request, values).result(PATIENCE_S)[0] == f"a{key}"
    assert [len(call) for call in server.calls] == [1] * 50
    assert pauses == []


def test_while_look_ups_overlap_calls_begin_some_milliseconds_apart() -> None:
    server = Server()
    pauses: list[float] = []
    with ThreadPoolExecutor(4) as pool:
        clock = ManualClock()
        gathering = Gathering(server.ask, pool, clock)
        gathering._pause = pauses.append  # type: ignore[assignment, method-assign]
        futures = []
        for key in range(10):
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)])
            futures.append(submitted(gathering, request, values))
            while not server.calls:
                assert not futures[0].done()
        server.go.set()
        assert [f.result(PATIENCE_S)[0] for f in futures] == [f"a{key}" for key in range(10)]
    assert [len(call) for call in server.calls] == [1, 9]
    assert pauses == [0.01]


@pytest.mark.parametrize("later_ms", [1, 10, 49])
def test_who_comes_soon_after_a_call_that_takes_long_waits_fifty_milliseconds(
    later_ms: int,
) -> None:
    server = Server()
    with ThreadPoolExecutor(4) as pool:
        clock = ManualClock()
        gathering = Gathering(server.ask, pool, clock)

        def submit(key: int) -> Any:
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)])
            return submitted(gathering, request, values)

        first = submit(0)
        while not server.calls:
            assert not first.done()
        clock.advance(later_ms)
        others = [submit(1), submit(2)]
        assert server.calls == [[0]]
        clock.advance(50 - later_ms)
        end = time.monotonic() + PATIENCE_S
        while len(server.calls) < 2:
            assert time.monotonic() < end
        assert server.calls[1] == [1, 2]
        server.go.set()
        found = [future.result(PATIENCE_S)[0] for future in (first, *others)]
    assert found == ["a0", "a1", "a2"]


def test_a_call_that_takes_long_holds_up_nobody_else() -> None:
    server = Server()
    with ThreadPoolExecutor(4) as pool:
        clock = ManualClock()
        gathering = Gathering(server.ask, pool, clock)

        def submit(key: int) -> Any:
            request = QueryRequest("", "s", keys=[LONG.codec.encode(key)])
            return submitted(gathering, request, values)

        first = submit(0)
        clock.advance(60)
        second = submit(1)
        while len(server.calls) < 2:
            assert not first.done()
        server.go.set()
        assert [first.result(PATIENCE_S)[0], second.result(PATIENCE_S)[0]] == ["a0", "a1"]
