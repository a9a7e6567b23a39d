"""Async functions in jobs: order, epochs, failures, checkpoints, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import ClassVar

import pytest
from tests.harness.overtaking import Overtake, job
from tests.harness.programs import environment, started

from weir.common import Duration, Time
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import AsyncDataStream, AsyncFunction, KeyedProcessFunction, ProcessFunction
from weir.datastream.async_retry_predicates import has_exception_predicate
from weir.datastream.async_retry_strategies import (
    FixedDelayRetryStrategy,
    NoRetryStrategy,
)
from weir.datastream.functions import AsyncRetryStrategy
from weir.datastream.state import ValueStateDescriptor
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.testing.harness import collect

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
FIVE = [(i, i) for i in range(1, 6)]
MODES = {"ordered": AsyncDataStream.ordered_wait, "unordered": AsyncDataStream.unordered_wait}
RETRYING = {
    "ordered": AsyncDataStream.ordered_wait_with_retry,
    "unordered": AsyncDataStream.unordered_wait_with_retry,
}
LONG = Time.minutes(10)
every_mode = pytest.mark.parametrize("mode", MODES)


class Sum(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0)
        return [value[0] + value[1]]


class Backwards(AsyncFunction):
    """Finishes a record only after the one behind it; all five have to be in flight together."""

    def open(self, runtime_context):
        self.done = {i: asyncio.Event() for i in range(1, 7)}
        self.done[6].set()

    async def async_invoke(self, value):
        await self.done[value[0] + 1].wait()
        self.done[value[0]].set()
        return [value[0] + value[1]]


def pairs(env, records=FIVE):
    return env.from_collection(records, PAIR)


def job_of(stream, parallelism=1, **options):
    collect(stream.uid("async"))
    return started(stream.env, parallelism, **options)


# ---- order ---------------------------------------------------------------------------------------


@every_mode
def test_every_record_has_its_result(mode):
    stream = MODES[mode](pairs(environment()), Sum(), LONG, capacity=2)
    assert sorted(job_of(stream, 2).run().collected()) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("mode", "expected"), [("ordered", [2, 4, 6, 8, 10]), ("unordered", [10, 8, 6, 4, 2])]
)
def test_results_are_ordered_by_record_or_by_completion(mode, expected):
    stream = MODES[mode](pairs(environment()), Backwards(), LONG, output_type=Types.LONG())
    assert job_of(stream, partitions=1).run().collected() == expected


def test_unordered_results_never_cross_a_watermark():
    stream = AsyncDataStream.unordered_wait(pairs(environment()), Sum(), LONG)
    assert job_of(stream).run(take=1).collected() == [2, 4, 6, 8, 10]


class Watermarks(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@every_mode
def test_results_have_the_times_of_their_records_and_come_before_the_watermark(mode):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda value, _: 10 * value[0])
    timed = pairs(environment()).assign_timestamps_and_watermarks(strategy)
    harness = job_of(MODES[mode](timed, Sum(), LONG).process(Watermarks()), partitions=1)
    harness.run_epoch(take=3)
    harness.run_epoch()
    first, second = harness.collected()[:3], harness.collected()[3:]
    assert sorted(r[:2] for r in first) == [(2, 10), (4, 20), (6, 30)]
    assert sorted(r[:2] for r in second) == [(8, 40), (10, 50)]
    assert {r[2] for r in first} == {-(1 << 63)}
    assert {r[2] for r in second} == {29}
    harness.finish()


class Several(AsyncFunction):
    async def async_invoke(self, value):
        return [value] * value[0]


def test_a_record_has_any_number_of_results():
    stream = AsyncDataStream.ordered_wait(pairs(environment(), [(0, 0), (2, 2)]), Several(), 0)
    assert job_of(stream).run().collected() == [(2, 2), (2, 2)]


def test_async_functions_follow_each_other_in_one_level():
    first = AsyncDataStream.unordered_wait(pairs(environment()), Several(), LONG, capacity=1)
    second = AsyncDataStream.ordered_wait(first, Sum(), LONG, capacity=3)
    harness = job_of(second.map(lambda v: v + 1))
    assert sorted(harness.run(take=2).collected()) == sorted(
        2 * i + 1 for i, _ in FIVE for _ in range(i)
    )


class Later(KeyedProcessFunction):
    """Sends each record on when the watermark has passed it."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[0])

    def on_timer(self, timestamp, ctx):
        yield timestamp, timestamp


