"""State made of records without a job, and read by functions: Flink's state processor."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment
from tests.harness.state_programs import (
    POINT,
    EveryKind,
    Mean,
    Sum,
    every_kind,
    released,
    restore_point,
    run_job,
)

from weir.common import Duration, Row, Time, WatermarkStrategy
from weir.common.time import Instant
from weir.common.typeinfo import Types
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream.functions import (
    BroadcastProcessFunction,
    ProcessWindowFunction,
)
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import JobExecutionError, UsageError
from weir.keygroup import KeyGroupRange
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.key_readers import ReadKeys, ReadWindows
from weir.runtime.window_contents import ReduceFold
from weir.state_processor import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointKeyFilter,
    SavepointReader,
    SavepointWriter,
    StateBootstrapFunction,
    WindowReaderFunction,
)
from weir.state_processor.functions import DescribedStates
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import collect
from weir.window.namespaces import TIME

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class History(EveryKind, KeyedStateBootstrapFunction):
    """The job's own function, as a bootstrap."""


def written(root, uid, transformation, env, max_parallelism=None, **settings):
    writer = SavepointWriter.new_savepoint(env, max_parallelism)
    for key, value in settings.items():
        writer.with_configuration(key.replace("__", "."), value)
    writer.with_operator(OperatorIdentifier.for_uid(uid), transformation)
    return writer.write(str(root / f"savepoint-{uid}"))


def later(first, last):
    env = environment()
    stream = env.from_sequence(first, last).uid("numbers").key_by(lambda n: n % 7, Types.LONG())
    collect(stream.process(EveryKind()).uid("kinds"))
    return env


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_that_starts_from_history_is_the_job_that_saw_everything(tmp_path, backend):
    env = environment()
    env.set_parallelism(3)
    history = env.from_collection(list(range(1, 21)), Types.LONG())
    keyed = OperatorTransformation.bootstrap_with(history).key_by(lambda n: n % 7, Types.LONG())
    place = written(
        tmp_path, "kinds", keyed.transform(History()), env, state__backend__type=backend
    )
    successor = run_job(later(21, 40), tmp_path, 2, restore_point(tmp_path, place)).run()
    whole = run_job(every_kind(), tmp_path, 2).run()
    seen = [record for record in released(whole) if "timer" in record[1] or _last(record) > 20]
    assert released(successor) == seen


def _last(record):
    return eval(record[-1])["last"]


EVERY = [
    ValueStateDescriptor("total", Types.LONG()),
    ListStateDescriptor("many", Types.DOUBLE()),
    MapStateDescriptor("by_name", Types.STRING(), POINT),
    ReducingStateDescriptor("reduced", Sum(), Types.LONG()),
    AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()])),
]


class Totals(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.many = runtime_context.get_list_state(ListStateDescriptor("many", Types.DOUBLE()))
        expiring = ValueStateDescriptor("expiring", Types.STRING())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(10**6)).build())
        self.expiring = runtime_context.get_state(expiring)

    def read_key(self, key, ctx):
        timers = sorted(ctx.registered_event_time_timers())
        assert ctx.registered_processing_time_timers() == set()
        yield key, self.total.value(), list(self.many.get()), self.expiring.value(), timers


def checkpoint(root, backend):
    harness = run_job(every_kind(max_parallelism=16), root, 2, backend=settings_of(backend))
    harness.run_epoch(take=5, checkpoint=True)
    harness.run_epoch(take=6, checkpoint=True)
    harness.end_slots()
    return read_snapshot(str(root / harness.job_id / "chk-2"))


