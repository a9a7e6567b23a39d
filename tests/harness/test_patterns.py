"""Patterns on streams: event time, processing time, keys, late events, outputs."""

from __future__ import annotations

import pytest
from tests.harness.programs import environment, run, started

from weir.cep import (
    CEP,
    AfterMatchSkipStrategy,
    EventComparator,
    Pattern,
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    TimedOutPartialMatchHandler,
    WithinType,
)
from weir.common import Duration, Row, Types
from weir.common.watermark_strategy import WatermarkStrategy
from weir.datastream import OutputTag, ProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.errors import IncompatibleStateError, UsageError, UserFunctionError
from weir.keygroup import key_group
from weir.testing.clock import ManualClock
from weir.testing.harness import HarnessOptions, JobHarness, collect

EVENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.LONG()])
"""Key, number, kind, price, timestamp."""


def event(number, kind, time, price=0.0, key="k"):
    return (key, number, kind, price, time)


def kind(name):
    return lambda e: e[2] == name


def start_middle_end():
    pattern = Pattern.begin("start").where(kind("s"))
    pattern = pattern.followed_by_any("middle").where(kind("m"))
    return pattern.followed_by_any("end").where(kind("e"))


def numbers(match):
    return ",".join(str(e[1]) for events in match.values() for e in events)


def prices(match):
    return ",".join(str(e[3]) for events in match.values() for e in events)


def timed(env, records, disorder=0, type_info=EVENT):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(disorder))
    strategy = strategy.with_timestamp_assigner(lambda e, _: e[4])
    return env.from_collection(records, type_info).assign_timestamps_and_watermarks(strategy)


def keyed(env, records, disorder=0, type_info=EVENT):
    return timed(env, records, disorder, type_info).key_by(lambda e: e[0], Types.STRING())


DISORDERED = [
    event(1, "s", 5),
    event(2, "m", 1),
    event(3, "e", 3),
    event(4, "e", 10),
    event(5, "m", 7),
    event(5, "m", 100),
]


@pytest.mark.parametrize("take", [1, 2, None])
def test_58_events_are_taken_in_the_order_of_their_timestamps(take):
    env = environment()
    collect(CEP.pattern(keyed(env, DISORDERED, 5), start_middle_end()).select(numbers))
    assert run(env, take=take).collected() == ["1,5,4"]


@pytest.mark.parametrize("type_info", [EVENT, None])
def test_58_without_keys_there_is_one_subtask(type_info):
    env = environment()
    stream = timed(env, DISORDERED, 5, type_info)
    collect(CEP.pattern(stream, start_middle_end()).select(numbers))
    harness = run(env, 3, take=1)
    assert harness.collected() == ["1,5,4"]
    assert next(op for op in harness.plan.operators if op.kind == "cep").parallelism == 1


TIMEOUTS = [
    event(0, "s", 1, 1.0),
    event(1, "m", 5, 2.0),
    event(2, "s", 4, 2.0),
    event(3, "e", 6, 2.0),
]
ENDED = OutputTag("ended", Types.STRING())


@pytest.mark.parametrize(
    ("kind_of_window", "matches", "ended"),
    [
        (WithinType.FIRST_AND_LAST, ["2.0,2.0,2.0"], ["1.0", "2.0", "2.0,2.0"]),
        (
            WithinType.PREVIOUS_AND_CURRENT,
            ["1.0,2.0,2.0", "2.0,2.0,2.0"],
            ["1.0,2.0", "2.0,2.0"],
        ),
    ],
)
def test_59_partial_matches_that_time_out_go_to_a_side_output(kind_of_window, matches, ended):
    env = environment()
    pattern = start_middle_end().within(Duration.of_millis(3), kind_of_window)
    found = CEP.pattern(keyed(env, TIMEOUTS, 5), pattern).select(
        prices,
        output_type=Types.STRING(),
        timed_out_partial_matches_tag=ENDED,
        pattern_timeout_function=lambda match, time: prices(match),
    )
    main, side = collect(found), collect(found.get_side_output(ENDED))
    harness = run(env, take=1)
    assert sorted(harness.collected(main)) == matches
    assert sorted(harness.collected(side)) == ended


class ByPrice(EventComparator):
    def compare(self, value1, value2):
        return (value1[3] > value2[3]) - (value1[3] < value2[3])