@every_mode
def test_what_timers_send_is_awaited_before_the_watermark_goes_on(mode):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda value, _: value[0])
    timed = pairs(environment()).assign_timestamps_and_watermarks(strategy)
    waited = timed.key_by(lambda v: 0).process(Later(), PAIR)
    harness = job_of(MODES[mode](waited, Sum(), LONG))
    harness.run_epoch()
    assert sorted(harness.collected()) == [2, 4, 6, 8]
    harness.finish()
    assert sorted(harness.collected()) == [2, 4, 6, 8, 10]


def test_the_operator_never_runs_next_to_the_source():
    stream = AsyncDataStream.ordered_wait(pairs(environment()), Sum(), LONG)
    harness = job_of(stream)
    (node,) = [op for op in harness.plan.operators if op.kind == "async_wait"]
    assert (node.name, node.level) == ("async wait operator", 1)
    harness.run()


# ---- time ----------------------------------------------------------------------------------------


class Never(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.Event().wait()

    def timeout(self, value):
        return [0]


TIMEOUTS = [Time.milliseconds(1), Duration.of_millis(1), timedelta(milliseconds=1), 1]


@every_mode
@pytest.mark.parametrize("timeout", TIMEOUTS, ids=["Time", "Duration", "timedelta", "int"])
def test_a_timeout_gives_the_result_of_records_without_an_answer(mode, timeout):
    stream = MODES[mode](pairs(environment()), Never(), timeout, capacity=2)
    assert job_of(stream).run().collected() == [0] * 5


class Hopeless(Never):
    def timeout(self, value):
        msg = "no answer at all"
        raise RuntimeError(msg)


@pytest.mark.parametrize("function", [Hopeless, Sum], ids=["timeout", "default"])
def test_a_timeout_that_raises_fails_the_job_by_name(function):
    class Slow(function):
        async def async_invoke(self, value):
            await asyncio.Event().wait()

    stream = AsyncDataStream.ordered_wait(pairs(environment(), [(7, 7)]), Slow(), 1)
    harness = job_of(stream.name("ask"))
    with pytest.raises(UserFunctionError) as caught:
        harness.run()
    assert (caught.value.operator, caught.value.record) == ("ask", "(7, 7)")
    expected = "no answer at all" if function is Hopeless else "in time for input (7, 7)"
    assert expected in caught.value.user_traceback
    harness.end_slots()


class FirstTimeNever(AsyncFunction):
    """Raises, then gives an odd answer, then the right one."""

    def open(self, runtime_context):
        self.seen = []

    async def async_invoke(self, value):
        self.seen.append(value)
        attempt = self.seen.count(value)
        if attempt == 1:
            raise ConnectionError
        return [sum(value) + (attempt == 2)]


@every_mode
def test_records_are_tried_again(mode):
    retry = FixedDelayRetryStrategy(2, 1, lambda r: r[0] % 2 == 1, has_exception_predicate)
    stream = RETRYING[mode](
        pairs(environment(), FIVE[:3]), FirstTimeNever(), LONG, retry, capacity=2
    )
    assert sorted(job_of(stream).run().collected()) == [2, 4, 6]


# ---- failures ------------------------------------------------------------------------------------


class Wrong(AsyncFunction):
    def __init__(self, result):
        self.result = result

    async def async_invoke(self, value):
        return self.result


@pytest.mark.parametrize("result", [None, 5, "five"])
def test_a_result_that_is_no_list_is_refused_by_name(result):
    stream = AsyncDataStream.ordered_wait(pairs(environment(), [(7, 7)]), Wrong(result), LONG)
    harness = job_of(stream.name("ask"))
    with pytest.raises(UsageError, match=r"'ask' at record \(7, 7\): The result of AsyncFunction "):
        harness.run()
    harness.end_slots()


def test_a_result_of_another_type_than_declared_is_refused():
    stream = AsyncDataStream.ordered_wait(
        pairs(environment()), Sum(), LONG, output_type=Types.STRING()
    )
    harness = job_of(stream.name("ask").map(len))
    with pytest.raises(UsageError, match=r"declared as .*STRING"):
        harness.run()
    harness.end_slots()


class BadTask(AsyncFunction):
    """Starts a task of its own that nobody waits for, and that wants to end the process."""

    async def async_invoke(self, value):
        self.begin()
        await asyncio.Event().wait()

    def begin(self):
        self.task = asyncio.ensure_future(self.leave())
        # asyncio shows exceptions that nobody has looked at, when they are collected.
        self.task.add_done_callback(lambda task: task.exception())

    async def leave(self):
        raise SystemExit(3)


def test_a_task_of_the_function_that_ends_the_loop_fails_the_job():
    stream = AsyncDataStream.ordered_wait(pairs(environment()), BadTask(), LONG)
    harness = job_of(stream.name("ask"))
    with pytest.raises(UserFunctionError, match=r"(?s)'ask' failed .*SystemExit: 3"):
        harness.run()
    harness.end_slots()


class BadTaskLater(BadTask):
    """Answers before its task wants to end the process."""

    async def async_invoke(self, value):
        self.begin()
        return [0]


def test_a_task_that_ends_the_loop_behind_its_record_fails_the_job_at_the_next_epoch():
    stream = AsyncDataStream.ordered_wait(pairs(environment(), FIVE[:1]), BadTaskLater(), LONG)
    harness = job_of(stream.name("ask"))
    (operator,) = harness.operators("async")

    async def look():
        return operator._calls.failure

    def epochs():
        harness.run_epoch()
        while operator.loop.run(look()) is None:
            pass
        harness.run_epoch(take=0, checkpoint=True)

    with pytest.raises(UserFunctionError, match=r"(?s)'ask' failed .*SystemExit: 3"):
        epochs()
    harness.end_slots()


class OpenFails(Sum):
    def open(self, runtime_context):
        msg = "no connection"
        raise ConnectionError(msg)


def test_a_function_that_cannot_open_leaves_no_thread():
    collect(AsyncDataStream.ordered_wait(pairs(environment()), OpenFails(), LONG))
    env = environment()
    collect(AsyncDataStream.ordered_wait(pairs(env), OpenFails(), LONG))
    with pytest.raises(WeirError, match="no connection"):
        started(env, 1)


class Closes(Sum):
    """Closes a client whose end takes a coroutine, on the loop that its calls ran on."""

    closed: ClassVar[list[str]] = []

    async def async_invoke(self, value):
        self.loop = asyncio.get_running_loop()
        return await super().async_invoke(value)

    def close(self):
        asyncio.run_coroutine_threadsafe(self.end(), self.loop).result()

    async def end(self):
        await asyncio.sleep(0)
        self.closed.append("client")


def test_close_can_still_use_the_event_loop():
    Closes.closed.clear()
    job_of(AsyncDataStream.ordered_wait(pairs(environment()), Closes(), LONG)).run()
    assert Closes.closed == ["client"]


# ---- checkpoints ---------------------------------------------------------------------------------


@every_mode
def test_nothing_is_lost_or_repeated_when_a_slot_is_killed(mode):
    stream = MODES[mode](pairs(environment()), Sum(), LONG, capacity=2)
    harness = job_of(stream, 2, wait_for_checkpoints=True)
    harness.run_epoch(take=2, checkpoint=True)
    harness.run_epoch(take=1)
    harness.kill_slot(0)
    with pytest.raises(WeirError):
        harness.run_epoch()
    harness.fail_over()
    later = harness.restart(3)
    later.run()
    assert sorted([*harness.collected(), *later.collected()]) == [2, 4, 6, 8, 10]


class Unhurried(Sum):
    """Is still waiting when the next records come."""

    async def async_invoke(self, value):
        await asyncio.sleep(0.005)
        return await super().async_invoke(value)


@pytest.mark.parametrize("at", [1, 2, 3, 5])
@every_mode
def test_a_barrier_that_overtakes_records_waits_for_those_in_flight(mode, at):
    env = environment()
    stream = MODES[mode](pairs(env), Unhurried(), LONG)
    collect(stream.key_by(lambda v: v % 4).map(lambda v: v).uid("behind"))
    hooks = Overtake(at)
    harness = job(env, hooks)
    harness.run_epoch(checkpoint=True)
    assert hooks.settled
    harness.kill_slot(0)
    harness.fail_over()
    hooks.at = None
    harness.run()
    assert sorted(harness.collected()) == [2, 4, 6, 8, 10]


# ---- keys ----------------------------------------------------------------------------------------


def test_a_keyed_stream_can_be_the_input():
    keyed = pairs(environment()).key_by(lambda v: v[0] % 2)
    harness = job_of(AsyncDataStream.ordered_wait(keyed, Sum(), LONG), 2)
    harness.run_epoch(checkpoint=True)
    assert sorted(harness.collected()) == [2, 4, 6, 8, 10]
    harness.finish()


class Stateful(Sum):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))


