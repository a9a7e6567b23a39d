"""Calls of an async function that are in flight, and the event loop that they are in flight on.

`AsyncCalls` lives on the loop: its coroutines take records in and hand results out, and all its
state is touched there alone. `LoopThread` is the loop in a thread of its own.

Invariant: whatever a function raises becomes a `Failure` of a record; nothing ends the loop but
`LoopThread.end`, and that waits for nobody for longer than a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from weir.errors import UsageError
from weir.runtime.raised import shorten, whole

T = TypeVar("T")
log = logging.getLogger("weir.slot")
_PATIENCE_S = 3.0
_END_S = 6.0


class RetryStrategy(Protocol):
    """When a record is tried again; attempts are counted from 1."""

    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another attempt after that many."""

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return how long to wait after that many attempts."""


@dataclass(frozen=True)
class WaitSettings:
    """How records wait, and why they are tried again.

    A timeout of 0 is none. `retry_on` are predicates over results and over exceptions: when they
    say yes, the strategy is asked.
    """

    ordered: bool
    timeout_ms: int
    capacity: int
    retry: RetryStrategy
    retry_on: tuple[Callable[[Any], bool] | None, Callable[[Exception], bool] | None]


@dataclass(frozen=True)
class Failure:
    """What a function raised, and the record that it was given."""

    error: BaseException
    value: Any


class Call:
    """A record in flight; `results` are there once it is finished."""

    __slots__ = ("results", "settled", "stamp", "task", "timer", "value")

    def __init__(self, value: Any, stamp: int | None) -> None:
        self.value = value
        self.stamp = stamp
        self.results: list[Any] | None = None
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class AsyncCalls:
    """The unfinished records of one operator, and the finished ones that nobody took yet."""

    def __init__(self, function: Any, settings: WaitSettings) -> None:
        """Start with nothing; `function` is the user's."""
        self._function = function
        self._settings = settings
        self._result_predicate, self._exception_predicate = settings.retry_on
        self._unfinished: set[Call] = set()
        # In the order of emission; ordered calls are in it from their start, others from their end.
        self._to_emit: deque[Call] = deque()
        self._changed = asyncio.Event()
        self.failure: Failure | None = None

    async def take_in(self, records: Iterable[tuple[Any, int | None]]) -> list[Call]:
        """Start calls for records, as soon as there is room; return what is finished by then.

        After a failure nothing is started any more.
        """
        for value, stamp in records:
            await self._until(self._settings.capacity - 1)
            if self.failure is not None:
                break
            self._start(Call(value, stamp))
        return self._take()

    async def drain(self) -> list[Call]:
        """Wait until no record is unfinished, or one has failed; return what is finished."""
        await self._until(0)
        return self._take()

    def cancel(self) -> None:
        """Cancel everything; nobody wants the results any more."""
        for call in list(self._unfinished):
            self._end(call)

    def broken(self, error: BaseException) -> None:
        """Learn what ended the loop: an exception of a task that the function started itself."""
        self._note(Failure(error, "<a task that async_invoke() started>"))

    async def _until(self, most: int) -> None:
        while len(self._unfinished) > most and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    def _take(self) -> list[Call]:
        finished: list[Call] = []
        while self._to_emit and self._to_emit[0].results is not None:
            finished.append(self._to_emit.popleft())
        return finished

    def _start(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        self._unfinished.add(call)
        if self._settings.ordered:
            self._to_emit.append(call)
        call.task = loop.create_task(self._perform(call))
        if self._settings.timeout_ms > 0:
            call.timer = loop.call_later(self._settings.timeout_ms / 1000, self._time_out, call)

    async def _perform(self, call: Call) -> None:
        try:
            results = await self._results(call.value)
        except BaseException as error:
            # Anything: a SystemExit that left the task would end the loop.
            self._fail(call, error)
        else:
            self._finish(call, results)

    async def _results(self, value: Any) -> list[Any]:
        """Try until there is a result that is no reason to try again."""
        retry, invoke = self._settings.retry, self._function.async_invoke
        attempts = 1
        while True:
            try:
                results = _listed(await invoke(value))
            except Exception as error:
                if not self._is_reason(self._exception_predicate, error, attempts):
                    raise
            else:
                if not self._is_reason(self._result_predicate, results, attempts):
                    return _required(results)
            await asyncio.sleep(retry.get_backoff_time_millis(attempts) / 1000)
            attempts += 1

    def _is_reason(self, predicate: Any, outcome: Any, attempts: int) -> bool:
        if predicate is None or not predicate(outcome):
            return False
        return self._settings.retry.can_retry(attempts)

    def _time_out(self, call: Call) -> None:
        if call.settled:
            return
        try:
            results = _required(_listed(self._function.timeout(call.value)))
        except BaseException as error:
            self._fail(call, error)
        else:
            self._finish(call, results)

    def _finish(self, call: Call, results: list[Any]) -> None:
        if not call.settled:
            self._end(call)
            call.results = results
            if not self._settings.ordered:
                self._to_emit.append(call)

    def _fail(self, call: Call, error: BaseException) -> None:
        if not call.settled:
            self._end(call)
            self._note(Failure(error, call.value))

    def _note(self, failure: Failure) -> None:
        self.failure = self.failure or failure
        self.cancel()
        self._changed.set()

    def _end(self, call: Call) -> None:
        """Let nothing more come of a call; its task, if it still runs, is not waited for."""
        call.settled = True
        self._unfinished.discard(call)
        self._changed.set()
        if call.timer is not None:
            call.timer.cancel()
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()


def _listed(results: Any) -> list[Any] | None:
    """Return the results of a function as a list; None stays what it is.

    Raises:
        UsageError: they are no list, and cannot be one.
    """
    if results is None or results.__class__ is list:
        return results
    if isinstance(results, (str, bytes)) or not isinstance(results, Iterable):
        msg = f"The result of AsyncFunction should be of list type, found {shorten(results)}"
        raise UsageError(msg)
    return list(whole(results))


def _required(results: list[Any] | None) -> list[Any]:
    if results is None:
        msg = "The result of AsyncFunction cannot be none: return [] where there are no results"
        raise UsageError(msg)
    return results


class LoopThread:
    """An event loop that runs in a thread of its own until `end`."""

    def __init__(self, name: str, escaped: Callable[[BaseException], None]) -> None:
        """Start the thread; `escaped` is told, on the loop, what tried to end it."""
        self._name = name
        self._escaped = escaped
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; not from the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def soon(self, callback: Callable[[], None]) -> None:
        """Call something on the loop, without waiting for it; nothing happens when it has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def end(self) -> None:
        """Cancel all tasks and end the thread; one that does not let go is left behind, loudly."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            log.error("thread %s does not end: a coroutine blocks its event loop", self._name)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._ran():
            pass
        self._loop.close()

    def _ran(self) -> bool:
        """Run the loop until it is stopped; False: something else ended it."""
        try:
            self._loop.run_forever()
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a task leave the loop.
            self._loop.call_soon(self._escaped, error)
            return False
        return True

    async def _wind_up(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_PATIENCE_S)
            if left:
                count = len(left)
                log.error("thread %s: %d coroutines ignore being cancelled", self._name, count)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
        self._loop.stop()