TIES = [
    event(1, "s", 5),
    event(2, "m", 1),
    event(3, "e", 3),
    event(4, "e", 10),
    event(5, "m", 7, 6.0),
    event(6, "m", 7, 5.0),
    event(7, "m", 100),
]


@pytest.mark.parametrize("comparator", [ByPrice(), ByPrice().compare])
@pytest.mark.parametrize("take", [1, None])
def test_61_a_comparator_orders_events_of_one_timestamp(comparator, take):
    env = environment()
    stream = keyed(env, TIES, 5)
    collect(CEP.pattern(stream, start_middle_end(), comparator).select(numbers))
    assert run(env, take=take).collected() == ["1,6,4", "1,5,4"]


def test_61_without_a_comparator_they_come_in_the_order_of_arrival():
    env = environment()
    collect(CEP.pattern(keyed(env, TIES, 5), start_middle_end()).select(numbers))
    assert run(env, 1, take=1).collected() == ["1,5,4", "1,6,4"]


def test_every_key_has_matches_of_its_own():
    env = environment()
    records = []
    for time, name in enumerate("sme"):
        records += [event(time, name, time * 10 + i, key=f"k{i}") for i in range(9)]
    found = CEP.pattern(keyed(env, records), start_middle_end())
    collect(found.select(lambda match: (match["start"][0][0], numbers(match))))
    harness = run(env, 3, take=5)
    assert sorted(harness.collected()) == [(f"k{i}", "0,1,2") for i in range(9)]


class Rising(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match, ctx):
        ctx.output(OutputTag("by output"), ("match", ctx.timestamp()))
        yield numbers(match), ctx.timestamp(), ctx.current_processing_time()
        yield OutputTag("by yield"), numbers(match)

    def process_timed_out_match(self, match, ctx):
        ctx.output(OutputTag("by output"), (numbers(match), ctx.timestamp()))
        yield OutputTag("by yield"), numbers(match)


def test_a_process_function_has_times_and_side_outputs():
    env = environment()
    pattern = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(10)
    records = [event(1, "s", 1), event(2, "e", 4), event(3, "s", 20), event(4, "x", 90)]
    found = CEP.pattern(keyed(env, records), pattern).process(Rising())
    main = collect(found)
    by_output = collect(found.get_side_output(OutputTag("by output")))
    by_yield = collect(found.get_side_output(OutputTag("by yield")))
    harness = started(env)
    harness.clock.advance(7)
    harness.run()
    assert harness.collected(main) == [("1,2", 4, 7)]
    assert harness.collected(by_output) == [("match", 4), ("3", 30)]
    assert harness.collected(by_yield) == ["1,2", "3"]


class Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def test_matches_carry_the_time_of_their_last_event_or_of_their_end():
    env = environment()
    records = [event(1, "s", 1), event(2, "x", 3), event(3, "s", 50)]
    begun = Pattern.begin("s").where(kind("s"))
    alone = begun.not_followed_by("e").where(kind("e")).within(10)
    stream = keyed(env, records)
    by_time = collect(CEP.pattern(stream, alone).select(numbers).process(Stamps()))
    pair = Pattern.begin("s").where(kind("s")).next("x")
    by_event = collect(CEP.pattern(stream, pair).select(numbers).process(Stamps()))
    harness = run(env)
    assert harness.collected(by_time) == [("1", 11), ("3", 60)]
    assert harness.collected(by_event) == [("1,2", 3)]


def test_a_function_that_returns_nothing_emits_nothing():
    class Silent(PatternProcessFunction):
        def process_match(self, match, ctx):
            return None

    env = environment()
    collect(CEP.pattern(keyed(env, [event(1, "s", 1)]), Pattern.begin("a")).process(Silent()))
    assert run(env).collected() == []


class Selecting(PatternSelectFunction):
    opened = 0

    def open(self, runtime_context):
        self.where = runtime_context.get_task_name()

    def select(self, pattern):
        return self.where, numbers(pattern)


class Timing(PatternTimeoutFunction):
    def open(self, runtime_context):
        self.where = runtime_context.get_task_name()

    def timeout(self, pattern, timeout_timestamp):
        return self.where, numbers(pattern), timeout_timestamp


class FlatSelecting(PatternFlatSelectFunction):
    def flat_select(self, pattern):
        for events in pattern.values():
            yield from (e[1] for e in events)


class FlatTiming(PatternFlatTimeoutFunction):
    def timeout(self, pattern, timeout_timestamp):
        return [timeout_timestamp] * 2