def test_keyed_state_is_refused_with_a_reason():
    env = environment()
    keyed = pairs(env).key_by(lambda v: v[0] % 2)
    collect(AsyncDataStream.ordered_wait(keyed, Stateful(), LONG))
    with pytest.raises(
        UsageError, match="an AsyncFunction has no keyed state, and asks for 'seen'"
    ):
        started(env, 1)


# ---- refusals ------------------------------------------------------------------------------------


class Plain(AsyncFunction):
    def async_invoke(self, value):
        return [value]


class Yields(AsyncFunction):
    async def async_invoke(self, value):
        yield value


@pytest.mark.parametrize("function", [Plain, Yields])
@every_mode
def test_a_function_that_is_no_coroutine_is_refused(mode, function):
    with pytest.raises(UsageError, match=f"async_invoke.. of {function.__name__} must be declared"):
        MODES[mode](pairs(environment()), function(), LONG)


def test_what_is_no_async_function_is_refused():
    with pytest.raises(TypeError, match="expected an AsyncFunction"):
        AsyncDataStream.ordered_wait(pairs(environment()), Watermarks(), LONG)
    with pytest.raises(TypeError, match="add parentheses"):
        AsyncDataStream.ordered_wait(pairs(environment()), Sum, LONG)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None])
def test_the_capacity_is_a_number_above_zero(capacity):
    with pytest.raises(UsageError, match=r"capacity .* above zero"):
        AsyncDataStream.ordered_wait(pairs(environment()), Sum(), LONG, capacity)


