"""Look-ups of single keys that go together: whoever asks while calls are under way takes the next.

One call for many keys costs little more than one for a single key, at the client, in the driver and
in the slots. So while look-ups overlap, calls begin some milliseconds apart, and each takes along
what has come meanwhile; who asks alone never waits. Nobody waits for a slow call for long: another
one begins beside it. Every look-up has its own answer, and its own error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from weir.clock import Clock, SystemClock
from weir.codec.portable import Portable
from weir.jobmanager.queries import (
    Answer,
    Facts,
    QueryError,
    QueryRefusedError,
    StateUnavailableError,
)
from weir.offline.tables import KEY
from weir.queryable.protocol import QueryRequest, encode_request

KEYS_MAX: Final = 256
_CALLS: Final = 4
_APART_MS: Final = 10
# A call that takes longer holds up nobody else.
_SLOW_MS: Final = 50
NOTHING: Final = object()
"""Stands for the value of a key under which nothing is stored."""


@dataclass(frozen=True)
class Stored:
    """What is stored under one key, and how true that is."""

    facts: Facts
    value: Any


@dataclass(frozen=True)
class StoredByKey:
    """What is stored under some keys, by their bytes."""

    facts: Facts
    values: dict[bytes, Any]


@dataclass(frozen=True)
class Question:
    """All of a look-up but its key; those with the same `name` may go together.

    `of` is how keys are encoded.
    """

    request: QueryRequest
    of: Portable
    name: bytes

    @classmethod
    def about(cls, request: QueryRequest, of: Portable) -> Question:
        """Take the keys of a request away."""
        # Whether a limit leaves anything of a key depends on the other keys of a call.
        kept = [] if request.limit is None else request.keys
        terms = msgspec.structs.replace(request, keys=kept)
        return cls(terms, of, encode_request(terms))


@dataclass
class _Wanted:
    """A key that somebody waits for, and what becomes of its answer."""

    key: bytes
    made: Callable[[Answer | Stored], Any]
    future: Future[Any] = field(default_factory=Future)

    def take(self, answer: Answer | Stored) -> None:
        """Give the answer to whoever waits."""
        try:
            self.future.set_result(self.made(answer))
        except Exception as error:
            # Also what a function of the descriptor raised: it is nobody else's.
            self.future.set_exception(error)


@dataclass
class _Line:
    """The keys of one state, under the same terms, that wait; and the calls that are under way.

    `began_ms` is when the newest of them began; `overlaps` tells whether somebody came while the
    last one was under way.
    """

    question: Question
    waiting: list[_Wanted] = field(default_factory=list)
    calls: int = 0
    began_ms: int = 0
    overlaps: bool = False


class Gathering:
    """The look-ups of one client; thread-safe."""

    def __init__(
        self,
        ask: Callable[[QueryRequest], Answer | StoredByKey],
        pool: ThreadPoolExecutor,
        clock: Clock | None = None,
    ) -> None:
        """Ask by a function, in the threads of a pool."""
        self._ask = ask
        self._pool = pool
        self._clock = clock or SystemClock()
        self._pause = threading.Event().wait
        self._wait = threading.Event().wait
        self._lock = threading.Lock()
        self._lines: dict[bytes, _Line] = {}
        self._watched = False

    def submit(
        self, question: Question, key: bytes, made: Callable[[Answer | Stored], Any]
    ) -> Future[Any]:
        """Ask about a key; `made` of its answer is what the future is of."""
        wanted = _Wanted(key, made)
        name = question.name
        with self._lock:
            line = self._lines.get(name)
            if line is None:
                line = self._lines[name] = _Line(question)
            line.waiting.append(wanted)
            now = self._clock.monotonic_ms()
            full = line.calls >= _CALLS
            waits = full or (line.calls > 0 and now - line.began_ms < _SLOW_MS)
            if not waits:
                line.calls += 1
                line.began_ms = now
            watches = waits and not full and not self._watched
            self._watched = self._watched or watches
        try:
            if not waits:
                self._pool.submit(self._run, name, line)
            elif watches:
                self._pool.submit(self._watch)
        except RuntimeError:
            if not waits:
                self._leave(name, line)
                raise
        return wanted.future

    def _watch(self) -> None:
        """Begin calls beside slow ones, as long as somebody waits for any."""
        while True:
            with self._lock:
                now = self._clock.monotonic_ms()
                held = [at for at in self._lines.items() if at[1].waiting and at[1].calls < _CALLS]
                slow = [at for at in held if now - at[1].began_ms >= _SLOW_MS]
                for _, line in slow:
                    line.calls += 1
                    line.began_ms = now
                rest = min((line.began_ms + _SLOW_MS - now for _, line in held), default=0)
                self._watched = bool(held)
            for name, line in slow:
                self._begin(name, line)
            if not held:
                return
            self._wait(rest / 1000)

    def _begin(self, name: bytes, line: _Line) -> None:
        try:
            self._pool.submit(self._run, name, line)
        except RuntimeError:
            # The client closes; who waits is answered all the same.
            self._run(name, line)

    def _run(self, name: bytes, line: _Line) -> None:
        while True:
            if line.overlaps:
                passed = self._clock.monotonic_ms() - line.began_ms
                self._pause(max(0, _APART_MS - passed) / 1000)
            with self._lock:
                line.began_ms = self._clock.monotonic_ms()
                taken, line.waiting = line.waiting[:KEYS_MAX], line.waiting[KEYS_MAX:]
            if not taken:
                if self._leave(name, line):
                    return
                continue
            # Who has cancelled waits no more.
            taken = [w for w in taken if w.future.set_running_or_notify_cancel()]
            try:
                if taken:
                    self._call(line, taken)
            except Exception as error:
                for wanted in taken:
                    if not wanted.future.done():
                        wanted.future.set_exception(error)

    def _leave(self, name: bytes, line: _Line) -> bool:
        """End a call, unless somebody has come meanwhile."""
        with self._lock:
            if line.waiting and not line.calls - 1:
                return False
            line.calls -= 1
            if not line.calls:
                self._lines.pop(name, None)
            return True

    def _call(self, line: _Line, taken: list[_Wanted]) -> None:
        keys = list(dict.fromkeys(wanted.key for wanted in taken))
        try:
            answer = self._answer(line, keys)
        except (StateUnavailableError, QueryRefusedError) as error:
            for wanted in taken:
                wanted.future.set_exception(error)
            return
        except QueryError as error:
            if len(keys) == 1:
                for wanted in taken:
                    wanted.future.set_exception(error)
                return
            self._one_by_one(line, taken)
            return
        if isinstance(answer, StoredByKey):
            self._deal_out(line, taken, _each(answer, keys))
        elif len(keys) == 1:
            for wanted in taken:
                wanted.take(answer)
        else:
            self._deal_out(line, taken, _by_key(answer, line.question.of))

    def _deal_out(
        self, line: _Line, taken: list[_Wanted], parts: Mapping[bytes, Answer | Stored]
    ) -> None:
        found = [(wanted, parts.get(wanted.key)) for wanted in taken]
        for wanted, part in found:
            if part is not None:
                wanted.take(part)
        # There is nothing under them, or their bytes have a second form.
        self._one_by_one(line, [wanted for wanted, part in found if part is None])

    def _answer(self, line: _Line, keys: list[bytes]) -> Answer | StoredByKey:
        try:
            return self._ask(msgspec.structs.replace(line.question.request, keys=keys))
        finally:
            # Before anybody has an answer: who then asks again does not overlap.
            line.overlaps = bool(line.waiting)

    def _one_by_one(self, line: _Line, taken: list[_Wanted]) -> None:
        for wanted in taken:
            self._call(line, [wanted])


def _each(answer: StoredByKey, keys: list[bytes]) -> dict[bytes, Stored]:
    """Return what each key has; the answer to a single key is its own, whatever its bytes are."""
    found = {key: Stored(answer.facts, value) for key, value in answer.values.items()}
    if len(keys) == 1:
        nothing = Stored(answer.facts, NOTHING)
        return {keys[0]: next(iter(found.values()), nothing)}
    return found


def _by_key(answer: Answer, of: Portable) -> dict[bytes, Answer]:
    """Return the rows of each key, by its bytes."""
    places: dict[bytes, list[int]] = {}
    for place, key in enumerate(of.values(answer.table[KEY].combine_chunks())):
        places.setdefault(of.codec.encode(key), []).append(place)
    table = answer.table.combine_chunks()
    parts = {}
    for key, own in places.items():
        first, count = own[0], len(own)
        joined = own[-1] - first == count - 1
        rows = table.slice(first, count) if joined else table.take(own)
        parts[key] = Answer(answer.facts, rows, answer.opaque)
    return parts
