"""Whatever a user's function raises fails the attempt by name, and no record is lost.

Python takes some exceptions for something else: `StopIteration` for the end of an iteration,
`SystemExit` for the wish to end a thread or process without a word.
"""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from tests.harness.programs import environment, started

from weir.checkpoint.retention import JobEnd
from weir.common.job_status import JobStatus
from weir.common.serialization import Encoder
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from weir.connector.two_phase import TwoPhaseCommitSinkFunction
from weir.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from weir.datastream.connectors.file_system import BucketAssigner, FileSink
from weir.datastream.functions import ListCheckpointed
from weir.datastream.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
)
from weir.errors import UserFunctionError
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix

VALUES = [1, 2, 3, 4, 5, 6]
BAD = 3
ERRORS = {
    "StopIteration": StopIteration,
    "RuntimeError": RuntimeError,
    "SystemExit": SystemExit,
    "CancelledError": asyncio.CancelledError,
}


class Trap:
    """What is raised at the bad record, until it is disarmed."""

    error: type[BaseException] | None = None


ENDINGS = {**ERRORS, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}


def trip(value=BAD):
    if Trap.error is StopIteration and value == BAD:
        next(iter(()))  # the usual way to it
    if Trap.error is not None and value == BAD:
        raise Trap.error
    return value


class Opened:
    """Makes a function live in a slot."""

    def open(self, runtime_context):
        pass


class Mapped(Opened, MapFunction):
    def map(self, value):
        return trip(value)


class FlatMapped(Opened, FlatMapFunction):
    def flat_map(self, value):
        return [trip(value)]


class Generated(Opened, FlatMapFunction):
    def flat_map(self, value):
        yield trip(value)


class Filtered(Opened, FilterFunction):
    def filter(self, value):
        return bool(trip(value))


class Truth:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return bool(trip(self.value))


class Reduced(ReduceFunction):
    def reduce(self, value1, value2):
        return trip(value2)


class ProcessedByMap(ProcessFunction):
    def process_element(self, value, ctx):
        return map(trip, [value])


class Processed(ProcessFunction):
    def process_element(self, value, ctx):
        return [trip(value)]


class Asked(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0)
        return [trip(value)]


class KeyedProcessed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield trip(value)


class Timed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield trip(timestamp)


class CoMapped(CoMapFunction):
    def map1(self, value):
        return trip(value)

    def map2(self, value):
        return trip(value)


class CoFlatMapped(CoFlatMapFunction):
    def flat_map1(self, value):
        return [trip(value)]

    def flat_map2(self, value):
        return [trip(value)]