def test_function_objects_are_opened_and_called():
    env = environment()
    pattern = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(10)
    records = [event(1, "s", 1), event(2, "e", 4), event(3, "s", 20)]
    stream = CEP.pattern(keyed(env, records), pattern)
    tag = OutputTag("t")
    one = stream.select(Selecting(), None, tag, Timing()).name("one")
    more = stream.flat_select(FlatSelecting(), None, tag, FlatTiming()).name("more")
    handles = [collect(s) for s in (one, one.get_side_output(tag))]
    handles += [collect(s) for s in (more, more.get_side_output(tag))]
    harness = run(env)
    assert [harness.collected(h) for h in handles] == [
        [("one", "1,2")],
        [("one", "3", 30)],
        [1, 2],
        [30, 30],
    ]


LATE = OutputTag("late", EVENT)


def late_program(with_output, *, read=True):
    env = environment()
    pattern = CEP.pattern(keyed(env, []), Pattern.begin("any")).in_event_time()
    if with_output:
        pattern = pattern.side_output_late_data(LATE)
    found = pattern.select(numbers).name("pattern")
    handles = collect(found), collect(found.get_side_output(LATE)) if read else None
    harness = started(env, 1)
    for number, time in ((1, 10), (2, 9), (3, 10), (4, 11)):
        harness.run_epoch([event(number, "s", time)])
    harness.finish()
    return harness, handles


def test_late_events_are_dropped_and_counted():
    harness, (main, late) = late_program(False)
    assert harness.collected(main) == ["1", "3", "4"]
    assert harness.collected(late) == []
    assert harness.metrics("pattern")["numLateRecordsDropped"] == [1]


def test_late_events_go_to_their_side_output():
    harness, (main, late) = late_program(True)
    assert harness.collected(main) == ["1", "3", "4"]
    assert harness.collected(late) == [event(2, "s", 9)]
    assert harness.metrics("pattern")["numLateRecordsDropped"] == [0]


def test_late_events_in_a_side_output_that_nobody_reads_are_counted():
    harness, (main, _) = late_program(True, read=False)
    assert harness.collected(main) == ["1", "3", "4"]
    assert harness.metrics("pattern")["numLateRecordsDropped"] == [1]


def test_event_time_can_be_chosen_again():
    env = environment()
    stream = CEP.pattern(keyed(env, DISORDERED, 5), start_middle_end())
    collect(stream.in_processing_time().in_event_time().select(numbers))
    assert run(env, take=1).collected() == ["1,5,4"]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (None, ["0,1", "1,2", "2,3"]),
        (AfterMatchSkipStrategy.skip_past_last_event(), ["0,1", "2,3"]),
    ],
)
def test_a_pattern_may_begin_with_a_group_and_a_skip_strategy(skip, expected):
    env = environment()
    group = Pattern.begin("first").next("second")
    records = [event(i, "s", i) for i in range(4)]
    collect(CEP.pattern(keyed(env, records), Pattern.begin(group, skip)).select(numbers))
    assert run(env).collected() == expected


@pytest.mark.parametrize("timed_", [False, True], ids=["no strategy", "the mark of none"])
def test_records_without_timestamps_are_refused_in_event_time(timed_):
    env = environment()
    records = [event(1, "s", -(1 << 63))]
    stream = timed(env, records) if timed_ else env.from_collection(records)
    collect(CEP.pattern(stream.key_by(lambda e: e[0]), Pattern.begin("any")).select(numbers))
    with pytest.raises(UsageError, match=r"has no timestamp.*in_processing_time"):
        run(env)


def in_processing_time(records, pattern, comparator=None, **more):
    env = environment()
    stream = env.from_collection(records, EVENT).key_by(lambda e: e[0], Types.STRING())
    found = CEP.pattern(stream, pattern, comparator).in_processing_time()
    return env, found.select(numbers, None, *more.values())


def test_in_processing_time_events_are_taken_when_they_come():
    env, found = in_processing_time(
        [event(1, "s", 50), event(2, "m", 40), event(3, "e", 30)], start_middle_end()
    )
    collect(found)
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.collected() == ["1,2,3"]


