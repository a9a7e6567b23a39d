"""What a user sees when something is wrong: the operator, the record, the own lines of code."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.harness.programs import environment, run, started

from weir.backend.factory import BackendSettings
from weir.checkpoint.retention import JobEnd
from weir.common.time import Time
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, MapFunction, ProcessFunction
from weir.datastream.state import StateTtlConfig, ValueStateDescriptor
from weir.errors import JobExecutionError, UsageError, UserFunctionError, WeirError
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


class Text(MapFunction):
    """Keeps what may not be kept: half of a surrogate pair."""

    def __init__(self, ttl):
        self.ttl = ttl

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("text", Types.STRING())
        if self.ttl:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.state = runtime_context.get_state(descriptor)

    def map(self, value):
        self.state.update(value)
        return value


@pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "with a time to live"])
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_text_that_no_checkpoint_can_write_is_refused_where_it_is_stored(kind, ttl):
    env = environment()
    texts = env.from_collection(["é", "a\ud83d"])
    collect(texts.key_by(lambda v: 0).map(Text(ttl)).name("keep"))
    with pytest.raises(UsageError) as caught:
        run(env, backend=BackendSettings(kind))
    message = str(caught.value)
    assert r"operator 'keep' at record 'a\ud83d': state 'text' of type Types.STRING()" in message
    assert "without halves of surrogate pairs" in message


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


class Locks(MapFunction):
    def open(self, runtime_context):
        pass

    def map(self, value):
        return (value, threading.Lock()) if value == 2 else value


def locks(value):
    return (value, threading.Lock()) if value == 2 else value


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    "program",
    [
        lambda numbers: numbers.map(locks).name("bad").key_by(lambda v: 0).map(str),
        lambda numbers: numbers.map(Locks()).name("bad").rebalance().map(str),
        lambda numbers: numbers.map(Locks()).name("bad").key_by(lambda v: 0).map(str),
    ],
    ids=["source side", "rebalance", "key_by"],
)
def test_a_record_that_cannot_travel_is_refused_with_the_operator_that_gave_it(
    program, parallelism
):
    env = environment()
    collect(program(env.from_collection([1, 2, 3])))
    with pytest.raises(
        UsageError, match=r"operator 'bad' gave the record \(2, <unlocked"
    ) as caught:
        run(env, parallelism)
    assert "cannot pickle '_thread.lock' object" in str(caught.value)
    assert "belong into open()" in str(caught.value)


def test_a_collected_record_that_cannot_travel_is_refused_with_the_sinks_name():
    env = environment()
    collect(env.from_collection([1, 2, 3]).map(Locks()))
    with pytest.raises(UsageError, match=r"'Sink: Collect' gave the record \(2, <unlocked"):
        run(env)


def test_an_element_of_a_collection_that_cannot_travel_is_refused_by_name():
    env = environment()
    collect(env.from_collection([1, (2, threading.Lock())]).map(str))
    with pytest.raises(UsageError, match=r"record \(2, <unlocked.*cannot be pickled"):
        run(env)


class Halves(MapFunction):
    """Raises text that no file and no message takes."""

    def open(self, runtime_context):
        pass

    def map(self, value):
        msg = "half of a pair: \ud83d"
        raise ValueError(msg)


class Named:
    """A record whose text nobody takes, or that has none."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        if self.text is None:
            raise LookupError
        return self.text


def halves(value):
    msg = "half of a pair: \ud83d"
    raise ValueError(msg)


@pytest.mark.parametrize("function", [Halves(), halves], ids=["slot", "source side"])
def test_an_exception_with_half_of_a_surrogate_pair_is_reported(function):
    env = environment()
    collect(env.from_collection([1]).map(function).name("halves"))
    with pytest.raises(UserFunctionError) as caught:
        run(env)
    assert r"ValueError: half of a pair: \ud83d" in caught.value.user_traceback


@pytest.mark.parametrize(
    ("text", "shown"), [("\ud83d", r"\ud83d"), (None, "<Named: its repr() raised LookupError>")]
)
def test_a_record_without_a_text_does_not_hide_the_exception(text, shown):
    env = environment()
    named = env.from_collection([1]).map(lambda v: Named(text))
    collect(named.map(Halves()))
    with pytest.raises(UserFunctionError, match="half of a pair") as caught:
        run(env)
    assert caught.value.record == shown


def test_a_job_that_cannot_be_announced_at_its_end_has_ended_all_the_same(monkeypatch):
    env = environment()
    handle = collect(env.from_collection([1, 2]))
    harness = started(env)

    def refuse(job):
        if job.ended_ms is not None:
            msg = "no place for announcements"
            raise OSError(msg)

    surroundings = replace(harness.supervisor._surroundings, changed=refuse)
    monkeypatch.setattr(harness.supervisor, "_surroundings", surroundings)
    harness.run()
    assert harness.supervisor.ended.result(timeout=0) is JobEnd.FINISHED
    assert harness.collected(handle) == [1, 2]


def test_what_ends_a_job_is_a_job_execution_error_besides_what_it_is():
    env = environment()
    collect(env.from_collection([[1]]).key_by(lambda v: v).map(lambda v: v))
    harness = started(env)
    with pytest.raises(UsageError):
        harness.run()
    harness.supervisor.turn()
    error = harness.supervisor.ended.exception(timeout=0)
    assert isinstance(error, UsageError)
    assert isinstance(error, JobExecutionError)
    assert type(error).__name__ == "UsageError"


class NotOpened(MapFunction):
    def open(self, runtime_context):
        msg = "no connection"
        raise ValueError(msg)

    def map(self, value):
        return value


def test_what_open_raises_is_said_to_be_in_open():
    env = environment()
    collect(env.from_collection([1]).map(NotOpened()).name("lookup"))
    with pytest.raises(JobExecutionError, match=r"operator 'lookup' failed in open\(\):") as caught:
        run(env)
    assert "no connection" in str(caught.value)


def test_a_program_whose_last_function_has_no_sink_runs(tmp_path):
    path = tmp_path / "seen"

    def note(value):
        with path.open("a") as file:
            file.write(f"{value}\n")
        return value

    env = environment()
    env.from_collection([1, 2, 3]).map(lambda v: v * 2).map(note)
    assert run(env).finished
    assert sorted(path.read_text().split()) == ["2", "4", "6"]


class Killed:
    """The process of slot 1 has ended."""

    def has_ended(self, slot, patience_s=0.0):
        return slot.subtask == 1

    def explain(self, slot, attempt, patience_s):
        return "; its process 7 was killed by SIGKILL"


def test_a_lost_slot_is_the_cause_whoever_notices_first():
    env = environment()
    collect(env.from_sequence(1, 3).key_by(lambda n: n).map(lambda n: n))
    harness = started(env)
    harness.slots.registry._processes = Killed()
    harness.supervisor.fail(harness.attempt, RuntimeError("Stream removed"))
    assert str(harness.failure) == (
        "slot 1 was lost: it ended while it took epochs; its process 7 was killed by SIGKILL"
    )
    (shown,) = harness.supervisor.exceptions
    assert "slot 1 was lost" in shown.message
