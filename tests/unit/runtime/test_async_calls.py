"""Async calls on an event loop whose time jumps: order, capacity, timeouts, retries, failures."""

from __future__ import annotations

import asyncio
import selectors
import threading

import pytest

from weir.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from weir.datastream.async_retry_strategies import (
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
)
from weir.datastream.functions import AsyncFunction
from weir.errors import UsageError
from weir.runtime import async_calls
from weir.runtime.async_calls import AsyncCalls, LoopThread, WaitSettings


class JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: time goes to the next thing that is due."""

    now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            msg = "everybody waits, and nobody will ever come"
            raise AssertionError(msg)
        self.now += timeout
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.selector = JumpingSelector()
        super().__init__(self.selector)

    def time(self):
        return self.selector.now

    @property
    def now_ms(self):
        return round(self.selector.now * 1000)


@pytest.fixture
def loop():
    loop = JumpingLoop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def settings(*, ordered=True, timeout_ms=0, capacity=100, retry=None):
    retry = retry or NoRetryStrategy()
    predicate = retry.get_retry_predicate()
    retry_on = predicate.result_predicate(), predicate.exception_predicate()
    return WaitSettings(ordered, timeout_ms, capacity, retry, retry_on)


class Waits(AsyncFunction):
    """Answers after as many milliseconds as the record says; tells how many waited at a time."""

    def __init__(self):
        self.waiting = 0
        self.most = 0
        self.cancelled = []

    async def async_invoke(self, value):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await asyncio.sleep(value / 1000)
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        finally:
            self.waiting -= 1
        return [value]


def run_all(loop, calls, values):
    """Take all records in and wait for all; return their results in order of emission."""
    stamped = [(value, i) for i, value in enumerate(values)]
    finished = loop.run_until_complete(calls.take_in(stamped))
    finished += loop.run_until_complete(calls.drain())
    return [result for call in finished for result in call.results]


# ---- order and capacity --------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2, 100])
def test_ordered_results_come_in_the_order_of_their_records(loop, capacity):
    calls = AsyncCalls(Waits(), settings(capacity=capacity))
    assert run_all(loop, calls, [30, 10, 20, 5]) == [30, 10, 20, 5]


def test_unordered_results_come_in_the_order_of_completion(loop):
    calls = AsyncCalls(Waits(), settings(ordered=False))
    assert run_all(loop, calls, [30, 10, 20, 5]) == [5, 10, 20, 30]


def test_finished_records_are_handed_out_while_others_wait(loop):
    calls = AsyncCalls(Waits(), settings(ordered=False, capacity=2))
    taken = loop.run_until_complete(calls.take_in([(30, 0), (10, 1), (5, 2), (5, 3)]))
    assert [call.value for call in taken] == [10, 5]
    assert [call.value for call in loop.run_until_complete(calls.drain())] == [5, 30]


@pytest.mark.parametrize(("capacity", "took_ms"), [(1, 40), (2, 20), (3, 20), (4, 10), (9, 10)])
def test_at_most_as_many_records_as_the_capacity_are_unfinished(loop, capacity, took_ms):
    function = Waits()
    run_all(loop, AsyncCalls(function, settings(capacity=capacity)), [10, 10, 10, 10])
    assert function.most == min(capacity, 4)
    assert loop.now_ms == took_ms


def test_records_between_two_attempts_count_as_unfinished(loop):
    function = Flaky(failures=1)
    retry = FixedDelayRetryStrategy(1, 50, None, has_exception_predicate)
    run_all(loop, AsyncCalls(function, settings(capacity=1, retry=retry)), ["a", "b"])
    assert function.calls == [("a", 0), ("a", 50), ("b", 50), ("b", 100)]


# ---- timeouts ------------------------------------------------------------------------------------


class GivesUp(Waits):
    def timeout(self, value):
        return [f"late {value}"]


def test_a_record_that_takes_too_long_gets_the_result_of_timeout_and_is_cancelled(loop):
    function = GivesUp()
    assert run_all(loop, AsyncCalls(function, settings(timeout_ms=15)), [10, 20, 5]) == [
        10,
        "late 20",
        5,
    ]
    assert loop.now_ms == 15
    loop.run_until_complete(asyncio.sleep(0))
    assert function.cancelled == [20]


def test_a_timeout_of_zero_is_none(loop):
    assert run_all(loop, AsyncCalls(GivesUp(), settings(timeout_ms=0)), [100_000]) == [100_000]


class Stubborn(GivesUp):
    """Does not let itself be cancelled, and answers all the same."""

    async def async_invoke(self, value):
        try:
            await asyncio.sleep(value / 1000)
        except asyncio.CancelledError:
            await asyncio.sleep(value / 1000)
        return [value]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_result_behind_its_timeout_is_dropped_and_nobody_waits_for_it(loop, ordered):
    calls = AsyncCalls(Stubborn(), settings(ordered=ordered, timeout_ms=10, capacity=1))
    assert run_all(loop, calls, [100, 5]) == ["late 100", 5]
    assert loop.now_ms == 15
    loop.run_until_complete(asyncio.sleep(1))
    assert loop.run_until_complete(calls.drain()) == []
    assert calls.failure is None


def test_the_default_of_timeout_raises_by_name(loop):
    calls = AsyncCalls(Waits(), settings(timeout_ms=10))
    run_all(loop, calls, [5, 20])
    assert isinstance(calls.failure.error, TimeoutError)
    assert "in time for input 20" in str(calls.failure.error)
    assert calls.failure.value == 20


def test_a_timeout_counts_from_the_first_attempt_over_all_of_them(loop):
    function = Flaky(failures=100)
    function.timeout = lambda value: [f"late {value}"]
    retry = FixedDelayRetryStrategy(100, 10, None, has_exception_predicate)
    calls = AsyncCalls(function, settings(timeout_ms=35, retry=retry))
    assert run_all(loop, calls, ["a"]) == ["late a"]
    assert [at for _, at in function.calls] == [0, 10, 20, 30]


# ---- retries -------------------------------------------------------------------------------------


class Flaky(AsyncFunction):
    """Fails some times for each record, as told, and notes when it was called."""

    def __init__(self, failures, fail=None):
        self.failures = failures
        self.calls = []
        self.fail = fail

    async def async_invoke(self, value):
        self.calls.append((value, asyncio.get_running_loop().now_ms))
        if [v for v, _ in self.calls].count(value) <= self.failures:
            if self.fail is not None:
                return self.fail()
            msg = f"{value} is not ready"
            raise ValueError(msg)
        return [value]


def test_the_first_call_and_as_many_more_as_attempts_are_allowed(loop):
    retry = FixedDelayRetryStrategy(3, 10, None, has_exception_predicate)
    function = Flaky(failures=3)
    assert run_all(loop, AsyncCalls(function, settings(retry=retry)), ["a"]) == ["a"]
    assert [at for _, at in function.calls] == [0, 10, 20, 30]
    calls = AsyncCalls(Flaky(failures=4), settings(retry=retry))
    run_all(loop, calls, ["a"])
    assert str(calls.failure.error) == "a is not ready"


@pytest.mark.parametrize(
    ("numbers", "times"),
    [
        ((4, 10, 35, 2.0), [0, 10, 30, 65, 100]),
        ((3, 10, 1000, 1.5), [0, 10, 25, 47]),
        ((2, 50, 20, 1.0), [0, 50, 70]),
        ((3, 80, 100, 0.5), [0, 80, 120, 140]),
    ],
)
def test_delays_grow_by_the_multiplier_up_to_the_limit(loop, numbers, times):
    retry = ExponentialBackoffDelayRetryStrategy(*numbers, None, has_exception_predicate)
    function = Flaky(failures=numbers[0])
    run_all(loop, AsyncCalls(function, settings(retry=retry)), ["a"])
    assert [at for _, at in function.calls] == times


def test_records_that_are_tried_again_at_the_same_time_do_not_disturb_each_other(loop):
    retry = ExponentialBackoffDelayRetryStrategy(3, 10, 1000, 2.0, None, has_exception_predicate)
    function = Flaky(failures=3)
    run_all(loop, AsyncCalls(function, settings(retry=retry)), ["a", "b", "c"])
    for value in "abc":
        assert [at for v, at in function.calls if v == value] == [0, 10, 30, 70]


PREDICATES = {
    "an exception, without a predicate": ((None, None), None, 1),
    "an exception, with one for results": ((empty_result_predicate, None), None, 1),
    "any exception": ((None, has_exception_predicate), None, 2),
    "the type": ((None, lambda e: exception_type_predicate(e, ValueError)), None, 2),
    "another type": ((None, lambda e: exception_type_predicate(e, KeyError)), None, 1),
    "an empty result": ((empty_result_predicate, None), list, 2),
    "no result": ((empty_result_predicate, None), lambda: None, 2),
    "an empty result, without a predicate": ((None, has_exception_predicate), list, 1),
}


@pytest.mark.parametrize("case", PREDICATES)
def test_predicates_say_what_is_tried_again(loop, case):
    predicates, fail, expected = PREDICATES[case]
    function = Flaky(1, fail)
    retry = FixedDelayRetryStrategy(5, 10, *predicates)
    run_all(loop, AsyncCalls(function, settings(retry=retry)), ["a"])
    assert len(function.calls) == expected


def test_the_story_of_two_failures_and_a_right_answer(loop):
    class Story(AsyncFunction):
        def __init__(self):
            self.seen = []

        async def async_invoke(self, value):
            self.seen.append(value)
            attempt = self.seen.count(value)
            if attempt == 1:
                raise RuntimeError
            return [2 * value + (attempt == 2)]

    retry = FixedDelayRetryStrategy(2, 10, lambda r: r[0] % 2 == 1, has_exception_predicate)
    calls = AsyncCalls(Story(), settings(ordered=False, capacity=2, retry=retry))
    assert sorted(run_all(loop, calls, [1, 2, 3])) == [2, 4, 6]


@pytest.mark.parametrize("number", [0, -1, None, "3", True])
@pytest.mark.parametrize("position", [0, 1])
def test_numbers_of_a_strategy_are_above_zero(number, position):
    given = [5, 10]
    given[position] = number
    with pytest.raises(UsageError, match="must be above zero"):
        FixedDelayRetryStrategy(*given)
    with pytest.raises(UsageError, match="must be above zero"):
        ExponentialBackoffDelayRetryStrategy(*given, 100, 2.0)


# ---- failures ------------------------------------------------------------------------------------


class Returns(AsyncFunction):
    def __init__(self, result):
        self.result = result

    async def async_invoke(self, value):
        return self.result


@pytest.mark.parametrize("result", [None, 7, "text", b"bytes"])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_result_that_is_no_list_fails_the_record(loop, result, ordered):
    calls = AsyncCalls(Returns(result), settings(ordered=ordered))
    assert run_all(loop, calls, ["a"]) == []
    assert isinstance(calls.failure.error, UsageError)
    said = "cannot be none" if result is None else "should be of list type, found"
    assert said in str(calls.failure.error)


@pytest.mark.parametrize("result", [[], (1, 2), {3}, iter([4, 5])], ids=lambda r: type(r).__name__)
def test_any_other_iterable_is_a_list_of_results(loop, result):
    expected = [4, 5] if not isinstance(result, (list, tuple, set)) else list(result)
    assert run_all(loop, AsyncCalls(Returns(result), settings()), ["a"]) == expected


class Raises(Waits):
    def __init__(self, error):
        super().__init__()
        self.error = error

    async def async_invoke(self, value):
        if value == "bad":
            raise self.error
        return await super().async_invoke(value)


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_whatever_is_raised_fails_the_record_and_cancels_the_others(loop, error):
    function = Raises(error)
    calls = AsyncCalls(function, settings(capacity=3))
    run_all(loop, calls, [1000, 1000, "bad", 5, 5])
    assert type(calls.failure.error) is error
    assert calls.failure.value == "bad"
    assert loop.now_ms == 0
    loop.run_until_complete(asyncio.sleep(0))
    assert function.cancelled == [1000, 1000]


def test_stop_iteration_fails_the_record(loop):
    calls = AsyncCalls(Raises(StopIteration), settings())
    run_all(loop, calls, ["bad"])
    assert "StopIteration" in str(calls.failure.error)


def test_a_timeout_that_raises_fails_the_record(loop):
    function = Waits()
    function.timeout = lambda value: next(iter(()))
    calls = AsyncCalls(function, settings(timeout_ms=5))
    run_all(loop, calls, [10])
    assert type(calls.failure.error) is StopIteration


# ---- the thread ----------------------------------------------------------------------------------


def threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("under test")]


def test_the_thread_ends_with_everything_on_it():
    thread = LoopThread("under test", lambda error: None)
    forever = []

    async def begin():
        forever.append(asyncio.ensure_future(asyncio.Event().wait()))
        return await asyncio.get_running_loop().run_in_executor(None, lambda: 5)

    assert thread.run(begin()) == 5
    assert threads() == ["under test"]
    thread.end()
    assert threads() == []
    assert forever[0].cancelled()
    thread.end()
    thread.soon(lambda: None)


def test_a_task_that_ignores_its_cancellation_keeps_nobody_waiting(monkeypatch, caplog):
    monkeypatch.setattr(async_calls, "_PATIENCE_S", 0.01)
    thread = LoopThread("under test", lambda error: None)
    kept = []

    async def stubborn():
        try:
            await asyncio.Event().wait()
        finally:
            kept.append("here")
            await asyncio.Event().wait()

    async def begin():
        task = asyncio.ensure_future(stubborn())
        await asyncio.sleep(0)
        return task

    task = thread.run(begin())
    thread.end()
    assert kept == ["here"]
    assert threads() == []
    assert "ignore being cancelled" in caplog.text
    task._log_destroy_pending = False


def test_a_coroutine_that_blocks_the_loop_is_left_behind(monkeypatch, caplog):
    monkeypatch.setattr(async_calls, "_END_S", 0.01)
    thread = LoopThread("under test", lambda error: None)
    blocks, release = threading.Event(), threading.Event()

    def block():
        blocks.set()
        release.wait()

    thread.soon(block)
    blocks.wait()
    thread.end()
    assert "blocks its event loop" in caplog.text
    release.set()
    thread._thread.join()
    assert threads() == []


def test_a_task_that_wants_to_end_the_process_ends_neither_that_nor_the_loop():
    escaped = []
    thread = LoopThread("under test", escaped.append)

    async def leave():
        raise SystemExit(3)

    async def begin():
        task = asyncio.ensure_future(leave())
        await asyncio.wait([task])
        return task.exception()

    async def look():
        return [type(error) for error in escaped]

    try:
        assert isinstance(thread.run(begin()), SystemExit)
        assert thread.run(look()) == [SystemExit]
    finally:
        thread.end()