def test_in_processing_time_the_wall_clock_ends_partial_matches():
    ended = OutputTag("ended")
    pattern = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(100)
    env, found = in_processing_time(
        [], pattern, tag=ended, timeout=lambda match, time: (numbers(match), time)
    )
    main, side = collect(found), collect(found.get_side_output(ended))
    harness = started(env, 2)
    harness.run_epoch([event(1, "s", 0)])
    harness.clock.advance(99)
    harness.run_epoch([event(2, "s", 0)])
    assert harness.collected(side) == []
    harness.clock.advance(1)
    harness.run_epoch([event(3, "e", 0)])
    assert harness.collected(side) == [("1", 100)]
    assert harness.collected(main) == ["2,3"]


def test_in_processing_time_a_comparator_orders_events_of_one_millisecond():
    records = [event(1, "s", 0), event(2, "e", 0, 5.0), event(3, "m", 0, 4.0)]
    env, found = in_processing_time(records, start_middle_end(), ByPrice())
    collect(found)
    harness = started(env, 1)
    harness.run_epoch()
    assert harness.collected() == []
    harness.clock.advance(1)
    harness.run_epoch()
    assert harness.collected() == ["1,3,2"]


@pytest.mark.parametrize("at", [-(1 << 63) + 1, -1_000, (1 << 63) - 7])
@pytest.mark.parametrize("restored", [False, True])
def test_events_may_be_long_ago_or_at_the_end_of_time(at, restored):
    """The window of the last of them ends beyond 64 bits: it never times out."""
    env = environment()
    pattern = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(10)
    collect(CEP.pattern(keyed(env, []), pattern).select(numbers).uid("pattern"))
    job = started(env, 2)
    job.run_epoch([event(1, "s", at), event(2, "s", at + 1)], checkpoint=restored)
    first = list(job.collected())
    job = job.restart(1) if restored else job
    job.run_epoch([event(3, "e", at + 5)])
    job.finish()
    found = [*first, *job.collected()] if restored else job.collected()
    assert sorted(found) == ["1,3", "2,3"]


SLOW = ManualClock()
ASKED = []


def ask(record, ctx):
    ASKED.append((ctx.timestamp(), ctx.current_processing_time()))
    SLOW.advance(1)
    return True


class Slow(PatternProcessFunction):
    def process_match(self, match, ctx):
        SLOW.advance(1)
        yield ctx.timestamp(), ctx.current_processing_time()


def test_in_processing_time_all_records_of_an_epoch_have_one_time():
    env = environment()
    records = [event(i, "s", 0) for i in range(9)]
    stream = env.from_collection(records, EVENT).key_by(lambda e: e[0], Types.STRING())
    found = CEP.pattern(stream, Pattern.begin("any").where(ask)).in_processing_time()
    collect(found.process(Slow()))
    harness = started(env, 1, clock=SLOW)
    ASKED.clear()
    begin = SLOW.now_ms()
    harness.run_epoch(take=5)
    harness.run_epoch()
    one_time = [(begin, begin)] * 5 + [(begin + 10, begin + 10)] * 4
    assert harness.collected() == one_time
    assert one_time == ASKED


def test_in_event_time_the_processing_time_of_an_epoch_stands_still():
    env = environment()
    found = CEP.pattern(keyed(env, []), Pattern.begin("any"))
    collect(found.process(Slow()))
    harness = started(env, 1, clock=SLOW)
    for _ in range(2):
        begin = SLOW.now_ms()
        harness.run_epoch([event(i, "s", begin + i) for i in range(5)])
    harness.finish()
    clocks = [clock for _, clock in harness.collected()]
    assert len(set(clocks[:4])) == 1
    assert len(clocks) == 10
    assert clocks[4] > clocks[3]


def failing(pattern, function=numbers):
    env = environment()
    records = [event(1, "s", 1), event(2, "e", 2)]
    collect(CEP.pattern(keyed(env, records), pattern).flat_select(function).name("pattern"))
    return env


def test_what_a_condition_raises_names_the_operator_and_the_event():
    env = failing(Pattern.begin("a").where(lambda e: e[9]))
    with pytest.raises(
        UserFunctionError, match=r"'pattern' failed at record \('k', 1, 's'"
    ) as info:
        run(env)
    assert "IndexError" in str(info.value)


def test_what_a_function_raises_names_the_operator_and_the_match():
    env = failing(Pattern.begin("a"), lambda match: match["b"])
    with pytest.raises(UserFunctionError, match=r"'pattern' failed at record \{'a'.*"):
        run(env)


