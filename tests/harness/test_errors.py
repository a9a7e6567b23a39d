"""What a user sees when something is wrong: the operator, the record, the own lines of code."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, MapFunction, ProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.testing.harness import collect


class Divide(MapFunction):
    def open(self, runtime_context):
        pass

    def map(self, value):
        return 10 // value


def divisor(value):
    return 10 // value


@pytest.mark.parametrize("function", [Divide(), divisor], ids=["slot", "source side"])
def test_an_exception_carries_operator_record_and_the_users_traceback(function):
    env = environment()
    collect(env.from_collection([5, 0, 2]).map(function).name("divide"))
    with pytest.raises(UserFunctionError) as caught:
        run(env)
    assert caught.value.operator == "divide"
    assert caught.value.record == "0"
    assert "ZeroDivisionError" in caught.value.user_traceback
    assert "return 10 // value" in caught.value.user_traceback
    assert "weir/runtime" not in caught.value.user_traceback


class Failing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(7)
        return []

    def on_timer(self, timestamp, ctx):
        return [1 // 0]


def test_an_exception_in_a_timer_names_the_timer_and_its_key():
    env = environment()
    collect(env.from_collection(["k"]).key_by(lambda k: k).process(Failing()))
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        run(env)
    assert "timer 7 of key 'k'" in caught.value.record


def test_a_slot_that_failed_takes_nothing_more():
    env = environment()
    collect(env.from_collection([1, 0]).map(Divide()))
    harness = started(env, 1)
    with pytest.raises(UserFunctionError):
        harness.run_epoch()
    with pytest.raises(WeirError):
        harness.run_epoch([5])


def test_an_exception_of_a_key_selector_names_it():
    env = environment()
    collect(env.from_collection([(1,), ()]).key_by(lambda r: r[0]).sum(0))
    with pytest.raises(UserFunctionError, match="key selector") as caught:
        run(env)
    assert caught.value.record == "()"


@pytest.mark.parametrize(
    ("key", "says"), [(None, "null|None"), ([1], "unhashable|list"), ({}, "unhashable|dict")]
)
def test_a_key_that_cannot_be_one_is_refused(key, says):
    env = environment()
    collect(env.from_collection([1]).key_by(lambda r: key).sum(0))
    with pytest.raises(UsageError, match=says):
        run(env)


class Stateful(MapFunction):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value):
        return value


def test_keyed_state_on_a_stream_without_keys_is_refused():
    env = environment()
    collect(env.from_collection([1]).map(Stateful()))
    with pytest.raises(UsageError, match="can only be used on a 'keyed stream'"):
        started(env)


class TooEarly(MapFunction):
    def open(self, runtime_context):
        state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        state.value()

    def map(self, value):
        return value


def test_keyed_state_in_open_has_no_key():
    env = environment()
    collect(env.from_collection([1]).key_by(lambda v: v).map(TooEarly()))
    with pytest.raises(UsageError, match="key"):
        started(env)


class WrongType(MapFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value):
        self.state.update("seven")
        return value


def test_a_value_that_its_declared_type_cannot_hold_is_refused_by_a_checkpoint_or_sooner():
    env = environment()
    collect(env.from_collection([1]).key_by(lambda v: v).map(WrongType()))
    harness = started(env)
    with pytest.raises(WeirError):
        harness.run_epoch(checkpoint=True)


def test_a_declared_output_type_is_kept():
    env = environment()
    mapped = env.from_collection([1]).map(lambda n: "x", output_type=Types.LONG())
    collect(mapped.key_by(lambda v: v).sum(0))
    with pytest.raises(UsageError, match="x"):
        run(env)


class TimerWithoutKey(ProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(1)
        yield value


def test_timers_need_keys():
    env = environment()
    collect(env.from_collection([1]).process(TimerWithoutKey()))
    with pytest.raises(WeirError, match="key"):
        run(env)


def test_a_partitioner_must_choose_a_subtask_that_exists():
    env = environment()
    collect(env.from_collection([1]).partition_custom(lambda k, n: 7, lambda v: v).map(Divide()))
    with pytest.raises(UsageError, match="expected a subtask from 0 to 1"):
        run(env)