class NoPredicate(NoRetryStrategy):
    def get_retry_predicate(self):
        return None


RETRIES = {
    "no strategy": (None, LONG, UsageError, "strategy is None"),
    "no timeout": (NoRetryStrategy(), 0, UsageError, "needs a timeout above zero"),
    "no predicate": (NoPredicate(), LONG, UsageError, "NoPredicate returned None"),
    "no such thing": ("twice", LONG, TypeError, "expected an AsyncRetryStrategy"),
}


@pytest.mark.parametrize("case", RETRIES)
@every_mode
def test_a_retry_needs_a_strategy_with_predicates_and_a_timeout(mode, case):
    strategy, timeout, error, match = RETRIES[case]
    with pytest.raises(error, match=match):
        RETRYING[mode](pairs(environment()), Sum(), timeout, strategy)


def test_strategies_are_built_by_name():
    assert not AsyncRetryStrategy.no_restart().can_retry(1)
    fixed = AsyncRetryStrategy.fixed_delay(2, 10, None, None)
    assert [fixed.can_retry(n) for n in (1, 2, 3)] == [True, True, False]
    growing = AsyncRetryStrategy.exponential_backoff(3, 10, 25, 2.0, None, None)
    assert [growing.get_backoff_time_millis(n) for n in (1, 2, 3, 4)] == [10, 20, 25, 25]