def test_an_untagged_output_of_a_timed_out_match_is_refused():
    class Wrong(Rising):
        def process_timed_out_match(self, match, ctx):
            yield numbers(match)

    env = environment()
    pattern = Pattern.begin("s").next("e").where(kind("e")).within(5)
    collect(CEP.pattern(keyed(env, [event(1, "s", 1)]), pattern).process(Wrong()))
    with pytest.raises(UsageError, match="timed-out matches go to side outputs only"):
        run(env)


def test_functions_of_a_pattern_have_no_state():
    class Stateful(Selecting):
        def open(self, runtime_context):
            runtime_context.get_state(ValueStateDescriptor("mine", Types.LONG()))

    env = environment()
    collect(CEP.pattern(keyed(env, []), Pattern.begin("a")).select(Stateful()))
    with pytest.raises(UsageError, match="have no state of their own"):
        started(env)


def test_outputs_are_checked_against_their_type():
    env = environment()
    found = CEP.pattern(keyed(env, [event(1, "s", 1)]), Pattern.begin("a"))
    collect(found.select(lambda match: 5, Types.STRING()))
    with pytest.raises(UsageError, match="declared as"):
        run(env)


def test_rows_are_events_too():
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda row, _: row.time)
    rows = [Row(name="a", time=1), Row(name="b", time=2)]
    type_info = Types.ROW_NAMED(["name", "time"], [Types.STRING(), Types.LONG()])
    stream = env.from_collection(rows, type_info).assign_timestamps_and_watermarks(strategy)
    pattern = Pattern.begin("a").where(lambda row: row.name == "a").next("b")
    collect(CEP.pattern(stream, pattern).select(lambda match: match["b"][0].name))
    assert run(env).collected() == ["b"]


def test_a_union_without_keys_is_one_stream():
    env = environment()
    left, right = (timed(env, [event(i, "s", i)]) for i in (1, 2))
    pattern = Pattern.begin("first").next("second")
    collect(CEP.pattern(left.union(right), pattern).select(numbers))
    assert run(env, 2).collected() == ["1,2"]


def test_many_events_of_an_epoch_go_to_state_before_their_time_comes(monkeypatch):
    monkeypatch.setattr("weir.runtime.patterns.HELD_MAX", 3)
    env = environment()
    records = [event(i, "s", i) for i in range(20)]
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    collect(CEP.pattern(keyed(env, records), Pattern.begin("five", skip).times(5)).select(numbers))
    assert run(env, take=7).collected() == [
        ",".join(map(str, range(at, at + 5))) for at in range(0, 20, 5)
    ]


def test_nothing_is_kept_of_matches_that_are_over():
    env = environment()
    pattern = Pattern.begin("s").where(kind("s")).followed_by("e").where(kind("e")).within(10)
    collect(CEP.pattern(keyed(env, []), pattern).select(numbers).name("pattern"))
    harness = started(env, 1)
    (operator,) = harness.operators("pattern")
    harness.run_epoch([event(1, "s", 1), event(2, "s", 2), event(3, "x", 3)])
    kept = operator.state_entries()
    harness.run_epoch([event(4, "e", 4), event(5, "s", 6), event(6, "x", 7)])
    assert operator.state_entries() <= kept
    assert harness.collected() == ["1,4", "2,4"]
    harness.run_epoch([event(7, "x", 50)])
    harness.run_epoch([event(8, "x", 90)])
    current = operator.backend.current
    current.key, current.group = "k", key_group("k", operator.node.max_parallelism)
    assert operator._events.keys() == []
    assert operator._partial.value() is None
    assert operator._waiting.keys() == [90]


def test_partial_matches_of_another_pattern_are_refused():
    def program(pattern):
        env = environment()
        collect(CEP.pattern(keyed(env, []), pattern).select(numbers).uid("pattern"))
        return env

    job = started(program(start_middle_end()))
    job.run_epoch([event(1, "s", 1), event(2, "m", 2), event(3, "x", 3)])
    job.checkpoint()
    other = program(Pattern.begin("start").where(kind("s")).next("end")).build_graph()
    point = job.successor()._restore
    later = JobHarness(other, 2, HarnessOptions(storage=job.options.storage), point).start()
    later.sources.inherit(job.sources)
    with pytest.raises(IncompatibleStateError, match="its pattern is another one"):
        later.run_epoch([event(4, "e", 4), event(5, "e", 5)])