def read(reads, contents, groups=16):
    return list(reads.read(contents, KeyGroupRange(0, groups - 1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["hashmap", "hashmap-incremental", "rocksdb", "rocksdb-incremental"]
)
def test_a_function_reads_all_states_and_timers_of_each_key(tmp_path, backend):
    contents = checkpoint(tmp_path, backend)
    numbers = {k: [n for n in range(1, 12) if n % 7 == k] for k in range(7)}
    expected = [
        (k, sum(of), [n / 2 for n in of], "".join(str(n % 10) for n in of), [1000 + n for n in of])
        for k, of in numbers.items()
    ]
    assert sorted(read(ReadKeys("kinds", Totals()), contents)) == expected
    chosen = ReadKeys("kinds", Totals(), SavepointKeyFilter.exact({3, 5, 99}))
    assert sorted(r[0] for r in read(chosen, contents)) == [3, 5]
    between = SavepointKeyFilter.range(2, False, 5, True)
    assert sorted(r[0] for r in read(ReadKeys("kinds", Totals(), between), contents)) == [3, 4, 5]
    below = SavepointKeyFilter.range(None, True, 1, False)
    assert [r[0] for r in read(ReadKeys("kinds", Totals(), below), contents)] == [0]
    assert read(ReadKeys("kinds", Totals(), SavepointKeyFilter.empty()), contents) == []
    described = ReadKeys("kinds", DescribedStates(EVERY), SavepointKeyFilter.exact(3, 5))
    assert sorted(read(described, contents)) == [
        (
            k,
            sum(of),
            [n / 2 for n in of],
            {f"n{n % 4}": Row(at=Instant(n, 5), big=10**20 + n, tags=["x"] * (n % 3)) for n in of},
            sum(of),
            sum(of) / len(of),
        )
        for k, of in numbers.items()
        if k in (3, 5)
    ]


def test_keyed_state_is_read_by_descriptors_where_no_function_is_needed(tmp_path):
    env = environment()
    env.set_parallelism(2)
    history = env.from_collection(list(range(1, 21)), Types.LONG())
    keyed = OperatorTransformation.bootstrap_with(history).key_by(lambda n: n % 7, Types.LONG())
    reader = SavepointReader.read(env, written(tmp_path, "kinds", keyed.transform(History()), env))
    for wrong in ([], "total", [EVERY[0], Totals()], None):
        with pytest.raises(UsageError, match="by descriptors of states, one or several: found"):
            reader.read_keyed_state("kinds", wrong)


class Anything(KeyedStateReaderFunction):
    state = "anything"

    def open(self, runtime_context):
        self.found = runtime_context.get_state(ValueStateDescriptor(self.state, None))

    def read_key(self, key, ctx):
        yield self.found.value()


class Late(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.context = runtime_context
        runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def read_key(self, key, ctx):
        self.context.get_state(ValueStateDescriptor("expiring", Types.STRING()))


class Missing(Anything):
    state = "gone"


class Nothing(KeyedStateReaderFunction):
    def read_key(self, key, ctx):
        yield key


def test_what_cannot_be_read_is_said(tmp_path):
    contents = checkpoint(tmp_path, "hashmap")
    cases = [
        (ReadKeys("kinds", Anything()), "state 'anything' holds pickled values.*unpickle=True"),
        (ReadKeys("kinds", Missing()), "no state 'gone': there are '_timer.event'"),
        (ReadKeys("kinds", Late()), "in read_key.*declare all states in open"),
        (ReadKeys("kinds", Nothing()), "Nothing declares no state in open"),
        (ReadKeys("other", Totals()), "has no operator 'other'"),
        (ReadWindows("kinds", Windows(), TIME), "no state '_window_contents'"),
    ]
    for reads, message in cases:
        with pytest.raises(UsageError, match=message):
            read(reads, contents)
    allowed = read_snapshot(contents.snapshot.location, unpickle=True)
    assert {"last": 10, "seen": 3} in read(ReadKeys("kinds", Anything()), allowed)


# ---- windows -------------------------------------------------------------------------------------


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(
    Duration.of_millis(10_000)
).with_timestamp_assigner(Stamp())
EVENTS = [(key, 7 * i) for i in range(30) for key in ("a", "b", "c") if (i + len(key)) % 4]


def add(left, right):
    return (left[0], left[1] + right[1])


def add_numbers(left, right):
    return left + right


class Gather(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, tuple(sorted(v for _, v in elements))


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(50)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(60), Time.milliseconds(20)),
    "sessions": EventTimeSessionWindows.with_gap(Time.milliseconds(11)),
}
ENDINGS = {
    "reduce": lambda windows: windows.reduce(add, Gather()),
    "process": lambda windows: windows.process(Gather()),
    "evict": lambda windows: windows.evictor(CountEvictor.of(3)).process(Gather()),
}


def job_of_windows(events, assigner, ending):
    env = environment()
    stream = env.from_collection(events, PAIR).uid("events")
    keyed = stream.assign_timestamps_and_watermarks(STRATEGY).key_by(lambda e: e[0], Types.STRING())
    collect(ENDINGS[ending](keyed.window(ASSIGNERS[assigner])).uid("windows"))
    return env


def bootstrapped_windows(root, events, assigner, ending):
    env = environment()
    given = OperatorTransformation.bootstrap_with(env.from_collection(events, PAIR))
    keyed = given.assign_timestamps_and_watermarks(STRATEGY).key_by(lambda e: e[0], Types.STRING())
    windows = keyed.window(ASSIGNERS[assigner])
    return written(root, "windows", ENDINGS[ending](windows), env, max_parallelism=16)


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_windows_of_history_go_on_in_a_job(tmp_path, assigner, ending):
    half = len(EVENTS) // 2
    place = bootstrapped_windows(tmp_path, EVENTS[:half], assigner, ending)
    job = job_of_windows(EVENTS[half:], assigner, ending)
    successor = run_job(job, tmp_path, 2, restore_point(tmp_path, place)).run()
    whole = run_job(job_of_windows(EVENTS, assigner, ending), tmp_path, 2).run()
    assert released(successor) == released(whole)
    assert len(released(whole)) > 10


class Windows(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        window = ctx.window()
        assert ctx.registered_event_time_timers() == {window.end - 1}
        yield key, window.start, window.end, sorted(v for _, v in elements)


class Adding:
    def reduce(self, left, right):
        return add(left, right)


@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_a_function_reads_windows_with_their_bounds_and_timers(tmp_path, assigner):
    place = bootstrapped_windows(tmp_path, EVENTS, assigner, "process")
    found = read(ReadWindows("windows", Windows(), TIME), read_snapshot(place))
    whole = run_job(job_of_windows(EVENTS, assigner, "process"), tmp_path, 2).run()
    assert sorted((k, s, e, tuple(v)) for k, s, e, v in found) == released(whole)


def test_a_function_reads_what_windows_fold(tmp_path):
    expected = {}
    for key, at in EVENTS:
        expected.setdefault((key, at // 50 * 50), []).append(at)
    place = bootstrapped_windows(tmp_path, EVENTS, "tumbling", "reduce")
    reads = ReadWindows("windows", Windows(), TIME, ReduceFold(Adding()))
    found = {(k, s): v for k, s, _, v in read(reads, read_snapshot(place))}
    assert found == {at: [sum(values)] for at, values in expected.items()}
    kept = bootstrapped_windows(tmp_path / "evicting", EVENTS, "tumbling", "evict")
    reads = ReadWindows("windows", Windows(), TIME, evicting=True)
    found = {(k, s): v for k, s, _, v in read(reads, read_snapshot(kept))}
    assert found == {at: sorted(values) for at, values in expected.items()}


LAST = ValueStateDescriptor("last", Types.LONG())
FIRED = ValueStateDescriptor("fired", Types.LONG())


class Remembering(ProcessWindowFunction):
    """Counts its firings of each window, and of each key."""

    def process(self, key, context, elements):
        total = sum(value for _, value in elements)
        context.window_state().get_state(LAST).update(total)
        fired = context.global_state().get_state(FIRED)
        fired.update((fired.value() or 0) + 1)
        yield key, total


class States(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        last = ctx.window_state().get_state(LAST).value()
        fired = ctx.global_state().get_state(FIRED).value()
        counted = ctx.trigger_state(COUNTED).get()
        yield key, ctx.window().start, len(elements), last, fired, counted


COUNTED = ReducingStateDescriptor("count", add_numbers, Types.LONG())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_function_reads_the_states_of_windows_triggers_and_keys(tmp_path, backend):
    env = environment()
    events = [(key, at) for at in (1, 2, 3, 60, 61) for key in ("a", "b")]
    stream = env.from_collection(events, PAIR).uid("events")
    keyed = stream.assign_timestamps_and_watermarks(STRATEGY).key_by(lambda e: e[0], Types.STRING())
    windows = keyed.window(ASSIGNERS["tumbling"]).trigger(CountTrigger(2))
    collect(windows.process(Remembering()).uid("windows").set_max_parallelism(8))
    job = run_job(env, tmp_path, 2, backend=settings_of(backend))
    job.run_epoch(take=10, checkpoint=True)
    job.end_slots()
    contents = read_snapshot(str(tmp_path / job.job_id / "chk-1"))
    found = sorted(read(ReadWindows("windows", States(), TIME), contents, groups=8))
    # Of each key the first window fired once with two of its three records, the second one once.
    assert found == [
        (key, start, count, last, 2, counted)
        for key in ("a", "b")
        for start, count, last, counted in ((0, 3, 3, 1), (50, 2, 121, None))
    ]


class Careless(WindowReaderFunction):
    def open(self, runtime_context):
        runtime_context.get_state(FIRED)

    def read_window(self, key, ctx, elements):
        return []


class Lost(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        yield ctx.global_state().get_state(ValueStateDescriptor("lost", Types.LONG())).value()


def test_states_that_a_window_reader_cannot_have_are_named(tmp_path):
    place = bootstrapped_windows(tmp_path, EVENTS, "tumbling", "process")
    with pytest.raises(UsageError, match=r"'fired' is asked for in open\(\): ask for it in read_"):
        read(ReadWindows("windows", Careless(), TIME), read_snapshot(place))
    with pytest.raises(UsageError, match=r"in read_window\(\): .* has no state 'lost'"):
        read(ReadWindows("windows", Lost(), TIME), read_snapshot(place))


# ---- operator state ------------------------------------------------------------------------------


class Buffer(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffer", Types.LONG()))

    def process_element(self, value, ctx):
        self.state.add(value)

    def snapshot_state(self, context):
        pass


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Rules(BroadcastStateBootstrapFunction):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class Apply(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value, sorted(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


def test_operator_state_and_broadcast_state_of_records(tmp_path):
    env = environment()
    env.set_parallelism(2)
    numbers = env.from_collection([1, 2, 3, 4, 5], Types.LONG())
    rules = env.from_collection([("x", 1), ("y", 2)], PAIR)
    writer = SavepointWriter.new_savepoint(env)
    buffer = OperatorTransformation.bootstrap_with(numbers).transform(Buffer())
    writer.with_operator("buffered", buffer)
    writer.with_operator("ruled", OperatorTransformation.bootstrap_with(rules).transform(Rules()))
    place = writer.write(str(tmp_path / "savepoint-both"))
    contents = read_snapshot(place)
    assert sorted(contents.operator_state("buffered", "buffer").elements()) == [1, 2, 3, 4, 5]
    job = environment()
    plain = job.from_collection([7], Types.LONG()).uid("numbers")
    more = job.from_collection([("z", 3)], PAIR).uid("rules").broadcast(RULES)
    collect(plain.connect(more).process(Apply()).uid("ruled"))
    other = job.from_collection([1], Types.LONG()).uid("other").broadcast()
    collect(other.process(Shown()).uid("buffered"))
    harness = run_job(job, tmp_path, 2, restore_point(tmp_path, place)).run()
    found = [record for records in harness.results.released.values() for record in records]
    assert (7, [("x", 1), ("y", 2), ("z", 3)]) in found
    assert sorted(n for r in found if r[0] == "held" for n in r[1]) == [1, 2, 3, 4, 5]


class Shown(Buffer):
    def process_element(self, value, ctx):
        yield "held", list(self.state.get())


def test_operators_are_removed_renamed_and_replaced(tmp_path):
    env = environment()
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    first = SavepointWriter.new_savepoint(env, 8)
    for uid in ("one", "two", "three"):
        buffer = OperatorTransformation.bootstrap_with(numbers).transform(Buffer())
        first.with_operator(uid, buffer)
    place = first.write(str(tmp_path / "savepoint-first"))
    more = env.from_collection([9], Types.LONG())
    second = SavepointWriter.from_existing_savepoint(env, place)
    second.remove_operator("one").change_operator_identifier("two", "deux")
    second.remove_operator(OperatorIdentifier.for_uid("three"))
    second.with_operator("three", OperatorTransformation.bootstrap_with(more).transform(Buffer()))
    found = buffered(second.write(str(tmp_path / "savepoint-second")))
    assert found == {"deux": [1, 2, 3], "three": [9]}
    again = SavepointWriter.from_existing_savepoint(env, place)
    buffer = OperatorTransformation.bootstrap_with(more).transform(Buffer())
    with pytest.raises(UsageError, match="'three' is there already: remove it first"):
        again.with_operator("three", buffer)
    with pytest.raises(UsageError, match="there is no operator"):
        SavepointWriter.from_existing_savepoint(env, place).remove_operator("four")
    with pytest.raises(UsageError, match=r"OperatorIdentifier.for_uid"):
        SavepointWriter.from_existing_savepoint(env, place).remove_operator(4)


def buffered(place):
    """What the operators of a savepoint have in their buffers, by uid."""
    contents = read_snapshot(place)
    return {
        op.uid: sorted(contents.operator_state(op.uid, "buffer").elements())
        for op in contents.snapshot.metadata.operators
    }


def test_operators_that_were_added_are_removed_and_renamed_as_those_that_were_there(tmp_path):
    env = environment()

    def buffer(number):
        numbers = env.from_collection([number], Types.LONG())
        return OperatorTransformation.bootstrap_with(numbers).transform(Buffer())

    writer = SavepointWriter.new_savepoint(env, 8)
    for number, uid in enumerate(("one", "two", "three")):
        writer.with_operator(uid, buffer(number))
    writer.remove_operator("one").change_operator_identifier("two", "deux")
    writer.with_operator("one", buffer(7))
    for uid in ("one", "deux", "three"):
        with pytest.raises(UsageError, match="is there already"):
            writer.with_operator(uid, buffer(8))
        with pytest.raises(UsageError, match=f"another operator has the uid '{uid}'"):
            writer.change_operator_identifier("three", uid)
    place = writer.write(str(tmp_path / "savepoint-first"))
    assert buffered(place) == {"one": [7], "deux": [1], "three": [2]}
    writer.change_operator_identifier("three", "trois").remove_operator("one")
    again = writer.write(str(tmp_path / "savepoint-second"))
    assert buffered(again) == {"deux": [1], "trois": [2]}


def test_states_of_an_operator_that_a_bootstrap_makes_cannot_be_given_as_rows(tmp_path):
    env = environment()
    numbers = env.from_collection([1, 2], Types.LONG())
    edit = SavepointEdit.new()
    writer = SavepointWriter(env, edit, 8)
    writer.with_operator("one", OperatorTransformation.bootstrap_with(numbers).transform(Buffer()))
    writer.write(str(tmp_path / "savepoint-first"))
    with pytest.raises(UsageError, match="a bootstrap makes the state of operator 'one'"):
        edit.with_max_parallelism("one", 16)
    with pytest.raises(UsageError, match="a bootstrap makes the state of operator 'one'"):
        edit.with_operator_state("one", "buffer", "SPLIT", (Types.LONG(), None), [3])


class Raises(KeyedStateBootstrapFunction):
    def process_element(self, value, ctx):
        raise ValueError(value)


def test_bootstraps_that_cannot_be_leave_nothing(tmp_path):
    env = environment()
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    keyed = OperatorTransformation.bootstrap_with(numbers).key_by(lambda n: n, Types.LONG())
    with pytest.raises(JobExecutionError, match="ValueError: 1"):
        written(tmp_path, "raises", keyed.transform(Raises()), env)
    assert not (tmp_path / "savepoint-raises").exists()
    sequence = OperatorTransformation.bootstrap_with(env.from_sequence(1, 3))
    with pytest.raises(UsageError, match="cannot be bootstrapped from: use from_dataframe"):
        written(tmp_path, "sequence", sequence.transform(Buffer()), env)
    stateful = numbers.key_by(lambda n: n, Types.LONG()).process(History())
    with pytest.raises(UsageError, match="'KEYED PROCESS' needs a slot"):
        written(
            tmp_path,
            "two",
            OperatorTransformation.bootstrap_with(stateful).transform(Buffer()),
            env,
        )
    with pytest.raises(TypeError, match="keyed state needs key_by"):
        OperatorTransformation.bootstrap_with(numbers).transform(Raises())
    with pytest.raises(TypeError, match="a KeyedStateBootstrapFunction"):
        keyed.transform(Buffer())
    with pytest.raises(UsageError, match="No operators defined"):
        env.build_graph()