class CoProcessed(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield trip(value)

    def process_element2(self, value, ctx):
        yield trip(value)


class KeyedCoProcessed(CoProcessed, KeyedCoProcessFunction):
    pass


RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


class Broadcasted(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield trip(value)

    def process_broadcast_element(self, value, ctx):
        yield trip(value)


class KeyedBroadcasted(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield trip(value)

    def process_broadcast_element(self, value, ctx):
        yield trip(value)


class Reducing(MapFunction):
    def open(self, runtime_context):
        descriptor = ReducingStateDescriptor("r", Reduced(), Types.LONG())
        self.state = runtime_context.get_reducing_state(descriptor)

    def map(self, value):
        self.state.add(value)
        self.state.add(value)
        return value


class Last(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return trip(value)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a


class Aggregating(MapFunction):
    def open(self, runtime_context):
        descriptor = AggregatingStateDescriptor("a", Last(), Types.LONG())
        self.state = runtime_context.get_aggregating_state(descriptor)

    def map(self, value):
        self.state.add(value)
        return self.state.get()


class Stamped(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return trip(value)


STAMPS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())


def numbers(env):
    return env.from_collection(VALUES)


def one(value):
    return 0


def resident(stream):
    """Behind an operator of a slot."""
    return stream.rebalance()


def connected(env):
    return numbers(env).connect(env.from_collection(VALUES))


def keyed_connected(env):
    return connected(env).key_by(one, one)


def with_rules(stream, env):
    return stream.connect(env.from_collection([BAD]).broadcast(RULES))


STREAMS = {
    "map": lambda env: numbers(env).map(trip),
    "map in a slot": lambda env: numbers(env).map(Mapped()),
    "map behind key_by": lambda env: numbers(env).key_by(one).map(Mapped()),
    "flat_map": lambda env: numbers(env).flat_map(lambda v: [trip(v)]),
    "flat_map in a slot": lambda env: numbers(env).flat_map(FlatMapped()),
    "flat_map behind key_by": lambda env: numbers(env).key_by(one).flat_map(FlatMapped()),
    "flat_map by map": lambda env: numbers(env).flat_map(lambda v: map(trip, [v])),
    "flat_map by map behind key_by": lambda env: (
        numbers(env).key_by(one).flat_map(lambda v: map(trip, [v]))
    ),
    "flat_map by filter": lambda env: numbers(env).flat_map(lambda v: filter(trip, [v])),
    "flat_map by a part": lambda env: numbers(env).flat_map(lambda v: islice(map(trip, [v]), 5)),
    "generator": lambda env: numbers(env).flat_map(Generated()),
    "generator behind key_by": lambda env: numbers(env).key_by(one).flat_map(Generated()),
    "filter": lambda env: numbers(env).filter(lambda v: bool(trip(v))),
    "filter by an object": lambda env: numbers(env).filter(Truth),
    "filter in a slot": lambda env: numbers(env).filter(Filtered()),
    "filter behind key_by": lambda env: numbers(env).key_by(one).filter(Filtered()),
    "filter by an object behind key_by": lambda env: numbers(env).key_by(one).filter(Truth),
    "filter with times": lambda env: (
        numbers(env)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, t: v)
        )
        .filter(lambda v: bool(trip(v)))
    ),
    "timestamps": lambda env: numbers(env).assign_timestamps_and_watermarks(STAMPS),
    "timestamps in a slot": lambda env: resident(numbers(env)).assign_timestamps_and_watermarks(
        STAMPS
    ),
    "process": lambda env: numbers(env).process(Processed()),
    "process by map": lambda env: numbers(env).process(ProcessedByMap()),
    "async": lambda env: AsyncDataStream.ordered_wait(numbers(env), Asked(), 0),
    "async behind key_by": lambda env: AsyncDataStream.unordered_wait(
        numbers(env).key_by(one), Asked(), 0
    ),
    "process behind key_by": lambda env: numbers(env).key_by(one).process(KeyedProcessed()),
    "timer": lambda env: numbers(env).key_by(one).process(Timed()),
    "reduce": lambda env: numbers(env).key_by(one).reduce(Reduced()),
    "map_with_state": lambda env: (
        numbers(env).key_by(one).map_with_state(lambda v, s: (trip(v), v), Types.LONG())
    ),
    "flat_map_with_state": lambda env: (
        numbers(env).key_by(one).flat_map_with_state(lambda v, s: ([trip(v)], v), Types.LONG())
    ),
    "filter_with_state": lambda env: (
        numbers(env).key_by(one).filter_with_state(lambda v, s: (trip(v), v), Types.LONG())
    ),
    "reducing state": lambda env: numbers(env).key_by(one).map(Reducing()),
    "aggregating state": lambda env: numbers(env).key_by(one).map(Aggregating()),
    "co_map": lambda env: connected(env).map(CoMapped()),
    "co_map behind key_by": lambda env: keyed_connected(env).map(CoMapped()),
    "co_flat_map": lambda env: connected(env).flat_map(CoFlatMapped()),
    "co_flat_map behind key_by": lambda env: keyed_connected(env).flat_map(CoFlatMapped()),
    "co_process": lambda env: connected(env).process(CoProcessed()),
    "co_process behind key_by": lambda env: keyed_connected(env).process(KeyedCoProcessed()),
    "broadcast": lambda env: with_rules(numbers(env), env).process(Broadcasted()),
    "broadcast behind key_by": lambda env: with_rules(numbers(env).key_by(one), env).process(
        KeyedBroadcasted()
    ),
}
TWICE = [v for v in VALUES for _ in range(2)]
# Two subtasks take a broadcast record each.
RESULTS = {
    **dict.fromkeys(STREAMS, VALUES),
    **{name: TWICE for name in STREAMS if name.startswith("co_")},
    **{name: sorted([*VALUES, BAD, BAD]) for name in STREAMS if name.startswith("broadcast")},
}


def fails(harness, error):
    """Run until a function raises; return what the user is told."""
    Trap.error = ENDINGS[error]
    try:
        with pytest.raises(UserFunctionError) as caught:
            harness.run(take=2)
    finally:
        Trap.error = None
    # Inside a generator Python itself makes a RuntimeError of StopIteration.
    assert error in caught.value.user_traceback
    assert "weir/runtime" not in caught.value.user_traceback
    return caught.value


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STREAMS)
def test_what_a_function_raises_is_an_error_of_its_operator_and_nothing_is_lost(name, error):
    env = environment()
    collect(STREAMS[name](env).name("under test"))
    harness = started(env, wait_for_checkpoints=True)
    raised = fails(harness, error)
    assert raised.operator == "under test"
    assert raised.record == (f"'timer {BAD} of key 0'" if name == "timer" else str(BAD))
    harness.fail_over()
    harness.run()
    assert sorted(harness.collected()) == RESULTS[name]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit"])
@pytest.mark.parametrize("name", ["map", "generator", "filter", "timestamps", "process"])
def test_other_wishes_to_end_are_errors_too(name, error):
    env = environment()
    collect(STREAMS[name](env).name("under test"))
    raised = fails(started(env), error)
    assert (raised.operator, raised.record) == ("under test", str(BAD))


# ---- selectors -----------------------------------------------------------------------------------

ROUTES = {
    "key selector": lambda env: numbers(env).key_by(trip).map(lambda v: v),
    "key selector in a slot": lambda env: resident(numbers(env)).key_by(trip).map(lambda v: v),
    "partitioner": lambda env: (
        numbers(env).partition_custom(lambda k, n: trip(k) % n, lambda v: v).map(Mapped())
    ),
    "key selector of a partitioner": lambda env: (
        numbers(env).partition_custom(lambda k, n: k % n, trip).map(lambda v: v)
    ),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", ROUTES)
def test_what_a_selector_raises_is_an_error_of_the_operator_behind_it(name, parallelism, error):
    env = environment()
    collect(ROUTES[name](env).name("under test"))
    harness = started(env, parallelism, wait_for_checkpoints=True)
    raised = fails(harness, error)
    what = "partitioner" if name == "partitioner" else "key selector"
    assert raised.operator == f"{what} of 'under test'"
    assert raised.record == str(BAD)
    harness.fail_over()
    harness.run()
    assert sorted(harness.collected()) == VALUES


# ---- sinks ---------------------------------------------------------------------------------------


class Invoked(SinkFunction):
    def invoke(self, value, context):
        trip(value)


class Transactional(TwoPhaseCommitSinkFunction):
    """Trips in one of its methods."""

    def __init__(self, method):
        self.method = method

    def _reach(self, method, value=BAD):
        if method == self.method:
            trip(value)

    def begin_transaction(self):
        self._reach("begin_transaction")
        return "t"

    def invoke(self, transaction, value, context):
        self._reach("invoke", value)

    def pre_commit(self, transaction):
        self._reach("pre_commit")

    def commit(self, transaction):
        self._reach("commit")

    def abort(self, transaction):
        self._reach("abort")

    def finish_processing(self, transaction):
        self._reach("finish_processing")

    def abort_unknown_transactions(self, known):
        self._reach("abort_unknown_transactions")


class Buckets(BucketAssigner):
    def get_bucket_id(self, element, context):
        return str(trip(element))


class Tripping(Encoder):
    def encode(self, element):
        return b"%d\n" % trip(element)


class Shown:
    """A record that shows itself, or does not."""

    def __init__(self, value):
        self.value = value

    def __str__(self):
        return str(trip(self.value))

    def __repr__(self):
        return str(self.value)


def sink(stream, name, path):
    match name:
        case "function":
            return stream.add_sink(Invoked())
        case "bucket assigner":
            return stream.sink_to(FileSink.text(path, bucket_assigner=Buckets()))
        case "encoder":
            return stream.sink_to(FileSink.for_row_format(path, Tripping()).build())
        case "text":
            return stream.map(Shown).sink_to(FileSink.text(path))
        case "csv":
            return stream.map(Shown).sink_to(FileSink.csv(path))
        case "print":
            return stream.map(Shown).print()
        case method:
            return stream.sink_to(Transactional(method))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("name", "record"),
    [
        *((name, str(BAD)) for name in ("function", "bucket assigner", "encoder", "text", "csv")),
        ("print", str(BAD)),
        ("invoke", str(BAD)),
        ("begin_transaction", "1"),  # it begins with the first record of a batch
        ("pre_commit", "<prepare>"),
        ("commit", "<commit>"),
        ("finish_processing", "<finish>"),
    ],
)
def test_what_a_sink_raises_is_an_error_of_its_operator(name, record, error, tmp_path):
    env = environment()
    sink(numbers(env), name, str(tmp_path)).name("under test")
    harness = started(env, 1)
    raised = fails(harness, error)
    assert (raised.operator, raised.record) == ("under test", record)
    harness.fail_over()
    harness.run()
    if list(tmp_path.rglob("part-*")):
        lines = [line for p in tmp_path.rglob("part-*") for line in p.read_text().split()]
        assert sorted(lines) == [str(v) for v in VALUES]


# ---- methods without a record --------------------------------------------------------------------


class Hooked(MapFunction, CheckpointedFunction, CheckpointListener):
    """Trips in one of its methods."""

    def __init__(self, method):
        self.method = method

    def _reach(self, method):
        if method == self.method:
            trip()

    def open(self, runtime_context):
        self._reach("open")

    def map(self, value):
        return value

    def initialize_state(self, context):
        self._reach("initialize_state")

    def snapshot_state(self, context):
        self._reach("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id):
        self._reach("notify_checkpoint_complete")


class Listed(MapFunction, ListCheckpointed):
    def map(self, value):
        return value

    def snapshot_state(self, checkpoint_id, timestamp):
        yield trip()

    def restore_state(self, state):
        pass


HOOKS = ["open", "initialize_state", "snapshot_state", "notify_checkpoint_complete"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("hook", [*HOOKS, "list"])
def test_what_a_hook_raises_is_an_error_of_its_operator(hook, error):
    env = environment()
    function = Listed() if hook == "list" else Hooked(hook)
    collect(numbers(env).map(function).name("under test"))
    Trap.error = ERRORS[error]
    try:
        with pytest.raises(UserFunctionError) as caught:
            started(env, 1).run()
    finally:
        Trap.error = None
    name = "snapshot_state" if hook == "list" else hook
    assert (caught.value.operator, caught.value.record) == ("under test", f"<{name}>")
    assert f"operator 'under test' failed in {name}():" in str(caught.value)


# ---- close ---------------------------------------------------------------------------------------


class Closing(MapFunction):
    def map(self, value):
        return value

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def close(self):
        trip()


def closing(**options):
    env = environment()
    collect(numbers(env).map(Closing()).name("under test"))
    return started(env, 1, wait_for_checkpoints=True, **options)


@pytest.mark.parametrize("error", ERRORS)
def test_what_close_raises_at_the_end_fails_the_job_whose_output_is_committed(error, caplog):
    harness = closing()
    raised = fails(harness, error)
    assert (raised.operator, raised.record) == ("under test", "<close>")
    assert harness.supervisor.job.status is JobStatus.FAILED
    assert harness.supervisor.ended.exception(timeout=0) is raised
    (shown,) = harness.supervisor.exceptions
    assert "operator 'under test' failed in close()" in shown.message
    assert "slot 0 was not closed in order: operator 'under test'" in caplog.text
    assert sorted(harness.collected()) == VALUES
    # As after every failure, there is something to start from.
    assert harness.successor(1).start().run().finished


def test_what_close_raises_in_a_failover_is_said_and_the_job_goes_on(caplog):
    harness = closing()
    harness.run_epoch(take=2)
    Trap.error = SystemExit
    try:
        harness.fail_over()
    finally:
        Trap.error = None
    assert "slot 0 was not closed in order: operator 'under test' failed in close()" in caplog.text
    harness.run()
    assert harness.finished
    assert sorted(harness.collected()) == VALUES


def test_what_close_raises_in_a_cancelled_job_is_said_and_it_is_cancelled(caplog):
    harness = closing()
    harness.run_epoch(take=2)
    Trap.error = RuntimeError
    try:
        harness.end(JobEnd.CANCELED)
    finally:
        Trap.error = None
    assert harness.supervisor.job.status is JobStatus.CANCELED
    assert "operator 'under test' failed in close()" in caplog.text


def test_all_operators_are_closed_and_all_that_they_raise_is_said(caplog):
    env = environment()
    collect(numbers(env).map(Closing()).name("first").map(Closing()).name("second"))
    raised = fails(started(env, 1), "RuntimeError")
    assert raised.operator == "first"
    assert "another operator was not closed in order: operator 'second'" in caplog.text
