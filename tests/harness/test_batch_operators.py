"""BATCH mode: windows, joins, patterns and async functions against what all input at once gives."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.joining import Pairs
from tests.harness.programs import environment, run, started

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern
from weir.common import Encoder, Time, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.connector.file_sink import FileSink
from weir.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CheckpointedFunction,
    CheckpointListener,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessWindowFunction,
)
from weir.datastream.state import ValueStateDescriptor
from weir.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import WeirError
from weir.graph.runtime_mode import RuntimeMode
from weir.runtime import interval_join, patterns
from weir.runtime.memory import MemoryLimits
from weir.testing.harness import collect

BATCH, STREAMING = RuntimeMode.BATCH, RuntimeMode.STREAMING
RECORD = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
"""Key, time, number."""
records = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(-9, 9)), max_size=25
)
takes = st.sampled_from([None, 1, 6])
helds = st.sampled_from([0, 1 << 20])


def timed(env, given, declared=RECORD):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_collection(given, declared)
    return stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[1])
    )


def keyed(env, given, declared=RECORD):
    return timed(env, given, declared).key_by(lambda record: record[0], Types.STRING())


def in_batch(env, take=None, held=1 << 20):
    return run(env, take=take, mode=BATCH, partitions=1, memory=MemoryLimits(held=held))


# ---- the first program of everybody


def test_words_are_counted_once_each_and_written_as_pyflink_writes_them(tmp_path):
    env = environment()
    words = env.from_collection(["to be or not", "to be"], Types.STRING()).flat_map(str.split)
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    counts = words.map(lambda word: (word, 1), pair).key_by(lambda p: p[0])
    encoder = Encoder.simple_string_encoder()
    sink = FileSink.for_row_format(str(tmp_path), encoder).build()
    counts.reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
    run(env, mode=BATCH, take=1)
    assert lines(tmp_path) == ["(be,2)", "(not,1)", "(or,1)", "(to,2)"]


def lines(folder):
    return sorted(line for p in folder.rglob("part-*") for line in p.read_text().splitlines())


class Hooked(MapFunction, CheckpointedFunction, CheckpointListener):
    """Writes down which hooks are called."""

    calls = ()

    def map(self, value):
        return value

    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        self.calls = (*self.calls, "snapshot")

    def notify_checkpoint_complete(self, checkpoint_id):
        self.calls = (*self.calls, "complete")


def test_a_slot_that_dies_while_the_only_checkpoint_is_committed_costs_and_doubles_nothing(
    tmp_path,
):
    env = environment()
    keyed = env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda r: r[0]).sum(1)
    hooked = keyed.map(Hooked()).uid("hooked")
    hooked.sink_to(FileSink.text(str(tmp_path)))
    job = started(env, mode=BATCH)
    while not job.sources.exhausted:
        job.run_epoch(take=1)
    complete = job.slots.complete

    def dies(checkpoint_id):
        job.slots.complete = complete
        job.kill_slot(1)
        return complete(checkpoint_id)

    job.slots.complete = dies
    with pytest.raises(WeirError, match="committing checkpoint 1 failed"):
        job.finish()
    job.fail_over()
    job.run()
    assert lines(tmp_path) == ["('a', 4)", "('b', 2)"]


def test_hooks_of_checkpoints_are_called_once_at_the_end():
    env = environment()
    keyed = env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda r: r[0]).sum(1)
    collect(keyed.map(Hooked()).uid("hooked"))
    job = started(env, 1, mode=BATCH)
    (operator,) = job.operators("hooked")
    job.run(take=1)
    assert operator.function.calls == ("snapshot", "complete")


# ---- windows


class Contents(ProcessWindowFunction):
    """Yields key, bounds and the numbers of a window."""

    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, [number for _, _, number in elements]


def fold(a, b):
    """Neither associative nor commutative: records must come in order, one by one."""
    return a[0], a[1], (a[2] * 31 + b[2]) % 1_000_003


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(10)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5)),
    "session": EventTimeSessionWindows.with_gap(Time.milliseconds(4)),
}
CALLS = {
    "process": lambda windows: windows.process(Contents()),
    "reduce": lambda windows: windows.reduce(fold),
    "sum": lambda windows: windows.sum(2),
}


def windows_of(kind, times):
    """Return the windows that have one of these times; sessions of neighbours are one."""
    if kind == "session":
        found = []
        for time in sorted(times):
            if found and time <= found[-1][1]:
                found[-1] = (found[-1][0], time + 4)
            else:
                found.append((time, time + 4))
        return found
    slide = 10 if kind == "tumbling" else 5
    starts = {time - time % slide - back for time in times for back in range(0, 10, slide)}
    return [(s, s + 10) for s in starts if any(s <= time < s + 10 for time in times)]


def contents_of(kind, given):
    """Yield key, window and its records: those of a key in the order of time."""
    for key in {record[0] for record in given}:
        mine = sorted((r for r in given if r[0] == key), key=lambda r: r[1])
        for start, end in windows_of(kind, [r[1] for r in mine]):
            yield key, start, end, [r for r in mine if start <= r[1] < end]


def result_of(call, key, start, end, mine):
    if call == "process":
        return key, start, end, [r[2] for r in mine]
    result = mine[0]
    for record in mine[1:]:
        result = fold(result, record) if call == "reduce" else (*result[:2], result[2] + record[2])
    return result


@settings(max_examples=examples(60))
@given(
    records,
    st.sampled_from(sorted(ASSIGNERS)),
    st.sampled_from(sorted(CALLS)),
    takes,
    helds,
    st.sampled_from([RECORD, None]),
)
def test_windows_hold_all_records_of_their_key_in_order_of_time(
    given, kind, call, take, held, declared
):
    env = environment()
    collect(CALLS[call](keyed(env, given, declared).window(ASSIGNERS[kind])))
    found = in_batch(env, take, held).collected()
    expected = [result_of(call, *contents) for contents in contents_of(kind, given)]
    assert sorted(map(tuple, found)) == sorted(expected)


# ---- joins


@pytest.mark.parametrize("pending", [interval_join.PENDING_MAX, 2], ids=["in memory", "in state"])
def test_an_interval_join_gives_every_pair_once(pending, monkeypatch):
    monkeypatch.setattr(interval_join, "PENDING_MAX", pending)

    @settings(max_examples=examples(30))
    @given(records, records, st.tuples(st.integers(-6, 6), st.integers(0, 6)), takes, helds)
    def check(left, right, bounds, take, held):
        lower, upper = bounds[0], bounds[0] + bounds[1]
        env = environment()
        joined = keyed(env, left).interval_join(keyed(env, right)).between(lower, upper)
        collect(joined.process(Pairs()))
        found = in_batch(env, take, held).collected()
        expected = [
            (a[0], a[1], b[1], a[1], b[1], max(a[1], b[1]))
            for a in left
            for b in right
            if a[0] == b[0] and lower <= b[1] - a[1] <= upper
        ]
        assert sorted(found) == sorted(expected)

    check()


# ---- patterns


def two_rises(skip):
    """A number, then two greater ones of their neighbours, within some time."""
    pattern = Pattern.begin("low", skip).where(lambda r: r[2] < 0)
    pattern = pattern.followed_by("middle").where(lambda r: r[2] >= 0)
    return pattern.followed_by_any("high").where(lambda r: r[2] > 4).within(15)


def numbers(match):
    return [record for found in match.values() for record in found]


def flat(found):
    return sorted(str(one) for one in found)


@settings(max_examples=examples(40))
@given(
    records,
    st.sampled_from(
        [AfterMatchSkipStrategy.no_skip(), AfterMatchSkipStrategy.skip_past_last_event()]
    ),
    takes,
    st.sampled_from([2, patterns.HELD_MAX]),
)
def test_patterns_match_what_one_epoch_of_all_records_matches(given, skip, take, held):
    ended = OutputTag("ended")
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "HELD_MAX", held)
        for mode, chosen in ((STREAMING, None), (BATCH, take)):
            env = environment()
            found = CEP.pattern(keyed(env, given), two_rises(skip)).select(
                numbers, None, ended, lambda match, time: (numbers(match), time)
            )
            main, side = collect(found), collect(found.get_side_output(ended))
            job = run(env, take=chosen, mode=mode, partitions=1)
            results.append((flat(job.collected(main)), flat(job.collected(side))))
    assert results[0] == results[1]


@pytest.mark.parametrize("comparator", [None, lambda a, b: a[2] - b[2]], ids=["none", "by number"])
@pytest.mark.parametrize("take", [None, 1])
def test_patterns_in_processing_time_are_found_for_every_key(comparator, take):
    env = environment()
    given = [(key, 0, n) for n in (1, 3, 2) for key in "abcdef"]
    pattern = Pattern.begin("first").next("second").where(lambda r: r[2] > 1).within(1000)
    stream = env.from_collection(given, RECORD).key_by(lambda r: r[0], Types.STRING())
    found = CEP.pattern(stream, pattern, comparator).in_processing_time()
    collect(found.select(lambda match: "".join(f"{r[0]}{r[2]}" for r in numbers(match))))
    pairs = ("13", "32") if comparator is None else ("12", "23")
    expected = sorted(f"{key}{a}{key}{b}" for key in "abcdef" for a, b in pairs)
    assert sorted(run(env, 1, take=take, mode=BATCH).collected()) == expected


def test_what_has_begun_of_a_pattern_in_processing_time_ends_with_its_key():
    env = environment()
    ended = OutputTag("ended")
    pattern = Pattern.begin("first").next("second").where(lambda r: r[2] > 5).within(1000)
    stream = env.from_collection([("a", 0, 1), ("b", 0, 1), ("b", 0, 7)], RECORD)
    patterns_of = CEP.pattern(stream.key_by(lambda r: r[0]), pattern).in_processing_time()
    found = patterns_of.select(numbers, None, ended, lambda match, time: numbers(match)[0])
    main, side = collect(found), collect(found.get_side_output(ended))
    job = run(env, 1, mode=BATCH)
    assert job.collected(main) == [[("b", 0, 1), ("b", 0, 7)]]
    assert sorted(job.collected(side)) == [("a", 0, 1), ("b", 0, 7)]


# ---- async functions


class Doubled(AsyncFunction):
    """Finishes later ones first."""

    async def async_invoke(self, value):
        for _ in range(5 - value[1] % 5):
            await asyncio.sleep(0)
        return [(value[0], value[1] * 2)]


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value()


@pytest.mark.parametrize("wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait])
@pytest.mark.parametrize("take", [None, 1])
def test_async_results_are_input_like_any_other(wait, take):
    """Between two keyed operators: all answers are there before the second one begins."""
    env = environment()
    given = [("ab"[n % 2], n) for n in range(40)]
    counted = env.from_collection(given).key_by(lambda r: (r[0], r[1] % 3)).process(Count())
    asked = wait(counted.map(lambda r: (r[0][0], r[1])), Doubled(), Time.minutes(10), 3)
    collect(asked.key_by(lambda r: r[0]).reduce(lambda x, y: (x[0], x[1] + y[1])))
    assert sorted(run(env, take=take, mode=BATCH).collected()) == [("a", 40), ("b", 40)]


@pytest.mark.parametrize("take", [None, 1])
def test_an_async_function_behind_key_by_gets_its_records_in_order_of_time(take):
    env = environment()
    given = [("a", 7), ("b", 1), ("a", 2), ("b", 9), ("a", 5)]
    stream = timed(env, given, None).key_by(lambda r: r[0])
    collect(AsyncDataStream.ordered_wait(stream, Doubled(), Time.minutes(10)))
    found = run(env, 1, take=take, mode=BATCH).collected()
    assert found == [("a", 4), ("a", 10), ("a", 14), ("b", 2), ("b", 18)]
